"""The exact permutation interval: against brute force, its coverage, and groups too small."""

import math
from itertools import combinations

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses import permutation
from icl_interp.errors import InputError

SIZES = [(5, 5), (4, 4), (4, 6), (8, 5)]


def draws(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng([seed, n, m])
    return g.standard_normal(n) + 0.7, g.standard_normal(m)


def brute_p(first: np.ndarray, second: np.ndarray, shift: float) -> float:
    """All splits of the shifted numbers, one by one.

    Differences that only rounding tells apart count as equal.
    """
    pooled = np.concatenate([first - shift, second])
    total, n, m = pooled.sum(), len(first), len(second)
    sums = np.array([sum(chosen) for chosen in combinations(pooled, n)])
    found = sums / n - (total - sums) / m
    own = found[0]
    return min(1.0, 2 * min(np.mean(found >= own - 1e-12), np.mean(found <= own + 1e-12)))


def check_p(p_value):
    for sizes in SIZES[:3]:
        first, second = draws(*sizes)
        for shift in (-1.0, 0.0, 0.7, 2.0):
            assert p_value(first, second, shift) == pytest.approx(brute_p(first, second, shift))


def test_p_values_are_those_of_all_splits():
    check_p(permutation.p_value)
    must_fail(check_p, lambda first, second, shift: permutation.p_value(second, first, shift))
    must_fail(check_p, lambda first, second, shift: permutation.p_value(first[1:], second, shift))


def check_inversion(difference):
    """Shifts just inside the interval are not rejected, and those just outside are.

    This holds at every level that the tails need.
    """
    for sizes in SIZES[:3]:
        first, second = draws(*sizes)
        found = difference(first, second)
        assert found.value == pytest.approx(first.mean() - second.mean())
        for k, (low, high) in enumerate(found.tails, 1):
            if math.isfinite(low):
                p = [
                    brute_p(first, second, end + step)
                    for end in (low, high)
                    for step in (-1e-9, 1e-9)
                ]
                assert max(p[0], p[3]) <= 0.05 / k < min(p[1], p[2])


def test_the_interval_holds_what_the_test_does_not_reject():
    check_inversion(permutation.difference)
    must_fail(
        check_inversion, lambda first, second: permutation.difference(first, second, level=0.9)
    )
    assert permutation.difference(*draws(5, 5)).tails[0] == pytest.approx(
        (permutation.difference(*draws(5, 5)).low, permutation.difference(*draws(5, 5)).high)
    )


def covered(interval, law, n: int, m: int, n_draws: int = 1000, shift: float = 0.5) -> float:
    """How often intervals hold the shift between two groups of one law."""
    g = np.random.default_rng(1)
    found = [interval(law(g, n) + shift, law(g, m)) for _ in range(n_draws)]
    return float(np.mean([i.low <= shift <= i.high for i in found]))


LAWS = {
    "normal": lambda g, n: g.standard_normal(n),
    "skewed": lambda g, n: g.standard_exponential(n),
    "heavy": lambda g, n: g.standard_t(2, n),
}


def check_coverage(interval):
    for law in LAWS.values():
        assert (
            0.92 <= covered(interval, law, 5, 5) <= 0.975
        )  # exactly 0.952; four standard errors are 0.027


@pytest.mark.slow
def test_coverage_is_what_it_says():
    check_coverage(permutation.difference)

    def normal(first, second):  # 1.96 standard errors of five numbers an arm are too few
        one = permutation.difference(first, second)
        return type(one)(one.value, one.value - 1.96 * one.se, one.value + 1.96 * one.se)

    must_fail(check_coverage, normal)


@pytest.mark.slow
def test_coverage_of_groups_that_differ_in_spread_or_size():
    g_wide = {"first": 0}

    def spreads(g, n):  # the groups in turn: three times the spread of the other
        g_wide["first"] += 1
        return g.standard_normal(n) * (3 if g_wide["first"] % 2 else 1)

    assert covered(permutation.difference, spreads, 5, 5) > 0.9
    assert covered(permutation.difference, LAWS["normal"], 4, 4) > 0.95
    assert covered(permutation.difference, LAWS["normal"], 5, 4) > 0.93


def check_three_decide_nothing(difference):
    g = np.random.default_rng(2)
    for _ in range(20):
        first, second = g.standard_normal(3) + 1e6, g.standard_normal(3)
        found = difference(first, second)
        assert (found.low, found.high) == (-np.inf, np.inf)
        assert found.value == pytest.approx(1e6, rel=1e-5)


def test_three_against_three_never_decide():
    check_three_decide_nothing(permutation.difference)
    must_fail(
        check_three_decide_nothing,
        lambda first, second: permutation.difference(first, second, level=0.89),
    )
    assert permutation.p_value(np.arange(3.0) + 10, np.arange(3.0)) == pytest.approx(0.1)
    assert permutation.p_value(np.arange(4.0) + 10, np.arange(4.0)) == pytest.approx(2 / 70)


def test_ratios_are_differences_of_logarithms():
    first, second = (np.exp(x) for x in draws(5, 5))
    found, logs = (
        permutation.ratio(first, second),
        permutation.difference(np.log(first), np.log(second)),
    )
    assert (found.value, found.low, found.high) == pytest.approx(
        tuple(np.exp([logs.value, logs.low, logs.high]))
    )
    assert found.se / found.value == pytest.approx(logs.se)
    assert found.positive
    other = permutation.ratio(second, first)
    assert (1 / other.value, 1 / other.high, 1 / other.low) == pytest.approx(
        (found.value, found.low, found.high)
    )
    scaled = permutation.ratio(3 * first, second)
    assert (scaled.low, scaled.high) == pytest.approx((3 * found.low, 3 * found.high))


def test_standard_errors_are_welch_s():
    first, second = draws(4, 6)
    one = permutation.difference(first, second).se
    assert one == pytest.approx(np.sqrt(first.var(ddof=1) / 4 + second.var(ddof=1) / 6))
    assert np.isnan(permutation.difference(first[:1], second).se)


@pytest.mark.parametrize(
    ("first", "second"),
    [([], [1.0]), ([1.0, np.nan], [1.0]), ([1.0], [np.inf]), (range(11), range(11))],
)
def test_bad_groups_are_refused(first, second):
    with pytest.raises(InputError):
        permutation.difference(np.array(first, dtype=float), np.array(second, dtype=float))
    with pytest.raises(InputError, match="positive"):
        permutation.ratio(np.array([1.0, 0.0]), np.array([1.0]))
