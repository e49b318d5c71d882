"""What is left of the context far out: its spread and its information, on data whose answer is exact, and the claim."""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from measuring import judged_on
from small_models import make, small_lab
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.studies.limits.claims import context as limits_context
from icl_interp.studies.limits.claims.context import _amplitude, _cross_validated, _decay, _products, r_squared, spread
from icl_interp.studies.limits.constructions.layers import random_pre_norm, scalar_layer
from icl_interp.studies.limits.measurements import far

ERASED = "limits.context_erased"
GRID = far.GROWTH


# ---- spread ---------------------------------------------------------------------------------------------------------


def curve_of(f: np.ndarray, xs) -> DataArray:
    """As the lab stores f, from (function, context, x)."""
    values = np.stack([f.mean(1), (f**2).mean(1), f.var(1)])
    axes = {"statistic": ("mean", "mean square", "variance"), "function": tuple(range(len(f))), "x": tuple(xs)}
    return make_curve(values, axes)


def contexts(size: float, offset: float, power: float, xs=None) -> np.ndarray:
    """f = offset |x| + size |x|^power (a number of the function and the context): (function, context, x)."""
    xs = np.array(GRID if xs is None else xs)
    noise = np.random.default_rng(1).normal(size=(24, 5, 1)) + np.random.default_rng(2).normal(size=(24, 1, 1))
    return offset * np.abs(xs) + size * noise * np.abs(xs) ** power


def check_spread(sd):
    """The standard deviation over all prompts, also where it is 1e-9 of f: differences of squares would lose it."""
    for size, offset, power in ((1.0, 0.0, 0.0), (1.0, 0.0, -1.0), (1e-3, 1e3, 0.0), (1e-2, 1e5, -0.5)):
        f = contexts(size, offset, power)
        expected = (f - offset * np.abs(GRID)).reshape(-1, len(GRID)).std(0)
        assert np.allclose(sd(curve_of(f, GRID)), expected, rtol=1e-3)


def test_the_spread_over_contexts():
    def by_squares(curve):
        mean, square = curve.values[:2].mean(1)
        return np.sqrt(np.maximum(square - mean**2, 0))

    check_spread(spread)
    must_fail(check_spread, by_squares)


def test_stored_variances_are_those_of_the_sweep():
    lab = small_lab()
    f = lab.sweep(lab.inner).numpy().reshape(4, 3, 2)
    stored = far.in_distribution(lab)
    assert np.allclose(stored.values, curve_of(f, lab.inner).values, rtol=1e-12)
    assert np.allclose(spread(stored), f.reshape(12, 2).std(0), rtol=1e-12)
    assert np.allclose(far.intact(lab).values[:, :, 5], far.intact(lab).sel(x=lab.grid[5]).values)


def test_amplitude_is_far_spread_over_near_spread():
    near = curve_of(contexts(2.0, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))
    for size, offset in ((0.5, 0.0), (0.5, 2.0), (0.02, 1e3)):
        found = _amplitude(curve_of(contexts(size, offset, 0.0), GRID), near)
        assert found.value == pytest.approx(size / 2, rel=1e-4)
        assert found.low == pytest.approx(size / 2, rel=1e-3)  # the same contexts: draws cancel
    assert _amplitude(curve_of(contexts(0.0, 1 / 3, 0.0), GRID), near).high < 1e-10


def test_decay_is_the_slope_of_the_spread():
    """The slower of the two directions; -inf where nothing but rounding is left."""

    def check(decay):
        for power in (-1.0, -2.0, 0.0, 0.5):
            assert decay(curve_of(contexts(1.0, 0.0, power), GRID)) == pytest.approx(power, abs=1e-6)
        assert decay(curve_of(contexts(1.0, 1e-3, -1.0), GRID)) == pytest.approx(-1.0, abs=1e-4)
        assert decay(curve_of(contexts(0.0, 1 / 3, 0.0), GRID)) == -np.inf
        mixed = np.where(GRID > 0, contexts(1.0, 0.0, -1.0), contexts(1.0, 0.0, -0.2))
        assert decay(curve_of(mixed, GRID)) == pytest.approx(-0.2, abs=1e-6)

    check(_decay)
    must_fail(check, lambda curve: 2 * _decay(curve))
    must_fail(check, lambda curve: max(_decay(curve), -1.5))


# ---- information ----------------------------------------------------------------------------------------------------


N_FUNCTIONS, N_CONTEXTS = 48, 5  # eight functions for each of the six features
PARAMETERS = torch.randn(N_FUNCTIONS, 2, generator=generator(0, "test/info"), dtype=torch.float64)
FUNCTION = torch.arange(N_FUNCTIONS).repeat_interleave(N_CONTEXTS)
NOISE = torch.randn(len(FUNCTION), generator=generator(1, "test/info"), dtype=torch.float64)


def r2(target: torch.Tensor, parameters: torch.Tensor | None = None) -> float:
    features = _products((PARAMETERS if parameters is None else parameters)[FUNCTION], N_FUNCTIONS)
    residual, total = _cross_validated(features, target, FUNCTION, N_FUNCTIONS)
    means = [v.view(N_FUNCTIONS, -1).mean(1).numpy() for v in (residual, total)]
    values = np.stack([means, means])[:, None]
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients",),
        "statistic": ("residual", "total"),
        "function": tuple(range(N_FUNCTIONS)),
    }
    return r_squared(make_array(values, axes), "coefficients").value


def test_cross_validated_r2():
    a, b = PARAMETERS[FUNCTION].T
    assert r2(0.3 * a - 2 * b + 7) == pytest.approx(1, abs=1e-10)
    assert r2(a * b + 0.1 * a**2) == pytest.approx(1, abs=1e-10)
    assert r2(1e-4 * a + 5) == pytest.approx(1, abs=1e-6)  # attenuated, not erased
    assert r2(a + NOISE) == pytest.approx(0.5, abs=0.15)
    assert r2(NOISE) < 0.05
    permuted = PARAMETERS[torch.randperm(N_FUNCTIONS, generator=generator(2, "test/info"))]
    assert r2(a - b, permuted) < 0.1


def test_a_constant_holds_no_information():
    """Nor does what rounding leaves of one."""
    for target in (0 * NOISE, 0 * NOISE + 0.1, 0.1 + 1e-16 * NOISE, 1e4 / 3 + 1e-12 * NOISE):
        assert r2(target) == 0


def test_noise_of_the_function_is_no_information_about_its_coefficients():
    """Held-out functions: a number drawn once per function cannot be predicted, however many contexts repeat it."""

    def check(hold_out):
        own = torch.randn(N_FUNCTIONS, generator=generator(3, "test/info"), dtype=torch.float64)[FUNCTION]
        many = torch.randn(N_FUNCTIONS, 24, generator=generator(4, "test/info"), dtype=torch.float64)
        residual, total = _cross_validated(many[FUNCTION], own, hold_out, N_FUNCTIONS)
        assert 1 - float(residual.mean() / total.mean()) < 0.1

    check(FUNCTION)
    must_fail(check, torch.arange(len(FUNCTION)))  # contexts of one function in training and in test


def test_products_are_all_up_to_the_second_degree_that_functions_allow():
    a, b = PARAMETERS.T
    assert torch.equal(_products(PARAMETERS, N_FUNCTIONS - 1), torch.stack([torch.ones_like(a), a, b], 1))
    found = _products(PARAMETERS, N_FUNCTIONS)
    expected = [torch.ones_like(a), a, b, a * a, a * b, b * b]
    assert all(any(torch.equal(column, e) for column in found.T) for e in expected)
    assert found.shape[1] == 6


def test_information_measures_far_f():
    lab = small_lab()
    result = limits_context.information(lab)
    assert (result.sel(statistic="total").values > 0).all()
    assert np.isfinite(result.values).all()
    fixed = tasks.Continuous(function="exp", inputs=tasks.Uniform(-1, 1), n_points=7)
    constant = limits_context.information(Lab(make("pre"), fixed, Interleaved(), n_functions=9, n_contexts=3))
    assert r_squared(constant, "coefficients").value < 0.1


def test_the_swap_puts_another_functions_context_before_the_same_query():
    lab = small_lab()
    f = lab.sweep([lab.inner[1], 1e4]).view(4, 3, 2)
    expected = (f - f[[3, 0, 1, 2]]).square().mean(1).numpy()
    assert np.allclose(limits_context.swap(lab).values, expected, rtol=1e-12)


# ---- the claim ------------------------------------------------------------------------------------------------------


def of_context(size: float, power: float = -1.0, inside: float = 2.0, onset: float = 1.0) -> dict:
    """Results whose spread at 1e4 is size, and goes like |x|^power; in distribution it is `inside` around 1."""
    far_out = np.sort(far.DECADES)
    near = curve_of(1 + contexts(inside, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))
    curves = [curve_of(1 + contexts(size * 1e4**-power, 0.0, power, xs), xs) for xs in (GRID, far_out)]
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "function": tuple(range(24)),
    }
    return {
        "far/intact": curves[0],
        "far/in distribution": near,
        "twin/far/decades": curves[1],
        "twin/far/in distribution": near,
        "context/information": make_array(np.ones((2, 2, 2, 24)), axes),
        "context/swap": make_curve(np.ones((24, 2)), {"function": tuple(range(24)), "x": (0.5, 1e4)}),
        "far/certificate": make_table(
            {"c": [0.0], "r": [1.0], "plateau +": [1.0], "plateau -": [1.0], "onset": [onset]}
        ),
    }


@pytest.mark.parametrize(
    ("size", "power", "verdict", "decided_by"),
    [
        (0.02, -1.0, "supported", "amplitude"),
        (0.02, -0.5, "inconclusive", "decay"),  # small, but it does not fall fast enough
        (0.02, 0.0, "inconclusive", "decay"),
        (0.2, -1.0, "inconclusive", "amplitude"),
        (1.0, -1.0, "contradicted", "amplitude"),
        (1.0, 0.0, "contradicted", "amplitude"),  # the slope can only fail to support
    ],
)
def test_the_context_is_erased_where_its_spread_is_small_and_falls(size, power, verdict, decided_by):
    finding = judged_on(ERASED, of_context(size, power))
    assert (finding.verdict, finding.decided_by.quantity) == (verdict, decided_by)
    assert finding.estimate.value == pytest.approx(size / 2, rel=1e-4)
    assert finding.evidence["decay"].value == pytest.approx(power, abs=1e-6)
    assert finding.twin.value == pytest.approx(size / 2 if decided_by == "amplitude" else power, rel=1e-4, abs=1e-6)
    assert "what is left does not tell the function: R2 0.00 (permuted: 0.00)" in finding.reason


def test_a_spread_below_rounding_has_no_slope_and_is_erased():
    finding = judged_on(ERASED, of_context(0.0))
    assert finding.verdict == "supported"
    assert "decay" not in finding.evidence
    assert finding.details[0]["value"] == -np.inf
    assert "below the resolution of float64" in finding.reason


def test_nothing_is_erased_that_was_never_there():
    finding = judged_on(ERASED, of_context(0.0, inside=0.0))
    assert (finding.verdict, finding.estimate) == ("inconclusive", None)
    assert finding.reason == "The output f does not depend on the context in distribution either."
    assert judged_on(ERASED, of_context(0.0, inside=1e-6)).verdict == "supported"


def test_nothing_is_erased_before_the_predicted_onset():
    """It is NaN where the weights tell none."""
    for onset, verdict in ((1e4 + 1, "inconclusive"), (1e4, "contradicted"), (math.nan, "contradicted")):
        finding = judged_on(ERASED, of_context(1.0, 0.0, onset=onset))
        assert finding.verdict == verdict
        assert ("But the predicted onset" in finding.reason) == (verdict == "inconclusive")
        assert ("onset" in finding.evidence) == (not math.isnan(onset))


def test_information_is_reported_beside_the_amplitude(judged):
    """Attenuated is not erased: a pre-norm model still tells the function at 1e4, a line without context does not."""
    kept = judged(random_pre_norm(generator(1, "test/info")), ERASED, n_functions=48)[ERASED]
    gone = judged(scalar_layer(generator(1, "test/info"), 4.0), ERASED)[ERASED]
    assert kept.verdict == gone.verdict == "supported"
    assert "what is left still tells the function" in kept.reason
    assert "what is left still tells" not in gone.reason
    numbers = {row["statistic"]: row["value"] for row in kept.details}
    assert numbers["information R2"] > 0.15 > numbers["R2 with permuted coefficients"]
    assert {row["statistic"]: row["value"] for row in gone.details}["information R2"] == 0
