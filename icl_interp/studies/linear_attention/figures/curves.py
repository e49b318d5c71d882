"""Errors by the number of examples, as several figures of the study show them."""

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataArray

from icl_interp.figures.colours import GREY
from icl_interp.figures.drawing import Axis, Band, Line, Mark, Rule

# Least squares is exact from d examples on: it would stretch every axis by twenty decades.
LEAST_ERROR = 1e-5


def law(test: str) -> str:
    """A test law as readers see it.

    >>> law("fixed"), law("random, c = 4")
    ('Λ = I', 'random Λ, c = 4')
    """
    return "Λ = I" if test == "fixed" else f"random Λ, {test.partition(', ')[2]}"


def with_band(curve: DataArray, name: str, colour: str, listed: bool = True) -> list[Mark]:
    """The mean over M, and its interval shaded.

    Args:
        curve: (statistic, M).
        name: of the line.
        colour: of both.
        listed: whether the name stands in the legend.
    """
    places = curve["M"].values
    mean, low, high = ends_of(curve)
    line = Line(places, mean, name=name, colour=colour, listed=listed)
    return [Band(places, low, high, colour), line]


def ends_of(found: DataArray) -> list[np.ndarray]:
    """Means and both ends of their intervals."""
    return [found.sel(statistic=one).values for one in ("mean", "low", "high")]


def examples(n: int) -> Axis:
    """The axis of M, up to twice the length in training."""
    return Axis("examples M", 0.5, 2 * n + 0.5)


def least_squares(places: ArrayLike, errors: np.ndarray) -> Line:
    """The error of least squares, dotted."""
    return Line(places, errors, name="least squares", colour=GREY, dash="dot")


def trained_length(n: int) -> Rule:
    """Where prompts have as many examples as in training."""
    return Rule(x=n, dash="dash")
