"""Curves that tests make up, as the measurements of `limits` store them."""

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.bench import GRID
from icl_interp.analyses.places import DRAWN
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.studies.limits.measurements.between import AT_DRAWN

STATISTICS = ("gap", "squared error", "law's mean")


def approach(gap, error=None, mean=None, n=40) -> DataArray:
    """`far/approach` of units that differ by a factor only.

    Arguments are sizes over GRID, 1 by default.
    """
    one = np.ones(len(GRID))
    factor = np.exp(0.05 * np.random.default_rng(0).standard_normal((n, 1)))
    values = [factor * np.square(one if v is None else v * one) for v in (gap, error, mean)]
    return make_curve(values, {"statistic": STATISTICS, "unit": tuple(range(n)), "x": tuple(GRID)})


def drawn(n=40, **sizes) -> DataArray:
    """`far/drawn` of equal units, from root mean squares over DRAWN by statistic; 0 by default."""
    values = np.zeros((len(AT_DRAWN), n, len(DRAWN)))
    for name, size in sizes.items():
        largest = name.startswith("largest")
        values[AT_DRAWN.index(name.replace("_", " "))] = (
            np.abs(size) if largest else np.square(size)
        )
    return make_curve(values, {"statistic": AT_DRAWN, "unit": tuple(range(n)), "x": tuple(DRAWN)})


def certificate(onset=1.0, **columns) -> DataFrame:
    """`far/certificate` with an onset that has no error."""
    weights = {"c": 0.0, "r": 1.0, "plateau +": np.nan, "plateau -": np.nan} | columns
    weights |= dict.fromkeys(("onset", "onset low", "onset high"), onset)
    return make_table({name: [value] for name, value in weights.items()})


def ends(change=0.0, n=40, n_contexts=2) -> DataArray:
    """`far/ends` of f that changes by so much from 1e5 to 1e6, in both directions."""
    values = np.zeros((2, 3, n, n_contexts))
    values[:, 2] = change
    axes = {
        "direction": ("+", "-"),
        "x": (1e4, 1e5, 1e6),
        "unit": tuple(range(n)),
        "context": tuple(range(n_contexts)),
    }
    return make_array(values, axes)


def plateaus(distance=None, n=40) -> DataArray:
    """`far/plateaus` of f that ends this far from what the weights predict.

    None where they predict none.
    """
    n = 0 if distance is None else n
    axes = {"unit": tuple(range(n)), "direction": ("-", "+")}
    return make_array(np.full((n, 2), np.square(distance or 0.0)), axes)


def intact(mean) -> DataArray:
    """`far/intact` of units that are all the same, with a spread of 0 over prompts."""
    values = np.stack(
        [np.broadcast_to(v, (40, len(GRID))) for v in (mean, np.square(mean), 0 * GRID)]
    )
    axes = {
        "statistic": ("mean", "mean square", "variance"),
        "unit": tuple(range(40)),
        "x": tuple(GRID),
    }
    return make_curve(values, axes)


def used(f, truth, mean, xs) -> DataArray:
    """`context/use` of units of two prompts.

    It is computed from f and the truth, `(prompt, x)`, and the law's mean, `(x,)`.
    """
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
        "f less law's mean": (f - mean) ** 2,
        "f": own,
        "truth": true,
        "f squared": own**2,
        "truth squared": true**2,
        "product": own * true,
    }
    values = [v.reshape(n, 2, -1).mean(1) for v in statistics.values()]
    return make_curve(
        values, {"statistic": tuple(statistics), "unit": tuple(range(n)), "x": tuple(xs)}
    )
