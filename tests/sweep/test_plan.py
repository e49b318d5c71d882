"""Sweeps: which runs a file asks for, and what comes of them."""

import importlib.util
import random
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import must_fail

from icl_interp import sweep
from icl_interp.errors import InputError
from icl_interp.jobs import HERE
from icl_interp.provenance import read_json
from icl_interp.results import from_dict
from icl_interp.sweep import plan
from icl_interp.training import together

TEXT = """
recipe: affine
set:
  model: {n_layers: 1, d_model: 8, n_heads: 2, n_ctx: 12}
  task.n_points: 5
  training: {steps: 4, batch_size: 4, warmup_steps: 1, checkpoint_every: 2, log_every: 2}
over:
  training.seed: [0, 1]
  training.learning_rate: [1.0e-3, 1.0e-5]
analyze: false
"""


def planned(folder, text):
    file = folder / "sweep.yaml"
    file.write_text(text)
    return sweep.read(file)


def test_a_grid_is_every_value_with_every_other(tmp_path):
    found = planned(tmp_path, TEXT)
    pairs = [(r.config.training.seed, r.config.training.learning_rate) for r in found.runs]
    assert pairs == [(0, 1e-3), (0, 1e-5), (1, 1e-3), (1, 1e-5)]
    assert {run.config.model.d_model for run in found.runs} == {8}
    assert found.runs[1].name == "seed=0, learning_rate=1e-05"
    assert found.analyze is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("recipe: affine", "recipe: afine", "afine"),
        ("recipe: affine", "recipes: affine", "recipes"),
        ("[0, 1]", "3", "over.training.seed in .* must be a list of values, but got 3"),
        ("[0, 1]", "[0, 0]", "asks for the same run twice"),
        ("[0, 1]", "[0, x]", "seed must be a whole number"),
        ("training.seed:", "training.sead:", "sead"),
        ("analyze: false", "analyze: {claim: []}", "claim"),
        ("analyze: false", "together: 0", "together in .* a whole number from 1 up, but got 0"),
        ("analyze: false", "analyze: false\ncases: 3", "cases in .* must be a list of changes"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(tmp_path, old, new, words):
    assert old in TEXT
    with pytest.raises(InputError, match=words):
        planned(tmp_path, TEXT.replace(old, new))


def test_too_many_runs_are_refused_before_they_are_listed():
    values = list(range(200))
    with pytest.raises(InputError, match="asks for 40,000 runs"):
        next(plan.changed({"over": {"a": values, "b": values}}, "x"))


def check_each_once(table, runs):
    assert list(table["run"]) == [run.name for run in runs]
    assert set(table["state"]) == {"done"}
    assert np.isfinite(table["error"]).all()


@pytest.mark.slow
def test_each_run_stands_once_in_the_table(tmp_path):
    asked = planned(tmp_path, TEXT)
    ended = []
    found = sweep.run(asked, tmp_path / "out", HERE, watch=ended.append)
    check_each_once(found.table, asked.runs)
    must_fail(check_each_once, found.table.iloc[[0, 0, 1, 2, 3]], asked.runs)
    stored = from_dict(read_json(tmp_path / "out" / "table.json"))
    check_each_once(stored, asked.runs)
    assert "seed=1" in (tmp_path / "out" / "sweep.html").read_text()
    again = sweep.run(asked, tmp_path / "out", HERE, watch=ended.append)
    assert len(ended) == len(asked.runs)  # nothing was made again
    assert again.table.equals(found.table)
    other = planned(tmp_path, TEXT.replace("[0, 1]", "[0, 2]"))
    with pytest.raises(InputError, match="parts of a run with other runs"):
        sweep.run(other, tmp_path / "out", HERE)


@pytest.mark.slow
def test_runs_of_one_shape_are_trained_together(tmp_path, monkeypatch):
    plain = sweep.run(planned(tmp_path, TEXT), tmp_path / "plain", HERE)
    seen = []
    real = together.backward
    monkeypatch.setattr(together, "backward", lambda runs: seen.append(len(runs)) or real(runs))
    asked = planned(tmp_path, f"{TEXT}together: 3\n")
    found = sweep.run(asked, tmp_path / "out", HERE)
    assert seen == [3] * 4  # four steps; the fourth run is trained by its own job
    check_each_once(found.table, asked.runs)
    np.testing.assert_allclose(found.table["error"], plain.table["error"], rtol=1e-3)
    again = sweep.run(asked, tmp_path / "out", HERE)
    assert seen == [3] * 4
    assert again.table.equals(found.table)


def test_a_run_that_fails_in_a_group_is_named(tmp_path):
    asked = planned(tmp_path, f"{TEXT}together: 4\n")
    broken = tmp_path / "out" / "runs" / asked.runs[2].name
    broken.mkdir(parents=True)
    (broken / "notes.txt").write_text("mine")
    found = sweep.run(asked, tmp_path / "out", HERE)
    assert list(found.failed) == [asked.runs[2].name]
    assert "is not empty and holds no run" in found.failed[asked.runs[2].name]
    assert list(found.table["state"]) == ["done", "done", "failed", "done"]


@pytest.fixture
def kill_sweep():
    """The tool."""
    file = Path(__file__).parents[2] / "tools" / "kill_sweep.py"
    spec = importlib.util.spec_from_file_location("kill_sweep", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_sweep_that_is_killed_loses_nothing_and_repeats_nothing(
    kill_sweep, tmp_path, monkeypatch
):
    """Twice in the middle of a training; `tools/kill_sweep.py` does so fifty times."""
    plan = tmp_path / "sweep.yaml"
    longer = TEXT.replace("steps: 4", "steps: 600").replace(
        "checkpoint_every: 2", "checkpoint_every: 20"
    )
    plan.write_text(longer.replace("[1.0e-3, 1.0e-5]", "[1.0e-3]"))
    peace = tmp_path / "peace"
    killed = tmp_path / "killed"
    kill_sweep.finish(plan, peace, kill_sweep.LOCAL)

    def saved():
        states = killed.rglob("training_state.safetensors")
        return max((path.stat().st_mtime_ns for path in states), default=0)

    def until_a_state_is_saved(runner, stream):
        before = saved()
        while saved() == before and runner.poll() is None:
            time.sleep(0.01)
        return runner.poll() is not None

    monkeypatch.setattr(kill_sweep, "waited", until_a_state_is_saved)
    counted = kill_sweep.killed_locally(plan, killed, 2, random.Random(0))
    assert sum(counted.values()) == 2
    kill_sweep.finish(plan, killed, kill_sweep.LOCAL)
    kill_sweep.compare(peace, killed)

    # One weight that differs, and a run that is not there, are seen.
    weights = next(killed.rglob("model.safetensors"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(SystemExit, match="has other weights"):
        kill_sweep.compare(peace, killed)
    weights.unlink()
    with pytest.raises(SystemExit, match="holds other runs"):
        kill_sweep.compare(peace, killed)
