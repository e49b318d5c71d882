"""Curves that tests make up, as the measurements of `limits` store them."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.lab import GRID
from icl_interp.results import make_curve

STATISTICS = ("gap", "squared error", "zero predictor", "context-free")


def approach(gap, error=None, zero=None, line=None, n=20) -> DataArray:
    """`far/approach` of functions that differ by a factor only; arguments are sizes over GRID, 1 by default."""
    one = np.ones(len(GRID))
    factor = np.exp(0.05 * np.random.default_rng(0).standard_normal((n, 1)))
    values = [factor * np.square(one if v is None else v * one) for v in (gap, error, zero, line)]
    return make_curve(values, {"statistic": STATISTICS, "function": tuple(range(n)), "x": tuple(GRID)})
