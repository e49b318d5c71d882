"""Verdicts of both claims of `mixtures` on made-up squares, and on predictors of known truth."""

import math

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts, said

from icl_interp.analyses import registry
from icl_interp.analyses.measurement import Results
from icl_interp.baselines.mixture import BayesMixture
from icl_interp.experiments import calibration
from icl_interp.results import make_array
from icl_interp.studies.mixtures.claims import bayes_outside as claims
from icl_interp.studies.mixtures.constructions import predictors
from icl_interp.studies.mixtures.figures import mixture_distances
from icl_interp.studies.mixtures.measurements.distances import (
    ALL,
    BAYES,
    BEST,
    DIMENSIONS,
    DRAWN,
    HALF,
    INSIDE,
    LENGTHS,
    MODEL,
    OUTSIDE,
    SIZE,
    TWICE,
    distance,
)
from icl_interp.studies.mixtures.measurements.laws import ONE, bayes
from icl_interp.tasks.distributions import Normal

TASK = predictors.mixture(Normal(0.25, mean=1.0), Normal(0.25, mean=-1.0))
WHO = (MODEL, BEST, BAYES, "family 1", "family 2", ONE)
COMPARED = (MODEL, "family 1", "family 2", ONE)
EVERY = (*WHO, *map(distance, COMPARED), SIZE)


def made_up(near=0.01, single=0.2, own=0.5, best=0.1, known=0.5, **at):
    """Squares with these means, of a mean square of 1; units differ by a tenth.

    Args:
        near: distance of the model from Bayes.
        single: distance of one normal law from it; families are twice as far.
        own: error of the model on combinations.
        best: that of the best predictor there.
        known: that of what knows the mixture.
        at: `near` or `own` at one length: near_at=(HALF, 0.2).
    """
    inside = dict.fromkeys(EVERY, 1.0)
    inside |= {distance(MODEL): near, distance(ONE): single}
    inside |= {distance("family 1"): 2 * single, distance("family 2"): 2 * single}
    # One normal law is near the best on combinations: it knows no mixture, and does not count.
    outside = dict.fromkeys(EVERY, 1.0) | {MODEL: own, BEST: best, BAYES: known, ONE: best}
    values = np.array([[[one[of] for of in EVERY] for one in (inside, outside)]] * len(LENGTHS))
    for key, functions, of in (("near_at", 0, distance(MODEL)), ("own_at", 1, MODEL)):
        if key in at:
            length, value = at[key]
            values[LENGTHS.index(length), functions, EVERY.index(of)] = value
    units = np.random.default_rng(0).uniform(0.9, 1.1, 64)
    axes = {"length": LENGTHS, "functions": (INSIDE, OUTSIDE), "of": EVERY, "unit": range(64)}
    return make_array(values[..., None] * units, axes)


def judged(claim, result, control=None):
    untrained = made_up(near=0.9) if control is None else control
    results = {"mixtures/distances": result, "twin/mixtures/distances": untrained}
    return registry.REGISTRY[claim].judge_results(results, facts(task=TASK))


@pytest.mark.parametrize(
    ("numbers", "verdict", "word"),
    [
        ({}, "supported", "supported: at most 0.05"),
        ({"near": 0.049, "single": 0.3}, "supported", "0.049"),
        ({"near": 0.07, "single": 0.5}, "inconclusive", "0.07"),
        ({"near": 0.11}, "contradicted", "contradicted: at least 0.1"),
        # One length is enough to contradict, and none may be left out to support.
        ({"near_at": (HALF, 0.2)}, "contradicted", HALF),
        ({"near_at": (DRAWN, 0.2)}, "contradicted", DRAWN),
        ({"near_at": (TWICE, 0.07)}, "inconclusive", TWICE),
        # A single law is as near: nothing is told.
        ({"near": 0.001, "single": 0.01}, "inconclusive", "A single law predicts nearly as"),
        ({"near": 0.02, "single": 0.05}, "inconclusive", "0.4 times"),
        ({"near": 0.0, "single": 0.05}, "supported", "supported"),
    ],
)
def test_bayes_predictor(numbers, verdict, word):
    finding = judged("mixtures.bayes_predictor", made_up(**numbers))
    assert finding.verdict == verdict
    assert word in said(finding)


@pytest.mark.parametrize(
    ("numbers", "verdict", "word"),
    [
        ({}, "supported", "supported: at most 0.1"),
        ({"own": 5.0}, "supported", "does no better"),
        ({"own": 0.44}, "inconclusive", "0.15"),
        ({"own": 0.3}, "contradicted", "contradicted: at least 0.25"),
        ({"own": 0.1}, "contradicted", "Share of the possible gain after d/2 examples: 1"),
        ({"own_at": (DIMENSIONS, 0.2)}, "contradicted", DIMENSIONS),
        ({"own_at": (ALL, 0.44)}, "inconclusive", ALL),
        # Nothing could be gained, or the model is bad on its own mixture.
        ({"known": 0.14, "own": 0.14}, "inconclusive", "at most 0.04 of the mean square"),
        ({"near": 0.2}, "inconclusive", "on functions of the mixture: 0.2"),
        ({"near_at": (HALF, 0.2)}, "inconclusive", "on functions of the mixture: 0.2"),
        ({"near": 0.2, "own": 0.2}, "contradicted", "possible gain"),
    ],
)
def test_no_better_outside(numbers, verdict, word):
    finding = judged("mixtures.no_better_outside", made_up(**numbers))
    assert finding.verdict == verdict
    assert word in said(finding)


def test_a_law_that_knows_no_family_is_not_among_what_knows_the_mixture():
    result = made_up().sel(length=HALF)
    assert claims.knowing(result) == [BAYES, "family 1", "family 2"]
    assert claims.laws_in(result) == ["family 1", "family 2", ONE]


def test_a_family_that_errs_less_than_bayes_sets_the_bar():
    """The model is as good as the better of the two: it gains nothing."""
    result = made_up(own=0.5, known=0.9)
    here = result.sel(length=ALL)
    nearer = here.copy()
    nearer.loc[{"functions": OUTSIDE, "of": "family 2"}] /= 2

    def check(found):
        assert found.value == pytest.approx(0, abs=1e-9)

    check(claims.gain(nearer))
    must_fail(check, claims.gain(here))


def test_lengths_without_room_are_not_asked():
    result = made_up()
    result.loc[{"functions": OUTSIDE, "length": ALL, "of": BEST}] = 0.48
    found = claims.of_outside(Results({"mixtures/distances": result}), facts(task=TASK))
    assert [length for length in LENGTHS if length in found] == [
        length for length in LENGTHS if length != ALL
    ]


def test_a_control_that_passes_leaves_it_open():
    for claim in ("mixtures.bayes_predictor", "mixtures.no_better_outside"):
        assert judged(claim, made_up(), made_up()).verdict == "inconclusive"


def test_a_model_that_does_not_fit_its_mixture_passes_for_no_control():
    """An untrained one errs outside, too: it must fail inside, or nothing could be supported."""
    claim = "mixtures.no_better_outside"
    assert judged(claim, made_up(), made_up(near=0.9, own=2.0)).verdict == "supported"


def test_distances_of_0_are_numbers():
    result = made_up(near=0.0)
    assert claims.nearer(result).value == 0
    both = made_up(near=0.5, single=0.0)
    assert math.isfinite(claims.nearer(both).high)


CASES = [
    pytest.param(one, id=one.name, marks=() if number == 0 else pytest.mark.slow)
    for number, one in enumerate(predictors.CONSTRUCTIONS)
]


@pytest.mark.slow
@pytest.mark.parametrize("construction", CASES)
def test_predictors_of_known_truth(construction):
    expected = dict(construction.expected)
    found = calibration.judge(construction.draw(1), tuple(expected), seed=1)
    assert {finding.id: finding.verdict for finding in found} == expected


@pytest.mark.slow
def test_three_families_are_weighed_with_their_shares():
    laws = (Normal(0.2, mean=-1.0), Normal(0.2), Normal(0.2, mean=1.0))
    task = predictors.mixture(*laws, shares=(0.4, 0.2, 0.4))

    def check(start):
        case = predictors.on_the_way(task, start, 0.0)
        (found,) = calibration.judge(case, ("mixtures.bayes_predictor",))
        assert found.verdict == "supported"

    check(bayes(task))
    must_fail(check, BayesMixture(bayes(task).laws[::2]))


@pytest.mark.slow
def test_an_error_at_the_bound_leaves_it_open():
    """D is half of the square of what is added: 7.5 %, between 5 % and 10 %."""
    case = predictors.a_little_wrong(TASK, 0.387)
    (found,) = calibration.judge(case, ("mixtures.bayes_predictor",))
    assert found.verdict == "inconclusive"
    assert found.decided_by.quantity in LENGTHS


def test_the_figure_has_distances_gains_and_zones():
    result = made_up(near=0.02, own=0.3)
    result.loc[{"functions": OUTSIDE, "length": ALL, "of": BEST}] = 0.48
    finding = judged("mixtures.bayes_predictor", result)
    results = Results({"mixtures/distances": result})
    drawing = mixture_distances.mixture_distances(results, [finding], facts(task=TASK))
    left, right = drawing.panels
    assert [zone.x for zone in left.marks[:2]] == [(0.0, 0.05), (0.1, np.inf)]
    np.testing.assert_allclose(left.marks[-1].x, 0.02)
    assert list(left.marks[-1].y) == [0, 1, 2, 3, 4]
    # (.5 - .3) of (.5 - .1); after all examples nothing can be gained.
    np.testing.assert_allclose(right.marks[-1].x, 0.5)
    assert list(right.marks[-1].y) == [0, 1, 2, 4]
    assert mixture_distances.mixture_distances(Results({}), [finding], facts(task=TASK)) is None
