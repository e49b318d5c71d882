"""Intervals: the cluster bootstrap over functions, and its simultaneous form over heads.

Contexts of one function are not independent, so what is resampled are functions. A statistic is any function of
weighted means, and weights are how often a function was drawn: two thousand draws cost one matrix product.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

N_DRAWS = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate with its percentile interval."""

    value: float
    low: float
    high: float


@functools.cache  # every interval of an analysis asks for the same few
def draw_weights(n: int, seed: int = 0, n_draws: int = N_DRAWS) -> Float[np.ndarray, "draw unit"]:
    """How often each of n units comes in each bootstrap draw, divided by n: rows sum to 1."""
    weights = np.random.default_rng([seed, n]).multinomial(n, np.full(n, 1 / n), size=n_draws) / n
    weights.flags.writeable = False
    return weights


def bootstrap(
    statistic: Callable[..., np.ndarray], *per_unit: np.ndarray, seed: int = 0, level: float = LEVEL
) -> Interval:
    """A function of means over units, with its percentile interval.

    Args:
        statistic: takes the mean of each array over its units, with a leading axis of draws, and returns one number a
            draw.
        per_unit: arrays whose first axis runs over the units that are resampled, all of one length.
        seed: of the draws.
        level: of confidence, below 1.

    >>> x = np.arange(100.0)
    >>> i = bootstrap(lambda mean: mean, x)
    >>> round(i.value, 9), i.low < 49.5 < i.high
    (49.5, True)
    """
    n = len(per_unit[0])
    weights = np.concatenate([np.full((1, n), 1 / n), draw_weights(n, seed)])
    draws = np.asarray(statistic(*(np.tensordot(weights, array, axes=1) for array in per_unit)))
    low, high = np.quantile(draws[1:], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(draws[0]), float(low), float(high))


def simultaneous(
    statistic: Callable[..., np.ndarray], *per_unit: np.ndarray, seed: int = 0, level: float = LEVEL
) -> tuple[Float[np.ndarray, " member"], Float[np.ndarray, " member"], Float[np.ndarray, " member"]]:
    """A statistic of many members with intervals that all hold at once (max-T): (value, low, high).

    Args:
        statistic: as for `bootstrap`, but returns `(draw, member)`.
        per_unit: arrays whose first axis runs over the units that are resampled, all of one length.
        seed: of the draws.
        level: of confidence, below 1.
    """
    n = len(per_unit[0])
    weights = np.concatenate([np.full((1, n), 1 / n), draw_weights(n, seed)])
    value, *draws = np.asarray(statistic(*(np.tensordot(weights, array, axes=1) for array in per_unit)))
    spread = np.std(draws, 0)
    # A member that never varies needs no interval and must not divide by zero.
    ratio = np.abs(draws - value) / np.where(spread > 0, spread, 1.0)
    t = np.quantile(ratio.max(1), level)
    return value, value - t * spread, value + t * spread


def slope(log_x: Float[np.ndarray, " point"], log_y: Float[np.ndarray, "*batch point"]) -> np.ndarray:
    """Least-squares slope along the last axis: a growth exponent when both axes are logarithms."""
    centred = log_x - log_x.mean()
    return np.asarray((log_y * centred).sum(-1) / (centred**2).sum())
