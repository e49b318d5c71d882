"""The forest of a report: every claim, its estimate over its zones, and its controls."""

import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from helpers import must_fail
from small_reports import WITH_NORM, drawn, text_of

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion, Estimate
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.registry import REGISTRY
from icl_interp.figures import catalogue, claims
from icl_interp.figures.render import render
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import interval
from icl_interp.results import make_curve


def forest_shows(findings, figure):
    """A panel for each claim: its words, and estimate, control and sham at their values."""
    words = text_of(figure)
    with_numbers = [f for f in findings if claims.drawable(f)]
    panels = [f for f in findings if f.verdict != "not_applicable"]
    skipped = len(panels) < len(findings)
    axes = [name for name in figure.layout if name.startswith("xaxis")]
    assert len(axes) == len(panels) + skipped
    assert sum(figure.layout[name].visible is not False for name in axes) == len(with_numbers)
    ids = re.findall(r"\b[a-z_]+\.[a-z_0-9]+\b", words)
    asked = {f.id for f in findings}
    claims_shown = {id for id in ids if id in REGISTRY or id in asked}
    assert claims_shown == asked
    for verdict, look in VERDICTS.items():
        sign = f"{look.sign} {look.word}"
        said = [
            a for a in figure.layout.annotations if re.match(f"(<b>)?{re.escape(sign)}", a.text)
        ]
        number = [f.verdict for f in findings].count(verdict)
        assert len(said) == (min(number, 1) if verdict == "not_applicable" else number)
    for i, f in enumerate(panels):
        if f in with_numbers:
            own = "" if i == 0 else str(i + 1)
            panel_shows(f, figure, own)
            assert interval(f.test, unit=False) in words.replace("<br>[", " [")


def panel_shows(f, figure, own):
    """The marks and zones of one claim; `own` is what plotly writes behind its axes."""
    marks = {t.marker.symbol: t for t in figure.data if t.xaxis == f"x{own}"}
    assert set(marks) == {"circle"} | ({"diamond-open"} if f.control else set()) | (
        {"square-open"} if claims.control_intervention(f) is not None else set()
    )
    for symbol, e in (("circle", f.test), ("diamond-open", f.control)):
        if symbol in marks:
            mark = marks[symbol]
            assert mark.x[0] == e.value
            if e.high > e.low:
                assert mark.error_x.array[0] == e.high - e.value
                assert mark.error_x.arrayminus[0] == e.value - e.low
            else:
                assert mark.error_x.array is None
    layout = figure.layout[f"xaxis{own}"]
    ends = np.array(layout.range)
    if layout.type == "log":
        ends = 10.0**ends
    shaded = {
        s.fillcolor: (s.x0, s.x1)
        for s in figure.layout.shapes
        if s.type == "rect" and s.xref == f"x{own}"
    }
    regions = {"supported": f.decided_by.supports, "contradicted": f.decided_by.contradicts}
    zones = {VERDICTS[verdict].pale: region for verdict, region in regions.items() if region}
    assert set(shaded) == set(zones)
    for colour, (low, high) in zones.items():
        expected = (max(low, ends[0]), min(high, ends[1]))
        np.testing.assert_allclose(shaded[colour], expected, rtol=1e-12)
    held = [f.test.low, f.test.high, *([f.control.low, f.control.high] if f.control else [])]
    assert ends[0] <= min(held)
    assert max(held) <= ends[1]


@pytest.mark.slow
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
    assert f"{finding.id}: <i>{finding.reason}</i>" in plain


def test_shams_stand_on_the_scale_of_the_estimate(small):
    saturation, failure = (
        small["limits.layernorm_causes_saturation"],
        small["limits.layernorm_causes_failure"],
    )
    for finding in (saturation, failure):
        assert claims.control_intervention(finding) == finding.causal["sham effect"]
    # A number on another scale is not drawn; one that says it is on the estimate's, is.
    assert claims.control_intervention(replace(saturation, causal={"sham": 0.25})) is None
    assert claims.control_intervention(replace(saturation, causal={"sham effect": 0.25})) == 0.25


MINE = Claim(
    id="my.claim",
    kind="architecture",
    statement="f is <b>small</b> & x < y",
    quote=Quote("f is small", "Me (2026), here"),
    criterion=Criterion(
        (Condition("size", "", (-np.inf, 1.0), (2.0, np.inf), scale="log"),), terms="<= 1 / > 2"
    ),
    measurements=(),
    evidence=lambda results, facts: Evidence(
        {"size": Estimate("size", 0.5, 0.4, 0.6, "m")}, "because"
    ),
)


@pytest.mark.slow
def test_claims_and_results_of_ones_own_are_shown_and_left_alone(small):
    finding = MINE.judge_results({}, small.facts)
    results = {**small.results, "my/result": make_curve([1.0, 2.0], {"x": (0, 1)})}
    found = catalogue.draw(results, [*small.findings, finding], small.facts)
    assert list(found) == WITH_NORM
    forest_shows([*small.findings, finding], found["claims"])
    words = text_of(found["claims"])
    assert "f is &lt;b&gt;small&lt;/b&gt; &amp; x &lt; y" in words, (
        "plotly would take it for its own markup"
    )
    assert "0.500 [0.400, 0.600]" in words.replace("<br>[", " [")


@pytest.mark.parametrize(("low", "scale"), [(0.4, "log"), (0.0, "linear")])
def test_a_row_is_logarithmic_only_where_all_its_values_are_positive(small, low, scale):
    judged = MINE.judge_results({}, small.facts)
    finding = replace(judged, test=Estimate("size", 0.5, low, 0.6))
    figure = render(claims.forest(Results(), [finding], small.facts))
    assert (figure.layout.xaxis.type or "linear") == scale
    forest_shows([finding], figure)


def test_a_claim_without_a_number_may_stand_alone(small):
    judged = replace(MINE.judge_results({}, small.facts), verdict="inconclusive", test=None)
    figure = render(claims.forest(Results(), [judged], small.facts))
    forest_shows([judged], figure)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert all(0 <= end <= 1 for end in axis.domain)
