"""Verdicts of `diversity.new_functions` on made-up distances."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses import registry
from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.results import make_array
from icl_interp.studies.diversity.claims import new_functions as claim
from icl_interp.studies.diversity.constructions.predictors import TASK, case_of
from icl_interp.studies.diversity.figures import pool_or_ridge
from icl_interp.studies.diversity.measurements import distances as measured
from icl_interp.studies.diversity.measurements.distances import APART, NEW, POOL, RIDGE, SEEN, SIZE

ID = "diversity.new_functions"


def made_up(ridge, pool, apart=0.5, seen=(0.5, 0.01)):
    """Distances with these means, of a mean square of 1; units differ by a tenth."""
    units = np.random.default_rng(0).uniform(0.9, 1.1, 64)
    rows = [[*seen, 0.5, 1.0], [ridge, pool, apart, 1.0]]
    axes = {"functions": (SEEN, NEW), "pair": (RIDGE, POOL, APART, SIZE), "unit": range(64)}
    return make_array(np.array(rows)[..., None] * units, axes)


def judged(*distances, control=(0.9, 0.9), **more):
    results = {
        "diversity/distances": made_up(*distances, **more),
        "twin/diversity/distances": made_up(*control),
    }
    return registry.REGISTRY[ID].judge_results(results, facts(task=TASK))


@pytest.mark.parametrize(
    ("distances", "verdict", "word"),
    [
        ((0.01, 0.5), "supported", "supported: at most x0.5"),
        ((0.5, 0.01), "contradicted", "contradicted: at least x2"),
        ((0.04, 0.05), "inconclusive", "x0.8"),
        ((0.3, 0.9), "inconclusive", "like neither"),
        ((0.001, 0.009, 0.01), "inconclusive", "nearly the same"),
        # The pool is nearer to ridge than the model is to either.
        ((0.05, 0.2, 0.05), "inconclusive", "1 of that between them"),
        ((0.2, 0.05, 0.05), "inconclusive", "1 of that between them"),
        ((0.02, 0.1, 0.05), "supported", "supported: at most x0.5"),
    ],
)
def test_which_of_both_is_nearer_decides(distances, verdict, word):
    finding = judged(*distances)
    assert finding.verdict == verdict
    assert word in finding.reason
    assert finding.details[0]["distance"] == pytest.approx(distances[0])


def test_functions_of_the_pool_decide_nothing():
    """There a model that weighs the pool is near to it, whatever it does on new functions."""

    def check(finding):
        assert finding.verdict == "supported"

    check(judged(0.01, 0.5, seen=(0.5, 0.001)))
    check(judged(0.01, 0.5, seen=(0.001, 0.5)))
    must_fail(check, judged(0.5, 0.01, seen=(0.001, 0.5)))


def test_a_control_that_passes_leaves_it_open():
    assert judged(0.01, 0.5, control=(0.01, 0.5)).verdict == "inconclusive"


def test_distances_that_are_0_are_told_by_rounding():
    """A model that is ridge itself: the ratio ends where rounding begins, and is finite."""
    result = made_up(0.0, 0.5)
    assert claim.ratio(result).value == pytest.approx(np.log10(claim.ROUNDING / 0.5), abs=1e-3)
    assert claim.share(result, RIDGE).value == 0.0


def test_the_figure_has_both_distances_and_the_zones():
    lab, known = calibration.lab_for(case_of(TASK, 0.2), n_units=32, n_contexts=2)
    results = {"diversity/distances": lab.measure(measured.distances)}
    finding = registry.REGISTRY[ID].judge_results(
        results | {"twin/diversity/distances": made_up(0.9, 0.9)}, known
    )
    drawing = pool_or_ridge.pool_or_ridge(Results(results), [finding], known)
    left, right = drawing.panels
    assert [mark.name for mark in left.marks] == ["from ridge", "from the pool's Bayes predictor"]
    ratio = right.marks[-1].x[0]
    assert ratio == pytest.approx(0.2**2 / 0.8**2, rel=1e-3)
    assert pool_or_ridge.pool_or_ridge(Results({}), [finding], known) is None
