"""The claims on the width and the shape of a window, on units whose M is known."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from made_up_facts import changed
from ridge_units import RELU, TURNED, N, bench, best, judge, square, unit, value

from icl_interp.analyses.criterion import Estimate
from icl_interp.experiments import calibration
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.claims import covariance, window
from icl_interp.studies.lipschitz.claims.window import factor
from icl_interp.studies.lipschitz.constructions.units import unwhitened
from icl_interp.studies.lipschitz.measurements import window_losses
from icl_interp.studies.lipschitz.measurements.unit import functions_of, sigma_of
from icl_interp.studies.lipschitz.measurements.window_losses import matrix_losses, optimum
from icl_interp.tasks import RidgeFunction, Sphere
from icl_interp.theory import lipschitz as theory

EYE = torch.eye(3, dtype=torch.float64)
NOISY = RidgeFunction(link="relu", inputs=Sphere(3), noise_std=3.0, n_points=N + 1)
QUADRATIC = RidgeFunction(
    link="quadratic", inputs=Sphere(3), lipschitz=2.0, noise_std=0.03, n_points=N + 1
)


# ---- width ---------------------------------------------------------------------------------------


LONGER = [
    (0.2, "contradicted"),
    (1.2, "supported"),
    (0.85, "supported"),
    (5.0, "contradicted"),
    (0.0, "contradicted"),
    (-1.0, "contradicted"),
]


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        (1.0, "supported"),
        pytest.param(1.7, "inconclusive", marks=pytest.mark.slow),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in LONGER),
    ],
)
def test_widths_beside_the_best(times, verdict):
    finding = judge("optimal_window", unit(times * best() * EYE))
    assert finding.verdict == verdict
    if times > 0:
        assert value(finding) == pytest.approx(max(times, 1 / times), rel=1e-6)
    assert finding.control is not None


def judged_with(share, claim):
    """The finding on the best unit, of which it is said that its R^2 is so many times the best."""
    case = calibration.Case(unit(best() * EYE), RELU)
    lab, known = calibration.lab_for(case, n_units=64, n_contexts=1)
    results = calibration.measure(lab, known, [claim])
    variance = known.error / (1 - known.r2)
    r2 = share * (1 - numbers_in(results[optimum])["loss"] / variance)
    told = changed(known, error=variance * (1 - r2), r2=r2)
    assert window.share_learned(results, told).value == pytest.approx(share)
    return claim.judge_results(results, told)


def check_gate(claim=window.OPTIMAL_WINDOW_CLAIM):
    little = judged_with(0.4, claim)
    assert little.verdict == "inconclusive"
    assert "is only 0.4 of that of the best window" in little.reason
    assert judged_with(0.6, claim).verdict == "supported"


@pytest.mark.slow
def test_a_unit_that_hardly_uses_its_examples_is_not_judged():
    check_gate()
    others = tuple(one for one in window.CRITERION.preconditions if one.quantity != "learned")
    ungated = replace(window.CRITERION, preconditions=others)
    must_fail(check_gate, replace(window.OPTIMAL_WINDOW_CLAIM, criterion=ungated))


@pytest.mark.slow
def test_the_best_of_all_matrices_has_the_best_width():
    """M free, by L-BFGS on other contexts: an independent route to the best width.

    The scalar minimisation is the other route.
    """
    contexts = theory.draw_contexts(
        N, functions_of(TURNED), 4000, covariance=sigma_of(TURNED), seed=5
    )
    matrix = theory.optimal_matrix(contexts, TURNED.noise_std).matrix
    for claim in ("optimal_window", "inverse_covariance"):
        assert judge(claim, unit(matrix, TURNED), TURNED).verdict == "supported"
    assert judge("inverse_covariance", unit(matrix, RELU)).verdict == "contradicted"


@pytest.mark.slow
def test_functions_isotropic_before_whitening_have_another_best_matrix():
    """The counterexample to the lemma without its condition.

    Asked of it, the claim is not supported.
    """
    sigma = sigma_of(TURNED)
    contexts = theory.draw_contexts(
        N, functions_of(TURNED), 4000, covariance=sigma, rotate_whitened=False, seed=5
    )
    matrix = theory.optimal_matrix(contexts, TURNED.noise_std).matrix
    finding = judge("inverse_covariance", unit(matrix, TURNED), TURNED)
    assert finding.verdict != "supported"
    assert value(finding) > covariance.NEAR


@pytest.mark.slow
def test_where_the_loss_is_flat_nothing_is_decided():
    width = float(window_losses.best_window(NOISY).window)
    for times in (1.0, 2.2):
        finding = judge("optimal_window", unit(times * width * EYE, NOISY), NOISY)
        assert finding.verdict == "inconclusive"


@pytest.mark.slow
def test_the_sign_counts_unless_functions_are_even():
    even = float(window_losses.best_window(QUADRATIC).window)
    for claim in ("optimal_window", "inverse_covariance"):
        assert judge(claim, unit(-even * EYE, QUADRATIC), QUADRATIC).verdict == "supported"
        assert judge(claim, unit(-best() * EYE)).verdict == "contradicted"


def check_factor(make):
    inside, narrow, wide = (make(w, 2.0, 2.5, 4.0) for w in (3.0, 8.0, 1.0))
    assert (inside.low, inside.value, inside.high) == pytest.approx((1.0, 1.2, 1.5))
    assert (narrow.low, narrow.value, narrow.high) == pytest.approx((2.0, 3.2, 4.0))
    assert (wide.low, wide.value, wide.high) == pytest.approx((2.0, 2.5, 4.0))
    open_ = make(3.0, 0.0, 2.5, 4.0)
    assert (open_.low, open_.high) == (1.0, window.LARGEST)
    assert make(-1.0, 2.0, 2.5, 4.0).low == window.LARGEST
    assert make(3.0, 2.0, 2.5, math.inf).high == window.LARGEST


def test_the_interval_of_the_factor_spans_windows_that_are_no_worse():
    check_factor(factor)
    must_fail(
        check_factor,
        lambda w, low, best, high: Estimate("f", w / best, w / high, w / max(low, 1e-9)),
    )


@pytest.mark.parametrize("times", [0.4, 1.0, 3.0])
def test_losses_agree_with_the_table(times):
    """Two Monte Carlos: losses of a matrix on drawn contexts, and the table of windows."""
    result = bench(unit(times * best() * EYE)).measure(matrix_losses)
    own = result.sel(matrix=window_losses.MODEL).values
    table = theory.window_loss(
        window_losses.loss_table_of(RELU), times * best(), RELU.lipschitz, RELU.noise_std
    )
    error = math.hypot(own.std(ddof=1) / math.sqrt(len(own)), float(table.error))

    def check(expected):
        assert abs(own.mean() - expected) < 4 * error

    check(float(table.value))
    must_fail(check, 1.2 * float(table.value))
    assert own == pytest.approx(result.sel(matrix=window_losses.ISOTROPIC).values, rel=1e-9)


def test_windows_that_are_no_worse_have_a_hundredth_more_loss_at_their_ends():
    found = numbers_in(bench(unit(best() * EYE)).measure(optimum))
    ends = torch.tensor([found["flat low"], found["flat high"]]).double()
    losses = theory.window_loss(
        window_losses.loss_table_of(RELU), ends, RELU.lipschitz, RELU.noise_std
    ).value
    assert torch.allclose(losses, torch.full((2,), 1.01 * found["loss"]).double(), rtol=1e-3)
    assert found["flat low"] < found["low"] < found["w*"] < found["high"] < found["flat high"]


# ---- shape ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "verdict"),
    [(0.0, "supported"), (0.08, "supported"), (0.15, "inconclusive"), (0.3, "contradicted")],
)
def test_shapes_beside_the_inverse_covariance(off, verdict):
    width = float(window_losses.best_window(TURNED).window)
    skew = torch.linalg.qr(square(3, 3)).Q
    white = width * (EYE + off * (skew * torch.tensor([1.0, 0.0, -1.0])) @ skew.T)
    finding = judge("inverse_covariance", unit(unwhitened(white, TURNED), TURNED), TURNED)
    assert finding.verdict == verdict
    assert value(finding) == pytest.approx(off, abs=1e-9)
    assert finding.control is not None
    assert finding.control.value > covariance.FAR


@pytest.mark.slow
def test_where_the_loss_hardly_knows_the_shape_nothing_is_decided():
    finding = judge(
        "inverse_covariance", unit(torch.diag(torch.tensor([0.3, 0.2, 0.2])).double(), NOISY), NOISY
    )
    assert finding.verdict == "inconclusive"
    assert "hardly depends on the shape" in finding.reason
