"""What is left of the context far out: its spread, on data whose answer is exact, and the claim."""

import math

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts, said
from measured_claims import judged_on
from small_models import small_lab
from stored_curves import certificate, drawn, ends, plateaus, used
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.analyses.places import DRAWN
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.context import amplitude, decay, parts, share_of_truth, spread
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.context import BEYOND

ERASED = "limits.context_erased"
GRID = np.array([s * 10.0**k for s in (-1, 1) for k in (3, 3.5, 4, 4.5, 5)])
N_UNITS, N_PROMPTS = 40, 6
RNG = np.random.default_rng(1)
NOISE = RNG.normal(size=(N_UNITS, N_PROMPTS, 1)) + RNG.normal(size=(N_UNITS, 1, 1))


# ---- spread --------------------------------------------------------------------------------------


def curve_of(f: np.ndarray, xs) -> DataArray:
    """As the lab stores f, from (unit, prompt, x)."""
    values = np.stack([f.mean(1), (f**2).mean(1), f.var(1)])
    axes = {
        "statistic": ("mean", "mean square", "variance"),
        "unit": tuple(range(len(f))),
        "x": tuple(xs),
    }
    return make_curve(values, axes)


def contexts(size: float, offset: float, power: float, xs=None) -> np.ndarray:
    """f = offset |x| + size |x|^power (a number of the unit and the prompt): (unit, prompt, x)."""
    xs = np.array(GRID if xs is None else xs)
    return offset * np.abs(xs) + size * NOISE * np.abs(xs) ** power


def check_spread(sd):
    """The standard deviation over all prompts, also where it is 1e-9 of f.

    Differences of squares would lose it there.
    """
    for size, offset, power in (
        (1.0, 0.0, 0.0),
        (1.0, 0.0, -1.0),
        (1e-3, 1e3, 0.0),
        (1e-2, 1e5, -0.5),
    ):
        f = contexts(size, offset, power)
        expected = (f - offset * np.abs(GRID)).reshape(-1, len(GRID)).std(0)
        assert np.allclose(sd(curve_of(f, GRID)), expected, rtol=3e-3)


def test_the_spread_over_contexts():
    def by_squares(curve):
        mean, square = curve.values[:2].mean(1)
        return np.sqrt(np.maximum(square - mean**2, 0))

    check_spread(spread)
    must_fail(check_spread, by_squares)


def test_stored_variances_are_those_of_the_sweep():
    lab = small_lab()
    f = lab.sweep(lab.inner).numpy().reshape(4, 6, 2)
    stored = far.in_distribution(lab)
    assert np.allclose(stored.values, curve_of(f, lab.inner).values, rtol=1e-12)
    assert np.allclose(spread(stored), f.reshape(24, 2).std(0), rtol=1e-12)
    assert np.allclose(far.intact(lab).values[:, :, 5], far.intact(lab).sel(x=lab.grid[5]).values)


def test_amplitude_is_far_spread_over_near_spread():
    near = curve_of(contexts(2.0, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))

    def of(size, offset):
        return amplitude(parts(curve_of(contexts(size, offset, 0.0), GRID)), near)

    for size, offset in ((0.5, 0.0), (0.5, 2.0), (0.02, 1e3)):
        found = of(size, offset)
        assert found.value == pytest.approx(size / 2, rel=1e-4)
        assert found.low == pytest.approx(size / 2, rel=1e-3)  # the same contexts: draws cancel
    assert of(0.0, 1 / 3).high < 1e-10


def test_decay_is_the_slope_of_the_spread():
    """The slower of the two directions; None where nothing but rounding is left."""

    def check(fall):
        for power in (-1.0, -2.0, 0.0, 0.5):
            assert fall(curve_of(contexts(1.0, 0.0, power), GRID)).value == pytest.approx(
                power, abs=1e-6
            )
        assert fall(curve_of(contexts(1.0, 1e-3, -1.0), GRID)).value == pytest.approx(
            -1.0, abs=1e-4
        )
        mixed = np.where(GRID > 0, contexts(1.0, 0.0, -1.0), contexts(1.0, 0.0, -0.2))
        assert fall(curve_of(mixed, GRID)).value == pytest.approx(-0.2, abs=1e-6)
        in_one = np.where(GRID > 0, contexts(1.0, 0.0, -1.0), contexts(0.0, 1 / 3, -0.2))
        assert fall(curve_of(in_one, GRID)).value == pytest.approx(-1.0, abs=1e-6)

    check(decay)
    assert decay(curve_of(contexts(0.0, 1 / 3, 0.0), GRID)) is None
    must_fail(check, lambda curve: decay(curve.copy(data=curve.values * np.abs(GRID) ** 0.01)))
    must_fail(
        check,
        lambda curve: decay(
            curve.copy(data=np.where(GRID > 0, curve.values, curve.values[..., ::-1]))
        ),
    )


def test_the_interval_of_a_slope_is_over_units():
    """Two kinds of unit, with slopes of -1 and -0.5."""
    power = np.where(np.arange(N_UNITS)[:, None, None] % 2, -1.0, -0.5)
    found = decay(curve_of(NOISE * (np.abs(GRID) / 1e4) ** power, GRID))
    assert -0.95 < found.low < found.value - 0.01 < found.value + 0.01 < found.high < -0.5


def check_share(share):
    """f is half the truth, in one direction of the two not at all."""
    xs = np.array([-0.5, 0.5])
    truth = 3.0 + contexts(1.0, 0.0, 1.0, xs).reshape(-1, 2)
    f = 7.0 + 0.5 * truth
    assert share(used(f, truth, 0 * xs, xs)).value == pytest.approx(0.5, rel=1e-9)
    f[:, 0] = 7.0
    assert share(used(f, truth, 0 * xs, xs)).value == pytest.approx(0.5 / np.sqrt(2), rel=1e-9)
    # Functions that are all one differ in nothing.
    assert share(used(truth, 0 * truth + 3.0, 0 * xs, xs)).value == 0.0


def test_the_spread_is_compared_with_that_of_the_truth():
    check_share(share_of_truth)
    raw = {
        "f squared": "f size",
        "truth squared": "size",
    }  # squares about 0 for those about the mean
    must_fail(
        check_share,
        lambda curve: share_of_truth(
            curve.copy(
                data=curve.sel(statistic=[raw.get(n, n) for n in curve.indexes["statistic"]]).values
            )
        ),
    )


# ---- the claim -----------------------------------------------------------------------------------


def of_context(
    size: float,
    power: float = -1.0,
    inside: float = 2.0,
    onset: float = 1.0,
    later=None,
    used_share=1.0,
):
    """Results whose spread at 1e4 is `size`, and goes like |x|^power; nearby it is `inside`.

    Nearby is in distribution, where f is around 1. At 1e9 the spread is `later`, by default what
    the power makes of it.
    """
    far_out, xs = np.sort(far.DECADES), np.array([-0.5, 0.5, 1e4, -1e4, 1e5, -1e5])
    near = curve_of(1 + contexts(inside, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))
    curves = [
        curve_of(1 + contexts(size * 1e4**-power, 0.0, power, xs), xs) for xs in (GRID, far_out)
    ]
    beyond = 1 + NOISE * np.where(later is None, size * (BEYOND / 1e4) ** power, later)
    beyond = make_array(
        np.stack([np.moveaxis(beyond, 2, 0)] * 2),
        {
            "direction": ("+", "-"),
            "x": tuple(BEYOND),
            "unit": tuple(range(N_UNITS)),
            "context": tuple(range(N_PROMPTS)),
        },
    )
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "unit": tuple(range(N_UNITS)),
    }
    truth = np.repeat(NOISE.reshape(-1, 1), 6, 1)
    own = {
        "far/in distribution": near,
        "far/beyond": beyond,
        "context/use": used(used_share * truth, truth, 0 * xs, xs),
    }
    spreads = size * (np.abs(DRAWN) / 1e4) ** power
    if later is not None:
        spreads = np.where(np.abs(DRAWN) > 1e6, later, spreads)
    # Of two units that share a place; all of them together have the spread of all prompts.
    pairs = np.repeat(NOISE.reshape(N_UNITS // 2, -1).std(1), 2)[:, None]
    pairs *= NOISE.std() / np.sqrt(np.square(pairs).mean())
    results = own | {
        "far/intact": curves[0],
        "far/ends": ends(n=N_UNITS),
        "far/drawn": drawn(N_UNITS, spread=spreads * pairs, largest_deviation=3 * size),
        "far/plateaus": plateaus(),
        "context/information": make_array(np.ones((2, 2, 2, N_UNITS)), axes),
        "far/certificate": certificate(onset),
    }
    for prefix in ("twin/", "twin 2/", "twin 3/"):
        results |= {prefix + name: result for name, result in own.items()} | {
            f"{prefix}far/decades": curves[1]
        }
    return results


@pytest.mark.parametrize(
    ("size", "power", "verdict", "decided_by"),
    [
        (0.098, -1.0, "supported", "amplitude"),
        (0.102, -1.0, "inconclusive", "amplitude"),
        (0.02, -0.91, "supported", "amplitude"),
        (0.02, -0.89, "inconclusive", "decay"),  # small, but it does not fall fast enough
        (0.02, 0.0, "inconclusive", "decay"),
        (0.2, -1.0, "inconclusive", "amplitude"),
        (0.39, 0.0, "inconclusive", "amplitude"),
        (0.45, 0.0, "contradicted", "amplitude"),
        (1.0, 0.5, "contradicted", "amplitude"),  # the slope can only fail to support
    ],
)
def test_the_context_is_erased_where_its_spread_is_small_and_falls(
    size, power, verdict, decided_by
):
    finding = judged_on(ERASED, of_context(size, power))
    assert (finding.verdict, finding.decided_by.quantity) == (verdict, decided_by)
    # The largest of all places: what grows is largest at the last drawn one, half a half decade
    # below 1e6.
    assert finding.estimate.value == pytest.approx(
        size / 2 * max(1.0, 10 ** (1.75 * power)), rel=1e-2
    )
    assert finding.evidence["decay"].value == pytest.approx(power, abs=1e-6)
    assert finding.control.value == pytest.approx(
        size / 2 if decided_by == "amplitude" else power, rel=1e-4, abs=1e-6
    )
    words = said(finding)
    assert "It does not tell the function: coefficients explain 0 %" in words
    assert "(0 % shuffled)" in words
    claim = registry.REGISTRY[ERASED]
    answers = {
        "supported": claim.statement,
        "contradicted": claim.denied,
        "inconclusive": f"It is open whether {in_a_sentence(claim.statement)}.",
    }
    assert finding.reason.startswith(answers[verdict])
    assert finding.decided_by.said(finding.test, verdict) in finding.reason


def test_what_a_context_loses_beyond_the_range_decides_nothing():
    falls = judged_on(ERASED, of_context(1.0, -1.0))
    assert falls.verdict == "inconclusive"
    assert "times the largest |x| of training, beyond the range measured" in falls.reason
    assert judged_on(ERASED, of_context(1.0, 0.0, later=0.5)).verdict == "contradicted"
    back = judged_on(ERASED, of_context(0.02, -1.0, later=0.5))
    assert (back.verdict, back.decided_by.quantity) == ("inconclusive", "amplitude beyond")
    assert back.test.value == pytest.approx(0.25, rel=1e-2)
    assert back.evidence["amplitude"].value == pytest.approx(0.01, rel=1e-2)


def test_a_spread_below_rounding_has_no_slope_and_is_erased():
    finding = judged_on(ERASED, of_context(0.0))
    assert finding.verdict == "supported"
    assert "decay" not in finding.evidence
    assert finding.details[0]["value"] == -np.inf


@pytest.mark.slow
def test_nothing_is_erased_that_was_never_there():
    finding = judged_on(ERASED, of_context(0.0, inside=0.0, used_share=0.0))
    assert (finding.verdict, finding.estimate) == ("inconclusive", None)
    assert finding.reason.startswith(
        "In distribution predictions spread over contexts by 0 times the spread of the truth"
    )
    for r2, share, verdict in (
        (0.91, 0.51, "supported"),
        (0.89, 1.0, "inconclusive"),
        (0.99, 0.49, "inconclusive"),
    ):
        for size, other in ((0.02, verdict), (1.0, verdict.replace("supported", "contradicted"))):
            stored = of_context(size, -1.0 if size < 1 else 0.0, used_share=share)
            finding = judged_on(ERASED, stored, facts(r2=r2))
            assert finding.verdict == other
            assert (" no dependence " in finding.reason) == (verdict == "inconclusive")


def test_a_plateau_that_the_weights_predict_forgets_the_context_by_algebra():
    """Where f ends there.

    Nothing is said of algebra where it ends elsewhere, or the weights predict no plateau.
    """
    for distance, begins in (
        (0.0, "By algebra, far from the data"),
        (0.5, "Far from the data"),
        (None, "Far from"),
    ):
        finding = judged_on(
            ERASED, {**of_context(0.02), "far/plateaus": plateaus(distance, N_UNITS)}
        )
        assert finding.verdict == "supported"
        assert finding.reason.startswith(begins)


def test_a_single_context_that_stays_is_not_averaged_away():
    stored = of_context(0.02)
    stored["far/drawn"].loc[{"statistic": "largest deviation", "unit": 0}] = 0.5 * 2.0
    finding = judged_on(ERASED, stored)
    assert (finding.verdict, finding.decided_by.quantity) == ("inconclusive", "largest")
    assert finding.test.value > 0.2 > 0.05 > finding.evidence["amplitude"].value


def test_nothing_is_erased_before_the_predicted_onset():
    """It is NaN where the weights tell none."""
    for onset, verdict in (
        (1e4 + 1, "inconclusive"),
        (1e4, "contradicted"),
        (math.nan, "contradicted"),
    ):
        finding = judged_on(ERASED, of_context(1.0, 0.0, onset=onset))
        assert finding.verdict == verdict
        early = finding.reason.startswith("The plateau is predicted to begin only at")
        assert early == (verdict == "inconclusive")
        assert ("onset" in finding.evidence) == (not math.isnan(onset))
