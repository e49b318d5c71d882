"""Curves that tests make up, as the measurements of `limits` store them."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses.bench import GRID
from icl_interp.results import make_curve

STATISTICS = ("gap", "squared error", "law's mean")


def approach(gap, error=None, mean=None, n=40) -> DataArray:
    """`far/approach` of units that differ by a factor only; arguments are sizes over GRID, 1 by default."""
    one = np.ones(len(GRID))
    factor = np.exp(0.05 * np.random.default_rng(0).standard_normal((n, 1)))
    values = [factor * np.square(one if v is None else v * one) for v in (gap, error, mean)]
    return make_curve(values, {"statistic": STATISTICS, "unit": tuple(range(n)), "x": tuple(GRID)})


def intact(mean) -> DataArray:
    """`far/intact` of units that are all the same, with a spread of 0 over prompts."""
    values = np.stack([np.broadcast_to(v, (40, len(GRID))) for v in (mean, np.square(mean), 0 * GRID)])
    axes = {"statistic": ("mean", "mean square", "variance"), "unit": tuple(range(40)), "x": tuple(GRID)}
    return make_curve(values, axes)


def used(f, truth, mean, xs) -> DataArray:
    """`context/use` of units of two prompts, from f and the truth, `(prompt, x)`, and the law's mean, `(x,)`."""
    n = len(f) // 2
    unit = f.reshape(n, 2, -1).mean(1)
    line, other = np.repeat((unit.sum(0) - unit) / (n - 1), 2, 0), np.roll(f, 2, 0)
    own, true = f - f.mean(0), truth - truth.mean(0)
    statistics = {
        "squared error": (f - truth) ** 2,
        "law's mean": (mean - truth) ** 2,
        "context-free": (line - truth) ** 2,
        "swapped": (other - truth) ** 2,
        "change": (other - f) ** 2,
        "size": truth**2,
        "f size": f**2,
        "f": own,
        "truth": true,
        "f squared": own**2,
        "truth squared": true**2,
        "product": own * true,
    }
    values = [v.reshape(n, 2, -1).mean(1) for v in statistics.values()]
    return make_curve(values, {"statistic": tuple(statistics), "unit": tuple(range(n)), "x": tuple(xs)})
