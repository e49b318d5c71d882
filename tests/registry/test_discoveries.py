"""The false discovery rate: p-values of verdicts, their adjustment, and what planted models say."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail
from scipy.stats import beta, false_discovery_control, norm
from small_registries import entry, rule

from icl_interp.analyses.criterion import Condition, Criterion, Estimate, at_least, at_most
from icl_interp.registry.discoveries import ONE_END, adjusted, beyond, chance_of, of_planted
from icl_interp.resampling import EXTREMES

NEAR = norm.isf(ONE_END / np.arange(1, 7)).tolist()
FAR = norm.isf(EXTREMES).tolist()
pytestmark = pytest.mark.usefixtures("registry")


def normal(value: float, se: float) -> Estimate:
    """An estimate whose errors follow a normal law."""
    tails = tuple((value - end * se, value + end * se) for end in NEAR)
    extremes = tuple((value - end * se, value + end * se) for end in FAR)
    return Estimate("mean", value, *tails[0], se=se, tails=tails, extremes=extremes)


def by_hand(p: np.ndarray) -> np.ndarray:
    """Benjamini and Yekutieli (2001), theorem 1.3, from its definition: the least of all steps."""
    n = len(p)
    harmonic = sum(1 / i for i in range(1, n + 1))
    found = []
    for one in p:
        steps = [n * harmonic * level / np.sum(p <= level) for level in p if level >= one]
        found.append(min(1.0, *steps))
    return np.array(found)


def agrees(table, expected):
    q = adjusted(table)
    np.testing.assert_allclose(q, expected, rtol=1e-12)


def test_q_values_are_those_of_benjamini_and_yekutieli():
    p = np.array([2e-5, 2e-4, 2e-3, 0.05, 1.0, 2e-5, 1.0])
    one, open_ = entry("low", 0.05), entry("middle", 0.15)
    table = []
    for chance in p:
        # What is open counts as a test that found nothing.
        table.append(open_ if chance == 1 else _with(one, p=float(chance)))
    agrees(table, by_hand(p))
    # Without the factor for dependence it would be another procedure.
    must_fail(agrees, table, by_hand(p) / sum(1 / i for i in range(1, 8)))
    # A verdict without sampling error is outside of the table.
    exact = _with(one, p=None)
    q = adjusted([*table, exact])
    assert np.isnan(q[-1])
    np.testing.assert_allclose(q[:-1], by_hand(p), rtol=1e-12)


def _with(one, **changes):
    return replace(one, **changes)


def test_the_chance_at_one_end_is_that_of_a_normal_law_rounded_up():
    for distance in (1.0, 2.0, 2.3, 3.0, 3.3, 4.0, 4.5, 6.0):
        found = beyond(normal(0.0, 1.0), at_most(distance))
        exact = norm.sf(distance)
        levels = [1.0, *(ONE_END / k for k in range(1, 7)), *EXTREMES]
        assert found == min(level for level in levels if level >= exact)


def test_all_conditions_support_and_any_contradicts():
    two = Criterion(
        (
            Condition("mean", "mean", at_most(0.1), at_least(0.2)),
            Condition("other", "other", at_most(0.1), at_least(0.2)),
        )
    )
    sure, less = normal(0.05, 0.005), normal(0.05, 0.02)
    p = [chance_of(two, {"mean": sure, "other": one}, "supported") for one in (sure, less)]
    assert p[0] == pytest.approx(2e-5)
    assert p[1] == pytest.approx(2 * beyond(less, at_most(0.1)))
    against = {"mean": normal(0.3, 0.005), "other": less}
    assert chance_of(two, against, "contradicted") == pytest.approx(4e-5)
    exact = {"mean": Estimate.exactly("mean", 0.3), "other": less}
    assert chance_of(two, exact, "contradicted") is None
    assert chance_of(rule(), {"mean": sure}, "inconclusive") is None


def fewer_errors_than(rate: float, p: np.ndarray, wrong: np.ndarray, adjust: bool) -> None:
    """The mean share of false discoveries over tables: a row of p-values each."""
    shares = []
    for row, false in zip(p, wrong, strict=True):
        q = false_discovery_control(row, method="by") if adjust else row
        found = q <= 0.05
        shares.append(false[found].mean() if found.any() else 0.0)
    assert np.mean(shares) <= rate


def test_the_rate_is_held_where_truth_lies_at_the_threshold():
    rng = np.random.default_rng(0)
    # Nine in ten sit at the edge of the region, where a verdict of support is wrong.
    wrong = rng.random((50, 100)) < 0.9
    values = np.where(wrong, 0.1, 0.0) + 0.02 * rng.normal(size=wrong.shape)
    p = np.ones_like(values)
    for place, value in np.ndenumerate(values):
        numbers = {"mean": normal(float(value), 0.02)}
        chance = chance_of(rule(), numbers, rule().decide(numbers).verdict)
        p[place] = 1.0 if chance is None else chance
    fewer_errors_than(0.05, p, wrong, adjust=True)
    # Without the adjustment one in five is wrong.
    must_fail(fewer_errors_than, 0.05, p, wrong, adjust=False)


def counts(table, **expected):
    found = of_planted(table)._asdict()
    assert {key: found[key] for key in expected} == expected


def test_planted_models_are_counted():
    truths = {"a": "supported", "b": "supported", "c": "contradicted", "d": "inconclusive"}
    means = {"a": 0.05, "b": 0.15, "c": 0.05, "d": 0.3}
    table = [entry(name, means[name], planted=truth) for name, truth in truths.items()]
    other = entry("e", 0.05)
    expected = {"decided": 3, "wrong": 2, "discoveries": 3, "false": 2, "missed": 1}
    counts([*table, other], **expected)
    must_fail(counts, table[:2], **expected)
    # Clopper and Pearson from the quantiles of beta laws.
    found = of_planted(table)
    assert found.low == pytest.approx(beta.ppf(0.025, 2, 2))
    assert found.high == pytest.approx(beta.ppf(0.975, 3, 1))
    assert of_planted([other]).discoveries == 0
