"""Predictions around the circle: the estimator by hand, and what a wide and a narrow window do."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.experiments import kept
from icl_interp.studies.lipschitz.experiments import circle_predictions

N = 20


@pytest.fixture(scope="module")
def results():
    return circle_predictions.shown(N, contexts=400)


def by_hand(results, w):
    """sum_i y_i e^(w cos(angle - angle_i)) / sum_i e^(...), by a plain loop over queries."""
    examples = results["examples"]
    found = []
    for angle in results["predictions"]["angle"].values:
        scores = w * np.cos(angle - examples["angle"].to_numpy())
        weights = np.exp(scores - scores.max())
        found.append((weights * examples["label"].to_numpy()).sum() / weights.sum())
    return np.array(found)


def test_lines_are_the_smoothers_of_their_windows(results):
    def check(shift):
        for row in results["windows"].to_dict("records"):
            line = results["predictions"].sel(line=row["line"]).values
            np.testing.assert_allclose(line, by_hand(results, row["w"] * shift), atol=1e-6)

    check(1.0)
    must_fail(check, 0.5)


def test_f_is_the_function_that_is_named(results):
    right, left, constant = circle_predictions.SLOPES
    z = np.cos(results["predictions"]["angle"].values)
    f = right * np.maximum(z, 0) + left * np.maximum(-z, 0) + constant
    np.testing.assert_allclose(results["predictions"].sel(line="f").values, f, atol=1e-12)


def test_a_small_m_is_flat_a_large_one_follows_the_noise_and_the_best_is_nearest_to_f():
    def check(small, best, large):
        f = curves.sel(line="f").values
        missed = {name: np.square(curves.sel(line=name).values - f).mean() for name in names}
        assert missed[best] < missed[large] < missed[small]
        assert np.ptp(curves.sel(line=small).values) < 0.2 * np.ptp(f)
        # A narrow window gives labels back: each prediction is about that of some example.
        gaps = np.abs(curves.sel(line=large).values[:, None] - examples["label"].to_numpy())
        assert np.median(gaps.min(1)) < 1e-2

    stored = kept.results("lipschitz.bias_noise")
    curves, examples = stored["predictions"], stored["examples"]
    names = ("small |M|", "best |M|", "large |M|")
    check(*names)
    must_fail(check, *names[::-1])


def test_stored_predictions_are_those_of_todays_code():
    stored, again = kept.results("lipschitz.bias_noise"), circle_predictions.shown(100, 400)
    for line in ("f", "small |M|", "large |M|"):  # the best window takes more contexts
        mine, theirs = (found["predictions"].sel(line=line) for found in (again, stored))
        np.testing.assert_allclose(mine.values, theirs.values, atol=1e-6)
