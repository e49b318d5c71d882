"""Metrics for TensorBoard and Weights & Biases are those of the run, also when it is resumed."""

import builtins
import json

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.training import logs, trainer

pytestmark = pytest.mark.usefixtures("quick")
RUN = tiny_runs.RUNS["a finite set"]


def lines_of(folder):
    return [tiny_runs.line(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]


def train(folder, kind=None, watch=None):
    config = tiny_runs.config(**RUN)
    if kind is None:
        return trainer.train(config, folder, progress=False, watch=watch)
    with logs.to(kind, folder, config) as watch:
        return trainer.train(config, folder, progress=False, watch=watch)


def test_every_line_is_told_and_nothing_else_changes(tmp_path, uninterrupted):
    told = []
    train(tmp_path, watch=told.append)
    assert told == lines_of(tmp_path)
    tiny_runs.check_same_run(tmp_path, uninterrupted["a finite set"])


def test_a_run_that_is_resumed_tells_its_earlier_lines_too(tmp_path):
    tiny_runs.train_until(tiny_runs.data(**RUN), tmp_path, 7)
    told = []
    train(tmp_path, watch=told.append)
    assert told == lines_of(tmp_path)


def check_tensorboard(folder):
    """All numbers of all lines, each once."""
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    found = accumulators.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    lines = lines_of(folder)
    assert set(found.Tags()["scalars"]) == {*lines[0]} - {"step"}
    for name in found.Tags()["scalars"]:
        events = [(event.step, event.value) for event in found.Scalars(name)]
        wanted = [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in lines]
        assert events == wanted


def test_tensorboard_reads_the_numbers(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    real = logs.numbers
    config = tiny_runs.config(**RUN)
    with logs.to("tensorboard", tmp_path, config) as watch, pytest.MonkeyPatch.context() as patch:
        advance = trainer.Run._advance

        def stopping(run):
            if run.step == 7:
                raise tiny_runs.Killed
            return advance(run)

        patch.setattr(trainer.Run, "_advance", stopping)
        with pytest.raises(tiny_runs.Killed):
            trainer.train(config, tmp_path, progress=False, watch=watch)
    train(tmp_path, "tensorboard")
    check_tensorboard(tmp_path)
    monkeypatch.setattr(logs, "numbers", lambda line: real(line) | {"loss": 1.0})
    train(tmp_path / "mutant", "tensorboard")
    must_fail(check_tensorboard, tmp_path / "mutant")


@pytest.mark.slow
def test_wandb_writes_a_run_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    train(tmp_path / "run", "wandb")
    wandb.teardown()  # as at the end of a process: what is left is written
    (kept,) = (tmp_path / "run" / "wandb").rglob("run-*.wandb")
    assert "offline-run" in str(kept)
    written = kept.read_bytes()
    for line in lines_of(tmp_path / "run"):
        for name in ("loss", "test_loss"):
            assert json.dumps(line[name]).encode() in written


@pytest.mark.parametrize(
    ("kind", "words"),
    [("tensorboard", r"pip install .icl-interp\[tensorboard\]"), ("wandb", "pip install wandb")],
)
def test_a_package_that_is_missing_is_said_before_the_first_step(
    tmp_path, monkeypatch, kind, words
):
    real = builtins.__import__

    def without(name, *rest):
        if name in ("torch.utils.tensorboard", "wandb"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=words):
        train(tmp_path / "run", kind)
    assert not (tmp_path / "run").exists()


def test_other_programs_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown kind of logs 'tensorbord'"):
        train(tmp_path / "run", "tensorbord")
