"""What a run goes on from is believed only after every part of it was checked."""

import json
import shutil

import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load_file, save_file

from icl_interp.errors import InputError
from icl_interp.provenance import read_json, write_json
from icl_interp.training import data, trainer
from icl_interp.training.trainer import train

RUN = (
    tiny_runs.data()
)  # a checkpoint after 5, 10 and 12 steps; a line of metrics after 3, 6, 9 and 12
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A run that stands after ten steps."""
    folder = tmp_path_factory.mktemp("started")
    tiny_runs.train_until(RUN, folder, 11)
    return folder


@pytest.fixture
def folder(started, tmp_path):
    """A copy of it."""
    return shutil.copytree(started, tmp_path / "run")


def check_refused(folder, match, run=RUN):
    """One clear line, no parameter touched, and the folder as it was."""
    before = tiny_runs.contents(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.Tensor, "copy_", lambda *args: pytest.fail("something was copied", pytrace=False)
        )
        patch.setattr(trainer, "HookedTransformer", MODEL)
        with pytest.raises(InputError, match=match) as refused:
            train(run, folder, progress=False)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert tiny_runs.contents(folder) == before


class Fresh(trainer.HookedTransformer):
    """A model whose fresh weights are not copied, so every copy in a test is from the file."""

    def __init__(self, cfg, seed=0):
        with torch.device("meta"):
            super().__init__(cfg, seed)
        self.to_empty(device="cpu")


MODEL = Fresh


def state(change):
    """Edit the training state."""

    def spoil(folder):
        path = folder / "training_state.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return spoil


def put(name, value):
    return state(lambda tensors: tensors.update({name: value(tensors[name])}))


def spike(value):
    """One number replaced."""

    def change(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return change


W = "weight/embed.W_E"
M, V = "exp_avg/blocks.0.mlp.W_in", "exp_avg_sq/blocks.0.mlp.W_in"
DAMAGED = {
    "short first moment": (
        put(M, lambda t: t[:1]),
        rf"{M} has shape \(1, 32\), but the config asks for \(8, 32\)",
    ),
    "scalar second moment": (
        put(V, lambda t: t.sum()),
        rf"{V} has shape \(\), but the config asks for \(8, 32\)",
    ),
    "transposed moment": (
        put(V, lambda t: t.T.contiguous()),
        rf"{V} has shape \(32, 8\), but the config asks",
    ),
    "longer moment": (
        put(M, lambda t: torch.cat([t, t])),
        rf"{M} has shape \(16, 32\), but the config asks",
    ),
    "weights that would broadcast": (
        put(W, lambda t: t[0, :1].clone()),
        rf"{W} has shape \(1,\), but the config",
    ),
    "NaN in a weight": (put(W, spike(torch.nan)), f"{W} holds NaN or infinite numbers"),
    "NaN in a first moment": (put(M, spike(torch.nan)), f"{M} holds NaN or infinite numbers"),
    "infinity in a second moment": (put(V, spike(torch.inf)), f"{V} holds NaN or infinite numbers"),
    "negative second moment": (
        put(V, spike(-1.5)),
        f"{V} must be 0 or more, but holds -1.5; restore the file",
    ),
    "weights in double": (
        put(W, lambda t: t.double()),
        f"{W} holds numbers of the type float64, but float32",
    ),
    "complex weights": (
        put(W, lambda t: t.to(torch.complex64)),
        f"{W} holds numbers of the type C64, but float32",
    ),
    "whole moments": (put(M, lambda t: t.int()), f"{M} holds numbers of the type I32, but float32"),
    "moments in float8": (
        put(V, lambda t: t.to(torch.float8_e4m3fn)),
        f"{V} holds numbers of the type F8_E4M3",
    ),
    "true and false": (
        put(V, lambda t: t.bool()),
        f"{V} holds numbers of the type BOOL, but float32",
    ),
    "no weight": (
        state(lambda tensors: tensors.pop(W)),
        f"lacks the tensor {W} that the config asks for",
    ),
    "no moment": (
        state(lambda tensors: tensors.pop(V)),
        f"lacks the tensor {V} that the config asks for",
    ),
    "no step": (
        state(lambda tensors: tensors.pop("step")),
        "lacks the tensor step that the config asks for",
    ),
    "one more": (
        state(lambda tensors: tensors.update({"max_exp_avg_sq/x": torch.zeros(1)})),
        "holds the tensor max_exp_avg_sq/x, which the config does not ask for",
    ),
    **{
        f"step {step}": (
            put("step", lambda t, step=step: torch.tensor(step)),
            rf"step must be from 1 to the config's 12, but is {step:,}; restore the file",
        )
        for step in (-5, 0, 13, 10**9, -(2**63), 2**63 - 1)
    },
    "step 5.5": (
        put("step", lambda t: torch.tensor(5.5)),
        "step holds numbers of the type float32, but int64",
    ),
    "steps": (
        put("step", lambda t: torch.tensor([5, 5])),
        r"step has shape \(2,\), but the config asks for \(\)",
    ),
    "a step in a list": (
        put("step", lambda t: torch.tensor([5])),
        r"step has shape \(1,\), but the config asks for",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_training_state_is_refused_before_anything_is_copied(folder, name):
    spoil, match = DAMAGED[name]
    spoil(folder)
    check_refused(folder, match)


def test_a_whole_one_is_not_refused(folder):
    must_fail(check_refused, folder, ".")
    train(RUN, folder, progress=False)


@pytest.mark.parametrize("name", ["training_state.safetensors", "metrics.jsonl", "provenance.json"])
def test_a_folder_in_place_of_a_file_is_refused(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(
        InputError, match=rf"{name}.* Is a directory|no {name} that can be read .Is a directory"
    ):
        train(RUN, folder, progress=False)
    assert load_file(folder / "model.safetensors").keys()  # and the run did not start again


@pytest.mark.parametrize("step", [1, 12])
def test_the_first_and_the_last_step_are_steps(folder, step):
    put("step", lambda t: torch.tensor(step))(folder)
    if step == 12:
        (folder / "metrics.jsonl").write_text("".join(map(line, (3, 6, 9, 12))))
    assert train(RUN, folder, progress=False).step == 12


# metrics.jsonl


def line(step, **changes):
    return (
        json.dumps({"step": step, "loss": 0.5, "learning_rate": 1e-3, "n_points": 5, **changes})
        + "\n"
    )


MEND = "estore the file, or start in a fresh folder"
METRICS = {
    "cut off": (
        (line(3) + line(6) + line(9))[:-20],
        "line 3 is not JSON .*cut off or edited. R" + MEND,
    ),
    "cut between lines": (
        line(3) + line(6),
        "ends after line 2, but a run at step 10 has left 3 lines: r" + MEND,
    ),
    "empty": ("", "ends after line 0, but a run at step 10 has left 3 lines: r" + MEND),
    "not UTF-8": (
        line(3).encode() + b'{"step": 6, "loss": "\xff"}',
        "line 2 is not JSON .byte 21 is not UTF-8",
    ),
    "no objects": (
        "[3]\n[6]\n[9]\n",
        "line 1 must be the metrics of step 3, but has no step: r" + MEND,
    ),
    "no step": (
        line(3) + '{"loss": 1}\n' + line(9),
        "line 2 must be the metrics of step 6, but has no step",
    ),
    "a step twice": (
        line(3) + line(3) + line(6) + line(9),
        "line 2 must be the metrics of step 6, but has step 3",
    ),
    "steps backwards": (
        line(6) + line(3) + line(9),
        "line 1 must be the metrics of step 3, but has step 6",
    ),
    "step is text": (
        line(3) + line("6") + line(9),
        "line 2 must be the metrics of step 6, but has step '6'",
    ),
    "step is a fraction": (
        line(3.0) + line(6) + line(9),
        "line 1 must be the metrics of step 3, but has step 3.0",
    ),
    "loss is text": (
        line(3) + line(6, loss="low") + line(9),
        "line 2, loss must be a number, but got 'low'; r",
    ),
    "no rate": (
        line(3) + line(6, learning_rate=None) + line(9),
        "line 2, learning_rate must be a number",
    ),
    "too large": (
        line(3) + line(6).replace("0.5", "1e999"),
        "line 2 is not JSON .the number '1e999' is too large",
    ),
    "an empty line": (line(3) + "\n" + line(6) + line(9), "line 2 is not JSON"),
}


@pytest.mark.parametrize("name", METRICS)
def test_damaged_metrics_are_refused_by_line(folder, name):
    content, match = METRICS[name]
    (folder / "metrics.jsonl").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    check_refused(folder, f"metrics.jsonl,? {match}")


def test_metrics_ahead_of_the_state_are_no_damage(folder, started):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line(12))
    train(RUN, folder, progress=False)
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 4


# provenance.json, as training and loading read it

FACTS = {
    "a list": ([1], "is not what a run writes there: it holds \\[1\\]; restore or remove it"),
    "step is text": (
        {"step": "10"},
        "is not what a run writes there: step must be a whole number, but got '10'",
    ),
    "step is true": ({"step": True}, "step must be a whole number, but got True"),
    "step too large": ({"step": 10**9}, "a step or time is out of range"),
    "step negative": ({"step": -1}, "a step or time is out of range"),
    "time is text": (
        {"training_seconds": "long"},
        "training_seconds must be a number, but got 'long'",
    ),
    "time is NaN": (
        {"training_seconds": float("nan")},
        "training_seconds must be a number, but got 'nan'",
    ),
    "time negative": ({"training_seconds": -3}, "a step or time is out of range"),
    "finished is text": ({"finished": "yes"}, "finished must be true or false, but got 'yes'"),
    "environment is text": (
        {"environment": "mine"},
        "environment must be a mapping, but got 'mine'",
    ),
    "error is text": (
        {"in_distribution": {"error": "low"}},
        r"in_distribution\.error must be a number, but got 'low'",
    ),
    "errors are a list": ({"in_distribution": [1.0]}, "in_distribution must be a mapping, but got"),
    "another run": (
        {"run_id": "0123456789ab"},
        "belongs to another run: it has the run_id '0123456789ab'",
    ),
    "no id": ({"run_id": 7}, "run_id must be text, but got 7"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_damaged_provenance_is_refused(folder, name):
    change, match = FACTS[name]
    path = folder / "provenance.json"
    write_json(path, {**read_json(path), **change} if isinstance(change, dict) else change)
    check_refused(folder, f"provenance.json {match}" if isinstance(change, list) else match)
    with pytest.raises(InputError, match=match) as refused:
        trainer.store.load(folder)
    assert "\n" not in str(refused.value)


def test_the_kept_step_is_that_of_the_last_checkpoint(folder, monkeypatch):
    real = data.task_at
    monkeypatch.setattr(data, "task_at", lambda *args: tiny_runs.Exploding(**vars(real(*args))))
    with pytest.raises(
        trainer.TrainingDiverged, match="at step 10; the checkpoint of step 10 is kept in"
    ):
        train(RUN, folder, progress=False)
