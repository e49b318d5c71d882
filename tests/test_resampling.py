"""Intervals: units are resampled whole, invariances, what happens where slopes fail.

Coverage: test_resampling_coverage.py.
"""

import functools
import math

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icl_interp.resampling import Interval, bootstrap, draw_weights, simultaneous, slope

N_SETS = 80  # data sets of every simulation
N_UNITS, N_CONTEXTS = 40, 5


def mean(values):
    return values


def ratio(numerator, denominator):
    return numerator / denominator


def data_set(rng):
    """Numbers per unit and context, mean 1: most of their variance is between units."""
    return 1 + rng.normal(size=(N_UNITS, 1)) + 0.5 * rng.normal(size=(N_UNITS, N_CONTEXTS))


def by_unit(data):
    return bootstrap(mean, data.mean(1))


def by_prompt(data):
    """The mistake: contexts of one unit taken for independent."""
    return bootstrap(mean, data.ravel())


def too_bold(data):
    return bootstrap(mean, data.mean(1), level=0.8)


def too_shy(data):
    return bootstrap(mean, data.mean(1), level=0.999)


def check_coverage(interval):
    """95 % of intervals hold the truth, give or take 4 standard errors; and they are as wide as
    normal theory says, so not for being endless.
    """
    rng, hits, widths = np.random.default_rng(0), [], []
    for _ in range(N_SETS):
        i = interval(data_set(rng))
        hits.append(i.low <= 1 <= i.high)
        widths.append(i.high - i.low)
    assert np.mean(hits) >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / N_SETS)
    expected = 2 * 1.96 * math.sqrt((1 + 0.25 / N_CONTEXTS) / N_UNITS)
    assert 0.9 * expected < np.mean(widths) < 1.1 * expected


def test_the_cluster_bootstrap_covers():
    check_coverage(by_unit)


@pytest.mark.parametrize("mutant", [by_prompt, too_bold, too_shy])
def test_a_wrong_interval_is_noticed(mutant):
    must_fail(check_coverage, mutant)


def check_ratio_coverage(denominator):
    """The ratio of two means that vary together, true value 3."""
    rng, hits = np.random.default_rng(1), []
    for _ in range(N_SETS):
        size = rng.gamma(4.0, size=60)
        i = bootstrap(ratio, 3 * size + rng.normal(size=60), denominator(size))
        hits.append(i.low <= 3 <= i.high)
    assert np.mean(hits) >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / N_SETS)


def test_functions_of_several_means_cover():
    check_ratio_coverage(lambda size: size)
    must_fail(check_ratio_coverage, lambda size: size - 0.5)


N_HEADS = 8


def pointwise(data):
    each = [bootstrap(mean, column) for column in data.T]
    return data.mean(0), np.array([i.low for i in each]), np.array([i.high for i in each])


def far_too_wide(data):
    return simultaneous(mean, data, level=0.99999)


def check_joint_coverage(intervals):
    """All heads at once, and no wider than Bonferroni: 2.2 to 2.9 standard errors each side."""
    rng, hits, widths = np.random.default_rng(2), [], []
    for _ in range(N_SETS // 4):
        data = rng.normal(size=(60, N_HEADS)) + rng.normal(size=(60, 1))
        _, low, high = intervals(data)
        hits.append(((low <= 0) & (high >= 0)).all())
        widths.append(np.mean(high - low) / 2 / math.sqrt(2 / 60))
    assert np.mean(hits) >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(hits))
    assert 2.2 < np.mean(widths) < 2.9


def test_simultaneous_intervals_hold_at_once():
    check_joint_coverage(functools.partial(simultaneous, mean))
    must_fail(check_joint_coverage, pointwise)
    must_fail(check_joint_coverage, far_too_wide)


def test_a_member_that_never_varies_has_no_width():
    data = np.random.default_rng(0).normal(size=(30, 3))
    data[:, 1] = 4.0
    middle, low, high = simultaneous(mean, data)
    assert middle[1] == pytest.approx(4)
    assert low[1] == pytest.approx(4)
    assert high[1] == pytest.approx(4)
    assert (low[[0, 2]] < middle[[0, 2]]).all()
    assert (middle[[0, 2]] < high[[0, 2]]).all()
    assert np.isfinite([low, high]).all()


def test_weights_are_shares_of_draws():
    weights = draw_weights(7, seed=3, n_draws=500)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(weights * 7, np.round(weights * 7), atol=1e-12)
    # A unit's count is binomial: mean 1, variance 1 - 1/n.
    assert np.abs(weights.mean(0) * 7 - 1).max() < 4 * math.sqrt((1 - 1 / 7) / 500)
    assert abs((weights * 7).var() - (1 - 1 / 7)) < 0.1


def test_draws_are_a_function_of_the_seed():
    x = np.random.default_rng(0).normal(size=25)
    assert bootstrap(mean, x, seed=1) == bootstrap(mean, x, seed=1)
    assert bootstrap(mean, x, seed=1) != bootstrap(mean, x, seed=2)
    data = x.reshape(5, 5)
    for a, b in zip(
        simultaneous(mean, data, seed=1), simultaneous(mean, data, seed=1), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(
        simultaneous(mean, data, seed=1)[1], simultaneous(mean, data, seed=2)[1]
    )


def test_a_statistic_may_use_whole_arrays():
    data = np.random.default_rng(0).normal(size=(30, 2, 3))
    found = bootstrap(lambda means: means[:, 0, 2] - means[:, 1, 0], data)
    assert found.value == pytest.approx(data[:, 0, 2].mean() - data[:, 1, 0].mean())
    plain = bootstrap(mean, data[:, 0, 2] - data[:, 1, 0])
    assert (found.low, found.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


# ---- standard errors -----------------------------------------------------------------------------


def check_standard_error(make):
    """That of a ratio is the delta method's, by hand."""
    a, b = np.random.default_rng(0).gamma(4.0, size=(2, 90))
    influence = (a - a.mean() / b.mean() * b) / b.mean()
    assert make(ratio, a, b).se == pytest.approx(influence.std(ddof=1) / math.sqrt(90), rel=1e-3)


def test_standard_errors_are_those_of_the_delta_method():
    check_standard_error(bootstrap)
    must_fail(check_standard_error, lambda statistic, a, b: bootstrap(statistic, a, b[::-1]))


def studentised(x):
    """The interval of a mean, by the book: Efron and Tibshirani (1993), equation 12.19."""
    weights, n = draw_weights(len(x)), len(x)
    means = weights @ x
    errors = np.sqrt((weights @ (x - x.mean()) ** 2 - (means - x.mean()) ** 2) / (n - 1))
    high, low = np.quantile((means - x.mean()) / errors, [0.025, 0.975], method="nearest")
    se = x.std(ddof=1) / math.sqrt(n)
    return x.mean() - low * se, x.mean() - high * se


def check_by_the_book(make):
    x = np.random.default_rng(3).exponential(size=50)
    found = make(mean, x)
    assert (found.low, found.high) == pytest.approx(studentised(x), rel=1e-3)


def test_intervals_of_a_mean_are_those_of_the_book():
    check_by_the_book(bootstrap)
    must_fail(check_by_the_book, lambda statistic, x: bootstrap(statistic, x, seed=1))
    must_fail(check_by_the_book, functools.partial(bootstrap, positive=True))


def test_numbers_that_are_used_in_few_draws_only_have_slopes_too():
    """The largest of forty alike: each is the largest in some draws."""
    x = np.random.default_rng(0).normal(size=(128, 40))
    found, one = bootstrap(lambda m: m.max(-1), x), bootstrap(mean, x[:, x.mean(0).argmax()])
    assert found.se == pytest.approx(one.se, rel=1e-3)
    assert found.low < found.value < found.high


# ---- invariances ---------------------------------------------------------------------------------


def numbers(i: Interval) -> np.ndarray:
    return np.array([i.value, i.low, i.high, *np.ravel(i.tails)])


def check_scaled(scale, shift, make):
    """An interval of a mean moves with the units."""
    x = np.random.default_rng(1).exponential(size=60)
    found, changed = make(mean, x), make(mean, shift + scale * x)
    expected = shift + scale * numbers(found)
    tolerance = 1e-6 * (abs(shift) + abs(scale))
    np.testing.assert_allclose(numbers(changed), expected, atol=tolerance)
    assert changed.se == pytest.approx(scale * found.se, abs=tolerance)


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 0.0), (3.0, 100.0), (1.0, -1e3)])
def test_intervals_move_with_the_units(scale, shift):
    check_scaled(scale, shift, bootstrap)


def test_an_interval_of_something_else_does_not_move():
    must_fail(check_scaled, 3.0, 100.0, functools.partial(bootstrap, positive=True))


def test_the_order_of_units_hardly_matters():
    x = np.random.default_rng(2).exponential(size=100)
    one, other = bootstrap(ratio, x, x**2), bootstrap(ratio, x[::-1], x[::-1] ** 2)
    assert (one.value, one.se) == (pytest.approx(other.value), pytest.approx(other.se))
    np.testing.assert_allclose([one.low, one.high], [other.low, other.high], atol=0.4 * one.se)


def check_logarithm(make):
    a, b = np.random.default_rng(4).gamma(2.0, size=(2, 80))
    found, log = make(ratio, a, b), bootstrap(lambda a, b: np.log(a / b), a, b)
    np.testing.assert_allclose(numbers(found), np.exp(numbers(log)), rtol=1e-9)
    assert found.se == pytest.approx(found.value * log.se)


def test_positive_intervals_are_those_of_the_logarithm():
    check_logarithm(functools.partial(bootstrap, positive=True))
    must_fail(check_logarithm, bootstrap)


def test_tails_hold_one_another():
    found = bootstrap(mean, np.random.default_rng(5).exponential(size=128))
    assert found.tails[0] == (found.low, found.high)
    assert len(found.tails) == 6
    low, high = np.array(found.tails).T
    assert (np.diff(low) <= 0).all()
    assert (np.diff(high) >= 0).all()
    half = bootstrap(mean, np.random.default_rng(5).exponential(size=128), level=0.975)
    assert found.tails[1] == (half.low, half.high)


# ---- where slopes fail ---------------------------------------------------------------------------


def percentiles(statistic, *per_unit):
    draws = statistic(*(np.tensordot(draw_weights(len(a)), a, axes=1) for a in per_unit))
    return tuple(np.quantile(draws, [0.025, 0.975], method="nearest"))


def share_above(m):
    return (m > 0).mean(-1)


def clipped(m):
    return np.maximum(m, 0.0)


@pytest.mark.parametrize(
    ("statistic", "centre"), [(share_above, np.linspace(-0.2, 0.2, 12)), (clipped, 0.0)]
)
def test_without_slopes_the_ends_are_percentiles(statistic, centre):
    x = np.random.default_rng(6).normal(size=(100, 12)) + centre
    x = x if statistic is share_above else x[:, 0] - x[:, 0].mean()
    found = bootstrap(statistic, x)
    low, high = percentiles(statistic, x)
    assert (found.low, found.high) == (pytest.approx(min(low, found.value)), pytest.approx(high))
    assert found.low < found.high
    assert 0 < found.se < 1


def crossing(m):
    """Where a falling curve crosses 0.5; beyond its end where it never does.

    A kink at each point, steps at the end.
    """
    below = m < 0.5
    i = np.maximum(np.argmax(below, -1), 1)
    a, b = (np.take_along_axis(m, k[:, None], -1)[:, 0] for k in (i - 1, i))
    return np.where(
        below.any(-1),
        i - 1 + np.clip((a - 0.5) / np.where(a == b, 1.0, a - b), 0.0, 1.0),
        m.shape[-1],
    )


@pytest.mark.parametrize("end", [6, 3])
def test_crossings_of_a_threshold_have_finite_intervals(end):
    """In the middle of the grid, and where half of the draws never cross."""
    rng = np.random.default_rng(7)
    curve = 1 - np.arange(end) / 4.5 + rng.normal(0, 0.6, (128, 1)) + rng.normal(0, 0.1, (128, end))
    found = bootstrap(crossing, curve)
    assert 0 < found.low < found.value < found.high <= end or end == 3
    assert 0 <= found.low <= found.value <= found.high <= end
    assert np.isfinite(found.se)
    assert found.se < end


def test_shares_stay_within_their_range():
    """R2 close to 1, of few units with heavy tails: t would go beyond."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        a, b = 1e-2 * rng.normal(size=20) ** 8, rng.normal(size=20) ** 2
        found = bootstrap(lambda a, b: 1 - a / b, a, b)
        assert np.max(found.tails) <= 1
    largest = bootstrap(
        lambda m: np.abs(m).max(-1), rng.normal(size=(128, 20))
    )  # biased, and never below 0
    assert 0 <= np.min(largest.tails) < largest.value < largest.high
    once = bootstrap(mean, (np.arange(100) < 97).astype(float))
    assert once.low < 0.97 < once.high <= 1


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, 7.0])
def test_what_never_varies_is_exact(positive, value):
    found = bootstrap(mean, np.full(30, value), positive=positive)
    np.testing.assert_allclose(numbers(found), value, rtol=1e-12)
    assert found.low == found.value == found.high
    assert found.se == 0
    steady = bootstrap(ratio, *([np.arange(1.0, 31.0)] * 2), positive=positive)
    assert steady.low == pytest.approx(1)
    assert steady.high == pytest.approx(1)


def test_positive_values_may_be_0_in_a_draw():
    """One unit in ten is above 0, so some draws hold none, and the interval reaches down to 0."""
    found = bootstrap(mean, np.array([1.0] * 3 + [0.0] * 27), positive=True)
    assert (found.low, found.value) == (0, pytest.approx(0.1))
    assert 0.1 < found.high < 0.4
    with pytest.raises(ValueError, match="a positive statistic is expected"):
        bootstrap(mean, np.linspace(-1, 1, 30), positive=True)


def test_nan_is_passed_on():
    x = np.arange(30.0)
    x[3] = np.nan
    found = bootstrap(mean, x)
    assert np.isnan(numbers(found)).all()
    value, low, high = simultaneous(mean, np.stack([x, np.arange(30.0)], 1))
    assert np.isnan([value[0], low[0], high[0]]).all()
    assert low[1] < 14.5 < high[1]


def test_members_have_their_own_standard_errors():
    """A skewed member among steady ones: intervals are wider in its own standard errors only."""
    rng = np.random.default_rng(9)
    data = rng.normal(size=(60, 5)) * [1, 10, 100, 1e3, 1e4]
    value, low, high = simultaneous(lambda a, b: a - b, data, -data)
    errors = 2 * data.std(0, ddof=1) / math.sqrt(60)
    np.testing.assert_allclose((high - low) / errors, ((high - low) / errors)[0], rtol=1e-3)
    np.testing.assert_allclose((high + low) / 2, value)


# ---- slopes of curves ----------------------------------------------------------------------------

XS = np.array([0.0, 0.5, 2.0, 3.0])


def check_slope(fit, powers, factors):
    """log y = p log x + log c, for every curve of a batch."""
    found = fit(XS, powers[..., None] * XS + factors[..., None])
    np.testing.assert_allclose(found, powers, rtol=1e-9, atol=1e-9)


BATCHES = hnp.arrays(np.float64, (2, 3), elements=st.floats(-5, 5))


@given(powers=BATCHES, factors=BATCHES)
def test_slopes_of_power_laws_are_exact(powers, factors):
    check_slope(slope, powers, factors)


def test_another_fit_is_noticed():
    powers, factors = np.full((2, 3), 0.5), np.full((2, 3), 1.0)
    must_fail(check_slope, lambda x, y: (x * y).sum(-1) / (x**2).sum(), powers, factors)
    must_fail(check_slope, lambda x, y: slope(x, y) + 1e-6, powers, factors)


def test_slope_is_that_of_least_squares():
    y = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(slope(XS, y), np.polyfit(XS, y.T, 1)[0])
