"""One panel of several models' figures: every line is there, with the numbers that it has."""

import numpy as np
import pytest
from helpers import must_fail
from plotly.graph_objects import Figure
from small_reports import drawn as drawn_of
from small_reports import report

from icl_interp.errors import InputError
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel, Points
from icl_interp.figures.overlay import overlay, overlay_panels
from icl_interp.figures.render import drawing_of, render
from icl_interp.report.comparison import Comparison

XS = np.array([1.0, 10.0, 100.0])


def drawn(
    scale: float, high: float = 10.0, linear: bool = False, bound: bool = True, symlog: float = 0.0
) -> Figure:
    """Two panels: one with two lines and a bound, one without lines."""
    marks = [
        Line(XS, scale * XS, name="mean", colour="red"),
        Line(XS, scale / XS, name="spread", colour="red", dash="dash"),
        Points(XS, XS, name="single", colour="red"),
    ]
    if bound:
        marks.append(Line(XS, [1.0, 1.0, 1.0], name="bound", colour="black", dash="dot"))
    x = Axis("x", 1.0, 100.0, log=True)
    y = Axis("y", 0.1, high, log=not linear and not symlog, symlog=symlog)
    size = Panel("Size", x, y, marks)
    points = Panel("Points", marks=[Points(XS, XS, name="points")])
    return render(Drawing("Two panels", "", [size, points]))


def lines_of(figure):
    """Numbers of each line, by its name; entries of the legend alone have none."""
    found = {}
    for trace in figure.data:
        if not np.isnan(trace.x[0]):
            found.setdefault(trace.name, []).append(list(trace.y))
    return found


def test_each_model_has_its_lines_and_what_all_share_is_drawn_once():
    figure = overlay({"a": drawn(1.0), "b": drawn(2.0, high=1000.0)})

    def shows(scale_of_b):
        expected = {"bound": [[1, 1, 1]]}
        for model, scale in (("a", 1.0), ("b", scale_of_b)):
            expected |= {
                f"{model}: mean": [list(scale * XS)],
                f"{model}: spread": [list(scale / XS)],
            }
        assert lines_of(figure) == expected

    shows(2.0)
    must_fail(shows, 3.0)
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert legend == ["a", "b", "mean", "spread", "bound"]
    colours = {trace.name[0]: trace.line.color for trace in figure.data if ": " in trace.name}
    assert len(set(colours.values())) == 2
    np.testing.assert_allclose(
        figure.layout.yaxis.range, [-1, 3], err_msg="the axis holds the lines of both"
    )
    assert figure.layout.title.text.startswith("<b>Size</b>")


def test_some_lines_of_a_panel_named_by_its_heading():
    figure = overlay({"a": drawn(1.0), "b": drawn(2.0)}, "Si", ["mean"])
    assert list(lines_of(figure)) == ["a: mean", "b: mean"]
    assert [trace.name for trace in figure.data if trace.showlegend] == ["a", "b"]


def test_a_line_that_one_model_lacks_is_the_others_own():
    assert "a: bound" in lines_of(overlay({"a": drawn(1.0), "b": drawn(2.0, bound=False)}))


@pytest.mark.parametrize(
    ("figures", "panel", "lines", "why"),
    [
        ({"a": drawn(1.0)}, 1, None, "lines of 2 to 6 models can be told apart, but got 1"),
        ({"a": drawn(1.0), "b": drawn(1.0)}, 3, None, "panel must be from 1 to 2, but got 3"),
        (
            {"a": drawn(1.0), "b": drawn(1.0)},
            2,
            None,
            "panel 2 of this figure has no lines to compare",
        ),
        ({"a": drawn(1.0), "b": drawn(1.0)}, 1, ["median"], "unknown line 'median'"),
        (
            {"a": drawn(1.0), "b": drawn(1.0, linear=True)},
            1,
            None,
            r"the models' axes differ.*y \(linear\) and y \(log\)",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(figures, panel, lines, why):
    with pytest.raises(InputError, match=why):
        overlay(figures, panel, lines)


def test_places_that_are_computed_otherwise_are_not_compared():
    with pytest.raises(InputError, match=r"y \(log\) and y \(symmetric-log from 0.1\)"):
        overlay({"a": drawn(1.0), "b": drawn(2.0, symlog=0.1)})


def test_a_figure_that_was_changed_by_hand_is_refused():
    changed = drawn(2.0)
    changed.data[0].y = [1.0, 2.0, 3.0]
    with pytest.raises(InputError, match="lines of 'b' cannot be read: its figure was drawn or"):
        overlay({"a": drawn(1.0), "b": changed})


def test_an_axis_has_the_ticks_of_all():
    ticks = overlay({"a": drawn(1.0), "b": drawn(2.0, high=1e5)}).layout.yaxis
    assert ticks.tickvals[-1] == pytest.approx(1e5)
    assert len(ticks.tickvals) == len(ticks.ticktext) == len(set(ticks.tickvals))


def test_a_comparison_draws_the_figure_of_its_reports():
    reports = [report(), report()]
    for name, one in zip(("a", "b"), reports, strict=True):
        one.checkpoint["name"] = name
    other = reports[1].results["far/intact"]
    reports[1].results["far/intact"] = other.copy(
        data=other.values * np.linspace(1, 2, other.shape[-1])
    )
    compared = Comparison(tuple(reports))
    found = lines_of(compared.figure("context"))
    for name, one in zip(("a", "b"), reports, strict=True):
        line = next(trace for trace in drawn_of(one, "context").data if trace.name == "x &gt; 0")
        assert found[f"{name}: x &gt; 0"] == [list(line.y)]
    assert found["a: x &gt; 0"] != found["b: x &gt; 0"]
    assert list(lines_of(compared.figure("context", lines=["x > 0"]))) == [
        "a: x &gt; 0",
        "b: x &gt; 0",
    ]
    with pytest.raises(InputError, match="unknown figure 'nothing'"):
        compared.figure("nothing")
    del reports[1].results["far/intact"]
    with pytest.raises(
        InputError,
        match="two reports at least must have the figure 'context', but it is missing for b",
    ):
        compared.figure("context")


def of_several(scale: float, linear: bool = False) -> Drawing:
    """The panels of `drawn`, and one whose lines are bundles, with a line beside them."""
    drawing = drawing_of(drawn(scale, linear=linear))
    assert drawing is not None
    bundle = Line(XS, np.stack([XS, XS]), name="contexts")
    mean = Line(XS, scale * XS, name="mean of contexts")
    panels = (*drawing.panels, Panel("Bundles", marks=[bundle, mean]))
    return Drawing("Three panels", "", panels)


def test_all_panels_with_lines_stand_in_one_figure():
    figure = overlay_panels({"a": of_several(1.0), "b": of_several(2.0)})
    assert figure is not None

    def shows(scale_of_b):
        found = lines_of(figure)
        assert found["b: mean"] == [list(scale_of_b * XS)]
        assert found["b: mean of contexts"] == [list(scale_of_b * XS)]
        assert found["bound"] == [[1, 1, 1]]
        assert not any("contexts" in name and "mean" not in name for name in found)

    shows(2.0)
    must_fail(shows, 1.0)
    legend = [trace.name for trace in figure.data if trace.showlegend]
    assert legend == ["a", "b", "mean", "spread", "bound", "mean of contexts"]
    headings = "".join(note.text for note in figure.layout.annotations)
    assert "Size" in headings
    assert "Points" not in headings  # it has no lines


def test_a_panel_with_other_axes_is_left_out():
    figure = overlay_panels({"a": of_several(1.0), "b": of_several(2.0, linear=True)})
    assert figure is not None
    assert set(lines_of(figure)) == {"a: mean of contexts", "b: mean of contexts"}
    assert overlay_panels({"a": of_several(1.0), "b": Drawing("", "", [Panel("x")])}) is None
