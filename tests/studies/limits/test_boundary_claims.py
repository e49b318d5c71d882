"""The claims on boundary values: that they come at once, and that no learning is left far out."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import AFFINE, facts, said
from measured_claims import judged_on
from small_models import TASK, long, small_lab
from stored_curves import approach, certificate, drawn, ends, intact, used
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.bench import GRID
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.analyses.places import DRAWN
from icl_interp.results import make_array, make_curve, table_of_rows
from icl_interp.studies.limits.claims import high_norm as claims
from icl_interp.studies.limits.claims.boundary import decades_to_level
from icl_interp.studies.limits.claims.high_norm import arm_rows, decodable, relative_error, swapped
from icl_interp.studies.limits.measurements import boundary
from icl_interp.studies.limits.measurements.boundary import ARMS, SCALES
from icl_interp.studies.limits.measurements.context import BEYOND, INNER, far_out

IMMEDIATE, HIGH_NORM = "limits.boundary_immediate", "limits.no_icl_at_high_norm"


def known(**more):
    return facts(task=TASK, **more)


# ---- at once -------------------------------------------------------------------------------------


def scale(u: float) -> DataArray:
    return make_array([0.0, u], {"statistic": ("mean", "u")})


def still(drift: float = 0.0) -> DataArray:
    """f beyond the grid, which moves by `drift` after 1e6."""
    values = np.zeros((2, len(BEYOND), 40, 2))
    values[0, 1:] = drift
    return make_array(
        values,
        {"direction": ("+", "-"), "x": tuple(BEYOND), "unit": tuple(range(40)), "context": (0, 1)},
    )


def stored_for_onset(
    x0: float, onset=1.0, u=2.0, gap=None, controls=(1.0, 1.0, 1.0), drift=0.0, between=None
) -> dict:
    """f is u x0 / |x| from its end, at drawn places u times `between`.

    A twin's is as many times as far as `controls`.
    """
    spreads = [f"{name}{end}" for name in ("one decade out", "level") for end in ("", ", spread")]
    names = [
        "trained range",
        *spreads,
        "zone",
        "peak",
        "peak at",
        "onset",
        "approach rate",
        "E_f",
        "E_N",
        "E_sigma",
    ]
    rows = [{"direction": sign, "quantity": name, "value": 1.0} for sign in "+-" for name in names]
    results = {
        "scale/own": scale(u),
        "far/approach": approach(u * x0 / np.abs(GRID) if gap is None else gap),
        "far/boundary": table_of_rows(rows),
        "far/certificate": certificate(onset),
        "far/ends": ends(),
        "far/drawn": drawn(gap=u * x0 / np.abs(DRAWN))
        if between is None
        else drawn(gap=u * between),
        "far/intact": intact(np.where(GRID > 0, 1.0, 0.5)),
        "far/beyond": still(drift * u),
    }
    for prefix, factor in zip(("twin/", "twin 2/", "twin 3/"), controls, strict=True):
        results[f"{prefix}far/approach, decades"] = approach(factor * u * x0 / np.abs(GRID))
        results[f"{prefix}scale/own"] = scale(u)
    return results


def answer(claim: str, verdict: str) -> str:
    """What a reason begins with."""
    asked = registry.REGISTRY[claim]
    answers = {"supported": asked.statement, "contradicted": asked.denied}
    return answers.get(verdict, f"It is open whether {in_a_sentence(asked.statement)}.")


@pytest.mark.parametrize(
    ("x0", "verdict"),
    [
        (0.1, "supported"),
        (0.95, "supported"),
        (1.05, "inconclusive"),
        (9.5, "inconclusive"),
        (10.5, "contradicted"),
    ],
)
def test_immediate_is_within_a_decade(x0, verdict):
    """The gap is x0 / |x| in units of u: level from 10 x0 on."""
    finding = judged_on(IMMEDIATE, stored_for_onset(x0), known())
    assert finding.verdict == verdict
    assert finding.reason.startswith(answer(IMMEDIATE, verdict))
    assert finding.estimate is not None
    assert finding.decided_by.said(finding.estimate, verdict) in finding.reason
    assert finding.estimate.value == pytest.approx(np.log10(10 * x0), abs=0.01)
    assert finding.estimate.low <= finding.estimate.value <= finding.estimate.high


@pytest.mark.slow
def test_immediate_depends_on_u_and_not_on_the_certificate():
    one, scaled = (judged_on(IMMEDIATE, stored_for_onset(0.9, u=u), known()) for u in (1.0, 1e6))
    assert one.estimate.value == pytest.approx(scaled.estimate.value, abs=1e-9)
    wide = {**stored_for_onset(0.9), "far/certificate": certificate(r=1e6)}
    assert (
        judged_on(IMMEDIATE, wide, known()).estimate
        == judged_on(IMMEDIATE, stored_for_onset(0.9), known()).estimate
    )


def test_immediate_counts_from_the_edge_and_in_the_slower_direction():
    gap = np.where(GRID > 0, 1.0, 5.0) / np.abs(GRID)

    def check(decades):
        assert 10 * 10 ** decades(approach(gap), 10.0, 0.05).value == pytest.approx(100, rel=0.03)
        assert decades(approach(gap), 1.0, 0.05).value == pytest.approx(2, abs=0.02)

    check(decades_to_level)
    must_fail(
        check, lambda curve, edge, level: decades_to_level(approach(1 / np.abs(GRID)), edge, level)
    )
    must_fail(check, lambda curve, edge, level: decades_to_level(curve, 1.0, level))


def test_immediate_is_open_where_the_end_is_not_reached():
    """An onset beyond the range, measured or predicted, decides nothing."""
    ends = {
        "cannot be seen, because the end value": stored_for_onset(1e5),
        "The plateau is predicted to begin only at 1e+07 times": stored_for_onset(0.1, onset=1e7),
        "the prediction moves by 0.11 times its standard": stored_for_onset(0.1, drift=0.11),
    }
    for says, stored in ends.items():
        finding = judged_on(IMMEDIATE, stored, known())
        assert finding.verdict == "inconclusive"
        assert says in finding.reason
    for stored in (
        stored_for_onset(0.1, onset=1e5),
        stored_for_onset(0.1, onset=np.nan, drift=0.09),
    ):
        assert judged_on(IMMEDIATE, stored, known()).verdict == "supported"


def test_immediate_is_open_where_f_is_constant_or_stands_still():
    constant = judged_on(IMMEDIATE, stored_for_onset(0.1, u=1e-12), known())
    assert (constant.verdict, constant.estimate) == ("inconclusive", None)
    assert "constant in distribution" in constant.reason
    level = {**stored_for_onset(1e-6), "far/intact": intact(0.0 * GRID + 1)}
    assert judged_on(IMMEDIATE, level, known()).verdict == "inconclusive"
    assert "nothing has to settle" in judged_on(IMMEDIATE, level, known()).reason
    # A step at 0: f is level in each direction, but not along the query.
    assert judged_on(IMMEDIATE, stored_for_onset(1e-6), known()).verdict == "supported"
    bare = judged_on(IMMEDIATE, {}, known(config={"normalization_type": None}))
    assert bare.verdict == "not_applicable"


@pytest.mark.slow
def test_immediate_is_open_where_two_of_three_controls_show_the_opposite():
    for x0, far, verdict in ((20.0, 1e-3, "contradicted"), (0.1, 1e3, "supported")):
        for controls, expected in (((far, 1.0, 1.0), verdict), ((far, 1.0, far), "inconclusive")):
            finding = judged_on(IMMEDIATE, stored_for_onset(x0, controls=controls), known())
            assert finding.verdict == expected, (x0, controls)
            opposite = finding.reason.startswith("Randomly initialised controls show the opposite")
            assert opposite == (expected == "inconclusive")


# ---- no learning in context at a high norm -------------------------------------------------------

# Slopes of 40 antithetic pairs of functions.
W = np.outer(np.random.default_rng(0).permutation(np.linspace(0.1, 1, 40)), [1, -1]).ravel()


def stored_for_error(
    far: float, near: float = 0.05, kept: float = 0.0, offset: float = 0.0
) -> dict:
    """f = offset + (1 - share) w x + kept / x: the error is share^2 times that of the law's mean.

    This holds far out and nearby.
    """
    xs = np.array([-0.5, 0.5, 1e4, -1e4, 1e5, -1e5])
    share = np.where(np.abs(xs) < 1, near, far)
    truth = offset + np.outer(W, xs)
    f = offset + (1 - share) * (truth - offset) + kept * np.outer(W, 1 / xs)
    axes = {
        "arm": ARMS,
        "curve": ("model", "truth", "law's mean"),
        "unit": tuple(range(40)),
        "query": (-0.5, 0.5),
        "scale": SCALES,
    }
    flat = make_curve(np.ones((3, 3, 40, 2, len(SCALES))), axes)
    curve = used(f, truth, np.full(len(xs), offset), xs)
    # At drawn places f misses as much of the truth.
    sizes = np.abs(DRAWN) * np.sqrt(np.square(W).mean())
    between = drawn(squared_error=far * sizes, size=abs(1 - far) * sizes, **{"law's_mean": sizes})
    shared = {
        "context/use": curve,
        "far/arms": flat,
        "scale/own": scale(1.0),
        "far/drawn": between,
        "far/ends": ends(),
    }
    return shared | {f"{prefix}context/use": curve for prefix in ("twin/", "twin 2/", "twin 3/")}


def check_learning_far_out(relative):
    """The smaller of both |x|; the better of both guesses."""
    for far, offset in ((0.0, 0.0), (0.3, 5.0), (0.6, 0.0), (1.0, 5.0)):
        curve = stored_for_error(far, offset=offset)["context/use"]
        found = relative(curve, *far_out(curve, 1.0))
        assert found.value == pytest.approx(far**2, abs=1e-3)
        assert found.low <= found.value <= found.high
        near = relative(curve, INNER)
        assert near.value == pytest.approx(0.05**2, rel=1e-6)


def changed(curve: DataArray, statistic: str, factor: float) -> DataArray:
    values = curve.values.copy()
    values[list(curve.indexes["statistic"]).index(statistic)] *= factor
    return curve.copy(data=values)


def test_relative_error_is_against_the_better_reference():
    check_learning_far_out(relative_error)
    # The one without the other: a guess of 1e6 times the error.
    must_fail(
        check_learning_far_out,
        lambda c, *at: relative_error(
            changed(changed(c, "law's mean", 1e6), "context-free", 1e6), *at
        ),
    )
    for worse in ("law's mean", "context-free"):
        curve = changed(stored_for_error(1.0)["context/use"], worse, 10.0)
        assert relative_error(curve, INNER).value == pytest.approx(0.05**2, rel=0.1)
    curve = stored_for_error(1.0)["context/use"]
    helped = curve.copy(
        data=np.where((curve["x"].values == 1e5) | (curve["x"].values == -1e5), 0.2, 1.0)
        * curve.values
    )
    only_there = helped.copy(
        data=np.where(
            curve["statistic"].values[:, None, None] == "squared error", helped.values, curve.values
        )
    )
    assert relative_error(only_there, *far_out(curve, 1.0)).value == pytest.approx(0.2, rel=0.01)


def test_where_all_functions_are_one_the_context_never_helps():
    curve = changed(
        changed(stored_for_error(1.0)["context/use"], "law's mean", 0.0), "context-free", 0.0
    )
    assert relative_error(curve, INNER).low > 1e10


@pytest.mark.parametrize(
    ("far", "verdict"),
    [
        (0.0, "contradicted"),
        (0.7, "contradicted"),
        (0.72, "inconclusive"),
        (0.94, "inconclusive"),
        (0.955, "supported"),
        (1.0, "supported"),
    ],
)
def test_a_model_that_extrapolates_contradicts(far, verdict):
    finding = judged_on(HIGH_NORM, stored_for_error(far), known())
    assert finding.verdict == verdict
    begins = answer(HIGH_NORM, verdict)
    if far > 0.95:  # what is left of the prediction is at most .05 of the truth
        begins = f"By algebra, {in_a_sentence(begins)}: "
    assert finding.reason.startswith(begins)
    assert [row["arm"] for row in finding.details] == list(ARMS)
    assert finding.estimate.value == pytest.approx(far**2, abs=1e-3)


@pytest.mark.parametrize(
    ("near", "r2", "verdict"),
    [
        (0.7, 0.91, "supported"),
        (0.05, 0.89, "inconclusive"),
        (0.72, 0.99, "inconclusive"),
        (1.0, -3.0, "inconclusive"),
    ],
)
def test_who_knows_nothing_nearby_loses_nothing_far_out(near, r2, verdict):
    """Whatever the error far out."""
    assert judged_on(HIGH_NORM, stored_for_error(1.0, near), known(r2=r2)).verdict == verdict
    if verdict == "inconclusive":
        assert judged_on(HIGH_NORM, stored_for_error(0.0, near), known(r2=r2)).verdict == verdict


def test_what_is_attenuated_may_still_be_decodable():
    def check(measure):
        for kept, expected in ((1e-3, 1.0), (0.0, 0.0)):
            curve = stored_for_error(1.0, kept=kept, offset=5.0)["context/use"]
            assert measure(curve, np.concatenate(far_out(curve, 1.0))).value == pytest.approx(
                expected, abs=1e-6
            )
        noise = np.random.default_rng(0).standard_normal((80, 2))
        curve = used(
            noise + 0.5 * W[:, None], np.outer(W, [1.0, -1.0]), np.zeros(2), np.array([1.0, -1.0])
        )
        r = [np.corrcoef(noise[:, i] + 0.5 * W, W)[0, 1] for i in (0, 1)]
        assert measure(curve, INNER).value == pytest.approx(np.square(r).mean(), rel=1e-9)

    check(decodable)
    must_fail(check, lambda curve, at: decodable(changed(curve, "product", 0.5), at))
    assert "The truth can be read from" in said(
        judged_on(HIGH_NORM, stored_for_error(1.0, kept=1e-3), known())
    )
    assert "The truth cannot clearly be read from" in said(
        judged_on(HIGH_NORM, stored_for_error(1.0), known())
    )


def test_a_swapped_context_costs_what_the_context_was_worth():
    curve = stored_for_error(1.0)["context/use"]
    assert swapped(curve, INNER).low > 100
    assert swapped(curve, np.concatenate(far_out(curve, 1.0))).value == pytest.approx(1, rel=1e-6)
    causal = judged_on(HIGH_NORM, stored_for_error(1.0), known()).causal
    assert causal["error swapped / own, in distribution"] > 100 > causal["effect"]


def test_arm_rows_tell_bounded_from_growing():
    lab = small_lab("no norm")
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(lab), 1.0)}
    assert not any(row["bounded"] for row in rows.values())
    assert rows["query"]["growth exponent"] == pytest.approx(1, abs=0.01)
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(small_lab()), 1.0)}
    assert all(row["bounded"] for row in rows.values())
    # Only where the query goes far alone do contexts stop to differ.
    assert rows["query"]["spread at 1e+06"] < 1e-3 * rows["query"]["spread at 1e+00"]
    assert rows["functions"]["spread at 1e+06"] > 1e-2 * rows["functions"]["spread at 1e+00"]
    curve = boundary.arms(small_lab())
    f, truth = (curve.sel(arm="functions", curve=c, scale=1e4).values for c in ("model", "truth"))
    assert rows["functions"]["spread at 1e+04"] == pytest.approx(
        np.sqrt(((f - f.mean(0)) ** 2).mean())
    )
    assert rows["functions"]["error at 1e+04"] == pytest.approx(
        ((f - truth) ** 2).mean() / (truth**2).mean()
    )


@pytest.mark.slow
def test_findings_of_a_small_model_are_complete(measured):
    """Random models know nothing; their far error is still shown, as that of controls is."""
    task = AFFINE.with_points(8)
    for name in ("pre", "post", "no norm"):
        found = measured(long(name), IMMEDIATE, HIGH_NORM, task=task)
        high = found.judge(HIGH_NORM)
        assert high.verdict == "inconclusive"
        assert "no success near the data to lose" in high.reason
        assert min(high.control.value, high.estimate.value) > claims.NO_HELP
        immediate = found.judge(IMMEDIATE)
        assert (immediate.verdict == "not_applicable") == (name == "no norm")
        if name != "no norm":
            assert np.isfinite([immediate.estimate.low, immediate.control.value]).all()
