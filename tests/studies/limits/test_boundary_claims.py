"""The claims on boundary values: that they come at once, and that no learning is left far out."""

import numpy as np
import pytest
from helpers import must_fail
from known import AFFINE, facts
from measuring import judged_on
from small_models import TASK, long, small_lab
from stored_curves import STATISTICS, approach

from icl_interp.analyses.lab import GRID
from icl_interp.results import make_curve, make_table, table_of_rows
from icl_interp.studies.limits.claims.boundary import arm_rows, decades_to_level, relative_error
from icl_interp.studies.limits.measurements import boundary
from icl_interp.studies.limits.measurements.boundary import ARMS, SCALES

IMMEDIATE, HIGH_NORM = "limits.boundary_immediate", "limits.no_icl_at_high_norm"


def known(**more):
    return facts(task=TASK, **more)


def stored_for_onset(x0: float, onset=1.0, r=2.0) -> dict:
    spreads = [f"{name}{end}" for name in ("one decade out", "level") for end in ("", ", spread")]
    names = ["trained range", *spreads, "zone", "peak", "peak at", "onset", "approach rate", "E_f", "E_N", "E_sigma"]
    rows = [{"direction": sign, "quantity": name, "value": 1.0} for sign in "+-" for name in names]
    curve = approach(r * x0 / np.abs(GRID))
    certificate = make_table({"c": [0.0], "r": [r], "onset": [onset], "plateau +": [1.0], "plateau -": [1.0]})
    results = {"far/approach": curve, "far/boundary": table_of_rows(rows), "far/certificate": certificate}
    return {**results, "twin/far/approach, decades": curve, "twin/far/certificate": certificate}


@pytest.mark.parametrize(
    ("x0", "verdict"),
    [(0.1, "supported"), (0.4, "supported"), (2.0, "inconclusive"), (6.0, "contradicted"), (1e5, "contradicted")],
)
def test_immediate_is_within_a_decade(x0, verdict):
    """The gap is x0 / |x| in units of r: level from 20 x0 on."""
    finding = judged_on(IMMEDIATE, stored_for_onset(x0), known())
    assert finding.verdict == verdict
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(min(np.log10(20 * x0), 5), abs=0.01)
    assert finding.estimate.low <= finding.estimate.value <= finding.estimate.high


def test_immediate_counts_from_the_edge_and_in_the_slower_direction():
    gap = np.where(GRID > 0, 1.0, 5.0) / np.abs(GRID)
    found = decades_to_level(approach(gap), {"+": 10.0, "-": 10.0}, 0.05)
    assert 10 * 10**found.value == pytest.approx(100, rel=0.03)
    assert 10 * 10 ** decades_to_level(approach(gap), {"+": 1.0, "-": 10.0}, 0.05).value == pytest.approx(200, rel=0.03)


def test_immediate_is_open_where_the_weights_say_so():
    constant = judged_on(IMMEDIATE, stored_for_onset(1.0, r=1e-12), known())
    beyond = judged_on(IMMEDIATE, stored_for_onset(1e5, onset=1e7), known())
    assert (constant.verdict, beyond.verdict) == ("inconclusive", "inconclusive")
    assert constant.reason.startswith("f is 0 everywhere. The output is constant")
    assert constant.estimate is None
    assert beyond.reason.endswith(
        "But the predicted onset of saturation, |x| = 1e+07 units of x, lies beyond the range."
    )
    assert beyond.estimate.value == pytest.approx(5)
    # Where the weights tell no onset (post-norm), it is not asked for.
    assert judged_on(IMMEDIATE, stored_for_onset(1.0, onset=1e5 + 1), known()).verdict == "inconclusive"
    assert judged_on(IMMEDIATE, stored_for_onset(0.1, onset=1e5), known()).verdict == "supported"
    assert judged_on(IMMEDIATE, stored_for_onset(1e5, onset=float("nan")), known()).verdict == "contradicted"
    bare = judged_on(IMMEDIATE, {}, known(config={"normalization_type": None}))
    assert bare.verdict == "not_applicable"


def stored_for_error(share: float) -> dict:
    """f = (1 - share) truth + share line, with truth = w x and line = x / 2: errors in closed form."""
    w = np.linspace(-1, 1, 40)[:, None]
    truth, line = w * GRID, 0.5 * GRID
    error = np.square(share * (truth - line))
    f = (1 - share) * truth + share * line
    others = (f.sum(0) - f) / 39
    values = [0 * error, error, np.square(truth), np.square(others - truth)]
    curve = make_curve(values, {"statistic": STATISTICS, "function": tuple(range(40)), "x": tuple(GRID)})
    axes = {
        "arm": ARMS,
        "curve": ("model", "truth"),
        "function": tuple(range(40)),
        "query": (-0.5, 0.5),
        "scale": SCALES,
    }
    flat = make_curve(np.ones((3, 2, 40, 2, len(SCALES))), axes)
    return {"far/approach": curve, "far/arms": flat, "twin/far/approach, decades": curve}


def check_learning_far_out(relative):
    for share in (0.0, 0.3, 0.6, 1.0):
        stored = stored_for_error(share)["far/approach"]
        w = np.linspace(-1, 1, 40)
        f = (1 - share) * w + share * 0.5
        error = np.square(f - w).mean()
        expected = error / min(np.square(w).mean(), np.square((f.sum() - f) / 39 - w).mean())
        found = relative(stored)
        assert found.value == pytest.approx(expected, rel=1e-9)
        assert found.low <= found.value <= found.high


def test_relative_error_is_against_the_better_reference():
    check_learning_far_out(relative_error)

    def against_zero(curve):
        values = curve.values.copy()
        values[3] = 1e30
        return relative_error(curve.copy(data=values))

    def against_its_own_line(curve):
        values = curve.values.copy()
        values[2] = 1e30
        return relative_error(curve.copy(data=values))

    must_fail(check_learning_far_out, against_its_own_line)
    shifted = stored_for_error(1.0)["far/approach"]
    assert relative_error(shifted).value > 0.9 * against_zero(shifted).value


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "contradicted"), (0.3, "contradicted"), (0.75, "inconclusive"), (1.0, "supported")]
)
def test_a_model_that_extrapolates_contradicts(share, verdict):
    finding = judged_on(HIGH_NORM, stored_for_error(share), known())
    assert finding.verdict == verdict
    assert [row["arm"] for row in finding.details] == list(ARMS)


def test_arm_rows_tell_bounded_from_growing():
    lab = small_lab("no norm")
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(lab))}
    assert not any(row["bounded"] for row in rows.values())
    assert rows["query"]["growth exponent"] == pytest.approx(1, abs=0.01)
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(small_lab()))}
    assert all(row["bounded"] for row in rows.values())
    # Only where the query goes far alone do contexts stop to differ.
    assert rows["query"]["spread at 1e+06"] < 1e-3 * rows["query"]["spread at 1e+00"]
    assert rows["functions"]["spread at 1e+06"] > 1e-2 * rows["functions"]["spread at 1e+00"]
    curve = boundary.arms(small_lab())
    f, truth = (curve.sel(arm="functions", curve=c, scale=1e4).values for c in ("model", "truth"))
    assert rows["functions"]["spread at 1e+04"] == pytest.approx(np.sqrt(((f - f.mean(0)) ** 2).mean()))
    assert rows["functions"]["error at 1e+04"] == pytest.approx(((f - truth) ** 2).mean() / (truth**2).mean())


def test_findings_of_a_small_model_are_complete(measured):
    task = AFFINE.with_points(8)
    for name in ("pre", "post", "no norm"):
        found = measured(long(name), IMMEDIATE, HIGH_NORM, task=task)
        high = found.judge(HIGH_NORM)
        assert high.verdict == "supported"
        assert high.twin.value > 0.9
        immediate = found.judge(IMMEDIATE)
        assert (immediate.verdict == "not_applicable") == (name == "no norm")
        if name != "no norm":
            assert np.isfinite([immediate.estimate.low, immediate.twin.value]).all()
