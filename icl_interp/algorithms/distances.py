"""Distances of predictions in units of their variance, with intervals that hold all at once.

D(f, g) = E (f - g)^2 / Var f, over the queries of prompts with one function each. 0 is the same
prediction everywhere; predicting the mean of f has 1.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp import resampling
from icl_interp.errors import InputError

# A difference below this share of the variance is none, whatever a large sample says of it.
NEGLIGIBLE = 1e-4
# A single prediction counts as at most so many variances away: beyond that, how far says no more.
FARTHEST = 1e6


class Distances(NamedTuple):
    """Distances with simultaneous 95 % intervals, one of each rival."""

    value: Float[np.ndarray, " rival"]
    low: Float[np.ndarray, " rival"]
    high: Float[np.ndarray, " rival"]


class Sample(NamedTuple):
    """What intervals are made of: one row for each function.

    Attributes:
        squares: squared distances to each rival.
        own: predictions of the model, which give the unit.
    """

    squares: Float[np.ndarray, "function rival"]
    own: Float[np.ndarray, "function target"]


def sample(
    own: Float[Tensor, "batch target"],
    theirs: Sequence[Float[Tensor, "batch target"]],
    unit: Float[Tensor, "batch target"] | None = None,
) -> Sample:
    """Squared distances of one predictor from others.

    Args:
        own: its predictions.
        theirs: those of each rival.
        unit: predictions whose variance is the unit; its own by default.

    Raises:
        InputError: the unit does not vary.
    """
    of_unit = own if unit is None else unit
    variance = float(of_unit.var(0).sum())
    if variance <= 1e-20:
        raise InputError("its predictions do not vary, so no algorithm can be told from them")
    squares = []
    for each in theirs:
        apart = (own - each).square().sum(-1)
        squares.append(apart.clamp(max=FARTHEST * variance))
    return Sample(torch.stack(squares, 1).numpy(), of_unit.numpy())


def distances(taken: Sample) -> Distances:
    """D to each rival."""
    parts = _parts(taken)
    found = resampling.simultaneous(_in_units, *parts)
    return _clipped(*found)


def further(taken: Sample, nearest: int) -> Distances:
    """How much further each rival is than the nearest one, on the same prompts.

    Differences of at most `NEGLIGIBLE` are none: these rivals take no part in the intervals of the
    others, and their own begin at 0.
    """
    squares, own, square = _parts(taken)
    more = squares - squares[:, nearest, None]
    value = more.mean(0) / _variance(own.mean(0), square.mean())
    real = value > NEGLIGIBLE
    low = np.zeros_like(value)
    high = np.maximum(value, 0.0)
    if real.any():
        found = resampling.simultaneous(_in_units, more[:, real], own, square)
        _, low[real], high[real] = found
    return Distances(value, low, high)


def hat_distances(
    own: Float[Tensor, "batch example"], theirs: Sequence[Float[Tensor, "batch example"]]
) -> Distances:
    """E |h - h'|^2 / E |h|^2 of hat rows, which have no mean that would be taken off."""
    squares = []
    for each in theirs:
        apart = own - each
        squares.append(apart.square().sum(-1))
    lengths = own.square().sum(-1)
    if float(lengths.mean()) <= 1e-20:
        raise InputError("its predictions depend on no label, so there are no hat rows")

    def statistic(apart: np.ndarray, length: np.ndarray) -> np.ndarray:
        return apart / length[:, None]

    together = torch.stack(squares, 1)
    found = resampling.simultaneous(statistic, together.numpy(), lengths.numpy())
    return _clipped(*found)


def _parts(taken: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of each function; predictions about their mean, so that no digits cancel."""
    own = taken.own - taken.own.mean(0)
    square = own**2
    return taken.squares, own, square.sum(-1)


def _in_units(squares: np.ndarray, own: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Mean squares over the variance, one row a draw."""
    variance = _variance(own, square)
    return squares / variance[:, None]


def _variance(own: np.ndarray, square: Any) -> Any:
    """E |f|^2 - |E f|^2."""
    of_mean = (own**2).sum(-1)
    return square - of_mean


def _clipped(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> Distances:
    """A distance is not negative."""
    return Distances(value, np.maximum(low, 0.0), high)
