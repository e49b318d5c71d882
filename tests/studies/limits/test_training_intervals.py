"""Runs trained on intervals of different sizes: order of comparisons, onsets, and costs."""

import numpy as np
import pytest
from affine_runs import known
from helpers import must_fail
from measured_claims import answered, judged_on
from seed_tables import arm, table

from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.studies.limits.claims.kinds import Arm
from icl_interp.studies.limits.claims.training_density import cells, comparisons, ordered, overlap
from icl_interp.studies.limits.claims.training_intervals import by_interval
from icl_interp.studies.limits.measurements.seeds import OWN, intervals

DENSITY_ID, LARGER_ID = "limits.training_density", "limits.larger_intervals"
SIZES = [1.0, 5.0, 10.0]
ROLES = tuple(Role("interval", half_width=a) for a in SIZES[1:])
# The paper's Table 3 at sigma = 1, 5, 10 for models trained on U(-a, a), a = 1, 5, 10 (0.0 is
# printed for the first).
TABLE_3 = [[0.005, 4.0, 27.85], [0.01, 0.03, 1.61], [0.13, 0.26, 0.49]]


def kinds(errors, onsets=(20.0, 60.0, 100.0), n=5, fresh=1.0, rates=(1e-3, 1e-3, 1e-3)):
    """Arms by interval, with errors over (arm, sigma) and onsets."""
    rows = []
    for i, a in enumerate(SIZES):
        numbers = {f"both {s:g}": errors[i][k] for k, s in enumerate(SIZES)}
        numbers |= {f"alone {s:g}": errors[i][k] for k, s in enumerate(SIZES) if k}
        numbers |= {"onset +": onsets[i], "onset -": 1.1 * onsets[i]}
        name = OWN if i == 0 else f"interval {a:g}"
        rows += arm(name, n if i == 0 else 5, rate=rates[i], fresh=fresh, a=a, **numbers)
    return {intervals.name: table(rows)}


def density(errors, **settings):
    return judged_on(DENSITY_ID, kinds(errors, **settings), known(*ROLES))


# ---- density -------------------------------------------------------------------------------------


def check_cells(cells):
    found = {f"{SIZES[i]:g} {SIZES[j]:g} {sigma:g}" for i, j, sigma in cells(SIZES, SIZES)}
    assert found == {
        "1 5 1",
        "1 10 1",
        "5 10 1",
        "5 1 5",
        "5 10 5",
        "10 1 5",
        "10 1 10",
        "10 5 10",
        "5 1 10",
    }


def test_cells_compare_arms_that_saw_more_of_an_interval_with_those_that_saw_less():
    check_cells(cells)
    must_fail(check_cells, lambda sizes, tested: [(j, i, s) for i, j, s in cells(sizes, tested)])
    assert (0, 2, 4.0) not in cells([1.0, 4.0, 16.0], [4.0])  # an even overlap decides nothing
    draws = np.sort(np.random.default_rng(1).uniform(-4, 4, 200_000))
    inside = np.mean(np.abs(draws) < 1)
    assert abs(inside - overlap(4, 1)) < 4 * np.sqrt(
        0.25 * 0.75 / len(draws)
    )  # U(-1, 1) lies inside U(-4, 4)


def test_the_paper_s_table_is_in_the_claimed_order():
    arms, out = by_interval(Results(kinds(TABLE_3)))
    assert out == ""
    compared = comparisons(arms, "both")
    found = ordered(compared)
    assert (found.value, found.low, found.high) == (1, 1, 1)
    assert len(compared) == 9
    finding = density(TABLE_3)
    assert finding.verdict == "supported"
    assert "trained on U(-a, a), a = 1, 5, 10, and have 5 seeds each." in finding.reason
    assert answered(finding)
    rows = [row["errors, times"] for row in finding.details if "errors, times" in row]
    assert rows == [one.times.value for one in compared]


def test_training_density():
    finding = density(np.array(TABLE_3)[::-1].tolist())
    assert finding.verdict == "contradicted"
    assert answered(finding)
    swapped = np.array(TABLE_3)
    swapped[0, 0] = 0.02  # no longer the best on its own interval
    finding = density(swapped.tolist())
    assert finding.verdict == "inconclusive"
    assert finding.estimate is not None
    assert (finding.estimate.value, finding.estimate.high) == pytest.approx((8 / 9, 8 / 9))
    unclear = np.array(TABLE_3)
    unclear[0, 0] = 0.0095  # smaller, but not clearly
    finding = density(unclear.tolist())
    assert finding.verdict == "inconclusive"
    assert finding.estimate is not None
    assert (finding.estimate.low, finding.estimate.value, finding.estimate.high) == pytest.approx(
        (8 / 9, 1, 1)
    )


def test_kinds_with_too_few_seeds_are_left_out_and_said():
    found = kinds(TABLE_3)
    rows = found[intervals.name].to_dict("records")
    lone = arm(
        "interval 100", 1, rate=0.24, a=100.0, **{"both 1": 0.5, "both 5": 2.0, "both 10": 3.0}
    )
    finding = judged_on(DENSITY_ID, {intervals.name: table(rows + lone)}, known(*ROLES))
    assert finding.verdict == "supported"
    assert finding.details[-1] == {
        "intervals left out": "a = 100, 0 of 4 seeds, interval 100 0 (R2 0.77)"
    }
    few = [row for row in rows if row["arm"] == OWN or row["run"] == "interval 5 0"]
    finding = judged_on(DENSITY_ID, {intervals.name: table(few)}, known(*ROLES))
    assert finding.verdict == "inconclusive"
    assert "own training interval and another one need 4 seeds." in finding.reason
    assert finding.details[-1] == {"intervals left out": "a = 5, 1 of 4 seeds"}
    assert "of at least 4 seeds needed" in finding.reason
    own = [row for row in rows if row["arm"] != OWN or row["run"] == "model 0"]
    finding = judged_on(DENSITY_ID, {intervals.name: table(own)}, known(*ROLES))
    assert finding.verdict == "inconclusive"  # what other kinds do says nothing about this model's
    assert finding.details[-1] == {"intervals left out": "the model's own kind, 1 of 4 seeds"}


def test_arms_of_unlike_quality_are_not_compared():
    finding = density(TABLE_3, rates=(1e-4, 1e-3, 1e-3))
    assert finding.verdict == "inconclusive"
    assert "times off the median" in finding.reason


# ---- larger intervals ----------------------------------------------------------------------------


def larger(onsets, cost, **settings):
    """Onsets of the three arms, and how much the error on the smallest interval grows.

    It grows from the first arm to the last.
    """
    errors = [[1e-3 * factor * s for s in SIZES] for factor in (1.0, cost**0.5, cost)]
    return judged_on(LARGER_ID, kinds(errors, onsets, **settings), known(*ROLES))


@pytest.mark.parametrize(
    ("onsets", "cost", "verdict"),
    [
        ((20, 60, 100), 30.0, "supported"),
        ((20, 60, 100), 0.5, "contradicted"),
        ((20, 15, 10), 30.0, "contradicted"),
        ((20, 21, 22), 30.0, "inconclusive"),
        ((20, 60, np.nan), 30.0, "inconclusive"),
    ],
)
def test_larger_intervals(onsets, cost, verdict):
    finding = larger(onsets, cost)
    assert finding.verdict == verdict
    if np.isfinite(onsets).all():
        assert answered(finding)
        if verdict == "contradicted":
            assert finding.decided_by.quantity == ("cost" if cost < 1 else "onset")
        assert finding.estimate is not None
        assert finding.estimate.value == pytest.approx(onsets[2] / onsets[0])
        assert finding.evidence["cost"].value == pytest.approx(cost)
        assert [row["onset +"] for row in finding.details[:15:5]] == pytest.approx(
            [0.96 * o for o in onsets]
        )
        assert finding.control is not None
    else:
        assert "Of these models 5 are not level by 1e5 times their inputs' range" in finding.reason


def test_untrained_runs_that_differ_as_much_gate():
    errors = [[1e-3 * factor * s for s in SIZES] for factor in (1.0, 5.0, 30.0)]
    found = kinds(errors)
    rows = found[intervals.name].to_dict("records")
    for row in rows:
        if row["run"] == "fresh":
            row.update({"onset +": 20 * row["a"], "onset -": 20 * row["a"], "both 1": row["a"]})
    finding = judged_on(LARGER_ID, {intervals.name: table(rows)}, known(*ROLES))
    assert finding.verdict == "inconclusive"
    assert "randomly initialised control passes as well" in finding.reason


def test_arms_by_interval_ascend():
    rows = kinds(TABLE_3)[intervals.name].to_dict("records")
    arms, _ = by_interval(Results({intervals.name: table(rows[::-1])}))
    assert [one.a for one in arms] == SIZES
    assert all(isinstance(one, Arm) and len(one) == 5 for one in arms)
