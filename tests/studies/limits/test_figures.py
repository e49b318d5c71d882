"""Figures of `limits` show the stored numbers, all of them and nothing else."""

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers import must_fail
from made_up_facts import changed
from small_reports import drawn, report, text_of

from icl_interp.analyses import output_unit
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.figures.style import Symlog
from icl_interp.figures.text import number, plain
from icl_interp.report import Report
from icl_interp.studies.limits.claims.context import spread, told_by
from icl_interp.studies.limits.claims.layernorm_cause import at_drawn_places, growth_exponents
from icl_interp.studies.limits.figures import heads
from icl_interp.studies.limits.measurements.between import pairs
from icl_interp.studies.limits.measurements.failure import SCALES


def trace(figure: go.Figure, name: str) -> go.Scatter:
    found = [t for t in figure.data if t.name == plain(name)]
    assert found, f"no trace {name!r} among {[t.name for t in figure.data]}"
    return found[0]


def lines(values: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """A trace of several lines, taken apart where it has no x: (line, point)."""
    gaps = np.flatnonzero(np.isnan(xs))
    return np.stack(np.split(np.delete(values, gaps), gaps - np.arange(len(gaps))))


def far_query_shows(r: Report, figure: go.Figure):
    stored = r.results["far/contexts"]
    x_axis = Symlog(0.1)
    bounded = figure.layout.yaxis.tickvals is None
    y_axis = (
        np.asarray
        if bounded
        else Symlog(float(figure.layout.yaxis.title.text.split("±")[1].rstrip(")")))
    )
    n = len(stored.indexes["context"])
    for name, curve in ((f"model, {n} contexts", "model"), ("truth", "truth")):
        shown = trace(figure, name)
        found, expected = (
            lines(shown.customdata[:, 1], shown.customdata[:, 0]),
            stored.sel(curve=curve).values,
        )
        if curve == "truth" and bounded:
            # Left out is only what no segment leads to the axis from.
            low, high = figure.layout.yaxis.range
            beyond = np.sign(expected - high) + np.sign(expected - low)
            off = (beyond[:, 1:] == beyond[:, :-1]) & (beyond[:, 1:] != 0)
            ends = np.pad(off, ((0, 0), (1, 1)), constant_values=True)
            np.testing.assert_array_equal(np.isnan(found), ends[:, 1:] & ends[:, :-1])
            expected = np.where(np.isnan(found), np.nan, expected)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            lines(shown.customdata[:, 0], shown.customdata[:, 0]),
            np.tile(stored["x"].values, (n, 1)),
        )
        np.testing.assert_array_equal(shown.x, x_axis(shown.customdata[:, 0]))
        np.testing.assert_array_equal(shown.y, y_axis(shown.customdata[:, 1]))
    mean = trace(figure, "mean over all contexts")
    np.testing.assert_array_equal(
        mean.customdata[:, 1], r.results["far/intact"].sel(statistic="mean").values.mean(0)
    )
    top = float(y_axis(np.abs(stored.sel(curve="model").values).max()))
    assert figure.layout.yaxis.range[0] <= -top or figure.layout.yaxis.range[1] >= top


@pytest.mark.slow
def test_far_query_shows_every_curve_uncut(any_report):
    figure = drawn(any_report, "far_query")
    far_query_shows(any_report, figure)
    must_fail(far_query_shows, report(norm="far/norm arms" not in any_report.results), figure)
    cut = go.Figure(figure)
    cut.data[1].y = np.clip(cut.data[1].y, -0.5, 0.5)
    must_fail(far_query_shows, any_report, cut)


def test_far_query_marks_what_the_weights_predict(small):
    figure, weights = (
        drawn(small, "far_query"),
        small.results["far/certificate"].to_dict("records")[0],
    )
    below, above = (t for t in figure.data if t.name == "level that the weights predict")
    assert list(below.y) == [weights["plateau -"]] * 2
    assert list(above.y) == [weights["plateau +"]] * 2
    onset = weights["onset"]
    assert below.customdata[:, 0].tolist() == [-onset, -1e6]
    assert above.customdata[:, 0].tolist() == [onset, 1e6]
    vertical = {
        round(s.x0, 9)
        for s in figure.layout.shapes
        if s.line.dash == "dash" and s.yref == "y domain"
    }
    assert vertical == {round(float(Symlog(0.1)(sign * onset)), 9) for sign in (-1, 1)}
    band = [s for s in figure.layout.shapes if s.type == "rect" and s.xref == "x domain"]
    assert [(s.y0, s.y1) for s in band] == [
        (weights["c"] - weights["r"], weights["c"] + weights["r"])
    ]
    trained = [s for s in figure.layout.shapes if s.type == "rect" and s.yref == "y domain"]
    assert [(s.x0, s.x1) for s in trained] == [
        (-2.0, 2.0)
    ]  # symlog of -1 and 1 with a threshold of 0.1
    onset = next(
        row["measured onset"] for row in small["limits.layernorm_saturation"].details if "c" in row
    )
    assert f"measured: |x| = {number(onset)}" in text_of(figure)
    assert "bound from the weights alone" in text_of(figure)
    assert "bound from the weights" not in text_of(drawn(report(norm=False), "far_query"))


def growth_shows(r: Report, figure: go.Figure):
    arms, other = r.results["far/norm arms"], r.results["far/counterpart"]
    names = [*list(arms.indexes["arm"])[:3], "trained without", *list(arms.indexes["arm"])[3:-1]]
    assert len(figure.layout.yaxis2.ticktext) == len(names)

    def exponent(arm, results, name):
        square = arm.sel(statistic="squared increment").values.mean(0)
        each = growth_exponents(square, arm["x"].values, output_unit.u(results))
        if (between := at_drawn_places(results).get(name)) is not None and arm is not other:
            steps = pairs(between.values).mean(0)
            seen = np.isfinite(steps)
            drawn = growth_exponents(steps[seen], between["x"].values[seen], output_unit.u(results))
            each = np.concatenate([each, drawn])
        return each.max() if name in ("intact", "sham") else each.min()

    for row, name in enumerate(names):
        arm = other if name == "trained without" else arms.sel(arm=name)
        (shown,) = (
            t for t in figure.data if t.xaxis == "x2" and list(t.y) == [row] and t.name is None
        )
        np.testing.assert_allclose(shown.x, [exponent(arm, r.results, name)], rtol=1e-9)
    intact = trace(figure, "unchanged model")
    rms = [
        np.sqrt(
            arms.sel(arm="intact", statistic="mean square")
            .values[:, np.abs(arms["x"].values) == x]
            .mean()
        )
        for x in intact.x
    ]
    np.testing.assert_allclose(intact.y, rms, rtol=1e-12)
    control = r.results["twin/far/norm arms"]
    diamonds = [t.x[0] for t in figure.data if t.name == "randomly initialised"]
    names.remove("trained without")
    expected = [exponent(control.sel(arm=name), r.results.control, name) for name in names]
    np.testing.assert_allclose(diamonds, expected, rtol=1e-9)


def test_growth_shows_exponents_of_every_arm(small):
    figure = drawn(small, "growth")
    growth_shows(small, figure)
    other = report()
    arms = other.results["far/norm arms"]
    other.results["far/norm arms"] = arms.copy(data=arms.values * np.abs(arms["x"].values) ** 0.01)
    must_fail(growth_shows, other, figure)


def phi_shows(details, figure: go.Figure):
    """Five freezing scales and the sham at each place, with their intervals."""
    shown = [t for t in figure.data if t.xaxis == "x3"]
    found = sorted(
        (round(t.y[0]), t.x[0], t.x[0] - t.error_x.arrayminus[0], t.x[0] + t.error_x.array[0])
        for t in shown
    )
    expected = []
    for i, row in enumerate(details):
        expected += [
            (i, *(row[f"phi, {arm}{end}"] for end in ("", ", low", ", high"))) for arm in SCALES
        ]
        expected += [(i, *[row["sham"]] * 3)] if "sham" in row else []  # a function has none
    np.testing.assert_allclose(found, sorted(expected), rtol=1e-9, atol=1e-12)
    low, high = figure.layout.xaxis3.range
    assert all(low <= each[2] <= each[3] <= high for each in found)


def test_growth_shows_the_share_that_freezing_removes(small):
    figure, details = drawn(small, "growth"), small["limits.layernorm_causes_failure"].details
    assert [row["place"] for row in details][:2] == ["query x 3", "query x 10"]
    phi_shows(details, figure)
    must_fail(phi_shows, details[::-1], figure)
    bands = [(s.x0, s.x1) for s in figure.layout.shapes if s.type == "rect" and s.xref == "x3"]
    low, high = figure.layout.xaxis3.range
    assert bands == [(np.clip(0.5, low, high), high), (low, np.clip(0.2, low, high))]


def context_shows(r: Report, figure: go.Figure):
    curve = r.results["far/intact"]
    for sign, name in ((1, "x > 0"), (-1, "x < 0")):
        shown, keep = trace(figure, name), np.sign(curve["x"].values) == sign
        order = np.argsort(np.abs(curve["x"].values[keep]))
        np.testing.assert_array_equal(shown.x, np.abs(curve["x"].values[keep])[order])
        np.testing.assert_array_equal(shown.y, spread(curve)[keep][order])
    info = r.results["context/information"]
    shown = [t for t in figure.data if t.xaxis == "x2"]
    assert [t.x[0] for t in shown] == [told_by(info, name).value for name in info.indexes["inputs"]]
    guide = trace(figure, "guide: 1/|x|")
    np.testing.assert_allclose(np.array(guide.y) * guide.x, guide.y[0] * guide.x[0], rtol=1e-12)


def test_context_shows_spread_and_information(any_report):
    figure = drawn(any_report, "context")
    context_shows(any_report, figure)
    must_fail(context_shows, report(norm="far/norm arms" not in any_report.results), figure)


def heads_show(r: Report, figure: go.Figure):
    delta = r.results["heads/delta"]
    values = delta.sel(statistic="delta").values
    ends = {
        "in distribution": values[:, np.abs(delta["x"].values) <= 1].mean(1),
        "far from the data": values[
            :,
            np.isclose(np.abs(delta["x"].values), 1e4) | np.isclose(np.abs(delta["x"].values), 1e5),
        ].mean(1),
    }
    for name, expected in ends.items():
        shown = {
            row: x
            for t in figure.data
            if str(t.name).startswith(name)
            for row, x in zip(t.y, t.x, strict=True)
        }
        assert [shown[row] for row in range(len(expected))] == list(expected)
    assert list(figure.layout.yaxis.ticktext) == list(delta.indexes["head"])


def test_heads_show_delta_and_effect(any_report):
    figure = drawn(any_report, "heads")
    heads_show(any_report, figure)
    must_fail(heads_show, report(norm="far/norm arms" not in any_report.results), figure)


def test_a_head_with_a_larger_effect_is_drawn_larger():
    """By the factor on the error in a model that learned, else by the change of the prediction."""
    stored = report()
    result = stored.results["heads/relevance"]
    n, factors = len(result.values), 3.0 ** np.arange(len(result.values))
    for r2, expected in ((0.99, factors), (0.5, 0.02 * factors)):
        values = np.ones_like(result.values)
        values[:, :, 0] = (factors - 1)[:, None, None]
        values[:, :, 1] = (0.02 * factors[:, None, None]) ** 2
        stored.results["heads/relevance"] = result.copy(data=values)
        known = changed(stored.facts, r2=r2)
        effects = heads.effects(stored.results, known)
        np.testing.assert_allclose(list(effects.values()), expected, rtol=1e-9)
        figure = catalogue.FIGURES["heads"].draw(stored.results, stored.findings, known)
        assert figure is not None
        figure = rendered(figure)
        shown = [t for t in figure.data if str(t.name).startswith("far from the data")]
        size = {row: s for t in shown for row, s in zip(t.y, t.marker.size, strict=True)}
        assert (np.diff([size[row] for row in range(n)]) > 0).all()
        words = [f"{number(value)}{'×' if r2 > 0.9 else ' u'}" for value in expected]
        assert [a.text for a in figure.layout.annotations if a.text in words] == words


def dispersion_shows(r: Report, figure: go.Figure):
    curve = r.results["heads/dispersion"]
    for axis, statistic in (("x", "deficit"), ("x2", "max weight")):
        found = {}
        for t in figure.data:
            if t.xaxis == axis and t.text is not None:
                for head, n, value in zip(t.text, t.x, t.y, strict=True):
                    if not np.isnan(value):
                        found[head, n] = value
        expected = {
            (head, n): value
            for head, row in zip(
                curve.indexes["head"], curve.sel(statistic=statistic).values, strict=True
            )
            for n, value in zip(curve["n"].values, row, strict=True)
        }
        assert found == expected


def test_dispersion_shows_every_head_at_every_length(any_report):
    figure = drawn(any_report, "dispersion")
    dispersion_shows(any_report, figure)
    must_fail(dispersion_shows, report(norm="far/norm arms" not in any_report.results), figure)
    trained = any_report.results["heads/dispersion"]["n"].values[-5]
    for t in figure.data:
        if t.line.dash == "solid":
            assert np.nanmax(t.x) == trained, "solid is what was measured directly"
