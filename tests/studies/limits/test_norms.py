"""Claims about kinds of training with a norm, without, and of two widths, on made-up arms."""

import numpy as np
import pytest
from affine_runs import INTERVALS, known
from helpers import must_fail
from measured_claims import answered, judged_on
from seed_tables import SPREAD, across, arm, scaled, table

from icl_interp import tasks
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.error_near_boundary import gains, regions
from icl_interp.studies.limits.claims.kinds import LARGER, SMALLER, Arm
from icl_interp.studies.limits.claims.size_does_not_help import APART, MARGIN

BETTER_ID, NEAR_ID, SIZE_ID = (
    f"limits.{n}" for n in ("no_norm_better", "error_near_boundary", "size_does_not_help")
)
DENSITY_ID, LARGER_ID = "limits.training_density", "limits.larger_intervals"


def no_norm(ratio, n=(5, 5), facts=None, fresh=1.0, **without):
    """The finding where errors without a norm are `ratio` times those with one.

    It is analysed from the side with a norm.
    """
    rows = arm(n=n[0], **scaled()) + arm(
        "no norm", n=n[1], fresh=fresh, rate=1e-3 * ratio, **{**scaled(ratio), **without}
    )
    return judged_on(BETTER_ID, {"seeds/functions": table(rows)}, facts or known("no norm"))


# ---- no norm is better ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (0.3, "supported"),
        (0.7, "supported"),
        (0.79, "inconclusive"),
        (1.0, "inconclusive"),
        (1.21, "inconclusive"),
        (1.35, "contradicted"),
        (5.0, "contradicted"),
    ],
)
def test_no_norm_better_is_judged_with_a_margin(ratio, verdict):
    finding = no_norm(ratio)
    assert finding.verdict == verdict
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(ratio)
    assert finding.estimate.unit == "times"
    assert "5 seeds each" in finding.reason
    assert answered(finding)
    # From the side without a norm it is the same comparison.
    rows = arm(rate=1e-3 * ratio, **scaled(ratio)) + arm("with norm", **scaled())
    other = judged_on(BETTER_ID, {"seeds/functions": table(rows)}, known("with norm", norm=None))
    assert (other.verdict, other.estimate) == (verdict, finding.estimate)


def test_the_interval_is_that_of_the_seeds():
    finding = no_norm(0.5)
    assert finding.estimate is not None
    wide = no_norm(0.5, spread=(0.6, 0.8, 1.0, 1.25, 1.6)).estimate
    assert wide is not None
    assert wide.high / wide.low > 2 > finding.estimate.high / finding.estimate.low
    runs = [row for row in finding.details if "run" in row]
    assert len(runs) == 10
    assert {row["kind"] for row in runs} == {"no norm", "with norm"}
    assert [row["functions scaled by"] for row in finding.details[10:]] == [2, 5, 10]


@pytest.mark.parametrize(
    ("n", "verdict"), [((4, 4), "supported"), ((5, 4), "supported"), ((3, 5), "inconclusive")]
)
def test_fewer_than_four_seeds_decide_nothing(n, verdict):
    finding = no_norm(0.1, n=n)
    assert finding.verdict == verdict
    if verdict == "inconclusive":
        assert "with norm: 3 of 4" in finding.reason
        assert "the smaller group has 3 of at least 4 seeds needed." in finding.reason
        assert kinds.HOW_TO_TRAIN in finding.reason
        assert finding.estimate is None


def test_runs_that_did_not_learn_are_left_out_and_said():
    rows = arm(**scaled()) + arm("no norm", rate=[1e-3, 0.4, 1e-3, 1e-3, 1e-3], **scaled(0.5))
    finding = judged_on(BETTER_ID, {"seeds/functions": table(rows)}, known("no norm"))
    assert finding.verdict == "supported"
    assert "4 and 5 seeds" in finding.reason
    assert {"kind": "no norm", "left out, not learned": "no norm 1 (R2 0.61)"} in finding.details
    rows = arm(**scaled()) + arm("no norm", rate=[1e-3, 0.4, 0.4, 1e-3, 1e-3], **scaled(0.5))
    finding = judged_on(BETTER_ID, {"seeds/functions": table(rows)}, known("no norm"))
    assert finding.verdict == "inconclusive"
    assert "no norm: 3 of 4" in finding.reason
    assert [row["kind"] for row in finding.details] == ["no norm", "no norm"]


def test_a_run_that_fell_behind_makes_it_inconclusive():
    rows = arm(**scaled()) + arm("no norm", rate=[5e-4, 5e-4, 5e-4, 5e-4, 1.2e-3], **scaled(0.5))
    finding = judged_on(BETTER_ID, {"seeds/functions": table(rows)}, known("no norm"))
    assert finding.verdict == "inconclusive"
    assert (
        "not trained equally well: one's error is 2.5 times off the median (at most 2)"
        in finding.reason
    )
    assert (
        no_norm(0.05).verdict == "supported"
    )  # arms far apart, each alike: that is what the claim is about


def test_arms_that_were_trained_otherwise_are_not_compared():
    rows = arm(**scaled()) + arm("no norm", training="longer", **scaled(0.3))
    finding = judged_on(BETTER_ID, {"seeds/functions": table(rows)}, known("no norm"))
    assert finding.verdict == "inconclusive"
    assert "trained in 2 different ways" in finding.reason


def test_gates_of_learning():
    assert no_norm(0.5, facts=known("no norm", r2=0.3)).verdict == "inconclusive"
    assert no_norm(0.5, fresh=0.5).verdict == "inconclusive"  # untrained runs differ as much
    finding = no_norm(0.5, fresh=1.0)
    assert finding.control is not None
    assert finding.control.value == pytest.approx(1.0)


# ---- near the boundary ---------------------------------------------------------------------------


def near(without, normed, n=5, spread=SPREAD, rate=1e-3):
    rows = arm(n=n, **across(normed)) + arm(
        "no norm", n=n, spread=spread, rate=rate, **across(without)
    )
    return judged_on(NEAR_ID, {"seeds/inside": table(rows)}, known("no norm"))


def check_regions(regions):
    """Near the boundary: the mean over shares from 0.9 on; inside: up to 0.5."""
    one = Arm.of(table(arm(n=1, spread=(1.0,), **across(lambda x: 1 + 9 * (x > 0.85)))), "model")
    edge, inner = regions(one)
    assert (edge.item(), inner.item()) == pytest.approx((0.01, 0.001))


def test_regions_are_the_edge_and_the_inside():
    check_regions(regions)
    must_fail(check_regions, lambda arm: regions(arm)[::-1])
    rows = arm(**across(lambda x: 1 + 0 * x)) + arm(
        "no norm", **across(lambda x: 0.5 if x > 0.85 else 0.8)
    )
    arms = Arm.of(table(rows), "no norm"), Arm.of(table(rows), "model")
    assert [i.value for i in gains(*arms)] == pytest.approx([0.5, 0.8, 0.625])


@pytest.mark.parametrize(
    ("without", "normed", "verdict"),
    [
        (lambda x: 1 + x, lambda x: 1 + 3 * x**2, "supported"),
        (lambda x: 2 + 2 * x, lambda x: 1 + x, "contradicted"),  # worse everywhere
        (lambda x: 0.6 + x**2, lambda x: 1.6 + 0 * x, "contradicted"),  # better, but most so inside
        (lambda x: 0.5 + 0 * x, lambda x: 1 + 0 * x, "inconclusive"),  # as much better everywhere
    ],
)
def test_near_the_boundary_is_judged_on_both_counts(without, normed, verdict):
    finding = near(without, normed)
    assert finding.verdict == verdict
    assert finding.control is not None
    assert len([row for row in finding.details if "run" in row]) == 10
    assert answered(finding)


def test_two_conditions_need_five_seeds_to_contradict():
    """At level 0.05 / 2 four against four have no interval."""
    assert near(lambda x: 2 + 2 * x, lambda x: 1 + x, n=4).verdict == "inconclusive"
    assert near(lambda x: 1 + x, lambda x: 1 + 3 * x**2, n=4).verdict == "supported"


def test_arms_of_unlike_quality_are_not_compared():
    finding = near(lambda x: 1 + x, lambda x: 1 + 3 * x**2, rate=1e-2)
    assert finding.verdict == "inconclusive"
    assert "times off the median" in finding.reason


# ---- size ----------------------------------------------------------------------------------------


def widths(ratio, n=8, facts=None):
    rows = arm(n=n, **scaled()) + arm("wider", n=n, **scaled(1.0, far=ratio))
    return judged_on(SIZE_ID, {"seeds/functions": table(rows)}, facts or known("wider"))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.0, "supported"),
        (0.72, "supported"),
        (0.55, "inconclusive"),
        (0.4, "contradicted"),
        (2.0, "inconclusive"),
    ],
)
def test_size_is_an_equivalence_test(ratio, verdict):
    finding = widths(ratio)
    rows = arm(n=8, **scaled()) + arm("narrower", n=8, **scaled(1.0, far=1 / ratio))
    other = judged_on(SIZE_ID, {"seeds/functions": table(rows)}, known("narrower"))
    assert finding.verdict == other.verdict == verdict
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(ratio)
    assert answered(finding)
    assert ("The wider models make larger errors." in finding.reason) == (ratio > MARGIN)


def test_size_needs_eight_seeds_of_each_width_and_says_how_to_get_them():
    finding = widths(1.0, n=7)
    assert finding.verdict == "inconclusive"
    assert "7 of 8 of this width and 7 of 8 of another one" in finding.reason
    alone = judged_on(SIZE_ID, {"seeds/functions": table(arm(**scaled()))}, known())
    assert alone.verdict == "inconclusive"
    assert "5 of 8 of this width and 0 of 8 of another one" in alone.reason
    assert kinds.HOW_TO_TRAIN in alone.reason
    assert alone.reason.startswith(
        "Nothing was compared: the smaller group has 0 of at least 8 seeds needed."
    )


def test_margins_are_two_standard_errors_at_half_the_sample():
    """Of seeds that spread by 0.10 decades, the spread within the five kinds of the package."""
    zone = 2 * 0.10 * np.sqrt(2 * 2 / 5)
    assert np.log10(LARGER / SMALLER) == pytest.approx(zone, abs=0.005)
    assert np.log10(1 / MARGIN / APART) > 2 * 0.10 * np.sqrt(2 * 2 / 8)
    assert SMALLER < 1 < LARGER


# ---- what cannot be asked ------------------------------------------------------------------------


def test_without_companions_nothing_is_asked():
    for claim in (BETTER_ID, NEAR_ID, DENSITY_ID, LARGER_ID):
        for alone in (known(), known(norm=None)):
            finding = judged_on(claim, {}, alone)
            assert finding.verdict == "not_applicable"
    assert "no matched model without it" in judged_on(BETTER_ID, {}, known()).reason
    assert "no matched model with it" in judged_on(BETTER_ID, {}, known(norm=None)).reason
    assert "about LayerNorm" in judged_on(LARGER_ID, {}, known(INTERVALS[0], norm=None)).reason
    normal = tasks.Polynomial(
        degrees=(1,), inputs=tasks.Normal(1), coefficients=tasks.Normal(1), n_points=5
    )
    assert "U(-a, a)" in judged_on(DENSITY_ID, {}, known(INTERVALS[0], task=normal)).reason
    sine = tasks.Continuous(function="sin", inputs=tasks.Uniform(-1, 1), n_points=5)
    for claim in (BETTER_ID, NEAR_ID, SIZE_ID):
        assert "Continuous" in judged_on(claim, {}, known("no norm", task=sine)).reason
