"""Ridge functions of every link, and draws of them: what their tests share."""

import math

import numpy as np
import pytest
import torch

from icl_interp.provenance import generator
from icl_interp.tasks import Ellipsoid, RidgeFunction, Sphere, random_directions

ROWS = ((2.0, 0.5, 0.0), (0.5, 1.0, -0.3), (0.0, -0.3, 0.5))
B = random_directions(5, 2, seed=1)
SMALL = {"inputs": Sphere(3), "n_points": 7}
RELU = RidgeFunction(link="relu", lipschitz=2.0, noise_std=0.5, intercept=0.3, **SMALL)
AFFINE = RidgeFunction(link="affine", lipschitz=2.0, **{**SMALL, "inputs": Ellipsoid(ROWS)})
LINEAR = RidgeFunction(link="linear", intercept=2.0, directions=B, inputs=Sphere(5), n_points=9)
COSINE = RidgeFunction(link="cosine", lipschitz=4.0, directions=B, inputs=Sphere(5), n_points=9)
PHASED = RidgeFunction(link="phased_cosine", lipschitz=1.0, frequency=10.0, noise_std=0.5, **SMALL)
QUADRATIC = RidgeFunction(
    link="quadratic", lipschitz=2.0, **{**SMALL, "inputs": Ellipsoid((4.0, 1.0, 0.25))}
)
TASKS = {task.link: task for task in (RELU, AFFINE, LINEAR, COSINE, PHASED, QUADRATIC)}
EVERY = pytest.mark.parametrize("link", TASKS)
N = 20_000  # functions of every Monte Carlo check


def draw(task, n=N, stream="test/ridge", **more):
    return task.sample(n, generator(0, stream), dtype=torch.float64, **more)


def within(estimates, expected):
    """The mean over the first axis is within four standard errors, everywhere."""
    estimates = np.asarray(estimates, dtype=float)
    error = estimates.std(0, ddof=1) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(0) - expected) <= 4 * error + 1e-12).all()
