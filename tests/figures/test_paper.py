"""Figures for print: their size, their letters, their panels, and that no number is touched."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from browsers import browser
from helpers import must_fail
from overlaps import check_texts

from icl_interp.errors import InputError
from icl_interp.figures import Style, for_paper
from icl_interp.figures.grid import add_line, add_panel, add_rule
from icl_interp.figures.paper import MM, PT
from icl_interp.figures.style import Symlog, finish

LEFT = {"title": {"text": "step"}}
SMALLER = 7 * 96 / 72 / 13  # letters of 13 pixels on the screen have 7 points in print
RIGHT = {"title": {"text": "a long name of what the second panel shows across"}}


def two_panels():
    """Two panels of which the first names the line that both draw."""
    figure = go.Figure()
    xs = np.linspace(0, 1, 5)
    add_panel(figure, 0, (0.0, 0.6), (0.0, 1.0), "First panel", LEFT, {"title": {"text": "error"}})
    add_panel(figure, 1, (0.7, 1.0), (0.0, 1.0), "Second panel", RIGHT, {})
    for panel in (0, 1):
        add_line(figure, panel, "measured", xs, xs**2 + panel, "#000000", legend=panel == 0)
    add_rule(figure, 1, 0.5, (0.0, 1.0), "bound")
    figure.add_annotation(
        xref="paper", yref="paper", x=0.7, y=0.5, text="inside the second", showarrow=False
    )
    figure.add_shape(type="line", xref="x2", yref="paper", x0=0.5, x1=0.5, y0=0, y1=1)
    return finish(figure, "What is shown", "Tests <b>study.claim</b>", 300)


def drawn_numbers(figure):
    return [
        (trace["name"], trace["x"], trace["y"]) for trace in json.loads(figure.to_json())["data"]
    ]


def domains(figure):
    return [
        (figure.layout[f"xaxis{n}"].domain, figure.layout[f"yaxis{n}"].domain) for n in ("", "2")
    ]


@pytest.mark.parametrize(("width", "mm"), [("column", 85), ("page", 175), (130.0, 130)])
def test_a_figure_has_its_real_size_and_its_letters_theirs(width, mm):
    figure = for_paper(two_panels(), width)
    assert figure.layout.width == round(mm * 96 / 25.4)
    assert figure.layout.font.size is None  # the template says it
    assert figure.layout.template.layout.font.size == pytest.approx(7 * 96 / 72)
    serif = for_paper(two_panels(), width, style="serif").layout.template.layout.font
    assert (serif.size, "Times" in serif.family) == (pytest.approx(8 * 96 / 72), True)
    assert for_paper(
        two_panels(), style=Style("Arial", 6.0)
    ).layout.template.layout.font.size == pytest.approx(8)


def check_words(figure):
    text = json.dumps(figure.to_plotly_json()["layout"]["annotations"], default=str) + str(
        figure.layout.title.text
    )
    assert "What is shown" not in text
    assert "Tests" not in text
    assert figure.layout.meta["title"].startswith("What is shown")


def test_title_and_tests_line_are_kept_for_the_caption():
    check_words(for_paper(two_panels()))
    untouched = two_panels()
    must_fail(check_words, untouched)


def test_numbers_and_the_figure_itself_stay_as_they_are():
    figure = two_panels()
    before = figure.to_json()
    for settings in ({}, {"width": "page"}, {"style": "serif"}):
        assert drawn_numbers(for_paper(figure, **settings)) == drawn_numbers(figure)
    assert figure.to_json() == before
    assert drawn_numbers(figure.update_traces(y=[0.0])) != drawn_numbers(for_paper(two_panels())), (
        "it would be seen"
    )


def check_stacked(figure):
    (first_x, first_y), (second_x, second_y) = domains(figure)
    assert first_y[0] > second_y[1], "the first stands above the second"
    assert first_x[1] == second_x[1] == 1
    assert second_y[0] == pytest.approx(0, abs=1e-9)


def test_panels_stand_below_each_other_in_a_column_and_beside_each_other_on_a_page():
    check_stacked(for_paper(two_panels()))
    page = for_paper(two_panels(), "page")
    must_fail(check_stacked, page)
    (first_x, first_y), (second_x, second_y) = domains(page)
    assert first_y == second_y == (0, 1)
    assert first_x[1] < second_x[0]
    assert (first_x[1] - first_x[0]) / (second_x[1] - second_x[0]) == pytest.approx(2.0, abs=1e-9)
    margin = page.layout.margin
    room = page.layout.width - margin.l - margin.r
    # Between them stand words, so their distance shrinks as letters do, from 13 pixels to 7 points.
    between = 0.1 * (1080 - 70 - 24) * SMALLER
    assert (second_x[0] - first_x[1]) * room == pytest.approx(between, abs=1)


def test_all_that_is_counted_in_pixels_shrinks_as_letters_do():
    figure = two_panels()
    figure.add_shape(
        type="line",
        xsizemode="pixel",
        xanchor=0,
        x0=-50,
        x1=0,
        y0=0.5,
        y1=0.5,
        xref="paper",
        yref="paper",
    )
    figure.add_annotation(
        text='<span style="font-size:11.5px">small</span>', x=0, y=0, xshift=-20, showarrow=False
    )
    figure.add_scatter(x=[0.0], y=[0.0], marker={"size": 10}, line={"width": 3}, showlegend=False)
    small = for_paper(figure, "page")
    assert small.layout.shapes[-1].x0 == pytest.approx(-50 * SMALLER)
    note = small.layout.annotations[-1]
    assert note.xshift == pytest.approx(-20 * SMALLER)
    assert float(re.search(r"font-size:([\d.]+)px", note.text)[1]) == pytest.approx(
        11.5 * SMALLER, abs=0.01
    )
    last = small.data[-1]
    assert (last.marker.size, last.line.width) == pytest.approx((10 * SMALLER, 3 * SMALLER))
    assert small.layout.template.layout.xaxis.ticklen == pytest.approx(4 * SMALLER)


@pytest.mark.parametrize("width", ["column", "page"])
def test_words_and_lines_go_with_their_panel(width):
    figure = for_paper(two_panels(), width)
    across, up = domains(figure)[1]
    (inside,) = [a for a in figure.layout.annotations if a.text == "inside the second"]
    assert inside.x == pytest.approx(across[0], abs=1e-9)
    assert inside.y == pytest.approx((up[0] + up[1]) / 2, abs=1e-9)
    (line,) = figure.layout.shapes
    assert (line.y0, line.y1) == pytest.approx(up, abs=1e-9)
    (heading,) = [a for a in figure.layout.annotations if "Second" in a.text]
    assert (heading.x, heading.y) == pytest.approx((across[0], up[1]), abs=1e-9)


@pytest.mark.parametrize("panel", [2, "Second"])
def test_one_panel_stands_alone_and_names_its_lines(panel):
    figure = for_paper(two_panels(), panel=panel)
    assert [(t.name, t.showlegend) for t in figure.data] == [("measured", True), ("bound", True)]
    assert figure.layout.xaxis2.domain == figure.layout.yaxis2.domain == (0, 1)
    assert "xaxis" not in figure.to_plotly_json()["layout"]
    assert [a.text for a in figure.layout.annotations] == ["inside the second"]
    assert figure.layout.annotations[0].x == pytest.approx(0)
    assert len(for_paper(two_panels(), panel=1).data) == 1


def test_words_that_are_too_long_are_broken_and_ticks_left_out():
    figure = for_paper(two_panels(), 60, panel=2)
    assert "<br>" in figure.layout.xaxis2.title.text
    wide = go.Figure(go.Scatter(x=[0.0, 1.0], y=[0.0, 1.0]))
    wide.update_layout(xaxis={**Symlog(0.1).axis(1e6), "title": {"text": "x"}})
    finish(wide, "Symlog", "", 300)
    kept = for_paper(wide).layout.xaxis.ticktext
    assert "0" in kept
    assert 3 <= len(kept) < len(wide.layout.xaxis.ticktext)
    assert len(kept) == len(for_paper(wide).layout.xaxis.tickvals)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": "wide"}, r"unknown width 'wide'.*column, page"),
        ({"width": 20}, r"width must be from 40 to 400 millimetres, but got 20"),
        ({"panel": 3}, r"panel must be from 1 to 2, but got 3"),
        ({"panel": "Third"}, r"unknown panel 'Third'.*First panel, Second panel"),
        ({"style": "comic"}, r"unknown style 'comic'.*sans, serif"),
    ],
)
def test_settings_that_do_not_exist_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        for_paper(two_panels(), **settings)


def test_a_figure_without_room_is_refused_with_what_helps():
    crowded = go.Figure()
    for i in range(8):
        add_panel(crowded, i, (i / 8, i / 8 + 0.02), (0.0, 1.0), "", {}, {})
    finish(crowded, "Eight", "", 300)
    with pytest.raises(
        InputError, match=r"no room at 175 mm: a panel would be \d+ mm wide, and needs 15; ask for"
    ):
        for_paper(crowded, "page")
    table = two_panels().update_layout(meta={"layout": "fixed"})
    with pytest.raises(
        InputError, match=r"a table whose letters would have 2\.9 points at 85 mm, and need 5"
    ):
        for_paper(table)
    assert for_paper(table, "page").layout.width == 661
    with pytest.raises(InputError, match="leave out panel"):
        for_paper(table, "page", panel=1)


def test_a_report_gives_its_figures_for_print(small):
    figure = small.figure("boundary", width="page", panel=1)
    assert figure.layout.width == 661
    with pytest.raises(InputError, match="unknown figure 'nothing'"):
        small.figure("nothing")
    with pytest.raises(
        InputError, match=r"this report has no figure 'linear_attention'.*it has claims, mechanism"
    ):
        small.figure("linear_attention")


@pytest.mark.slow
@pytest.mark.parametrize("width", ["column", "page"])
def test_no_text_overlaps_another_or_leaves_the_figure(small, tmp_path, monkeypatch, width):
    monkeypatch.setenv("BROWSER_PATH", browser())
    shown = {name: small.figure(name, width) for name in small.figures if name != "claims"}
    check_texts(shown, tmp_path)
    if width == "column":
        squeezed = {
            name: go.Figure(f).update_layout(width=320)
            for name, f in small.figures.items()
            if name in shown
        }
        must_fail(check_texts, squeezed, tmp_path)


def test_a_pixel_and_a_point_are_what_files_take_them_for():
    assert (25.4 * MM, 72 * PT) == (96, 96)
