"""Processes of torchrun train the model that one process trains, and parts of a batch do too."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load_file

from icl_interp.errors import InputError
from icl_interp.provenance import read_json
from icl_interp.training import ranks, together, trainer
from icl_interp.training.ranks import Ranks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")
SEVERAL = {
    "training": {"steps": 12, "checkpoint_every": 5, "curriculum": {"first_points": 2, "until": 8}}
}
CHILD = """
import json, sys, time
import torch
from icl_interp import evaluation
from icl_interp.training import ranks, trainer

torch.set_default_dtype(torch.float64)
error = {"error": 0.5, "low": 0.4, "high": 0.6, "r2": 0.5}
evaluation.in_distribution = lambda predictor, task: error
exec(sys.argv[3])
trainer.train(json.loads(sys.argv[1]), sys.argv[2], progress=False)
"""


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def torchrun(*words, **settings):
    """A run of two processes on this machine."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.Popen(
        [sys.executable, *start, *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def train_on_two(folder, change="", run=SEVERAL):
    """Train in two processes, each of which makes a change first; the exit status, and stderr."""
    script = folder.parent / "child.py"
    script.write_text(CHILD)
    started = torchrun(script, json.dumps(tiny_runs.data(**run)), folder, change)
    said = started.communicate(timeout=200)[1]
    return started.returncode, said


def check_same_curve(folder, reference):
    """Losses of all lines, and weights and moments, within 1e-9."""
    ours = (folder / "metrics.jsonl").read_text().splitlines()
    theirs = (reference / "metrics.jsonl").read_text().splitlines()
    for one, other in zip(ours, theirs, strict=True):
        assert tiny_runs.line(one) == pytest.approx(tiny_runs.line(other), rel=1e-9)
    state = load_file(reference / "training_state.safetensors")
    found = load_file(folder / "training_state.safetensors")
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-10)
    names = sorted(path.name for path in reference.iterdir())
    assert sorted(path.name for path in folder.iterdir()) == names
    assert read_json(folder / "config.json") == read_json(reference / "config.json")


# ---- torchrun ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_give_the_curve_of_one(tmp_path, float64):
    trainer.train(tiny_runs.data(**SEVERAL), tmp_path / "one", progress=False)
    status, said = train_on_two(tmp_path / "two")
    assert status == 0, said
    check_same_curve(tmp_path / "two", tmp_path / "one")
    # Gradients that are not added up: each process takes its own half of the batch for the whole.
    status, said = train_on_two(tmp_path / "mutant", "ranks.Ranks.add_up = lambda self, sums: None")
    assert status == 0, said
    must_fail(check_same_curve, tmp_path / "mutant", tmp_path / "one")


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_with_one_line_and_it_is_resumed(tmp_path, float64):
    trainer.train(tiny_runs.data(**SEVERAL), tmp_path / "one", progress=False)
    # The other process takes a while to end, so that torchrun's request to end comes before.
    dying = (
        "import os\n"
        "leave = ranks.dist.destroy_process_group\n"
        "ranks.dist.destroy_process_group = lambda: (time.sleep(3), leave())\n"
        "real = trainer.Run._advance\n"
        "def advance(run):\n"
        "    if run.step == 7 and run.place.rank == 1: os.kill(os.getpid(), 9)\n"
        "    return real(run)\n"
        "trainer.Run._advance = advance"
    )
    status, said = train_on_two(tmp_path / "two", dying)
    assert status == 1
    assert said.count(ranks.LOST) == 1
    assert int(load_file(tmp_path / "two" / "training_state.safetensors")["step"]) == 5
    # A process that heeds the request says nothing.
    heeds = f"{dying}\nranks._outlive_request = lambda: None"
    status, said = train_on_two(tmp_path / "mutant", heeds)
    assert (status, said.count(ranks.LOST)) == (1, 0)
    status, said = train_on_two(tmp_path / "two")
    assert status == 0, said
    check_same_curve(tmp_path / "two", tmp_path / "one")


CLI = (
    *("-m", "icl_interp", "train"),
    *("affine", "model.n_layers=1", "model.d_model=8", "model.n_heads=2", "task.n_points=5"),
    *("training.batch_size=4", "training.warmup_steps=2", "training.log_every=5"),
)


@pytest.mark.slow
def test_the_command_line_speaks_once(tmp_path):
    started = torchrun(*CLI, "training.steps=20", "--out", tmp_path / "run")
    printed, said = started.communicate(timeout=200)
    assert started.returncode == 0, said
    assert printed.count("in-distribution error") == 1
    assert read_json(tmp_path / "run" / "provenance.json")["finished"] is True
    # The folder holds another run now, which both processes refuse and one says.
    started = torchrun(*CLI, "training.steps=21", "--out", tmp_path / "run")
    said = started.communicate(timeout=200)[1]
    assert started.returncode == 1
    assert said.count("holds a run with training.steps = 20") == 1


@pytest.mark.slow
def test_a_request_to_end_is_granted_by_all(tmp_path):
    started = torchrun(*CLI, "training.steps=1000000", "--out", tmp_path / "run")
    # Both are at work when the first steps are logged.
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()):
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    said = started.communicate(timeout=200)[1]
    assert said.count("is saved in") == 1, said
    assert int(load_file(tmp_path / "run" / "training_state.safetensors")["step"]) > 0


# ---- parts of a batch ----------------------------------------------------------------------------


def check_accumulated(folder, accumulate, config=SEVERAL):
    training = config["training"] | {"batch_size": 7}
    parts = training | {"accumulate": accumulate}
    trainer.train(tiny_runs.data(training=training), folder / "whole", progress=False)
    trainer.train(tiny_runs.data(training=parts), folder / "parts", progress=False)
    stored = json.loads((folder / "parts" / "config.json").read_text())
    assert stored["training"].pop("accumulate") == accumulate
    (folder / "parts" / "config.json").write_text((folder / "whole" / "config.json").read_text())
    check_same_curve(folder / "parts", folder / "whole")


@pytest.mark.parametrize("accumulate", [2, 3, 7])
def test_parts_add_up_to_the_whole_batch(tmp_path, float64, accumulate):
    check_accumulated(tmp_path, accumulate)


def test_parts_that_do_not_add_up_are_noticed(tmp_path, float64, monkeypatch):
    real = Ranks.pieces
    monkeypatch.setattr(Ranks, "pieces", lambda self, n, parts: real(self, n, parts)[:1])
    must_fail(check_accumulated, tmp_path, 3)


def test_runs_together_take_their_batches_in_parts_too(tmp_path, float64):
    run = tiny_runs.data(training={"accumulate": 3})
    trainer.train(run, tmp_path / "apart", progress=False)
    together.train_many([run], [tmp_path / "together"], progress=False)
    check_same_curve(tmp_path / "together", tmp_path / "apart")


def test_rows_of_all_processes_are_the_batch():
    for size, accumulate, n in ((1, 1, 4), (3, 2, 64), (4, 1, 7), (2, 5, 10)):
        rows = []
        for rank in range(size):
            for piece in Ranks(rank, size).pieces(n, accumulate):
                assert piece.stop > piece.start
                rows += range(n)[piece]
        assert rows == list(range(n))


def test_more_parts_than_prompts_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"batch of 4 prompts .* training.accumulate: 5"):
        trainer.train(tiny_runs.data(training={"accumulate": 5}), tmp_path / "run", progress=False)


def test_train_many_is_refused_under_torchrun(tmp_path, monkeypatch):
    for name, value in ((ranks.STARTED, "x"), ("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="trains in one process"):
        together.train_many([tiny_runs.data()], [tmp_path / "run"])
