"""Standard errors of statistics of one number: sums over units give what influences give."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.resampling import bootstrap


def check_one_slope(single, several):
    """A statistic of one mean gets the same standard errors from sums and from influences.

    Influences are used where the mean is split in two numbers.
    """
    units = np.random.default_rng(2).gamma(2.0, size=37)
    one, two = single(units), several(units)
    found, expected = ([i.value, i.low, i.high, i.se] for i in (one, two))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


SPLIT = np.random.default_rng(3).normal(size=37)


@pytest.mark.parametrize(
    "factor", [1.0, -3.0]
)  # of a nonlinear statistic the slopes depend on the step
def test_one_number_is_quick_and_right(factor):
    check_one_slope(
        lambda x: bootstrap(lambda m: factor * m, x),
        lambda x: bootstrap(lambda a, b: factor * (a + b), x - SPLIT, SPLIT),
    )


def test_errors_of_another_statistic_are_noticed():
    must_fail(check_one_slope, lambda x: bootstrap(np.sqrt, x), lambda x: bootstrap(np.cbrt, x))
    must_fail(
        check_one_slope,
        lambda x: bootstrap(lambda m: m, x),
        lambda x: bootstrap(lambda m: m, x + 1e-3 * SPLIT),
    )
