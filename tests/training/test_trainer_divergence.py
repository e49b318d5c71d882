"""A loss or weights that are not finite stop the run, and the last good checkpoint is kept."""

import pytest
import tiny_runs
import torch
from helpers import must_fail
from tiny_runs import RUNS, check_same_files

from icl_interp.checkpoints import store
from icl_interp.training import data
from icl_interp.training.trainer import TrainingDiverged, train

pytestmark = pytest.mark.usefixtures("quick")


def exploding(step, patch):
    """From this step on, numbers whose squares overflow."""
    real = data.task_at

    def task(training, task, now):
        posed = real(training, task, now)
        return tiny_runs.Exploding(**vars(posed)) if now >= step else posed

    patch.setattr(data, "task_at", task)


def poisoned(step, patch):
    """At this step, gradients that are NaN under a loss that is finite."""
    clip = torch.nn.utils.clip_grad_norm_
    calls = iter(range(1000))

    def poison(parameters, norm):
        parameters = list(parameters)
        if next(calls) == step:
            parameters[0].grad.fill_(torch.nan)
        return clip(parameters, norm)

    patch.setattr(torch.nn.utils, "clip_grad_norm_", poison)


def check_last_good_kept(folder, reference, match):
    """Training stops with one clear line, and the checkpoint of step 5 is whole and usable."""
    config = tiny_runs.data(**RUNS["growing prompts"])
    with pytest.raises(TrainingDiverged, match=match) as stopped:
        train(config, folder, progress=False)
    assert "\n" not in str(stopped.value)
    check_same_files(folder, reference)
    checkpoint = store.load(folder)
    assert checkpoint.step == 5
    assert all(parameter.isfinite().all() for parameter in checkpoint.model.parameters())


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, started):
    exploding(8, monkeypatch)
    check_last_good_kept(
        tmp_path / "a",
        started,
        r"loss became (inf|nan) at step 8; the checkpoint of step 5 is kept in .*a",
    )
    exploding(0, monkeypatch)
    must_fail(check_last_good_kept, tmp_path / "b", started, "at step 8")


@pytest.mark.parametrize("step", [7, 9])
def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch, started, step):
    """Step 9 is followed by a checkpoint, before any loss could tell."""
    poisoned(step, monkeypatch)
    match = (
        "loss became nan at step 8; the checkpoint of step 5"
        if step == 7
        else "weights became NaN .* step 10; .* step 5"
    )
    check_last_good_kept(tmp_path / "a", started, match)


def test_saving_them_would_be_noticed(tmp_path, monkeypatch, started):
    poisoned(9, monkeypatch)
    monkeypatch.setattr(
        torch.Tensor, "isfinite", lambda tensor: torch.ones_like(tensor, dtype=torch.bool)
    )
    must_fail(check_last_good_kept, tmp_path / "a", started, ".")


def test_a_run_that_never_reached_a_checkpoint_says_so(tmp_path, monkeypatch):
    exploding(2, monkeypatch)
    with pytest.raises(
        TrainingDiverged,
        match=r"loss became (inf|nan) at step 2; there is no earlier checkpoint in",
    ):
        train(tiny_runs.data(), tmp_path, progress=False)
    assert list(tiny_runs.contents(tmp_path)) == ["config.json"]
