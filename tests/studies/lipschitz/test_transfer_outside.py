"""The claim on other Lipschitz constants, of predictors that are seen from outside."""

import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.studies.lipschitz.measurements.transfer_errors import best_window
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere

CLAIM = "lipschitz.transfer"
TASK = RidgeFunction(inputs=Sphere(dim=3), n_points=21, link="relu", lipschitz=1.0, noise_std=1.0)


class Window:
    """Averages earlier labels with weights proportional to exp(w x_i . x)."""

    name = "a window"

    def __init__(self, w, shares=1.0):
        self.w = w
        self.shares = shares

    def predict(self, prompts):
        xs, ys = prompts.xs.double(), prompts.ys.double()
        earlier = torch.ones(xs.shape[1], xs.shape[1], dtype=torch.bool).tril(-1)
        scores = (self.w * xs @ xs.mT).masked_fill(~earlier, -1e30)
        return self.shares * (scores.softmax(-1) * earlier) @ ys


class Clipped(Window):
    """The same in distribution; no prediction is larger than any that is usual there."""

    def predict(self, prompts):
        return super().predict(prompts).clamp(-1.5, 1.5)


def verdict_is(expected, predictor):
    report = icl_interp.analyze(
        predictor, TASK, claims=[CLAIM], control=Window(0.0, 0.0), n_prompts=256, progress=False
    )
    assert report[CLAIM].verdict == expected


@pytest.mark.slow
def test_a_window_is_told_from_what_is_one_at_home_alone():
    best = best_window(TASK)
    verdict_is("supported", Window(best))
    verdict_is("contradicted", Clipped(best))
    must_fail(verdict_is, "supported", Window(best / 30))  # another window is none that was asked
