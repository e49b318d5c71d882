"""Figures show the stored numbers, all of them and nothing else."""

import asyncio
import json
import struct
import sys
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from browsers import browser
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame
from small_reports import report

from icl_interp import figures
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion, Estimate
from icl_interp.analyses.measurement import Results
from icl_interp.errors import InputError
from icl_interp.figures import catalogue, claims, files
from icl_interp.figures.style import VERDICTS, Symlog, log_axis
from icl_interp.figures.text import interval, number
from icl_interp.report import Report
from icl_interp.resampling import Interval
from icl_interp.results import make_curve
from icl_interp.studies.limits.claims.context import r_squared, spread
from icl_interp.studies.limits.claims.layernorm import FAR_X, growth_exponent
from icl_interp.studies.limits.figures import heads

WITH_NORM = [
    "claims",
    "far_query",
    "growth",
    "boundary",
    "context",
    "heads",
    "dispersion",
    "layers",
    "classes",
    "shift",
]
# What each figure cannot be drawn without.
NEEDS = {
    "far_query": ["far/contexts"],
    "growth": ["far/norm arms"],
    "boundary": ["far/boundary"],
    "context": ["far/intact"],
    "heads": ["heads/delta", "heads/overlap"],
    "dispersion": ["heads/dispersion"],
    "layers": ["layers/curves", "layers/lens", "layers/without attention", "patterns/degrees"],
    "classes": ["classes/errors", "classes/continuous", "algorithms/distance"],
    "shift": ["shift/functions", "shift/inside", "shift/intervals"],
}


@pytest.fixture(scope="module", params=[True, False], ids=["norm", "no norm"])
def any_report(request):
    return report(request.param)


@pytest.fixture(scope="module")
def small():
    return report()


def drawn(r: Report, name: str) -> go.Figure:
    """One figure of a report."""
    figure = catalogue.FIGURES[name].draw(r.results, r.findings, r.facts)
    assert figure is not None
    return figure


def text_of(figure: go.Figure) -> str:
    """All annotations of a figure."""
    return "\n".join(a.text for a in figure.layout.annotations)


def trace(figure: go.Figure, name: str) -> go.Scatter:
    found = [t for t in figure.data if t.name == name]
    assert found, f"no trace {name!r} among {[t.name for t in figure.data]}"
    return found[0]


def lines(values: np.ndarray) -> np.ndarray:
    """A trace of several lines, taken apart at its gaps: (line, point)."""
    gaps = np.flatnonzero(np.isnan(values))
    return np.stack([part[~np.isnan(part)] for part in np.split(values, gaps)])


# ---- pure functions -------------------------------------------------------------------------------------------------


def test_figures_come_in_a_fixed_order():
    others = ["linear_attention"]  # of other tasks
    assert list(report().figures) == WITH_NORM
    assert [*WITH_NORM, *others] == list(catalogue.FIGURES)
    alone = report(norm=False)  # and no companion at hand
    assert list(alone.figures) == [name for name in WITH_NORM if name not in ("growth", "shift")]


def test_public_names_are_the_ones_used():
    assert (figures.draw, figures.export) == (catalogue.draw, files.export)


def shown_as(r: Report) -> dict[str, str]:
    return {name: figure.to_json() for name, figure in r.figures.items()}


def test_drawing_is_a_pure_function_of_what_is_stored(any_report, tmp_path):
    before = json.dumps(any_report.to_dict(), default=str)
    first = shown_as(any_report)
    assert shown_as(any_report) == first
    assert json.dumps(any_report.to_dict(), default=str) == before
    any_report.to_json(tmp_path / "report.json")
    loaded = Report.load(tmp_path)
    assert shown_as(loaded) == first
    stored = loaded.results["far/contexts"]
    loaded.results["far/contexts"] = stored.copy(data=np.nextafter(stored.values, np.inf))
    assert drawn(loaded, "far_query").to_json() != first["far_query"], "not even the last bit is lost"


@pytest.mark.parametrize("name", NEEDS)
def test_a_figure_without_its_results_is_absent_and_the_others_stay(small, name):
    def draws(removed: list[str]):
        left = {key: result for key, result in small.results.items() if key not in removed}
        found = catalogue.draw(left, small.findings, small.facts)
        assert [n for n in WITH_NORM if n not in found] == [name]

    draws(NEEDS[name])
    if name == "far_query":
        must_fail(draws, [])


def test_with_nothing_stored_the_claims_are_still_drawn(small):
    assert list(catalogue.draw({}, small.findings, small.facts)) == ["claims"]
    assert catalogue.draw({}, [], small.facts) == {}


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_degenerate_results_can_be_drawn(any_report, value):
    flat = {
        name: r if isinstance(r, DataFrame) else r.copy(data=np.full_like(r.values, value))
        for name, r in any_report.results.items()
    }
    if np.isnan(value):  # an analysis never stores these without a number, but no figure must break a report
        flat = {name: r for name, r in flat.items() if name in ("heads/delta", "heads/dispersion", "heads/overlap")}
    for figure in catalogue.draw(flat, any_report.findings, any_report.facts).values():
        assert json.loads(figure.to_json())["data"]


# ---- the forest plot ------------------------------------------------------------------------------------------------


def forest_shows(findings, figure):
    """A row a claim with its words, and the estimate, twin and sham of each at their values on the row's own axis."""
    words = text_of(figure)
    rows = [f for f in findings if claims.drawable(f)]
    assert len([axis for axis in figure.layout if axis.startswith("xaxis")]) == len(rows)
    for f in findings:
        assert f.id in words
    for verdict, look in VERDICTS.items():
        said = [a for a in figure.layout.annotations if a.text.startswith(f"<b>{look.sign} {look.word}</b>")]
        number = [f.verdict for f in findings].count(verdict)
        assert len(said) == (min(number, 1) if verdict == "not_applicable" else number)
    for i, f in enumerate(rows):
        axis = "x" if i == 0 else f"x{i + 1}"
        marks = {t.marker.symbol: t for t in figure.data if t.xaxis == axis}
        assert set(marks) == {"circle"} | ({"diamond-open"} if f.twin else set()) | (
            {"square-open"} if claims.sham(f) is not None else set()
        )
        for symbol, e in (("circle", f.test), ("diamond-open", f.twin)):
            if symbol in marks:
                mark = marks[symbol]
                assert mark.x[0] == e.value
                assert mark.error_x.array[0] == e.high - e.value
                assert mark.error_x.arrayminus[0] == e.value - e.low
        assert interval(f.test, unit=False) in words
        zones = {VERDICTS["supported"].pale: f.decided_by.supports}
        zones |= {VERDICTS["contradicted"].pale: f.decided_by.contradicts} if f.decided_by.contradicts else {}
        layout = figure.layout[f"xaxis{axis[1:]}"]
        ends = 10.0 ** np.array(layout.range) if layout.type == "log" else np.array(layout.range)
        shaded = {s.fillcolor: (s.x0, s.x1) for s in figure.layout.shapes if s.type == "rect" and s.xref == axis}
        assert set(shaded) == set(zones)
        for colour, (low, high) in zones.items():
            np.testing.assert_allclose(shaded[colour], (max(low, ends[0]), min(high, ends[1])), rtol=1e-12)
        held = [f.test.low, f.test.high, *([f.twin.low, f.twin.high] if f.twin else [])]
        assert ends[0] <= min(held)
        assert max(held) <= ends[1]


def test_the_forest_has_a_row_for_every_claim(any_report):
    figure = drawn(any_report, "claims")
    forest_shows(any_report.findings, figure)
    must_fail(forest_shows, any_report.findings[:-1], figure)
    moved = go.Figure(figure)
    moved.data[-1].x = [moved.data[-1].x[0] * 1.001 + 1e-9]
    must_fail(forest_shows, any_report.findings, moved)


def test_what_does_not_apply_says_why(small):
    finding = small["limits.linear_asymptote"]
    assert finding.verdict == "not_applicable"
    plain = text_of(drawn(small, "claims")).replace("<br>", " ")
    assert f"not applicable</b> {finding.id}: <i>{finding.reason}</i>" in plain


def test_shams_stand_on_the_scale_of_the_estimate(small):
    saturation, failure = small["limits.layernorm_causes_saturation"], small["limits.layernorm_causes_failure"]
    assert claims.sham(saturation) == saturation.causal["sham"] - saturation.causal["intact"]
    expected = np.log10(failure.causal["sham"] / failure.causal["far error / zero predictor"]["intact"])
    assert claims.sham(failure) == expected
    # A number on another scale is not drawn; one that says it is on the estimate's, is.
    assert claims.sham(replace(saturation, causal={"sham": 0.25})) is None
    assert claims.sham(replace(saturation, causal={"sham effect": 0.25})) == 0.25


MINE = Claim(
    id="my.claim",
    kind="architecture",
    statement="f is <b>small</b> & x < y",
    source="Me (2026), here",
    criterion=Criterion("<= 1 / > 2", (Condition("size", (-np.inf, 1.0), (2.0, np.inf), "log"),)),
    measurements=(),
    evidence=lambda results, facts: Evidence({"size": Estimate("size", 0.5, 0.4, 0.6, "m")}, "because"),
)


def test_claims_and_results_of_ones_own_are_shown_and_left_alone(small):
    finding = MINE.judge_results({}, small.facts)
    results = {**small.results, "my/result": make_curve([1.0, 2.0], {"x": (0, 1)})}
    found = catalogue.draw(results, [*small.findings, finding], small.facts)
    assert list(found) == WITH_NORM
    forest_shows([*small.findings, finding], found["claims"])
    words = text_of(found["claims"])
    assert "f is &lt;b&gt;small&lt;/b&gt; &amp; x &lt; y" in words, "plotly would take it for its own markup"
    assert "0.500 [0.400, 0.600]" in words


@pytest.mark.parametrize(("low", "scale"), [(0.4, "log"), (0.0, "linear")])
def test_a_row_is_logarithmic_only_where_all_its_values_are_positive(small, low, scale):
    judged = MINE.judge_results({}, small.facts)
    finding = replace(judged, test=Estimate("size", 0.5, low, 0.6))
    figure = claims.forest(Results(), [finding], small.facts)
    assert (figure.layout.xaxis.type or "linear") == scale
    forest_shows([finding], figure)


# ---- numbers --------------------------------------------------------------------------------------------------------


def far_query_shows(r: Report, figure: go.Figure):
    stored = r.results["far/contexts"]
    x_axis = Symlog(0.1)
    bounded = figure.layout.yaxis.tickvals is None
    y_axis = np.asarray if bounded else Symlog(float(figure.layout.yaxis.title.text.split("±")[1].rstrip(")")))
    n = len(stored.indexes["context"])
    for name, curve in ((f"model, {n} contexts", "model"), ("truth", "truth")):
        shown = trace(figure, name)
        np.testing.assert_array_equal(lines(shown.customdata[:, 1]), stored.sel(curve=curve).values)
        np.testing.assert_array_equal(lines(shown.customdata[:, 0]), np.tile(stored["x"].values, (n, 1)))
        np.testing.assert_array_equal(shown.x, x_axis(shown.customdata[:, 0]))
        np.testing.assert_array_equal(shown.y, y_axis(shown.customdata[:, 1]))
    mean = trace(figure, "mean over all contexts")
    np.testing.assert_array_equal(mean.customdata[:, 1], r.results["far/intact"].sel(statistic="mean").values.mean(0))
    top = float(y_axis(np.abs(stored.sel(curve="model").values).max()))
    assert figure.layout.yaxis.range[0] <= -top or figure.layout.yaxis.range[1] >= top


def test_far_query_shows_every_curve_uncut(any_report):
    figure = drawn(any_report, "far_query")
    far_query_shows(any_report, figure)
    must_fail(far_query_shows, report(norm="far/norm arms" not in any_report.results), figure)
    cut = go.Figure(figure)
    cut.data[1].y = np.clip(cut.data[1].y, -0.5, 0.5)
    must_fail(far_query_shows, any_report, cut)


def test_far_query_marks_what_the_weights_predict(small):
    figure, weights = drawn(small, "far_query"), small.results["far/certificate"].to_dict("records")[0]
    plateau = trace(figure, "plateau, closed form")
    below, above = lines(plateau.customdata[:, 1])
    assert (below[0], above[0]) == (weights["plateau -"], weights["plateau +"])
    onset = weights["onset"]
    np.testing.assert_array_equal(lines(plateau.customdata[:, 0]), [[-onset, -1e6], [onset, 1e6]])
    vertical = {round(s.x0, 9) for s in figure.layout.shapes if s.line.dash == "dash" and s.yref == "y domain"}
    assert vertical == {round(float(Symlog(0.1)(sign * onset)), 9) for sign in (-1, 1)}
    band = [s for s in figure.layout.shapes if s.type == "rect" and s.xref == "x domain"]
    assert [(s.y0, s.y1) for s in band] == [(weights["c"] - weights["r"], weights["c"] + weights["r"])]
    trained = [s for s in figure.layout.shapes if s.type == "rect" and s.yref == "y domain"]
    assert [(s.x0, s.x1) for s in trained] == [(-2.0, 2.0)]  # symlog of -1 and 1 with a threshold of 0.1
    onset = next(row["measured onset"] for row in small["limits.layernorm_saturation"].details if "c" in row)
    assert f"measured: |x| = {number(onset)}" in text_of(figure)
    assert "certificate" not in text_of(drawn(report(norm=False), "far_query"))


def growth_shows(r: Report, figure: go.Figure):
    arms, other = r.results["far/norm arms"], r.results["far/counterpart"]
    names = [*list(arms.indexes["arm"])[:3], "trained without", *list(arms.indexes["arm"])[3:-1]]
    assert len(figure.layout.yaxis2.ticktext) == len(names)
    at = np.isclose(np.abs(arms["x"].values), FAR_X)
    zero = arms.sel(arm="zero predictor", statistic="squared error").values[:, at].mean()
    for row, name in enumerate(names):
        arm = (
            other
            if name == "trained without"
            else make_curve(arms.sel(arm=name).values, dict(list(arms.indexes.items())[1:]))
        )
        square, error = (
            arm.sel(statistic="mean square").values.mean(0),
            arm.sel(statistic="squared error").values[:, at].mean(),
        )
        shown = {t.xaxis: t for t in figure.data if t.y is not None and list(t.y) == [row] and t.name is None}
        np.testing.assert_allclose(shown["x2"].x, [growth_exponent(square, arms["x"].values)], rtol=1e-12)
        np.testing.assert_allclose(shown["x3"].x, [error / zero], rtol=1e-12)
    intact = trace(figure, "intact")
    rms = [
        np.sqrt(arms.sel(arm="intact", statistic="mean square").values[:, np.abs(arms["x"].values) == x].mean())
        for x in intact.x
    ]
    np.testing.assert_allclose(intact.y, rms, rtol=1e-12)
    twin = r.results["twin/far/norm arms"]
    diamonds = [t.x[0] for t in figure.data if t.name == "untrained twin"]
    names.remove("trained without")
    expected = [
        growth_exponent(twin.sel(arm=name, statistic="mean square").values.mean(0), twin["x"].values) for name in names
    ]
    np.testing.assert_allclose(diamonds, expected, rtol=1e-12)


def test_growth_shows_exponents_and_errors_of_every_arm(small):
    figure = drawn(small, "growth")
    growth_shows(small, figure)
    other = report()
    arms = other.results["far/norm arms"]
    other.results["far/norm arms"] = arms.copy(data=arms.values * np.abs(arms["x"].values) ** 0.01)
    must_fail(growth_shows, other, figure)


def context_shows(r: Report, figure: go.Figure):
    curve = r.results["far/intact"]
    for sign, name in ((1, "x > 0"), (-1, "x < 0")):
        shown, keep = trace(figure, name), np.sign(curve["x"].values) == sign
        order = np.argsort(np.abs(curve["x"].values[keep]))
        np.testing.assert_array_equal(shown.x, np.abs(curve["x"].values[keep])[order])
        np.testing.assert_array_equal(shown.y, spread(curve)[keep][order])
    info = r.results["context/information"]
    shown = [t for t in figure.data if t.xaxis == "x2"]
    assert [t.x[0] for t in shown] == [r_squared(info, name).value for name in info.indexes["inputs"]]
    guide = trace(figure, "guide: 1/|x|")
    np.testing.assert_allclose(np.array(guide.y) * guide.x, guide.y[0] * guide.x[0], rtol=1e-12)


def test_context_shows_spread_and_information(any_report):
    figure = drawn(any_report, "context")
    context_shows(any_report, figure)
    must_fail(context_shows, report(norm="far/norm arms" not in any_report.results), figure)


def heads_show(r: Report, figure: go.Figure):
    delta, overlap = r.results["heads/delta"], r.results["heads/overlap"]
    values = delta.sel(statistic="delta").values
    ends = {
        "in distribution": values[:, np.abs(delta["x"].values) <= 1].mean(1),
        "far out": values[
            :, np.isclose(np.abs(delta["x"].values), 1e4) | np.isclose(np.abs(delta["x"].values), 1e5)
        ].mean(1),
    }
    for name, expected in ends.items():
        shown = {row: x for t in figure.data if str(t.name).startswith(name) for row, x in zip(t.y, t.x, strict=True)}
        assert [shown[row] for row in range(len(expected))] == list(expected)
    assert list(figure.layout.yaxis.ticktext) == list(delta.indexes["head"])
    for name, pair in (("mean of pairs", "mean"), ("random rotations", "null median")):
        np.testing.assert_array_equal(trace(figure, name).x, overlap.sel(pair=pair).values)
    pairs = trace(figure, "pair of heads")
    np.testing.assert_array_equal(pairs.x, overlap.values[:, :-3].ravel())


def test_heads_show_delta_effect_and_overlap(any_report):
    figure = drawn(any_report, "heads")
    heads_show(any_report, figure)
    must_fail(heads_show, report(norm="far/norm arms" not in any_report.results), figure)


def test_a_head_with_a_larger_effect_is_drawn_larger():
    stored = report()
    result = stored.results["heads/relevance"]
    rise = np.zeros_like(result.values)
    rise[:, 0, 0] = np.arange(len(result.values))[:, None] * stored.facts.error
    stored.results["heads/relevance"] = result.copy(data=rise)
    effects = heads.effects(stored.results, stored.facts)
    np.testing.assert_allclose(list(effects.values()), np.arange(len(effects)), rtol=1e-12)
    shown = [t for t in drawn(stored, "heads").data if str(t.name).startswith("far out")]
    size = {row: s for t in shown for row, s in zip(t.y, t.marker.size, strict=True)}
    assert (np.diff([size[row] for row in range(len(effects))]) > 0).all()


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
            for head, row in zip(curve.indexes["head"], curve.sel(statistic=statistic).values, strict=True)
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


# ---- axes and words -------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20), st.sampled_from([1e-3, 0.1, 1.0]))
def test_symlog_keeps_order_and_can_be_undone(values, threshold):
    axis, values = Symlog(threshold), np.sort(values)
    places = axis(values)
    assert (np.diff(places) >= 0).all()
    np.testing.assert_allclose(axis.back(places), values, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(axis(-values), -places)


def test_symlog_labels_stand_at_their_values():
    ticks = Symlog(0.1).axis(1e6)
    assert ticks["ticktext"][-2:] == ["10<sup>5</sup>", "10<sup>6</sup>"]
    np.testing.assert_allclose(Symlog(0.1).back(np.array(ticks["tickvals"]))[-2:], [1e5, 1e6])
    assert (ticks["ticktext"][8], ticks["tickvals"][8]) == ("0", 0)
    must_fail(lambda: np.testing.assert_allclose(Symlog(0.2).back(np.array(ticks["tickvals"]))[-1], 1e6))


@pytest.mark.parametrize(("low", "high"), [(1e-16, 1.0), (0.02, 6.0), (3.0, 4.0), (1e-3, 1e6)])
def test_log_axes_are_labelled_at_their_values(low, high):
    axis = log_axis("x", low, high)
    assert axis["range"] == [np.log10(low), np.log10(high)]
    assert len(axis["tickvals"]) == len(axis["ticktext"]) <= 9
    for value, label in zip(axis["tickvals"], axis["ticktext"], strict=True):
        plain = label.replace("10<sup>", "1e").replace("</sup>", "").replace("−", "-").replace("×10", "e")
        assert float(plain) == pytest.approx(value)


@pytest.mark.parametrize("value", [1.0, -0.001, 123456.0, 3e-7, 0.0])
def test_numbers_are_rounded_to_what_they_are(value):
    text = number(value, 6).replace("−", "-").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    mantissa, _, exponent = text.partition("×10")
    assert float(f"{mantissa}e{exponent or 0}") == pytest.approx(value, rel=1e-5)


def test_intervals_show_where_they_end():
    crossing = Interval(0.0513, -0.0049, 0.102)
    assert interval(Estimate.of("gap", crossing)) == "0.051 [−0.005, 0.102]"


# ---- files ----------------------------------------------------------------------------------------------------------


def test_static_files_have_the_size_that_the_figure_asks_for(small, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", browser())
    shown = {name: drawn(small, name) for name in ("claims", "context")}
    assert files.export(shown, tmp_path / "deep" / "figures", ["png", "svg", "pdf"]) is None
    written = {path.name: path.read_bytes() for path in (tmp_path / "deep" / "figures").iterdir()}
    assert sorted(written) == sorted(f"{name}.{kind}" for name in shown for kind in ("png", "svg", "pdf"))
    for name, figure in shown.items():
        assert written[f"{name}.pdf"].startswith(b"%PDF")
        assert b"Which claims hold" in written["claims.svg"]
        png = written[f"{name}.png"]
        assert png.startswith(b"\x89PNG")
        assert struct.unpack(">II", png[16:24]) == (2 * figure.layout.width, 2 * figure.layout.height)


def says_what_is_missing(answer: str | None, *words: str):
    assert answer is not None
    assert "\n" not in answer
    for word in words:
        assert word in answer


@pytest.mark.parametrize("path", ["/nowhere/chrome", ""])
def test_without_a_browser_one_line_says_how_to_get_one(small, tmp_path, monkeypatch, path):
    monkeypatch.setenv("BROWSER_PATH", path)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = files.export({"heads": drawn(small, "heads")}, tmp_path / "figures", ["png"])
    says_what_is_missing(answer, "Chrome or Chromium", "apt install chromium", "BROWSER_PATH", path)
    must_fail(says_what_is_missing, None)
    assert list((tmp_path / "figures").iterdir()) == []


def test_without_kaleido_one_line_says_how_to_get_it(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    says_what_is_missing(files.export({}, tmp_path, ["png"]), "kaleido", "pip install 'icl-interp[figures]'")


def test_a_folder_that_cannot_be_written_is_the_users_to_know(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file"):
        files.export({}, tmp_path / "file" / "figures", ["png"])


def test_errors_of_the_browser_are_not_swallowed(small, tmp_path, monkeypatch):
    import kaleido

    async def failing(jobs, kopts):
        return (ValueError("no such trace"),)

    monkeypatch.setattr(kaleido, "write_fig_from_object", failing)
    with pytest.raises(RuntimeError, match=r"1 of 1 figures: no such trace"):
        files.export({"context": drawn(small, "context")}, tmp_path, ["png"])


def test_a_browser_that_ends_or_hangs_costs_the_static_figures_only(small, tmp_path, monkeypatch):
    """kaleido cancels what waits for a browser that is gone, or waits for it without end."""
    import kaleido

    async def ends(jobs, kopts):
        raise asyncio.CancelledError

    async def hangs(jobs, kopts):
        await asyncio.sleep(3600)

    monkeypatch.setattr(files, "PATIENCE", 0)
    for behaves in (ends, hangs):
        monkeypatch.setattr(kaleido, "write_fig_from_object", behaves)
        answer = files.export({"context": drawn(small, "context")}, tmp_path, ["png"])
        says_what_is_missing(answer, "did not start, or ended or hung", "BROWSER_PATH")
