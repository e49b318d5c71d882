"""Predictors that average labels: of all points, of the nearest, or weighed by a kernel."""

import functools
import operator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import positive, whole
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class Averaging:
    """The mean of the labels seen."""

    name: str = "averaging"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Running means; 0 before the first point."""
        ys = prompts.ys.double()
        counts = torch.arange(1, prompts.n_points, dtype=ys.dtype)
        means = ys[:, :-1].cumsum(1) / counts[:, None]
        return torch.cat([torch.zeros_like(ys[:, :1]), means], 1)


@dataclass(frozen=True)
class KNearest:
    """The mean label of the `k` nearest inputs seen.

    Where fewer than `k` inputs have been seen, all of them count. Of equally near inputs the
    earlier ones count.
    """

    k: int = 3

    def __post_init__(self) -> None:
        whole("k", self.k, 1)

    @property
    def name(self) -> str:
        """With its k."""
        return f"{self.k} nearest"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Means of the nearest; 0 before the first point."""
        seen = _unseen_at(distances(prompts), torch.inf)
        rank = seen.argsort(dim=-1, stable=True).argsort(-1)
        scores = torch.where(rank < self.k, 0.0, -torch.inf)
        return _mean_of_labels(prompts, scores.double())


@dataclass(frozen=True)
class NadarayaWatson:
    """Kernel regression: the mean of the labels seen with weights exp(-beta |x - x_i|^2).

    It is what a softmax attention head computes whose score is -beta |x - x_i|^2. The kernel's
    width is 1 / sqrt(2 beta).
    """

    beta: float

    def __post_init__(self) -> None:
        positive("beta", self.beta)

    @property
    def name(self) -> str:
        """With its beta."""
        return f"Nadaraya-Watson, beta {self.beta:.3g}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Kernel means; 0 before the first point."""
        return _mean_of_labels(prompts, -self.beta * distances(prompts))


def distances(prompts: Prompts) -> Float[Tensor, "batch point point"]:
    """Squared distances between inputs.

    They come from differences, not from products, so that close points far from 0 keep their
    distance.
    """
    xs = prompts.xs.double()
    squares = [(x[:, :, None] - x[:, None]).square() for x in xs.unbind(-1)]
    return functools.reduce(operator.add, squares)


def _unseen_at(
    values: Float[Tensor, "batch point point"], fill: float
) -> Float[Tensor, "batch point point"]:
    """The values with `fill` where the second point is not before the first."""
    n = values.shape[-1]
    unseen = torch.ones(n, n, dtype=torch.bool).triu()
    return values.masked_fill(unseen, fill)


def _mean_of_labels(
    prompts: Prompts, scores: Float[Tensor, "batch point point"]
) -> Float[Tensor, "batch point target"]:
    """Means of the labels before each point with weights exp(score); 0 before the first point."""
    weights = _unseen_at(scores, -torch.inf).softmax(-1)
    weights[:, 0] = 0
    return weights @ prompts.ys.double()
