"""Figures for print: their size, their letters, their panels, and that no number is touched."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from browsers import browser
from helpers import must_fail
from text_overlaps import check_texts

from icl_interp.errors import InputError
from icl_interp.figures import Style, for_paper
from icl_interp.figures.drawing import Axis, Drawing, Line, Matrix, Panel, Points, rows
from icl_interp.figures.fitting import Size
from icl_interp.figures.letters import MM, PT
from icl_interp.figures.paper import STYLES
from icl_interp.figures.render import render

SMALLER = 7 * 96 / 72 / 13  # letters of 13 pixels on the screen have 7 points in print


def by_hand():
    """A figure of one's own: two panels, a legend, and words and a line placed in pixels."""
    xs = np.linspace(0, 1, 5)
    figure = go.Figure()
    figure.add_scatter(x=xs, y=xs**2, name="measured", marker={"size": 10}, line={"width": 3})
    figure.add_scatter(x=xs, y=xs, name="bound", xaxis="x2", yaxis="y2")
    note = '<span style="font-size:11.5px">small</span>'
    figure.add_annotation(text=note, x=0, y=0, xshift=-20, showarrow=False)
    edge = {"type": "line", "xsizemode": "pixel", "xanchor": 0, "x0": -50, "x1": 0}
    figure.add_shape(**edge, y0=0.5, y1=0.5, xref="paper", yref="paper")
    figure.update_layout(
        title="<b>What is shown</b><br>Tests <b>study.claim</b>",
        width=1000,
        height=400,
        xaxis={"domain": [0, 0.6], "title": {"text": "step"}},
        yaxis={"title": {"text": "error"}},
        xaxis2={"domain": [0.7, 1], "anchor": "y2"},
        yaxis2={"anchor": "x2"},
        margin={"l": 100},
    )
    return figure


def two_panels():
    """The same of the package's own kind."""
    xs = np.linspace(0, 1, 5)
    left = Panel("First panel", Axis("step"), Axis("error"), [Line(xs, xs**2, name="measured")])
    right = Panel("Second panel", marks=[Line(xs, xs, name="bound")])
    return render(Drawing("What is shown", "Tests <b>study.claim</b>", [left, right]))


def drawn_numbers(figure):
    return [
        (trace["name"], trace["x"], trace["y"]) for trace in json.loads(figure.to_json())["data"]
    ]


@pytest.mark.parametrize(("width", "mm"), [("column", 85), ("page", 175), (130.0, 130)])
@pytest.mark.parametrize("make", [two_panels, by_hand])
def test_a_figure_has_its_real_size_and_its_letters_theirs(make, width, mm):
    figure = for_paper(make(), width)
    assert figure.layout.width == round(mm * 96 / 25.4)
    assert figure.layout.font.size is None  # the template says it
    assert figure.layout.template.layout.font.size == pytest.approx(7 * 96 / 72)
    serif = for_paper(make(), width, style="serif").layout.template.layout.font
    assert (serif.size, "Times" in serif.family) == (pytest.approx(8 * 96 / 72), True)
    assert for_paper(
        make(), style=Style("Arial", 6.0)
    ).layout.template.layout.font.size == pytest.approx(8)


def check_words(figure):
    text = json.dumps(figure.to_plotly_json()["layout"]["annotations"], default=str) + str(
        figure.layout.title.text
    )
    assert "What is shown" not in text
    assert "Tests" not in text
    assert figure.layout.meta["title"].startswith("What is shown")


@pytest.mark.parametrize("make", [two_panels, by_hand])
def test_title_and_tests_line_are_kept_for_the_caption(make):
    check_words(for_paper(make()))
    must_fail(check_words, make())


@pytest.mark.parametrize("make", [two_panels, by_hand])
def test_numbers_and_the_figure_itself_stay_as_they_are(make):
    figure = make()
    before = figure.to_json()
    for settings in ({}, {"width": "page"}, {"style": "serif"}):
        assert drawn_numbers(for_paper(figure, **settings)) == drawn_numbers(figure)
    assert figure.to_json() == before
    changed = make().update_traces(y=[0.0])
    assert drawn_numbers(changed) != drawn_numbers(for_paper(make())), "it would be seen"


def check_small(figure):
    """All that is counted in pixels has the size of print."""
    assert figure.layout.height == round(400 * SMALLER)
    assert figure.layout.margin.l == pytest.approx(100 * SMALLER)
    assert figure.layout.shapes[0].x0 == pytest.approx(-50 * SMALLER)
    (note,) = figure.layout.annotations
    assert note.xshift == pytest.approx(-20 * SMALLER)
    letters = float(re.search(r"font-size:([\d.]+)px", note.text)[1])
    assert letters == pytest.approx(11.5 * SMALLER, abs=0.01)
    first = figure.data[0]
    assert (first.marker.size, first.line.width) == pytest.approx((10 * SMALLER, 3 * SMALLER))


def test_all_of_a_figure_of_ones_own_shrinks_as_letters_do_and_its_panels_stay():
    small = for_paper(by_hand(), "page")
    check_small(small)
    must_fail(check_small, by_hand())
    assert small.layout.template.layout.xaxis.ticklen == pytest.approx(4 * SMALLER)
    assert small.layout.xaxis.domain == (0, 0.6)
    assert small.layout.xaxis2.domain == (0.7, 1)


def test_a_panel_of_a_figure_that_was_changed_by_hand_is_not_guessed():
    with pytest.raises(InputError, match=r"drawn or changed by hand.*leave out panel"):
        for_paper(by_hand(), panel=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": "wide"}, r"unknown width 'wide'.*column, page"),
        ({"width": 20}, r"width must be from 40 to 400 millimetres, but got 20"),
        ({"panel": 3}, r"panel must be from 1 to 2, but got 3"),
        ({"panel": "Third"}, r"unknown panel 'Third'.*First panel, Second panel"),
        ({"height": 0}, r"height must be a positive number of millimetres, got 0"),
        ({"style": "comic"}, r"unknown style 'comic'.*sans, serif"),
    ],
)
def test_settings_that_do_not_exist_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        for_paper(two_panels(), **settings)


@pytest.mark.slow
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
    shown = {name: small.figure(name, width) for name in small.figures}
    check_texts(shown, tmp_path)
    if width == "column":
        squeezed = {
            name: go.Figure(f).update_layout(width=320)
            for name, f in small.figures.items()
            if name in shown
        }
        must_fail(check_texts, squeezed, tmp_path)


def squares(n, same_y):
    """Panels of one kind, four in a row on a screen."""
    names = ["a", "b", "c"]
    one = Matrix(np.eye(3), names, names)
    panels = [Panel(f"head {i}", marks=[one]) for i in range(n - 1)]
    panels.append(Panel("last head", marks=[replace(one, bar="weight")]))
    return render(Drawing("Heads", "", panels, 210, columns=4, same_y=same_y))


def at_most_120_mm(figure):
    assert figure.layout.height <= 120 * MM + 1


def test_a_figure_that_would_be_too_tall_is_arranged_anew():
    """Panels of one kind go beside each other, and any are lower."""
    many = squares(12, same_y=True)
    at_most_120_mm(for_paper(many))
    at_most_120_mm(for_paper(many, "page"))
    must_fail(at_most_120_mm, for_paper(many, height=math.inf))
    must_fail(at_most_120_mm, for_paper(many, height=math.inf, width="page"))
    assert for_paper(many, height=math.inf).layout.height > 400 * MM
    few = squares(2, same_y=False)
    assert for_paper(few).layout.height == for_paper(few, height=math.inf).layout.height


def as_high_as_words(figure, style):
    """The axis of each panel has room for the lines of its title."""
    for axis in (figure.layout.yaxis, figure.layout.yaxis2, figure.layout.yaxis3):
        low, high = axis.domain
        margin = figure.layout.margin
        inner = figure.layout.height - margin.t - margin.b
        widest = max(map(style.width, axis.title.text.split("<br>")))
        assert (high - low) * inner >= widest - 1


def test_lower_panels_keep_room_for_their_words():
    words = "a long title of the vertical axis"
    xs = np.linspace(0, 1, 5)
    panels = [Panel("", Axis("x"), Axis(words), [Line(xs, xs)]) for _ in range(3)]
    figure = for_paper(render(Drawing("Panels", "", panels, 300)), height=60)
    as_high_as_words(figure, STYLES["sans"])
    must_fail(as_high_as_words, figure, Style(points=14))


def test_rows_of_lower_panels_have_a_line_each():
    names = [f"row {i}" for i in range(40)]
    panel = Panel("", y=Axis(rows=names), marks=[Line(np.arange(40.0), np.arange(40.0))])
    figure = for_paper(render(Drawing("Rows", "", [panel], 300)), height=60)
    assert figure.layout.height >= 40 * STYLES["sans"].letter


def test_a_pixel_and_a_point_are_what_files_take_them_for():
    assert (25.4 * MM, 72 * PT) == (96, 96)


def curve(title, x="|x| of the query", y="distance from the end value"):
    xs = np.array([1.0, 10.0, 100.0])
    return Panel(title, Axis(x, log=True), Axis(y, log=True), [Line(xs, 1 / xs)])


def axes(figure, letter):
    """Axes of a figure in their order."""
    layout = figure.layout.to_plotly_json()
    return [layout[key] for key in sorted(layout) if key.startswith(f"{letter}axis")]


def test_panels_below_each_other_label_an_axis_that_they_share_once():
    """Where they would be too tall; the axes have the same ends on the page."""
    # The one with the longest title of its axis, which moves the others' ends, is the last.
    panels = [curve("a", y="f"), curve("b", y="error"), curve("c")]
    figure = render(Drawing("Curves", "", panels, 330))
    low = for_paper(figure)
    at_most_120_mm(low)
    assert [x["showticklabels"] for x in axes(low, "x")] == [False, False, True]
    assert [x["title"]["text"] for x in axes(low, "x")] == ["", "", "|x| of the query"]
    assert len({tuple(x["domain"]) for x in axes(low, "x")}) == 1

    # Also one in the middle that needs the most room on its left has it.
    turned = render(Drawing("Curves", "", [panels[0], panels[2], panels[1]], 330))
    assert for_paper(turned).layout.xaxis.domain == pytest.approx(low.layout.xaxis.domain)

    # Another axis keeps its own labels, and so does a panel with words under it, and each panel
    # where there is room.
    worded = [replace(panels[0], below="words under the panel"), *panels[1:]]
    of_worded = axes(for_paper(render(Drawing("Curves", "", worded, 330))), "x")
    assert [x["showticklabels"] for x in of_worded] == [True, False, True]
    other = render(Drawing("Curves", "", [curve("a"), curve("b", x="steps"), curve("c")], 330))
    assert all(x["showticklabels"] for x in axes(for_paper(other), "x"))
    assert all(x["showticklabels"] for x in axes(for_paper(figure, height=math.inf), "x"))


def test_the_title_of_a_low_panel_is_broken_in_the_middle():
    figure = render(Drawing("Curves", "", [curve("a"), curve("b"), curve("c")], 330))
    titles = {y["title"]["text"] for y in axes(for_paper(figure), "y")}
    assert titles == {"distance from<br>the end value"}
    left = for_paper(figure).layout.xaxis.domain[0]
    assert left > for_paper(figure, height=math.inf).layout.xaxis.domain[0]
    whole = {y["title"]["text"] for y in axes(for_paper(figure, height=math.inf), "y")}
    assert whole == {"distance from the end value"}


def test_curves_stand_in_pairs_at_last_and_rows_of_names_alone():
    """Pairs are side by side and equally high; a panel with names fills the width."""
    named = Panel("rows", Axis("error"), rows([f"case {i}" for i in range(8)]), [])
    named = replace(named, marks=[Points(np.ones(8), np.arange(8))])
    long = "squared error over that of predicting 0"
    panels = [named, curve("a", y="f"), curve("b", x="steps", y=long)]
    figure = for_paper(render(Drawing("Curves", "", panels, 330)), height=100)
    assert figure.layout.height <= 100 * MM + 1
    alone, first, second = axes(figure, "x")
    assert first["domain"][1] < second["domain"][0]
    assert alone["domain"][1] >= second["domain"][1] - 1e-9
    assert axes(figure, "y")[1]["domain"] == axes(figure, "y")[2]["domain"]


def listed(row):
    """A panel with one row, and with four names in the legend."""
    names = ["unchanged model", "all norms frozen", "trained without norm", "one norm alone"]
    marks = [Points(np.array([1.0]), np.array([0.0]), name=name) for name in names]
    return Panel("", Axis("error"), rows([row]), marks)


def legend_is_as_high(figures):
    """Legends of two figures take as much room."""
    one, other = (figure.layout.margin.t for figure in figures)
    assert one == pytest.approx(other)


def test_the_legend_in_print_has_the_whole_width():
    """However long the names of rows are; on a screen it stands between the outer axes."""
    drawings = [Drawing("Norms", "", [listed("row" * n)]) for n in (1, 12)]
    legend_is_as_high([for_paper(render(drawing)) for drawing in drawings])
    narrow = Size(85 * MM, STYLES["sans"])
    must_fail(legend_is_as_high, [render(drawing, narrow) for drawing in drawings])
    assert for_paper(render(drawings[1])).layout.margin.l == 0


def pairs(height, width="column"):
    """Two curves with short titles, and one below them."""
    panels = [curve("a", y="f"), curve("b", x="steps", y="f"), curve("c", x="layers", y="f")]
    return for_paper(render(Drawing("Curves", "", panels, 330)), width, height=height)


def upright(figure):
    """The first panel is at least .7 times as high as it is wide."""
    margin = figure.layout.margin
    wide = figure.layout.width - margin.l - margin.r
    high = figure.layout.height - margin.t - margin.b
    across = np.diff(figure.layout.xaxis.domain).item()
    up = np.diff(figure.layout.yaxis.domain).item()
    assert up * high >= 0.7 * across * wide


def test_pairs_stay_upright_and_need_room():
    """However low the figure is to be; where they would be too narrow, there are none."""
    for height in (70, 60):
        figure = pairs(height)
        assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]
        upright(figure)
    must_fail(upright, pairs(120))  # below each other
    narrow = pairs(60, width=50)
    assert narrow.layout.xaxis.domain == narrow.layout.xaxis2.domain


def has_a_line_a_row(figure, n_rows):
    """The first panel is as high as so many rows of letters."""
    margin = figure.layout.margin
    inner = figure.layout.height - margin.t - margin.b
    low, high = figure.layout.yaxis.domain
    assert (high - low) * inner >= n_rows * STYLES["sans"].letter


def test_rows_of_a_matrix_have_a_line_each_where_they_are_labelled():
    names = [f"token {i}" for i in range(12)]
    panels = [Panel(f"head {i}", marks=[Matrix(np.eye(12), names, names)]) for i in range(6)]
    figure = for_paper(render(Drawing("Heads", "", panels, 210, same_y=True)))
    has_a_line_a_row(figure, 12)
    must_fail(has_a_line_a_row, figure, 40)


def test_a_figure_that_stays_too_tall_is_named_in_a_line(caplog):
    many = Panel("rows", Axis("error"), rows([f"case {i}" for i in range(60)]), [])
    many = replace(many, marks=[Points(np.ones(60), np.arange(60))])
    figure = render(Drawing("Many", "", [many]))
    for_paper(figure, height=math.inf)
    for_paper(squares(12, same_y=True))
    assert not caplog.records
    tall = for_paper(figure).layout.height / MM
    (said,) = caplog.records
    assert f"{tall:.0f} mm tall at a width of 85 mm, where 120 mm were asked for" in said.message
