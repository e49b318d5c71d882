"""The figure of layers shows the stored numbers."""

import re
from itertools import pairwise

import numpy as np
import pytest
from helpers import must_fail
from small_reports import report
from xarray import DataArray

from icl_interp.analyses.measurement import Results
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.last_layer import seen_by
from icl_interp.studies.limits.figures.layers import FLOOR
from icl_interp.studies.limits.measurements.ablation import ALL, QUERY
from icl_interp.studies.limits.measurements.patterns import LARGEST

PARTS = ("layers/curves", "layers/lens", "layers/without attention", "patterns/degrees")


@pytest.fixture(scope="module")
def small():
    return report()


def drawn(r, results=None):
    stored = Results(r.results if results is None else results)
    drawing = catalogue.FIGURES["layers"].draw(stored, r.findings, r.facts)
    return None if drawing is None else rendered(drawing)


def named(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


def check_curves(r, figure):
    curves = r.results["layers/curves"]
    for name, what in (
        ("before any layer", "depth 0"),
        ("after layer 0", "depth 1"),
        ("prediction", "depth 2"),
        ("the function", "f"),
    ):
        trace = named(figure, name)
        assert np.array_equal(trace.y, curves.sel(context=0, what=what).values)
        assert np.array_equal(trace.x, curves["x"].values)
    low, high = figure.layout.yaxis.range
    final = curves.sel(context=0, what="depth 2").values
    assert low < final.min() < final.max() < high


def check_lens(r, figure):
    for name, lens in (("logit lens", "logit"), ("affine read-out", "affine")):
        found = [seen_by(r.results["layers/lens"], lens, depth) for depth in range(3)]
        trace = named(figure, name)
        assert np.allclose(trace.y, [max(i.value, FLOOR) for i in found])
        assert np.allclose(
            np.array(trace.y) + trace.error_y.array, [max(i.high, FLOOR) for i in found]
        )
        assert f"{found[2].value:.3g}" in trace.text[2]


def check_errors(r, figure):
    """Mean error over the zero predictor's, in the row that says what was ablated."""
    whole, parts = (r.results[f"layers/{name}"] for name in ("without attention", "ablated"))
    axis = next(
        a for a in (figure.layout.yaxis, figure.layout.yaxis2, figure.layout.yaxis3) if a.ticktext
    )
    for points, name in ((ALL, "at every position"), (QUERY, "at the query's token")):
        trace = named(figure, name)
        marks = dict(zip(np.array(axis.ticktext)[np.asarray(trace.y, int)], trace.x, strict=True))
        zero = whole.sel(arm="zero", points=points).values.mean()
        expected = {"no attention": whole.sel(arm="no attention", points=points).values}
        for i in (0, 1):
            expected[f"no layer {i}"] = parts.sel(arm=f"block {i}", points=points).values
        expected["no MLPs"] = parts.sel(arm="no MLP", points=points).values
        if points == ALL:
            expected |= {"unchanged": whole.sel(arm="intact", points=ALL).values}
            expected |= {"no prompt": whole.sel(arm="without context", points=ALL).values}
        else:
            expected |= {"context reordered": parts.sel(arm="reordered", points=QUERY).values}
        assert set(marks) == set(expected)
        for label, errors in expected.items():
            assert marks[label] == pytest.approx(errors.mean() / zero, rel=1e-12), label


@pytest.mark.slow
def test_what_is_drawn_is_what_is_stored(small):
    figure = drawn(small)
    for check, result in (
        (check_curves, "layers/curves"),
        (check_lens, "layers/lens"),
        (check_errors, "layers/without attention"),
        (check_errors, "layers/ablated"),
    ):
        check(small, figure)
        stored = small.results[result]
        values = (
            stored.values[::-1].copy()
            if check is not check_curves
            else stored.values[:, ::-1].copy()
        )
        changed = {**small.results, result: stored.copy(data=values)}
        must_fail(check, small, drawn(small, changed))


def patterns_of() -> DataArray:
    statistics = ("between", "within", "ratio", "low", "high", "by position", "shuffled", "excess")
    cells = [[0.1, 0.5, r, r - 0.05, r + 0.05, r, 0.02, 0] for r in (0.1, 0.6, 0.6)]
    return make_array(
        [cells, cells],
        {"pair": ("1 ~ 3", LARGEST), "layer": (0, 1, LARGEST), "statistic": statistics},
    )


def test_patterns_have_a_panel_where_there_are_degrees_to_compare(small):
    assert not [t for t in drawn(small).data if t.name == "degrees shuffled"]
    figure = drawn(small, {**small.results, "patterns/degrees": patterns_of()})
    trace = named(figure, "two degrees / two prompts")
    assert list(trace.x) == [1, 2]
    assert np.allclose(trace.y, [0.1, 0.6])
    assert np.allclose(trace.error_y.array, 0.05)
    assert np.allclose(named(figure, "degrees shuffled").y, 0.02)
    assert figure.layout.yaxis4.range[1] > 0.65


def check_places(figure):
    """Panels lie beside each other within the figure.

    The words above do not run into the legend.
    """
    xs = [figure.layout[f"xaxis{i}"].domain for i in ("", 2, 3, 4) if f"xaxis{i}" in figure.layout]
    assert all(0 <= low < high <= 1 for low, high in xs)
    assert all(a[1] <= b[0] for a, b in pairwise(xs))
    lines = figure.layout.title.text.count("<br>")
    names = sum(t.showlegend is not False for t in figure.data)
    assert figure.layout.margin.t >= 44 + 16 * lines + 24 * (1 + -(-names // 5))


@pytest.mark.parametrize("kept", [PARTS, *((part,) for part in PARTS), PARTS[1:3]])
def test_panels_by_what_was_measured(small, kept):
    results = {**small.results, "patterns/degrees": patterns_of()}
    left = {name: result for name, result in results.items() if name not in PARTS or name in kept}
    figure = drawn(small, left)
    assert len([a for a in figure.layout.annotations if a.name == "panel"]) == len(kept)
    check_places(figure)
    assert drawn(small, {name: r for name, r in left.items() if name not in PARTS}) is None


def test_a_tight_heading_is_noticed(small):
    figure = drawn(small)
    check_places(figure)
    figure.update_layout(margin={"t": figure.layout.margin.t - 24})
    must_fail(check_places, figure)


def test_many_layers_keep_the_legend_short(small):
    curves = small.results["layers/curves"]
    what = (*(f"depth {i}" for i in range(13)), "f")
    lines = np.repeat(curves.values[:, :1], 14, axis=1)
    deep = make_curve(lines, {**curves.indexes, "what": what})
    figure = drawn(small, {**small.results, "layers/curves": deep})
    shown = [t.name for t in figure.data if t.showlegend is not False]
    assert [n for n in shown if re.match("before|after|prediction", n)] == [
        "before any layer",
        "prediction",
    ]
