"""The figure of linear regression in context shows the stored numbers."""

import numpy as np
import pytest
from helpers import must_fail
from lsa_models import BEST, RANDOM, TASK, N, bench, layer
from pandas import DataFrame

from icl_interp.analyses.measurement import Results
from icl_interp.figures import catalogue
from icl_interp.figures.render import render
from icl_interp.studies.linear_attention.measurements import algorithms as lsa_algorithms
from icl_interp.studies.linear_attention.measurements import shifts as lsa_shifts
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights
from icl_interp.theory import linear_attention as theory


@pytest.fixture(scope="module")
def stored():
    """Results and facts of a layer near the optimum, with three snapshots."""
    models = {0: layer(0.1 * BEST), 10: layer(0.6 * BEST), 100: layer(0.98 * BEST)}
    lab, known = bench(models[100], snapshots=models)
    for m in (lsa_shifts.risk, lsa_weights.path, lsa_algorithms.algorithms):
        lab.measure(m)
    return lab.results, known


def drawn(results, known):
    return catalogue.FIGURES["linear_attention"].draw(Results(results), [], known)


def named(drawing, name):
    """The marks of this name; a name stands in one panel."""
    marks = [mark for panel in drawing.panels for mark in panel.marks]
    return next(mark for mark in marks if mark.name == name)


def check_risk(results, figure):
    risk = results["lsa/risk"]
    for name, who in (
        ("measured", "model"),
        ("optimal layer, Theorem 4.2", "optimum"),
        ("predicting 0", "zero"),
        ("the same without 1/M, as printed", "as printed"),
    ):
        trace = named(figure, name)
        assert np.array_equal(trace.x, risk["M"].values)
        assert np.allclose(trace.y, risk.sel(who=who).values.mean(0))


def check_path(results, figure):
    path = results["lsa/path"]
    for name, what in (
        ("excess loss", "excess"),
        ("|∇L|²", "squared gradient"),
        ("mu × excess", "PL bound"),
    ):
        trace = named(figure, name)
        assert trace.x.tolist() == [0, 10, 100]
        assert np.array_equal(trace.y, path.sel(quantity=what).values)


def check_algorithms(results, figure):
    result = results["lsa/algorithms"]
    names = [name for name in result.indexes["algorithm"] if name != "size"]
    size = result.sel(M=N, algorithm="size", depth=1, statistic="distance").values.mean()
    for row, name in enumerate(names):
        distance = result.sel(M=N, algorithm=name, depth=1, statistic="distance").values.mean()
        cosine = result.sel(M=N, algorithm=name, depth=1, statistic="cosine").values.mean()
        assert named(figure, "similarity of predictions").x[row] == pytest.approx(
            1 - distance / size
        )
        assert named(figure, "cosine of input gradients").x[row] == pytest.approx(cosine)
    labels = figure.panels[2].y.rows
    assert len(labels) == len(names)
    assert labels[names.index(lsa_algorithms.ONE)] == "one step of GD"


@pytest.mark.parametrize("check", [check_risk, check_path, check_algorithms])
def test_it_shows_what_is_stored(stored, check):
    results, known = stored
    figure = drawn(results, known)
    check(results, figure)
    changed = {
        name: r.copy(data=1.1 * r.values + 0.01)
        for name, r in results.items()
        if not isinstance(r, DataFrame)
    }
    must_fail(check, changed, figure)


def test_what_leaves_an_axis_is_drawn_at_its_end(stored):
    """The step before the first at half of it, and a prediction that is far off at -0.5."""
    results, known = stored
    algorithms = results["lsa/algorithms"]
    far = algorithms.copy(data=algorithms.values)
    far.loc[{"algorithm": lsa_algorithms.ONE, "statistic": "distance"}] = 1e6
    figure = render(drawn({**results, "lsa/algorithms": far}, known))
    traces = {trace.name: trace for trace in figure.data}
    excess = traces["excess loss"]
    assert excess.x.tolist() == [5, 10, 100]
    assert excess.customdata[:, 0].tolist() == [0, 10, 100]
    similarity = traces["similarity of predictions"]
    assert similarity.x.min() == -0.5
    assert similarity.customdata[:, 0].min() < -100


def test_panels_without_their_results_are_left_out(stored):
    results, known = stored
    assert drawn({}, known) is None
    for name in results:
        rest = {other: r for other, r in results.items() if other != name}
        assert len(drawn(rest, known).panels) == 2
    few = {
        **results,
        "lsa/path": results["lsa/path"].copy(data=np.full_like(results["lsa/path"].values, np.nan)),
    }
    assert len(drawn(few, known).panels) == 2


@pytest.mark.slow
def test_random_covariances_have_no_printed_line():
    best = theory.random_landscape(RANDOM.spectrum_moments(), N).product
    lab, known = bench(layer(best), RANDOM)
    lab.measure(lsa_shifts.risk)
    names = [mark.name for mark in drawn(lab.results, known).panels[0].marks]
    assert "optimal layer, Theorem 4.5" in names
    assert not any("printed" in name for name in names)
    assert TASK.covariance is not None


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_degenerate_results_can_be_drawn(stored, value):
    results, known = stored
    flat = {name: r.copy(data=np.full_like(r.values, value)) for name, r in results.items()}
    assert render(drawn(flat, known)).to_json()
