"""Drawings: every number and word arrives in plotly's figure, at any width, and has its room."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from browsers import browser
from helpers import must_fail
from plotly.graph_objects import Figure
from text_overlaps import check_texts

from icl_interp.errors import InputError
from icl_interp.figures import fitting, for_paper, reproductions
from icl_interp.figures.drawing import (
    Axis,
    Band,
    Bars,
    Column,
    Drawing,
    Line,
    Matrix,
    Note,
    Panel,
    Points,
    Rule,
    Zone,
    rows,
)
from icl_interp.figures.fitting import Size, widest
from icl_interp.figures.layout import EDGE, TICKS, lay_out, x_title
from icl_interp.figures.letters import MM, PT, Style
from icl_interp.figures.narrow import narrow
from icl_interp.figures.render import drawing_of, render
from icl_interp.figures.style import Symlog
from icl_interp.figures.text import markup
from icl_interp.results import make_array

XS = np.array([1.0, 10.0, 100.0])
COLUMN = Size(85 * MM, Style(), titled=False)
PAGE = Size(175 * MM, Style(), titled=False)


def example() -> Drawing:
    """A drawing with every mark."""
    curve = Panel(
        "Error by length of the prompt",
        Axis("prompt length", log=True),
        Axis("squared error", log=True, least=1e-3),
        [
            Zone(x=(-np.inf, 5.0)),
            Rule(y=1.0, words="predicting 0", name="bound"),
            Band(XS, XS / 200, XS / 50, name="95 %"),
            Line(XS, XS / 100, name="model"),
            Points(XS, [1e-9, 0.2, 0.4], [1e-10, 0.1, 0.3], [1e-8, 0.3, 0.5], name="a < b"),
        ],
        width=2.0,
    )
    shares = Panel(
        "Share",
        Axis("share removed", 0, 1),
        rows(["frozen", "control,\nreordered"], beside=[Column("effect", ["2×", "1×"])]),
        [
            Points([0.7, 0.1], [0, 1], [0.6, 0.0], [0.8, 0.2], name="model", texts=["one", "two"]),
            Note("nothing here", at="bottom right"),
        ],
        below="Words under the panel.",
    )
    squares = Panel(
        "Weights",
        Axis("key"),
        Axis("query"),
        [Matrix([[0.5, -1.0], [0.0, 2.0]], ["q", "r"], ["k", "l"], bar="weight")],
    )
    counted = Panel("Draws", Axis("dial"), Axis("draws"), [Bars([0, 1], [3, 4], name="supported")])
    return Drawing(
        "What <is> shown", "Tests <b>study.claim</b>", [curve, shares, squares, counted], columns=2
    )


def drawn_numbers(figure: Figure) -> str:
    traces = json.loads(figure.to_json())["data"]
    return json.dumps([{key: t.get(key) for key in "xyz"} for t in traces])


def trace(figure: Figure, name: str):
    return next(one for one in figure.data if one.name == name)


@pytest.mark.parametrize("size", [Size(), Size(440), PAGE, COLUMN])
def test_numbers_do_not_depend_on_the_width(size):
    figure = render(example(), size)
    assert drawn_numbers(figure) == drawn_numbers(render(example()))
    assert figure.layout.width == round(size.width)
    other = replace(example(), panels=example().panels[:2])
    assert drawn_numbers(render(other, size)) != drawn_numbers(figure)


def domains(figure: Figure) -> list[tuple]:
    keys = [key for key in figure.to_plotly_json()["layout"] if key.startswith("xaxis")]
    return [(figure.layout[key].domain, figure.layout["yaxis" + key[5:]].domain) for key in keys]


def lie_apart(figure: Figure, columns: int) -> None:
    """Panels stand in rows of so many, and none touches another."""
    found = domains(figure)
    for i, (across, up) in enumerate(found):
        assert 0 <= across[0] < across[1] <= 1
        assert 0 <= up[0] < up[1] <= 1
        if i % columns:
            assert found[i - 1][0][1] < across[0]
            assert found[i - 1][1][1] == pytest.approx(up[1])
        elif i:
            assert found[i - 1][1][0] > up[1]


def test_panels_stand_beside_each_other_where_there_is_room():
    lie_apart(render(example()), 2)
    lie_apart(render(example(), PAGE), 2)
    lie_apart(render(example(), COLUMN), 1)
    lie_apart(render(example(), Size(440)), 1)
    must_fail(lie_apart, render(example()), 1)
    many = Drawing("", "", [Panel(y=Axis("y"), marks=[Line(XS, XS)]) for _ in range(12)])
    page = render(many, PAGE)  # twelve beside each other would have less than 15 mm
    columns = [up for _, up in domains(page)].count(domains(page)[0][1])
    assert 1 < columns < 12
    lie_apart(page, columns)


def test_panels_of_a_phone_are_wide_enough_for_what_they_show():
    def shown(size, title=""):
        panel = Panel(title, marks=[Line(XS, XS)])
        return render(Drawing("", "", [panel] * 3), size)

    phone = Size(480)
    lie_apart(shown(Size()), 3)
    lie_apart(shown(phone), 2)
    must_fail(lie_apart, shown(phone), 3)
    lie_apart(shown(phone, "a_word_that_nobody_can_break"), 1)
    lie_apart(shown(phone, "words that are broken into lines"), 2)


def test_the_legend_has_room_where_it_is_broken():
    """Plotly breaks it at the width of the panels, without what stands on their left."""

    def above(name):
        marks = [Points([1.0], [0], name=f"predictor {i}") for i in range(8)]
        return render(Drawing("", "", [Panel(y=rows([name]), marks=marks)])).layout.margin.t

    assert above("a name of a row that takes half of the sheet, or more than that") > above("row")


def test_panels_below_each_other_have_the_same_ends():
    def ends(columns):
        matrix = Matrix([[1.0]], ["a long name of a row"], ["k"], bar="weight")
        panels = [Panel(marks=[Line(XS, XS)]) for _ in range(3)]
        drawing = Drawing("", "", [Panel(marks=[matrix]), *panels], columns=columns)
        return [across for across, _ in domains(render(drawing))]

    assert ends(2)[0] == ends(2)[2] != ends(2)[1] == ends(2)[3]
    assert len(set(ends(1))) == 2


def test_letters_and_marks_shrink_together():
    small = 7 * PT / 13
    wide, print_ = (render(example(), size) for size in (Size(), PAGE))
    assert print_.layout.template.layout.font.size == pytest.approx(7 * PT)
    assert print_.data[0].line.width == pytest.approx(small * wide.data[0].line.width)
    assert print_.data[3].marker.size == pytest.approx(small * wide.data[3].marker.size)
    assert render(example(), Size(440)).data[3].marker.size == wide.data[3].marker.size


def test_an_axis_holds_its_marks():
    values = [1e-3, 1.0, 50.0]

    def holds(low, high):
        assert low <= np.log10(min(values))
        assert np.log10(max(values)) <= high

    drawing = Drawing("", "", [Panel(y=Axis(log=True), marks=[Points(XS, values)])])
    holds(*render(drawing).layout.yaxis.range)
    cut = Drawing("", "", [Panel(y=Axis(log=True, high=10.0), marks=[Points(XS, values)])])
    assert render(cut).layout.yaxis.range[1] == 1.0
    must_fail(holds, *render(cut).layout.yaxis.range)
    more = Drawing("", "", [Panel(y=Axis(holds=(-7.0,)), marks=[Points(XS, values)])])
    assert render(more).layout.yaxis.range[0] < -7
    interval = Drawing("", "", [Panel(marks=[Points(XS, XS, XS - 500, XS + 500)])])
    assert render(interval).layout.yaxis.range[0] < -499
    assert render(interval).layout.yaxis.range[1] > 600


def test_panels_with_one_axis_label_it_once_in_a_row():
    panels = [Panel(y=Axis("y"), marks=[Line(XS, factor * XS)]) for factor in (1, 7)]
    apart, shared = (render(Drawing("", "", panels, same_y=same)) for same in (False, True))
    assert apart.layout.yaxis.range != apart.layout.yaxis2.range
    assert shared.layout.yaxis.range == shared.layout.yaxis2.range
    assert (shared.layout.yaxis.showticklabels, shared.layout.yaxis2.showticklabels) == (
        True,
        False,
    )
    stacked = render(Drawing("", "", panels, same_y=True), COLUMN)
    assert stacked.layout.yaxis2.showticklabels


def test_a_symmetric_log_axis_shows_values_when_hovering():
    xs = np.array([-1e4, 0.0, 1e4])
    axis = Axis("x", symlog=0.1)
    line = Line(xs, xs, name="f", hover="x = {x:.4g}<br>{y:.6g}")
    figure = render(Drawing("", "", [Panel(x=axis, y=Axis(), marks=[line])]))
    shown = figure.data[0]
    np.testing.assert_allclose(shown.x, Symlog(0.1)(xs))
    np.testing.assert_array_equal(shown.customdata, np.stack([xs, xs], -1))
    assert shown.hovertemplate == "x = %{customdata[0]:.4g}<br>%{customdata[1]:.6g}<extra>f</extra>"
    assert "10<sup>3</sup>" in figure.layout.xaxis.ticktext


def test_what_is_too_small_is_drawn_at_the_end_and_told_as_it_is():
    points = trace(render(example()), "a &lt; b")
    assert points.y[0] == 1e-3
    assert points.customdata[0][1] == 1e-9
    np.testing.assert_allclose(np.array(points.y) + points.error_y.array, [1e-3, 0.3, 0.5])
    np.testing.assert_allclose(np.array(points.y) - points.error_y.arrayminus, [1e-3, 0.1, 0.3])


def test_a_zone_reaches_below_the_least_value():
    def zone(low):
        x = Axis("", 1e-3, log=True, least=1e-2)
        marks = [Zone(x=(low, 1.0)), Points([0.1, 10.0], [0, 1])]
        (shape,) = render(Drawing("", "", [Panel(x=x, marks=marks)])).layout.shapes
        assert shape.x0 == pytest.approx(1e-3)

    zone(-np.inf)
    must_fail(zone, 0.5)


def test_a_legend_breaks_where_panels_end():
    """Names that fit beside each other on the sheet, but not beside the labels of an axis."""

    def top(how_many, label):
        names = ["L = 0.1", "L = 0.3", "L = 1", "L = 3"]
        marks = [Line(XS, XS, name=name) for name in names[:how_many]]
        panel = Panel(y=Axis(ticks={10.0: label}), marks=marks)
        return lay_out(Drawing("", "", [panel]), Size(480)).places[0].top

    def check(label):
        assert top(4, label) > top(2, label)

    check("a long label of an axis")
    must_fail(check, "10")


def test_titles_of_axes_keep_to_their_half_of_what_is_free():
    panels = [Panel(x=Axis("a long title of an axis " * 3), marks=[Line(XS, XS)])] * 3
    drawing = Drawing("", "", panels, same_y=True)
    for place in lay_out(drawing, Size(480)).places:
        lines = x_title(place.x, Size(480), place.room)
        assert len(lines) > 1
        assert max(widest(line, Size(480)) for line in lines) <= place.room + EDGE + TICKS


def test_ticks_name_the_rows_and_columns_of_a_matrix():
    """They take as much room as they need, also in lines."""

    def drawn(ticks):
        axis = Axis("class", ticks=ticks)
        matrix = Matrix([[1.0, 2.0], [3.0, 4.0]], ["a", "b"], ["a", "b"])
        return render(Drawing("", "", [Panel(x=axis, y=axis, marks=[matrix])]))

    named = drawn({0: "a long name\nof two lines", 1: "b"})
    assert named.layout.yaxis.ticktext == ("a long name<br>of two lines", "b")
    assert named.layout.margin.l > drawn(None).layout.margin.l + 40
    assert named.layout.height > drawn(None).layout.height + 10


def test_curves_have_gaps_between_them():
    figure = render(Drawing("", "", [Panel(marks=[Line(XS, [XS, 2 * XS], texts=["a", "b"])])]))
    np.testing.assert_array_equal(figure.data[0].y, [1, 10, 100, np.nan, 2, 20, 200])
    assert list(figure.data[0].text) == ["a"] * 4 + ["b"] * 3


def test_each_name_stands_in_the_legend_once_and_in_order():
    def listed(drawing):
        found = [t for t in render(drawing).data if t.showlegend]
        return [t.name for t in sorted(found, key=lambda t: t.legendrank)]

    assert listed(example()) == ["bound", "95 %", "model", "a &lt; b", "supported"]
    assert listed(replace(example(), legend=("model", "nobody")))[0] == "model"
    hidden = Panel(marks=[Line(XS, XS, name="hidden", listed=False)])
    assert listed(Drawing("", "", [hidden])) == []


def test_intervals_of_rows_run_across():
    points = next(
        one for one in render(example()).data if one.text is not None and one.type == "scatter"
    )
    np.testing.assert_allclose(points.error_x.array, 0.1)
    assert points.error_y.array is None
    assert list(points.text) == ["one", "two"]
    assert list(render(example()).layout.yaxis2.ticktext) == ["frozen", "control,<br>reordered"]


@pytest.mark.parametrize(("upwards", "expected"), [(False, "reversed"), (True, None)])
def test_the_first_row_of_a_matrix_stands_on_top_or_below(upwards, expected):
    matrix = Matrix([[0.5, 1.0]], ["q"], ["k", "l"], upwards=upwards)
    assert render(Drawing("", "", [Panel(marks=[matrix])])).layout.yaxis.autorange == expected


def test_of_many_names_along_a_matrix_few_are_written():
    def every(n):
        names = [f"x{i}" for i in range(n)]
        matrix = Matrix(np.zeros((n, n)), names, names)
        layout = render(Drawing("", "", [Panel(marks=[matrix])])).layout
        return layout.xaxis.dtick, layout.yaxis.dtick

    assert every(8) == (1, 1)
    assert every(40) == (8, 8)


def test_zones_and_rules_span_their_panel():
    shapes = render(example()).layout.shapes
    assert (shapes[0].yref, shapes[0].x1) == ("y domain", 5.0)
    low = render(example()).layout.xaxis.range[0]
    assert shapes[0].x0 == pytest.approx(10**low)
    assert trace(render(example()), "bound").y.tolist() == [1.0, 1.0]
    words = [a for a in render(example()).layout.annotations if a.text == "predicting 0"]
    assert (words[0].x, words[0].xref, words[0].y) == (1, "x domain", 0.0)  # log10 of 1


@pytest.mark.parametrize(
    ("at", "x", "y", "expected"),
    [
        ("top right", None, None, (1, "right", 1, "top")),  # inside the panel's corner
        ("top right", 2.0, 3.0, (2.0, "left", 3.0, "bottom")),  # above and right of the place
        ("left", None, 3.0, (0, "left", 3.0, "middle")),
        ("", 2.0, None, (2.0, "center", 0.5, "middle")),
    ],
)
def test_words_stand_beside_their_place_or_in_a_corner(at, x, y, expected):
    panel = Panel(x=Axis(low=0, high=4), y=Axis(low=0, high=4), marks=[Note("words", x, y, at)])
    note = render(Drawing("", "", [panel])).layout.annotations[-1]
    assert (note.x, note.xanchor, note.y, note.yanchor) == expected


def test_words_are_text_unless_they_are_marked_up():
    tagged = markup("<b>{}</b>", "a < b")
    panel = Panel("<i>", Axis("<i>"), rows(["<i>"]), [Note("<i>"), Note(tagged)])
    layout = render(Drawing("<i>", "<b>tests</b>", [panel])).layout
    texts = [note.text for note in layout.annotations]
    assert texts == ["<b>&lt;i&gt;</b>", "&lt;i&gt;", "<b>a &lt; b</b>"]
    assert layout.xaxis.title.text == layout.yaxis.ticktext[0] == "&lt;i&gt;"
    assert layout.title.text.startswith("<b>&lt;i&gt;</b><br>")
    assert "<b>tests</b>" in layout.title.text


def test_names_are_text_unless_they_are_marked_up():
    names = [markup("e<sup>{}</sup>", "<t"), "e<sup>"]
    marks = [Line(XS, XS, name=name) for name in names]
    shown = render(Drawing("", "", [Panel(marks=marks)])).data
    expected = ["e<sup>&lt;t</sup>", "e&lt;sup&gt;"]
    assert [one.name for one in shown] == expected
    assert [one.hovertemplate.partition("<extra>")[2] for one in shown] == [
        f"{name}</extra>" for name in expected
    ]


def test_bars_have_words_of_their_own():
    bars = Bars([0, 1], [0.2, 0.3], "N", hover="spread {text}: {y:.0%}", texts=["0.1", "1"])
    shown = render(Drawing("", "", [Panel(marks=[bars])])).data[0]
    assert shown.hovertemplate == "spread %{hovertext}: %{y:.0%}<extra>N</extra>"
    assert list(shown.hovertext) == ["0.1", "1"]
    assert shown.text is None  # that would stand in the bars


def test_titles_keep_their_words_in_as_many_lines_as_they_need():
    drawing = replace(example(), below="Tests <b>a claim</b> with <i>many more words</i> " * 6)

    def words(size):
        return re.sub(r"<[^>]*>", " ", render(drawing, size).layout.title.text).split()

    assert words(Size(440)) == words(Size())
    lines = [render(drawing, size).layout.title.text.count("<br>") for size in (Size(440), Size())]
    assert lines[0] > lines[1]
    for a, b in itertools.pairwise((Size(), Size(440))):
        assert render(drawing, a).layout.margin.t < render(drawing, b).layout.margin.t


def test_a_figure_for_print_is_drawn_anew():
    figure = render(example())
    column = for_paper(figure)
    sized = replace(COLUMN, tallest=120 * MM)
    assert column.to_json() == render(example(), sized).to_json()
    assert column.layout.meta["title"] == "What <is> shown Tests study.claim"
    assert not column.layout.title.text
    for panel in (2, "Share"):
        one = for_paper(figure, panel=panel)
        assert [t.name for t in one.data if t.showlegend] == ["model"]
        assert not [note for note in one.layout.annotations if note.name == "panel"]
    with pytest.raises(InputError, match="panel must be from 1 to 4, but got 5"):
        for_paper(figure, panel=5)
    with pytest.raises(InputError, match=r"unknown panel 'Nothing'.*Share, Weights"):
        for_paper(figure, panel="Nothing")


def test_a_figure_that_was_changed_by_hand_keeps_the_change():
    figure = render(example())
    assert drawing_of(figure) is not None
    figure.update_layout(yaxis_title="changed")
    assert drawing_of(figure) is None
    assert for_paper(figure, "page").layout.yaxis.title.text == "changed"
    assert drawing_of(Figure(figure)) is None


def test_a_narrow_screen_gets_the_drawing_for_its_width():
    laid = narrow(render(example()))
    expected = render(example(), Size(440.0)).to_plotly_json()
    assert laid is not None
    assert laid["layout"]["height"] == expected["layout"]["height"]
    assert [one["name"] for one in laid["traces"] if "name" in one] == [
        one["name"] for one in expected["data"] if "name" in one
    ]


def test_a_panel_without_room_is_refused():
    wide = Panel(y=rows(["word " * 30]), marks=[Points([1.0], [0])])
    with pytest.raises(InputError, match=r"no room at 85 mm.*needs 15; ask for"):
        render(Drawing("", "", [wide]), COLUMN)


def test_experiments_and_reports_take_drawings(monkeypatch):
    monkeypatch.setitem(
        reproductions.DRAWINGS, "drawn", lambda results, comparison: {"a": example()}
    )
    figures = reproductions.draw("drawn", {"some": make_array([1.0], {"x": (0,)})})
    assert figures["a"].to_json() == render(example()).to_json()


def check_rows_of_a_legend(height):
    """Plotly gives the swatch of an entry 46 pixels, however small the letters are."""
    short = ["bound", "95 %", "model", "a &lt; b"]
    one_row = height(short, COLUMN, COLUMN.width)
    two_rows = height([*short, "supported"], COLUMN, COLUMN.width)
    assert one_row < 25 < two_rows


def test_a_legend_has_the_rows_that_plotly_makes(monkeypatch):
    check_rows_of_a_legend(fitting.legend_height)
    monkeypatch.setattr(fitting, "SWATCH", COLUMN.pixels(fitting.SWATCH))
    must_fail(check_rows_of_a_legend, fitting.legend_height)


@pytest.mark.slow
@pytest.mark.parametrize("width", ["column", "page", "screen", "phone"])
def test_no_words_of_a_drawing_overlap(tmp_path, monkeypatch, width):
    monkeypatch.setenv("BROWSER_PATH", browser())
    sizes = {"column": COLUMN, "page": PAGE, "screen": Size(), "phone": Size(440)}
    figure = render(example(), sizes[width])
    check_texts({"drawn": figure}, tmp_path)
    if width == "column":
        squeezed = Figure(figure).update_layout(width=150)
        must_fail(check_texts, {"drawn": squeezed}, tmp_path)
