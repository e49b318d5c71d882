"""Runs that are trained together are the runs that they are apart, up to rounding."""

import itertools
import os
import signal
from types import SimpleNamespace

import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load_file

from icl_interp.errors import InputError
from icl_interp.provenance import read_json
from icl_interp.training import data, process, together, trainer

pytestmark = pytest.mark.usefixtures("quick")
N_STEPS = 30
N_PROMPTS = 4  # of a batch
CHANGES = (
    {"seed": 0},
    {"seed": 1, "learning_rate": 5e-3},
    {"seed": 2, "grad_clip": 0.01, "decay": "constant"},
)


@pytest.fixture
def float64():
    """Models in float64, so that what differs more than rounding does is seen."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def configs(sections=None, training=None):
    """The runs of a group; each clips its gradients at other steps."""
    found = []
    for change in CHANGES:
        own = {"steps": N_STEPS, "curriculum": {"first_points": 3, "until": 20}}
        own |= (training or {}) | change
        found.append(tiny_runs.data(training=own, **(sections or {})))
    return found


def weights(folder):
    """All numbers from which a run would go on."""
    state = load_file(folder / "training_state.safetensors")
    assert state.pop("step") == N_STEPS
    return state


def apart(folder, other):
    """The largest difference of two states, relative to the largest number of the same part.

    Parts are weights and both moments. Not tensor by tensor: the gradient of b_K is 0 under a
    softmax, so that all of it is rounding, which Adam divides by its eps of 1e-8.
    """
    ours = weights(folder)
    theirs = weights(other)
    assert ours.keys() == theirs.keys()
    scale = {}
    for name, tensor in theirs.items():
        part = name.split("/")[0]
        assert tensor.dtype == torch.float64
        scale[part] = max(scale.get(part, 0.0), float(tensor.abs().max()))
    differences = []
    for name, tensor in theirs.items():
        difference = float((ours[name] - tensor).abs().max())
        differences.append(difference / scale[name.split("/")[0]])
    return max(differences)


def train_apart(runs, folder):
    outs = [folder / f"apart{i}" for i in range(len(runs))]
    for run, out in zip(runs, outs, strict=True):
        trainer.train(run, out, progress=False)
    return outs


def train_together(runs, folder):
    outs = [folder / f"together{i}" for i in range(len(runs))]
    together.train_many(runs, outs, progress=False)
    return outs


def check_same_runs(outs, references):
    """Weights and moments within 1e-9, metrics line by line, and the same files."""
    for out, reference in zip(outs, references, strict=True):
        assert apart(out, reference) < 1e-9
        names = sorted(path.name for path in reference.iterdir())
        assert sorted(path.name for path in out.iterdir()) == names
        same = read_json(out / "config.json") == read_json(reference / "config.json")
        assert same, "config.json differs"
        ours = (out / "metrics.jsonl").read_text().splitlines()
        theirs = (reference / "metrics.jsonl").read_text().splitlines()
        for one, other in zip(ours, theirs, strict=True):
            assert tiny_runs.line(one) == pytest.approx(tiny_runs.line(other), rel=1e-9, abs=1e-12)
        origin = read_json(out / "provenance.json") | {"training_seconds": 0}
        assert origin == read_json(reference / "provenance.json") | {"training_seconds": 0}


MODELS = {
    "softmax": {},
    "stacked": tiny_runs.STACKED,
    "linear scores, no norm": {"model": {"score_fn": "linear", "normalization_type": None}},
    "biases left out": {"model": {"no_bias": "linear", "normalization_type": "RMS"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_runs_together_are_the_runs_apart(tmp_path, float64, name):
    runs = configs(MODELS[name])
    check_same_runs(train_together(runs, tmp_path), train_apart(runs, tmp_path))


@pytest.mark.slow
def test_batches_in_parts_are_the_same_for_runs_together(tmp_path, float64, monkeypatch):
    """Four prompts in three parts: of one, one and two prompts, which do not count alike."""
    runs = configs(training={"accumulate": 3})
    references = train_apart(runs, tmp_path)
    check_same_runs(train_together(runs, tmp_path), references)
    real = together._losses

    def parts_alike(group, weights, pieces):
        return real(group, weights, pieces) * N_PROMPTS / (3 * len(pieces[0]))

    monkeypatch.setattr(together, "_losses", parts_alike)
    must_fail(check_same_runs, train_together(runs, tmp_path / "mutant"), references)


def test_each_run_is_told_its_share_of_the_time(tmp_path, monkeypatch):
    """A clock that is three seconds further whenever it is read: one second a step for each."""
    clock = SimpleNamespace(perf_counter=itertools.count(0, len(CHANGES)).__next__)
    monkeypatch.setattr(together, "time", clock)
    for out in train_together(configs(), tmp_path):
        assert read_json(out / "provenance.json")["training_seconds"] == N_STEPS


@pytest.mark.slow
def test_the_tolerance_is_wide_of_rounding_and_no_wider(tmp_path, float64, monkeypatch):
    """Rounding is what the same run gives with the prompts of each batch in another order."""
    runs = configs()
    first = train_apart(runs, tmp_path / "first")
    real = data.Batches.at
    monkeypatch.setattr(
        data.Batches, "at", lambda self, step: real(self, step)[torch.tensor([2, 0, 3, 1])]
    )
    second = train_apart(runs, tmp_path / "second")
    rounding = max(apart(a, b) for a, b in zip(first, second, strict=True))
    assert 0 < rounding < 1e-10


def of_the_first(patch):
    """Mutant: all runs read the prompts of the first."""
    real = together.backward

    def mutant(group):
        before = [run.batches for run in group]
        for run in group:
            run.batches = group[0].batches
        losses = real(group)
        for run, own in zip(group, before, strict=True):
            run.batches = own
        return losses

    patch.setattr(together, "backward", mutant)


def of_all(patch):
    """Mutant: gradients of the mean over runs."""
    real = together.squared_error
    patch.setattr(together, "squared_error", lambda *given: real(*given) / len(CHANGES))


def one_rate(patch):
    """Mutant: one learning rate for all."""
    real = trainer.learning_rate

    def mutant(training, step):
        return 1e-3 / training.learning_rate * real(training, step)

    patch.setattr(trainer, "learning_rate", mutant)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [of_the_first, of_all, one_rate])
def test_a_group_that_mixes_its_runs_is_noticed(tmp_path, float64, monkeypatch, mutant):
    references = train_apart(configs(), tmp_path)
    mutant(monkeypatch)
    must_fail(check_same_runs, train_together(configs(), tmp_path), references)


# ---- stopped, and failed -------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_that_stand_at_different_steps_go_on(tmp_path, float64):
    runs = configs()
    references = train_apart(runs, tmp_path)
    for i, step in ((0, 7), (2, 23)):  # the second has not begun
        tiny_runs.train_until(runs[i], tmp_path / f"together{i}", step)
    outs = train_together(runs, tmp_path)
    check_same_runs(outs, references)
    before = [tiny_runs.contents(out) for out in outs]
    train_together(runs, tmp_path)  # finished runs stay as they are
    assert [tiny_runs.contents(out) for out in outs] == before


@pytest.mark.slow
def test_a_group_that_was_stopped_goes_on_apart(tmp_path, float64, monkeypatch):
    runs = configs()
    references = train_apart(runs, tmp_path)
    real = together.backward

    def signalled(group):
        if group[0].step == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(group)

    with monkeypatch.context() as patch:
        patch.setattr(together, "backward", signalled)
        with pytest.raises(process.Terminated, match="3 runs are saved"):
            train_together(runs, tmp_path)
    outs = [tmp_path / f"together{i}" for i in range(len(runs))]
    for run, out in zip(runs, outs, strict=True):
        assert int(load_file(out / "training_state.safetensors")["step"]) == 13
        trainer.train(run, out, progress=False)
    check_same_runs(outs, references)


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(tmp_path, float64, monkeypatch):
    runs = configs()
    references = train_apart(runs, tmp_path)
    real = data.task_at

    def task(training, task, now):
        posed = real(training, task, now)
        return tiny_runs.Exploding(**vars(posed)) if (training.seed, now) == (1, 8) else posed

    monkeypatch.setattr(data, "task_at", task)
    monkeypatch.setattr(tiny_runs, "LARGE", 1e200)
    with pytest.raises(
        InputError, match=r"1 of 3 runs failed.*together1: the loss became (inf|nan) at step 8"
    ):
        train_together(runs, tmp_path)
    outs = [tmp_path / f"together{i}" for i in (0, 2)]
    check_same_runs(outs, [references[0], references[2]])
    assert int(load_file(tmp_path / "together1" / "training_state.safetensors")["step"]) == 5


def test_a_folder_of_another_run_stops_no_other(tmp_path):
    runs = configs()
    (tmp_path / "together1").mkdir()
    (tmp_path / "together1" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"1 of 3 runs failed.*together1 is not empty"):
        train_together(runs, tmp_path)
    assert (tmp_path / "together2" / "model.safetensors").exists()


# ---- which runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"d_model": 16}}, "one model, but got"),
        ({"training": {"batch_size": 8}}, "one training, but got"),
        ({"task": {"n_points": 4}}, "one number of points, but got 5 and 4"),
        ({"model": {"score_fn": "hardmax"}}, "cannot be trained together"),
    ],
)
def test_runs_of_other_shapes_are_refused(tmp_path, change, words):
    runs = [tiny_runs.data(), tiny_runs.data(**change)]
    with pytest.raises(InputError, match=words):
        train_together(runs, tmp_path)
    assert not list(tmp_path.iterdir())


def test_folders_are_counted(tmp_path):
    run = tiny_runs.data()
    with pytest.raises(InputError, match="1 configs and 2 folders"):
        together.train_many([run], [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(InputError, match="named twice"):
        together.train_many([run, run], [tmp_path / "a", tmp_path / "a"])
