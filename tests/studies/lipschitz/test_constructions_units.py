"""Instruments that must break cells of the constructions of units.

`check_study` goes through the cells themselves.
"""

import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.constructions import units
from icl_interp.studies.lipschitz.measurements import relevant_directions, unit, window_losses
from icl_interp.studies.lipschitz.measurements.window_losses import best_window


def check_cells(name: str, n_draws: int = 1, seed: int = 0):
    for row in calibration.calibrate(n_draws, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["softmax unit at the best window", "softmax unit within the relevant directions"]
)
def test_cells(name):
    check_cells(name, seed=7)


@pytest.mark.slow
def test_m_that_is_not_whitened_breaks_its_cell(monkeypatch):
    monkeypatch.setattr(unit.theory, "whitened", lambda matrix, covariance: matrix)
    must_fail(check_cells, "softmax unit at the inverse covariance")


@pytest.mark.slow
def test_another_best_window_breaks_its_cell(monkeypatch):
    def narrower(task):
        found = best_window(task)
        return found._replace(
            **{name: 3 * getattr(found, name) for name in ("window", "low", "high")}
        )

    monkeypatch.setattr(window_losses, "best_window", narrower)
    must_fail(check_cells, "softmax unit at the best window")


@pytest.mark.slow
def test_directions_that_are_confused_break_their_cell(monkeypatch):
    kept = relevant_directions._attending

    def swapped(lab, prompts, task, directions):
        return kept(lab, prompts, task, torch.eye(task.dim, dtype=torch.float64) - directions)

    monkeypatch.setattr(relevant_directions, "_attending", swapped)
    must_fail(check_cells, "softmax unit within the relevant directions")


def test_draws_differ_and_a_seed_repeats_its_own():
    tasks = [units.isotropic(generator(seed, "test")) for seed in (0, 0, 1)]
    assert tasks[0] == tasks[1] != tasks[2]
