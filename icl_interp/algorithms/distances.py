"""Distances of predictions in units of their variance, with intervals that hold all at once.

D(f, g) = E (f - g)^2 / Var f, over the queries of prompts with one function each. 0 is the same
prediction everywhere; predicting the mean of f has 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp import resampling
from icl_interp.errors import InputError

# A difference below this share of the variance is none, whatever a large sample says of it.
NEGLIGIBLE = 1e-4


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
    if float(of_unit.var(0).sum()) <= 1e-20:
        raise InputError("its predictions do not vary, so there is no algorithm to tell")
    squares = [(own - each).square().sum(-1) for each in theirs]
    return Sample(torch.stack(squares, 1).numpy(), of_unit.numpy())


def distances(taken: Sample) -> Distances:
    """D to each rival."""

    def statistic(squares: np.ndarray, own: np.ndarray, square: np.ndarray) -> np.ndarray:
        return squares / _variance(own, square)

    return _clipped(*resampling.simultaneous(statistic, *_parts(taken)))


def further(taken: Sample, nearest: int) -> Distances:
    """How much further each rival is than the nearest one, on the same prompts."""

    def statistic(squares: np.ndarray, own: np.ndarray, square: np.ndarray) -> np.ndarray:
        more = squares - squares[:, nearest, None]
        return more / _variance(own, square)

    return Distances(*resampling.simultaneous(statistic, *_parts(taken)))


def hat_distances(
    own: Float[Tensor, "batch example"], theirs: Sequence[Float[Tensor, "batch example"]]
) -> Distances:
    """E |h - h'|^2 / E |h|^2 of hat rows, which have no mean that would be taken off."""
    squares = torch.stack([(own - each).square().sum(-1) for each in theirs], 1)
    lengths = own.square().sum(-1)
    if float(lengths.mean()) <= 1e-20:
        raise InputError("its predictions depend on no label, so there are no hat rows")

    def statistic(apart: np.ndarray, length: np.ndarray) -> np.ndarray:
        return apart / length[:, None]

    found = resampling.simultaneous(statistic, squares.numpy(), lengths.numpy())
    return _clipped(*found)


def _parts(taken: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of each function; predictions about their mean, so that no digits cancel."""
    own = taken.own - taken.own.mean(0)
    return taken.squares, own, (own**2).sum(-1)


def _variance(own: np.ndarray, square: np.ndarray) -> np.ndarray:
    return (square - (own**2).sum(-1))[:, None]


def _clipped(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> Distances:
    """A distance is not negative."""
    return Distances(value, np.maximum(low, 0.0), high)
