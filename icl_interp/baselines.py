"""Predictors that see the prompt only: what a model in context is compared with.

Each has the interface of a checkpoint, `predict(prompts) -> (batch, point)`: the prediction of every point from the
points before it. All compute in float64.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.prompts import Prompts


@runtime_checkable
class Features(Protocol):
    """Anything that turns inputs into features, such as a task."""

    def features(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point feature"]:
        """Features in which the functions are linear."""
        ...


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts each point of a prompt from the points before it."""

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """Predictions; NaN where there is none."""
        ...


@dataclass(frozen=True)
class Zero:
    """Predicts 0: the reference that knows nothing."""

    name: str = "zero"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """Zeros."""
        return torch.zeros_like(prompts.ys, dtype=torch.float64)


@dataclass(frozen=True)
class LeastSquares:
    """Least squares on the task's own features, fitted to each prefix; of least norm while points are too few.

    Without noise it is exact from `task.n_determining` points on.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks.distributions import Uniform
    >>> from icl_interp.tasks.functions import Polynomial
    >>> task = Polynomial(degrees=(3,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=9)
    >>> prompts = task.sample(5, generator(0, "doc"), dtype=torch.float64)
    >>> bool((LeastSquares(task).predict(prompts) - prompts.ys)[:, 5:].abs().max() < 1e-9)
    True
    """

    task: Features
    name: str = "least squares"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """One small regression a prefix; 0 before the first point."""
        features, ys = self.task.features(prompts.xs.double()), prompts.ys.double()
        out = torch.zeros_like(ys)
        for k in range(1, prompts.n_points):
            # gelsd is the driver that handles prefixes of deficient rank.
            fit = torch.linalg.lstsq(features[:, :k], ys[:, :k, None], driver="gelsd").solution
            out[:, k] = (features[:, k] * fit[..., 0]).sum(-1)
        return out
