"""Layers of linear self-attention of known truth, each with the task that it is an answer to: for `calibration`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.units import LinearSelfAttention
from icl_interp.provenance import generator
from icl_interp.studies.linear_attention.hand_built import by_inputs, descent
from icl_interp.tasks.regression import Exponential, LinearRegression
from icl_interp.theory import linear_attention as theory

N = 8
N_CTX = 4 * N + 1
CONVERGED, BALANCED, IDENTITY, RISK, COVARIATE, RANDOM, ALGORITHM, ORDER = (
    f"linear_attention.{name}"
    for name in (
        "converged",
        "balanced",
        "identity_maps",
        "risk",
        "covariate_shift",
        "random_covariance",
        "algorithm",
        "order_free",
    )
)


@dataclass(frozen=True)
class Layer:
    """A family of layers with a known truth; `build` gives a member and its task.

    Attributes:
        name: short, for tables. why: the reason for the expected verdicts. expected: verdict by claim.
    """

    name: str
    why: str
    build: Callable[[torch.Generator], tuple[HookedTransformer, LinearRegression]]
    expected: dict[str, str]

    def draw(self, seed: int) -> tuple[HookedTransformer, LinearRegression]:
        """One member, in float64, with its task."""
        model, task = self.build(generator(seed, f"layer/{self.name}"))
        return model.double().eval(), task


def _task(g: torch.Generator) -> LinearRegression:
    """Two coordinates whose variances differ by a factor 3 to 6."""
    small = 0.3 + 0.7 * float(torch.rand((), generator=g))
    ratio = 3 + 3 * float(torch.rand((), generator=g))
    return LinearRegression(n_dims=2, covariance=(small, ratio * small), n_points=N + 1)


def _where(task: LinearRegression) -> theory.Landscape:
    return theory.landscape(task.covariance_matrix, N)


def _layer(product: torch.Tensor, scale: float = 1.0) -> HookedTransformer:
    """h^T P x_q; |v| = |F| times the scale squared."""
    size = scale * (float(product.norm()) ** 0.5 or 1.0)
    return LinearSelfAttention.from_product(product, size).to_transformer(N_CTX)


def _times(factor: float, scale: float, g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = _task(g)
    return _layer(factor * _where(task).product, scale), task


def _other_length(g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = _task(g)
    return _layer(theory.landscape(task.covariance_matrix, 1).product), task


def _plain(g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = _task(g)
    where = _where(task)
    rate = where.slope.sum() / where.curvature.diagonal().sum()
    return _layer(rate * torch.eye(2, dtype=torch.float64)), task


def _trap(g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = _task(g)
    return by_inputs(_where(task).rank_one[0]).to_transformer(N_CTX), task


def _descent(g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = _task(g)
    return descent(2, 4, float(0.6 / task.covariance_matrix.max()), N_CTX), task


def _random(g: torch.Generator) -> tuple[HookedTransformer, LinearRegression]:
    task = LinearRegression(n_dims=2, covariance=Exponential(), n_points=N + 1)
    return _layer(theory.random_landscape(task.spectrum_moments(), N).product, 1.0), task


LAYERS: tuple[Layer, ...] = (
    Layer(
        "LSA layer at the optimum",
        "W* itself, balanced",
        functools.partial(_times, 1.0, 1.0),
        {CONVERGED: YES, BALANCED: OPEN, COVARIATE: YES, ALGORITHM: YES, ORDER: YES},
    ),
    Layer(
        "LSA layer at the optimum, scaled by -3",
        "predicts as W* does; u^2 is 81 times |U|^2",
        functools.partial(_times, 1.0, -3.0),
        {CONVERGED: YES, BALANCED: NO, ALGORITHM: YES},
    ),
    Layer(
        "LSA layer 10 % off the optimum",
        "between reached and not",
        functools.partial(_times, 1.1, 1.0),
        {CONVERGED: OPEN, ORDER: YES},
    ),
    Layer(
        "LSA layer at twice the optimum", "far off", functools.partial(_times, 2.0, 1.0), {CONVERGED: NO, ORDER: YES}
    ),
    Layer("LSA layer at the optimum of N = 1", "shrinks too much", _other_length, {CONVERGED: NO}),
    Layer(
        "LSA layer of one plain step",
        "P is a multiple of the identity, where W* needs two numbers",
        _plain,
        {IDENTITY: YES, ALGORITHM: NO, COVARIATE: YES},
    ),
    Layer("LSA layer in the trap", "the stationary point of rank one", _trap, {CONVERGED: NO, ORDER: YES}),
    Layer(
        "LSA layers as four steps",
        "gradient descent, a step a layer",
        _descent,
        {CONVERGED: "not_applicable", ORDER: YES},
    ),
    Layer(
        "LSA layer for random covariances",
        "the optimum of Theorem 4.5",
        _random,
        {CONVERGED: YES, RANDOM: YES, RISK: "not_applicable", ORDER: YES},
    ),
)
