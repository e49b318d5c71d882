"""Shared by tests of `lipschitz`'s experiments: softmax units of known M, and a small setup."""

from dataclasses import replace

import torch

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import presets
from icl_interp.experiments.setup import Setup
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.tokens import Stacked
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Ellipsoid, Sphere

N = 20
SPHERE, ELLIPSOID = Sphere(3), Ellipsoid((4.0, 1.0, 0.25))


def task(lipschitz=1.0, inputs=SPHERE, n=N, **changes) -> RidgeFunction:
    """F_L^+ in three dimensions with label noise of standard deviation 1."""
    return RidgeFunction(
        link="relu", inputs=inputs, lipschitz=lipschitz, noise_std=1.0, n_points=n + 1, **changes
    )


def known(matrix, of=None) -> Checkpoint:
    """A unit with this M as if it had been trained on a task."""
    of = of or task()
    model = SoftmaxAttention.from_product(
        torch.as_tensor(matrix, dtype=torch.float64)
    ).to_transformer(of.n_points)
    return Checkpoint(model, of, Stacked(), RunConfig(model.cfg, of, "stacked"), 0)


def window(w, of=None) -> Checkpoint:
    """The unit with M = w I."""
    return known(w * torch.eye(3), of)


def setup(n_functions=40, n_contexts=25, **checkpoints) -> Setup:
    """A setup of these models at the smallest scale."""
    return Setup(
        checkpoints,
        replace(presets.PRESETS["smoke"], n_functions=n_functions, n_contexts=n_contexts),
    )
