"""Snapshots: weights on the way, exactly those of a run that stops there, also after a kill."""

import pytest
import tiny_runs
import torch
from helpers import mostly_slow, must_fail, one_in

from icl_interp import provenance
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import encode, run_id
from icl_interp.training.trainer import train

KEPT = (0, 1, 4, 5, 6, 12)  # checkpoints after 5, 10 and 12
RUN = tiny_runs.data(training={"snapshots": list(KEPT)})
FILES = (
    "config.json",
    "metrics.jsonl",
    "snapshots.safetensors",
    "training_state.safetensors",
    "model.safetensors",
)
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    train(RUN, folder, progress=False)
    return folder


def check_same(model, other):
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def check_weights(folder, shift=0):
    """The first is the fresh model, the last the trained one, others are of interrupted runs."""
    found = store.load(folder)
    kept = found.snapshots()
    assert found.config.training is not None
    assert tuple(kept) == KEPT
    check_same(
        kept[0 + shift], HookedTransformer(found.config.model, seed=found.config.training.seed)
    )
    check_same(kept[12], found.model)
    assert not any(model.training for model in kept.values())


def test_snapshots_are_the_weights_of_their_steps(whole, tmp_path):
    check_weights(whole)
    must_fail(check_weights, whole, shift=1)
    tiny_runs.train_until(RUN, tmp_path, 7)
    check_same(store.load(tmp_path).model, store.load(whole).snapshots()[5])


@pytest.mark.parametrize(
    "stops", mostly_slow([[4], [3, 8, 11], [1], [6], [7], [12 - 1, 12 - 1]], 2)
)
def test_a_resumed_run_keeps_the_same_snapshots(whole, tmp_path, stops):
    for stop in stops:
        tiny_runs.train_until(RUN, tmp_path, stop)
    train(RUN, tmp_path, progress=False)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("n_writes", one_in(4, range(1 + 3 * 5)))
def test_a_kill_between_any_two_files_mixes_nothing(whole, tmp_path, n_writes):
    written, replace = [], provenance.os.replace

    def dying(temporary, path):
        if len(written) == n_writes:
            raise tiny_runs.Killed
        replace(temporary, path)
        written.append(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance.os, "replace", dying)
        with pytest.raises(tiny_runs.Killed):
            train(RUN, tmp_path, progress=False)
    train(RUN, tmp_path, progress=False)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes(), name


def test_they_change_nothing_else(whole, tmp_path):
    plain = train(tiny_runs.data(), tmp_path / "plain", progress=False)
    check_same(plain.model, store.load(whole).model)
    assert plain.snapshots() == {}
    assert not (tmp_path / "plain" / "snapshots.safetensors").exists()


def test_a_run_is_the_same_whatever_it_records():
    plain, recording = tiny_runs.config(), tiny_runs.config(training={"snapshots": [3]})
    assert "snapshots" not in encode(plain)["training"]
    assert encode(recording)["training"]["snapshots"] == [3]
    assert plain == recording
    assert run_id(plain) == run_id(recording) != run_id(tiny_runs.config(training={"seed": 1}))


def test_they_go_along_when_a_checkpoint_is_saved(whole, tmp_path):
    saved = store.load(whole).save(tmp_path / "copy")
    check_weights(saved)


@pytest.mark.parametrize("steps", [[3, 3], [5, 2], [-1, 2], [1.5], [True], "all", 7])
def test_steps_must_increase(steps):
    with pytest.raises(InputError, match="snapshots must be whole numbers that increase from 0 up"):
        tiny_runs.config(training={"snapshots": steps})


def test_lost_or_foreign_files_are_named(tmp_path):
    tiny_runs.train_until(RUN, tmp_path, 7)
    file = tmp_path / "snapshots.safetensors"
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(InputError, match=r"lacks snapshots of its steps \[0, 1, 4, 5\]: restore"):
        train(RUN, tmp_path, progress=False)
    store.weights.write(file, {"step": torch.tensor([0]), "a": torch.zeros(1)})
    with pytest.raises(InputError, match=r"snapshots.safetensors lacks the tensor embed.W_E"):
        store.load(tmp_path).snapshots()
    file.write_bytes(kept)
    assert tuple(store.load(tmp_path).snapshots()) == (0, 1, 4, 5)


def stretched(state):
    state["embed.W_E"] = state["embed.W_E"][:1]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: state.pop("step"), "lacks the tensor step"),
        (
            lambda state: state.update(step=torch.tensor(3)),
            r"step has shape \(\), but the config asks for \(1,\)",
        ),
        (
            lambda state: state.update(step=state["step"].float()),
            "step holds numbers of the type float32, but int64",
        ),
        (
            lambda state: state["step"].add_(10),
            r"steps must increase from 0 to at most 12, but are \[10, 11, 14, 15\]",
        ),
        (
            lambda state: state["step"].sub_(1),
            r"steps must increase from 0 to at most 12, but are \[-1, 0, 3, 4\]",
        ),
        (
            lambda state: state["step"].fill_(3),
            r"steps must increase from 0 to at most 12, but are \[3, 3, 3, 3\]",
        ),
        (stretched, r"embed.W_E has shape \(1, 1, 8\), but the config asks for \(4, 1, 8\)"),
        (
            lambda state: state["embed.W_E"][2].fill_(torch.nan),
            "embed.W_E holds NaN or infinite numbers",
        ),
        (
            lambda state: state.update(more=torch.zeros(4)),
            "holds the tensor more, which the config does not ask for",
        ),
    ],
)
def test_damaged_snapshots_are_refused_by_every_reader(tmp_path, change, match):
    tiny_runs.train_until(RUN, tmp_path, 7)
    file = tmp_path / "snapshots.safetensors"
    state = store.weights.read(file)
    change(state)
    store.weights.write(file, state)
    for read in (
        lambda: store.load(tmp_path).snapshots(),
        lambda: store.load(tmp_path).save(tmp_path / "copy"),
        lambda: train(RUN, tmp_path, progress=False),
    ):
        with pytest.raises(InputError, match=match) as refused:
            read()
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "copy").exists()
