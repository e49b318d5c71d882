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
from icl_interp.figures.render import rendered
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.no_classical import PLAIN, Answers, Comparison, bounded
from icl_interp.studies.limits.figures.classes import LEAST, MOST
from icl_interp.studies.limits.measurements.algorithms import ARMS

CLAIMS = ("limits.unseen_classes", "limits.continuous_functions", "limits.no_classical_algorithm")


@functools.cache
def analyzed():
    """A random model of several degrees.

    A model that was trained on one degree is not asked about classes it has not seen.
    """
    mine = checkpoint(model=SIZES, task={"degrees": [1, 3]})
    return pipeline.analyze(mine, claims=CLAIMS, n_prompts=256, progress=False)


@pytest.fixture(scope="module")
def small():
    return copy.deepcopy(analyzed())


def drawn(r, results=None):
    drawing = catalogue.FIGURES["classes"].draw(Results(results or r.results), r.findings, r.facts)
    return rendered(drawing)


def check_rates(r, figure):
    """A mark for the model on each class, at mean error / mean square."""
    errors = r.results["classes/errors"]
    marks = {}
    for trace in figure.data:
        if trace.xaxis == "x" and trace.name in ("trained on", "not trained on"):
            marks |= dict(
                zip(
                    np.array(figure.layout.yaxis.ticktext)[trace.y.astype(int)],
                    trace.x,
                    strict=True,
                )
            )
    for name in errors.indexes["class"]:
        mine, zero = (
            errors.sel({"predictor": p, "class": name, "points": "own"}).values
            for p in ("model", "zero")
        )
        assert marks[name] == pytest.approx(mine.mean() / zero.mean(), rel=1e-12)


def check_similarities(results, figure):
    """What each algorithm in its nearest form misses, arm by arm: E (f - A)^2 / Var f."""
    answers = Answers.of(results["algorithms/own"], results["algorithms/rivals"])
    found = Comparison.of(results["algorithms/own"], results["algorithms/rivals"])
    for a, arm in enumerate(ARMS):
        trace = next(t for t in figure.data if t.name == arm)
        for rival, name, x in zip(
            found.chosen.each, figure.layout.yaxis2.ticktext, trace.x, strict=True
        ):
            assert name == rival.algorithm
            scale = np.array(rival.bound * (answers.u if rival.form != PLAIN else 1.0))
            its = answers.said[rival.algorithm]
            if rival.form != PLAIN:
                its = bounded(its, answers.mean, rival.form, scale)
            its = its[a]
            mine = answers.f[a]
            missed = ((mine - its) ** 2).mean() / mine.var()
            assert x == pytest.approx(min(max(LEAST, missed), MOST), rel=1e-9)


@pytest.mark.slow
def test_marks_are_the_stored_numbers(small):
    figure = drawn(small)
    check_rates(small, figure)
    stored = small.results["classes/errors"]
    values = stored.values.copy()
    values[0] *= 1.5
    values[1, -1] *= 2
    changed = {**small.results, "classes/errors": make_array(values, stored.indexes)}
    must_fail(check_rates, small, drawn(small, changed))


def test_similarities_are_those_of_the_nearest_form(small):
    """Of this random model, which is like nobody, and of one that is near least squares."""
    check_similarities(small.results, drawn(small))
    stored, rivals = small.results["algorithms/own"], small.results["algorithms/rivals"]
    values = rivals.sel(who=["least squares"]).values
    near = make_array(values + 0.2 * np.sin(9 * values), stored.indexes)
    results = {**small.results, "algorithms/own": near}
    check_similarities(results, drawn(small, results))
    swapped = {**results, "algorithms/own": make_array(near.values[:, :, ::-1], stored.indexes)}
    must_fail(check_similarities, results, drawn(small, swapped))


@pytest.mark.parametrize(
    "removed", ["classes/errors", "classes/continuous", "algorithms/own", "algorithms/rivals"]
)
def test_parts_are_drawn_by_themselves(small, removed):
    left = {name: result for name, result in small.results.items() if name != removed}
    assert len(drawn(small, left).data) < len(drawn(small).data) or removed == "classes/continuous"
