"""The share of squares that a fit explains, and what it is where there is nothing to explain."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.resampling import r_squared


def test_r2_is_that_of_a_regression():
    """For least squares with a constant it is the squared correlation of fit and truth."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50))
    y = y + x
    fitted = np.polyval(np.polyfit(x, y, 1), x)
    found = r_squared(((y - fitted) ** 2).mean(), y.var())
    assert found == pytest.approx(np.corrcoef(fitted, y)[0, 1] ** 2)
    assert r_squared(y.var(), y.var()) == 0
    assert r_squared(2 * y.var(), y.var()) == -1


def test_r2_where_there_is_nothing_to_explain():
    def check(r2):
        np.testing.assert_array_equal(
            r2(np.array([0.0, 1.0]), np.array([0.0, 2.0]), empty=1.0), [1.0, 0.5]
        )
        assert r2(1e-30, 1e-30, empty=1.0, least=1e-24) == 1
        assert r2(1.0, 0.0, empty=1.0) < -1e100  # something was missed, though there is nothing
        for residual, total in ((np.nan, 0.0), (0.0, np.nan), (np.nan, 1.0)):
            assert np.isnan(r2(residual, total, empty=1.0))

    check(r_squared)
    must_fail(
        check,
        lambda a, b, empty, least=1e-300: np.where(b > least, 1 - a / np.maximum(b, least), empty),
    )
    assert np.isnan(r_squared(0.0, 0.0))
