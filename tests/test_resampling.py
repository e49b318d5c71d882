"""Intervals: they cover as often as they say, by simulation with a fixed number of data sets."""

import functools
import math

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icl_interp import resampling
from icl_interp.resampling import bootstrap, draw_weights, simultaneous, slope

N_SETS = 300  # data sets of every simulation
N_FUNCTIONS, N_CONTEXTS = 40, 5


def mean(values):
    return values


def ratio(numerator, denominator):
    return numerator / denominator


def data_set(rng):
    """Numbers per function and context, mean 1: most of their variance is between functions."""
    return 1 + rng.normal(size=(N_FUNCTIONS, 1)) + 0.5 * rng.normal(size=(N_FUNCTIONS, N_CONTEXTS))


def by_function(data):
    return bootstrap(mean, data.mean(1))


def by_prompt(data):
    """The mistake: contexts of one function taken for independent."""
    return bootstrap(mean, data.ravel())


def too_bold(data):
    return bootstrap(mean, data.mean(1), level=0.8)


def too_shy(data):
    return bootstrap(mean, data.mean(1), level=0.999)


def check_coverage(interval):
    """95 % of intervals hold the truth, give or take 4 standard errors and 2 points (percentile intervals of 40 units
    are a little short); and they are as wide as normal theory says, so not for being endless."""
    rng, hits, widths = np.random.default_rng(0), [], []
    for _ in range(N_SETS):
        i = interval(data_set(rng))
        hits.append(i.low <= 1 <= i.high)
        widths.append(i.high - i.low)
    assert np.mean(hits) >= 0.95 - 0.02 - 4 * math.sqrt(0.95 * 0.05 / N_SETS)
    expected = 2 * 1.96 * math.sqrt((1 + 0.25 / N_CONTEXTS) / N_FUNCTIONS)
    assert 0.9 * expected < np.mean(widths) < 1.1 * expected


def test_the_cluster_bootstrap_covers():
    check_coverage(by_function)


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
    assert np.mean(hits) >= 0.95 - 0.02 - 4 * math.sqrt(0.95 * 0.05 / N_SETS)


def test_functions_of_several_means_cover():
    check_ratio_coverage(lambda size: size)
    must_fail(check_ratio_coverage, lambda size: size - 0.5)


@pytest.fixture(autouse=True, scope="module")
def drawn_once():
    """Weights are a pure function of their arguments, and simulations ask for the same ones hundreds of times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "draw_weights", functools.cache(draw_weights))
        yield


N_HEADS = 8


def pointwise(data):
    each = [bootstrap(mean, column) for column in data.T]
    return data.mean(0), np.array([i.low for i in each]), np.array([i.high for i in each])


def far_too_wide(data):
    return simultaneous(mean, data, level=0.99999)


def check_joint_coverage(intervals):
    """All heads at once, and no wider than Bonferroni's: between 1.96 and 2.9 standard errors to each side."""
    rng, hits, widths = np.random.default_rng(2), [], []
    for _ in range(N_SETS // 3):
        data = rng.normal(size=(60, N_HEADS)) + rng.normal(size=(60, 1))
        _, low, high = intervals(data)
        hits.append(((low <= 0) & (high >= 0)).all())
        widths.append(np.mean(high - low) / 2 / math.sqrt(2 / 60))
    assert np.mean(hits) >= 0.95 - 0.02 - 4 * math.sqrt(0.95 * 0.05 / len(hits))
    assert 1.96 < np.mean(widths) < 2.9


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
    for a, b in zip(simultaneous(mean, data, seed=1), simultaneous(mean, data, seed=1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(simultaneous(mean, data, seed=1)[1], simultaneous(mean, data, seed=2)[1])


def test_a_statistic_may_use_whole_arrays():
    data = np.random.default_rng(0).normal(size=(30, 2, 3))
    found = bootstrap(lambda means: means[:, 0, 2] - means[:, 1, 0], data)
    assert found.value == pytest.approx(data[:, 0, 2].mean() - data[:, 1, 0].mean())
    plain = bootstrap(mean, data[:, 0, 2] - data[:, 1, 0])
    assert (found.low, found.high) == (pytest.approx(plain.low), pytest.approx(plain.high))


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
