"""The figure of classes shows the stored numbers."""

import copy
import functools

import numpy as np
import pytest
from helpers import must_fail
from small_reports import SIZES
from tiny_runs import checkpoint

from icl_interp import pipeline
from icl_interp.analyses.measurement import Results
from icl_interp.figures import catalogue
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.algorithms import ARMS, ERROR, SELF, SIZE

CLAIMS = ("limits.unseen_classes", "limits.continuous_functions", "limits.no_classical_algorithm")


@functools.cache
def analyzed():
    """A random model of several degrees: what was trained on one is not asked about classes it has not seen."""
    mine = checkpoint(model=SIZES, task={"degrees": [1, 3]})
    return pipeline.analyze(mine, claims=CLAIMS, n_prompts=256, progress=False)


@pytest.fixture(scope="module")
def small():
    return copy.deepcopy(analyzed())


def drawn(r, results=None):
    return catalogue.FIGURES["classes"].draw(Results(results or r.results), r.findings, r.facts)


def check_rates(r, figure):
    """A mark for the model on each class, at mean error / mean square."""
    errors = r.results["classes/errors"]
    marks = {}
    for trace in figure.data:
        if trace.xaxis == "x" and trace.name in ("trained on", "not trained on"):
            marks |= dict(zip(np.array(figure.layout.yaxis.ticktext)[list(trace.y)], trace.x, strict=True))
    for name in errors.indexes["class"]:
        mine, zero = (errors.sel({"predictor": p, "class": name, "points": "own"}).values for p in ("model", "zero"))
        assert marks[name] == pytest.approx(mine.mean() / zero.mean(), rel=1e-12)


def check_distances(r, figure):
    """Distance to each algorithm, over the largest of the model's distances from itself and its error."""
    result = r.results["algorithms/distance"]
    mean = {to: result.sel(to=to).values.mean(-1) for to in result.indexes["to"]}
    error = mean[ERROR][0] / mean[SIZE][0]
    for a, arm in enumerate(ARMS):
        trace = next(t for t in figure.data if t.name == arm)
        ceiling = max(mean[SELF][a] / mean[SIZE][a], error) + 1e-9
        for name, x in zip(figure.layout.yaxis2.ticktext, trace.x, strict=True):
            assert x == pytest.approx((mean[name][a] / mean[SIZE][a] + 1e-9) / ceiling, rel=1e-9)


def test_marks_are_the_stored_numbers(small):
    figure = drawn(small)
    check_rates(small, figure)
    check_distances(small, figure)
    for name, check in (("classes/errors", check_rates), ("algorithms/distance", check_distances)):
        stored = small.results[name]
        values = stored.values.copy()
        values[0] *= 1.5
        values[1, -1] *= 2
        must_fail(check, small, drawn(small, {**small.results, name: make_array(values, stored.indexes)}))


@pytest.mark.parametrize("removed", ["classes/errors", "classes/continuous", "algorithms/distance"])
def test_parts_are_drawn_by_themselves(small, removed):
    left = {name: result for name, result in small.results.items() if name != removed}
    assert len(drawn(small, left).data) < len(drawn(small).data) or removed == "classes/continuous"
