"""Intervals hold the truth as often as they say, in simulations of laws with a known truth.

Seeds are fixed beforehand.
"""

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from helpers import mostly_slow, must_fail

from icl_interp.analyses.criterion import INF, Condition, Estimate
from icl_interp.resampling import Interval, bootstrap, draw_weights

N_UNITS = 128
N_SETS, AT_LEAST, WRONG = (
    1000,
    920,
    50,
)  # data sets; intervals that hold the truth; that lie wholly on one side of it


class Law(NamedTuple):
    """Arrays per unit, a statistic of their means, and its true value."""

    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, ...]]
    statistic: Callable[..., np.ndarray]
    truth: float
    positive: bool = False
    wrong: float = WRONG


def mean(m):
    return m


def ratio(a, b):
    return a / b


def normal(rng, n):
    return (rng.normal(1.0, 1.0, n),)


def exponential(rng, n):
    return (rng.exponential(size=n),)


def chi_square(rng, n):
    return (rng.normal(size=n) ** 2,)


def lognormal(rng, n):
    return (np.exp(rng.normal(size=n)),)


def correlated(rng, n):
    """Two lognormal errors of one mean, correlated by 0.8 in their logarithms."""
    shared, *own = rng.normal(size=(3, n))
    return tuple(np.exp(shared + 0.5 * one) for one in own)


def moments(rng, n):
    """Mean and square of a law with a mean of 3 and a variance of 1."""
    x = rng.normal(3.0, 1.0, n)
    return x, x**2


def residual(rng, n):
    return (0.3 * rng.normal(size=n)) ** 2, rng.normal(size=n) ** 2


def variance(m, square):
    return np.maximum(square - m**2, 0.0)


LAWS = {
    "normal mean": Law(normal, mean, 1.0),
    "exponential mean": Law(exponential, mean, 1.0),
    "exponential mean, positive": Law(exponential, mean, 1.0, True),
    "lognormal mean, positive": Law(lognormal, mean, np.exp(0.5), True),
    "ratio of errors, positive": Law(correlated, ratio, 1.0, True),
    "log ratio of errors": Law(correlated, lambda a, b: np.log10(a / b), 0.0),
    "root mean square": Law(chi_square, np.sqrt, 1.0),
    "standard deviation": Law(moments, lambda m, s: np.sqrt(variance(m, s)), 1.0),
    "variance, positive": Law(moments, variance, 1.0, True),
    "R2": Law(residual, lambda a, b: 1 - a / b, 0.91),
    # Either of the two may come out too large: 2 x 25 of 1,000, and three standard errors of that
    # number.
    "the larger of two alike": Law(
        lambda rng, n: (rng.normal(size=(n, 2)),), lambda m: m.max(-1), 0.0, False, 71
    ),
    "the larger of two": Law(
        lambda rng, n: (rng.normal(size=(n, 2)) - [0, 0.2],), lambda m: m.max(-1), 0.0
    ),
}
QUICK = ("exponential mean", "ratio of errors, positive", "variance, positive", "the larger of two")


def percentile(statistic, *per_unit, positive=False):
    """The mutant: percentiles of the draws, which miss what is rare in small skewed samples."""
    weights = draw_weights(len(per_unit[0]))
    draws = statistic(*(np.tensordot(weights, array, axes=1) for array in per_unit))
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(
        float(statistic(*(array.mean(0, keepdims=True) for array in per_unit))[0]), low, high
    )


@functools.cache
def intervals(
    name: str, make=bootstrap, n_units: int = N_UNITS, n_sets: int = N_SETS
) -> list[Interval]:
    """Intervals from independent data sets of a law."""
    law = LAWS[name]
    rng = np.random.default_rng([zlib.crc32(name.encode()), 0])
    return [
        make(law.statistic, *law.draw(rng, n_units), positive=law.positive) for _ in range(n_sets)
    ]


def shorter(i: Interval) -> Interval:
    """The mutant: an interval that is shrunk by a tenth."""
    return Interval(i.value, i.value + 0.9 * (i.low - i.value), i.value + 0.9 * (i.high - i.value))


def check_coverage(
    found: list[Interval], truth: float, at_least: float = AT_LEAST, wrong: float = WRONG
):
    """Enough intervals hold the truth, and few decide wrongly where it lies at a region's edge."""
    assert sum(i.low <= truth <= i.high for i in found) >= at_least * len(found) / N_SETS
    for supports in ((-INF, truth), (truth, INF)):
        rule = Condition("it", "", supports, None)
        verdicts = [rule.outcome(Estimate.of("it", i)) for i in found]
        assert verdicts.count("supported") <= wrong * len(found) / N_SETS


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_intervals_cover(name):
    check_coverage(intervals(name), LAWS[name].truth, wrong=LAWS[name].wrong)


@pytest.mark.slow
def test_intervals_a_tenth_shorter_are_noticed():
    def check_every(change):
        for name, law in LAWS.items():
            check_coverage([change(i) for i in intervals(name)], law.truth, wrong=law.wrong)

    check_every(lambda i: i)
    must_fail(check_every, shorter)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exponential mean", "standard deviation", "variance, positive"])
def test_tails_cover_as_often_as_they_say(name):
    """Level 1 - 0.05 / k; four standard errors, and a half more for what skewed laws lack."""
    truth = LAWS[name].truth
    for k in range(1, 7):
        missed = sum(not i.tails[k - 1][0] <= truth <= i.tails[k - 1][1] for i in intervals(name))
        assert missed <= 1.5 * (50 / k) + 4 * np.sqrt(50 / k)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(QUICK, 2))
def test_a_few_intervals_cover(name):
    """Three standard errors below what a thousand data sets are asked for."""
    check_coverage(intervals(name, n_sets=150), LAWS[name].truth, AT_LEAST - 66, WRONG + 53)


def test_percentiles_are_noticed():
    """For a skewed law, too few of these intervals hold the truth, and most misses lie below it."""
    law = LAWS["lognormal mean, positive"]
    must_fail(check_coverage, intervals("lognormal mean, positive", percentile, 64, 400), law.truth)


@pytest.mark.slow
def test_where_percentiles_fail_studentised_intervals_hold():
    check_coverage(
        intervals("lognormal mean, positive", bootstrap, 64), np.exp(0.5), AT_LEAST - 10, WRONG + 10
    )
