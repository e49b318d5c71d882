"""A finished run with damaged provenance: its error is evaluated again, or a line explains."""

import json

import pytest
import tiny_runs
from helpers import must_fail
from test_cli import refused, run
from tiny_runs import N_STEPS

from icl_interp import evaluation
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import Curriculum
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.training import trainer


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    trainer.train(tiny_runs.data(), out, progress=False)
    return out


@pytest.fixture
def damaged(folder, request):
    """The run with another `in_distribution`; afterwards as it was."""
    path = folder / "provenance.json"
    whole = path.read_text()
    yield lambda change: path.write_text(json.dumps(change(json.loads(whole))))
    path.write_text(whole)


def without(key):
    return lambda facts: {name: value for name, value in facts.items() if name != key}


def error_without(*keys):
    def change(facts):
        return {
            **facts,
            "in_distribution": {k: v for k, v in facts["in_distribution"].items() if k not in keys},
        }

    return change


ALL = ("error", "low", "high", "r2")


@pytest.mark.parametrize(
    "change", [without("in_distribution"), error_without(*ALL), *map(error_without, ALL)]
)
def test_what_is_missing_is_evaluated_again(folder, damaged, change):
    """And no step is trained again."""
    before = json.loads((folder / "provenance.json").read_text())
    damaged(change)
    files = {name: (folder / name).read_bytes() for name in tiny_runs.EXACT}
    found = trainer.train(tiny_runs.data(), folder, progress=False)
    assert found.provenance["in_distribution"] == before["in_distribution"]
    assert json.loads((folder / "provenance.json").read_text()) == before
    assert {name: (folder / name).read_bytes() for name in tiny_runs.EXACT} == files


def test_it_would_be_missed(folder, damaged, monkeypatch):
    damaged(without("in_distribution"))
    monkeypatch.setattr(trainer, "MEASURED", ())
    with pytest.raises(KeyError):
        trainer.train(tiny_runs.data(), folder, progress=False).provenance["in_distribution"]


@pytest.mark.parametrize(
    "value", [None, 3, [], "x", {"error": None}, {"error": "x", "low": 1, "high": 1, "r2": 1}]
)
def test_what_is_garbled_is_a_line(folder, damaged, value):
    damaged(lambda facts: {**facts, "in_distribution": value})
    with pytest.raises(
        InputError, match=r"provenance.json is not what a run writes there: .*restore or remove it"
    ):
        trainer.train(tiny_runs.data(), folder, progress=False)


def test_at_the_command_line(monkeypatch, capsys, folder, damaged, tmp_path):
    (tmp_path / "tiny.yaml").write_text(json.dumps(tiny_runs.data()))  # JSON is YAML
    damaged(without("in_distribution"))
    status, out, err = run(monkeypatch, capsys, "train", tmp_path / "tiny.yaml", "--out", folder)
    assert (status, err) == (0, "")
    assert out.startswith("in-distribution error ")
    damaged(lambda facts: {**facts, "in_distribution": "\x1b[31m"})
    status, _, err = run(monkeypatch, capsys, "train", tmp_path / "tiny.yaml", "--out", folder)
    refused(status, err, "in_distribution must be a mapping")
    must_fail(refused, 0, err)


EARLY = {"training": {"curriculum": {"first_points": 2, "until": 2 * N_STEPS}}}


def check_stopped_early(run: Checkpoint, n_points: int):
    """Asked about the prompts that it was trained on, while its config says what was run."""
    assert run.task == run.config.task.with_points(n_points)
    assert run.config.task.n_points == 5
    assert (f"when prompts had {n_points} of 5 points" in str(run.provenance)) == (n_points < 5)


def test_a_curriculum_that_stops_early_is_asked_at_the_length_it_reached(tmp_path, monkeypatch):
    """2 + 3 * 11 / 24 points at the last step: positions beyond these were never trained."""
    run = trainer.train(tiny_runs.data(**EARLY), tmp_path / "early", progress=False)
    lengths = [line["n_points"] for line in read_metrics(tmp_path / "early")]
    assert max(lengths) == 3
    check_stopped_early(run, 3)
    check_stopped_early(store.load(run.save(tmp_path / "again")), 3)
    check_stopped_early(store.load(run, encoding="interleaved"), 3)
    # The error that stands in provenance is that of these prompts.
    stored = run.provenance["in_distribution"]
    assert stored == evaluation.in_distribution(run, run.task)
    # A task that is given is asked as it is, and the note goes.
    longer = store.load(tmp_path / "early", task=run.config.task)
    assert longer.task.n_points == 5
    assert "of 5 points" not in str(longer.provenance)
    # A run that reached full length is asked about it.
    whole = trainer.train(tiny_runs.data(), tmp_path / "whole", progress=False)
    check_stopped_early(whole, 5)
    monkeypatch.setattr(Curriculum, "points", lambda self, n_points, step: n_points)
    must_fail(check_stopped_early, store.load(tmp_path / "early"), 3)


def test_a_run_that_is_not_finished_is_asked_about_its_task(tmp_path):
    """Its curriculum goes on once it is resumed."""
    tiny_runs.train_until(tiny_runs.data(**EARLY), tmp_path / "run", 7)
    assert store.load(tmp_path / "run").task.n_points == 5
