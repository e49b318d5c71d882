"""Criteria: levels for several conditions, distances inside regions, firm verdicts, and JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail
from scipy.stats import norm

from icl_interp.analyses.criterion import (
    FEWEST_CLAIMS,
    INF,
    Condition,
    Criterion,
    Estimate,
    Precondition,
    firm_chance,
)
from icl_interp.analyses.finding import Finding
from icl_interp.errors import InputError
from icl_interp.provenance import finite
from icl_interp.resampling import EXTREMES, Interval, bootstrap, half_width

A, B, C = (Condition(name, "", (-INF, 0.0), (1.0, INF), optional=True) for name in "abc")
ONLY = Condition("only", "", (-INF, 0.0), None, optional=True)
RULE = Criterion((A, B, C, ONLY), terms="below 0 / above 1")


def normal(value: float, se: float) -> Interval:
    """The interval of a normal law, with its tails."""
    tails = tuple(
        (value - half_width(0.05 / k) * se, value + half_width(0.05 / k) * se) for k in range(1, 7)
    )
    return Interval(value, *tails[0], se, tails)


def evidence(**numbers: tuple[float, float]) -> dict[str, Estimate]:
    return {name: Estimate.of(name, normal(*of)) for name, of in numbers.items()}


BELOW, ABOVE, BETWEEN = (-5.0, 1.0), (6.0, 1.0), (0.5, 0.1)


def above(z: float) -> tuple[float, float]:
    """So many standard errors above 1."""
    return 1 + z, 1.0


CASES = (
    # k = 1: 1.96 standard errors
    ({"a": above(2.0)}, "contradicted", "a"),
    ({"a": above(1.9)}, "inconclusive", "a"),
    ({"a": (-2.0, 1.0)}, "supported", "a"),
    # What can only fail to support does not count.
    ({"a": above(2.0), "only": BELOW}, "contradicted", "a"),
    ({"a": BELOW, "only": ABOVE}, "inconclusive", "only"),
    # k = 2: 2.24
    ({"a": above(2.0), "b": BELOW}, "inconclusive", "a"),
    ({"a": above(2.2), "b": BELOW}, "inconclusive", "a"),
    ({"a": above(2.3), "b": BELOW}, "contradicted", "a"),
    ({"a": BELOW, "b": above(2.3)}, "contradicted", "b"),
    ({"a": BETWEEN, "b": above(2.3)}, "contradicted", "b"),
    ({"a": (-2.0, 1.0), "b": (-2.0, 1.0)}, "supported", "a"),
    ({"a": (-2.0, 1.0), "b": (-1.9, 1.0)}, "inconclusive", "b"),
    # k = 3: 2.39
    ({"a": BELOW, "b": BELOW, "c": above(2.3)}, "inconclusive", "c"),
    ({"a": BELOW, "b": BELOW, "c": above(2.4)}, "contradicted", "c"),
    ({"a": (-2.0, 1.0), "b": (-2.0, 1.0), "c": (-2.0, 1.0)}, "supported", "a"),
)


def check_levels(decide):
    """All support at level 0.95; any of k contradicts, at 1 - 0.05 / k."""
    for found, verdict, decided in CASES:
        decision = decide(evidence(**found))
        assert (decision.verdict, decision.condition.quantity) == (verdict, decided), found


def test_any_of_k_contradicts_at_a_share_of_the_error():
    check_levels(RULE.decide)

    def without_tails(found):
        """The mutant: every interval at 95 %."""
        return RULE.decide({k: replace(e, tails=((e.low, e.high),) * 6) for k, e in found.items()})

    def all_strict(found):
        """The mutant: supporting intervals at .05 / k too."""
        return RULE.decide(
            {k: replace(e, low=e.tails[2][0], high=e.tails[2][1]) for k, e in found.items()}
        )

    must_fail(check_levels, without_tails)
    must_fail(check_levels, all_strict)


def test_without_tails_intervals_widen_as_normal_ones():
    """Reports from before, and more conditions than tails."""
    bare = [
        Estimate("x", e.value, e.low, e.high)
        for e in evidence(a=(1.0, 2.0), b=(-3.0, 0.1)).values()
    ]
    for e, of in zip(bare, ((1.0, 2.0), (-3.0, 0.1)), strict=True):
        for k in range(1, 9):
            np.testing.assert_allclose(
                e.tail(k),
                [of[0] - norm.isf(0.025 / k) * of[1], of[0] + norm.isf(0.025 / k) * of[1]],
            )
    assert Estimate.of("x", normal(0.0, 1.0)).tail(8) == pytest.approx(
        (-norm.isf(0.025 / 8), norm.isf(0.025 / 8))
    )
    assert Estimate.exactly("x", 2).tail(3) == (2, 2)
    with pytest.raises(AssertionError):
        assert bare[0].tail(2) == bare[0].tail(1)


# ---- firm ----------------------------------------------------------------------------------------


def test_firm_is_family_wise_over_all_registered_claims_and_conditions():
    """Both sides of every condition of every claim: together at most 5 %."""
    for n_claims in (50, 52, 300):
        for k in (1, 4):
            assert 2 * n_claims * k * firm_chance(n_claims, k) == pytest.approx(0.05)
    assert firm_chance(3, 1) == firm_chance(
        FEWEST_CLAIMS, 1
    )  # a few own claims alone make no verdict firmer


Z = norm.isf(firm_chance(FEWEST_CLAIMS, len(RULE.conditions)))  # 3.66: four conditions
EXTREME = norm.isf(np.array(EXTREMES))


def check_ends(beyond):
    """Ends of a normal law, between the chances that are stored and at them."""
    stored = Estimate("x", 1.0, 0.8, 1.2, extremes=tuple((1 - z, 1 + z) for z in EXTREME))
    for chance in (1e-3, 4e-4, 1e-4, 3e-5, 1e-5):
        np.testing.assert_allclose(
            beyond(stored, chance), [1 - norm.isf(chance), 1 + norm.isf(chance)], rtol=0.01
        )
        bare = Estimate("x", 1.0, 1 - norm.isf(0.025), 1 + norm.isf(0.025))
        np.testing.assert_allclose(
            beyond(bare, chance), [1 - norm.isf(chance), 1 + norm.isf(chance)]
        )
    assert beyond(stored, 1e-6) == (-INF, INF)  # rarer than what was computed
    assert beyond(Estimate.exactly("x", 2), 1e-4) == (2, 2)


def test_far_ends():
    check_ends(Estimate.beyond)
    must_fail(
        check_ends, lambda e, chance: e.beyond(2 * chance) if chance < 1e-3 else e.beyond(chance)
    )
    must_fail(check_ends, lambda e, chance: replace(e, extremes=e.extremes[:1] * 3).beyond(chance))


@pytest.mark.parametrize(
    ("estimate", "region", "firm"),
    [
        # Numbers without error: a margin of 5 % of the end.
        (Estimate.exactly("x", 20.9), (20.0, INF), False),
        (Estimate.exactly("x", 21.1), (20.0, INF), True),
        (Estimate.exactly("x", 0.096), (0.0, 0.1), False),
        (Estimate.exactly("x", 0.0), (0.0, 0.1), True),  # no size is below 0
        (Estimate.exactly("x", 1.0), (0.9, 1.0), True),  # no share is above 1
        (Estimate.exactly("x", 0.98), (0.0, 1.0), False),  # here 1 is a threshold
        (Estimate.exactly("x", -1.02), (-INF, -1.0), False),
        (Estimate.exactly("x", -1.1), (-INF, -1.0), True),
        # Numbers with one: the interval at the chance that is asked for.
        (Estimate("x", 0.95, 0.94, 0.96, extremes=((0.91, 1.0),) * 3), (0.9, 1.0), True),
        (Estimate("x", 0.95, 0.94, 0.96, extremes=((0.91, 1.01),) * 3), (0.9, 1.0), True),
        (Estimate("x", 0.95, 0.94, 0.96, extremes=((0.89, 1.0),) * 3), (0.9, 1.0), False),
        (Estimate("x", 0.95, 0.94, 0.96, extremes=((-INF, INF),) * 3), (0.9, 1.0), False),
    ],
)
def test_firmly_within(estimate, region, firm):
    assert estimate.firmly_within(region, 1e-4) is firm


def check_firm(decide):
    more, less = Z + 0.1, Z - 0.1
    for found, firm in (
        ({"a": (-more, 1.0)}, True),
        ({"a": (-less, 1.0)}, False),
        ({"a": (-more, 1.0), "b": (-less, 1.0)}, False),  # all must lie well inside
        ({"a": (-more, 1.0), "only": (-less, 1.0)}, False),
        ({"a": above(more), "b": BETWEEN}, True),  # the one that decides
        ({"a": (-more, 1.0), "b": above(less)}, False),
        ({"a": BETWEEN}, None),
    ):
        assert decide(evidence(**found)).firm is firm, found


def test_firm_verdicts_lie_well_inside_their_regions():
    check_firm(RULE.decide)
    must_fail(
        check_firm, lambda found: RULE.decide(found, n_claims=500)
    )  # among more claims less is firm
    must_fail(check_firm, Criterion((A,), terms="").decide)  # and by fewer conditions more
    must_fail(
        check_firm, Criterion((replace(A, supports=(-INF, 0.2)), B, C, ONLY), terms="").decide
    )


def test_several_intervals_are_firm_where_all_are():
    """The ends that a spanning interval gives hold every part's."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        parts = [
            Estimate.of("x", normal(*of))
            for of in zip(rng.uniform(-8, 0, 3), rng.uniform(0.1, 2, 3), strict=True)
        ]
        together = Estimate.spanning("x", parts).firmly_within((-INF, 0), 1e-4)
        assert together is all(part.firmly_within((-INF, 0), 1e-4) for part in parts)


def test_spanning_estimates_have_spanning_tails():
    parts = [normal(0.0, 1.0), normal(1.0, 0.1)]
    found = Estimate.spanning("x", parts)
    assert found.value == 0
    assert found.tails == tuple(
        (one[0], max(one[1], two[1])) for one, two in zip(*(p.tails for p in parts), strict=True)
    )
    assert (found.low, found.high) == found.tails[0]
    alone = Estimate.spanning("x", [normal(1.0, 0.1)], "u")
    assert alone == Estimate.of("x", normal(1.0, 0.1), "u")
    np.testing.assert_allclose(
        [found.beyond(chance) for chance in EXTREMES], [(-z, z) for z in EXTREME]
    )


# ---- JSON ----------------------------------------------------------------------------------------


def finding(estimate: Estimate, firm: bool | None) -> Finding:
    return Finding(
        "s.c",
        "s",
        "learning",
        "a",
        "b",
        "supported",
        "c",
        RULE,
        A,
        estimate,
        evidence={"a": estimate},
        firm=firm,
    )


@pytest.mark.parametrize("firm", [True, False, None])
@pytest.mark.parametrize("positive", [True, False])
def test_findings_come_back_with_errors_and_tails(firm, positive):
    x = np.random.default_rng(0).exponential(size=40)
    kept = finding(Estimate.of("x", bootstrap(lambda m: m, x, positive=positive)), firm)
    back = Finding.from_dict(json.loads(json.dumps(finite(kept.to_dict()))))
    assert (back.firm, back.estimate, back.evidence) == (kept.firm, kept.estimate, kept.evidence)
    assert back.estimate is not None
    assert len(back.estimate.tails) == 6
    assert len(back.estimate.extremes) == len(EXTREMES)


def test_reports_from_before_there_were_errors_are_read():
    stored = json.loads(json.dumps(finite(finding(Estimate.exactly("x", 1.0), True).to_dict())))
    del stored["firm"]
    for key in ("se", "tails", "positive", "extremes"):
        del stored["estimate"][key]
    back = Finding.from_dict(stored)
    assert back.firm is None
    assert back.estimate is not None
    assert math.isnan(back.estimate.se)
    assert back.estimate.tails == ()
    stored["firm"] = "yes"
    with pytest.raises(InputError, match="firm must be true or false, but got 'yes'"):
        Finding.from_dict(stored)


def is_no_size(why):
    """A sentence that names no size, since none is known."""
    assert "is no number here" in why
    assert "nan" not in why


def test_a_precondition_on_what_overflows_names_no_size():
    """Predictions of deep linear layers overflow far from the data: no growth is known."""
    grows = Precondition("growth", (0.1, INF), "It moves by only {value:.2g} (0.1 needed).")
    rule = Criterion((A,), (grows,))
    found = evidence(a=BELOW) | {"growth": Estimate.exactly("growth", math.nan)}
    decision = rule.decide(found)
    assert decision.verdict == "inconclusive"
    is_no_size(decision.failed)
    must_fail(is_no_size, grows.otherwise.format(value=math.nan))
    assert grows.why(0.05) == "It moves by only 0.05 (0.1 needed)."
