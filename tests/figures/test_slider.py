"""A slider shows one drawing at a time, with the numbers that this drawing has."""

from dataclasses import replace

import pytest
from browsers import DRAWN, browser, wait_until
from helpers import must_fail

from icl_interp.figures.drawing import Axis, Drawing, Line, Panel, Points
from icl_interp.figures.files import plotly_js, to_div
from icl_interp.figures.narrow import narrow
from icl_interp.figures.paper import for_paper
from icl_interp.figures.render import render
from icl_interp.figures.slider import Steps, same_ends, stepped


def one(slope: float) -> Drawing:
    """A line with its points; the second is a gap."""
    xs = [0.0, 1.0, 2.0]
    ys = [0.0, float("nan"), 2 * slope]
    marks = [Line(xs, ys, name="line"), Points(xs, ys, name="points")]
    return Drawing("Lines", "", [Panel("", Axis("x", 0, 2), Axis("y"), marks)])


DRAWINGS = same_ends({"flat": one(0.0), "steep": one(2.0)}, 0.0, 5.0)


def holds(step, drawing: Drawing) -> None:
    """The step puts the numbers of this drawing in place; what is NaN is null."""
    numbers, traces = step.args
    shown = render(drawing).data
    assert list(traces) == list(range(len(shown)))
    for axis in ("x", "y"):
        for found, trace in zip(numbers[axis], shown, strict=True):
            expected = [None if value != value else value for value in trace[axis]]
            assert list(found) == expected


def test_each_step_holds_the_numbers_of_its_drawing():
    figure = stepped(Steps(DRAWINGS, "drawing "))
    steps = figure.layout.sliders[0].steps
    assert [step.label for step in steps] == ["flat", "steep"]
    for step, drawing in zip(steps, DRAWINGS.values(), strict=True):
        holds(step, drawing)
    must_fail(holds, steps[0], DRAWINGS["steep"])
    assert tuple(figure.layout.yaxis.range) == (0.0, 5.0)


def same(figure, other) -> None:
    assert figure.to_json() == other.to_json()


def test_in_print_the_first_step_stands_alone():
    figure = for_paper(stepped(Steps(DRAWINGS)))
    assert not figure.layout.sliders
    same(figure, for_paper(render(DRAWINGS["flat"])))
    must_fail(same, figure, for_paper(render(DRAWINGS["steep"])))


def n_lines(layout) -> int:
    return layout["title"]["text"].count("<br>")


def test_on_a_narrow_screen_words_take_more_lines_and_the_slider_stays():
    long = replace(DRAWINGS["flat"], title="A title of many words " * 4)
    figure = stepped(Steps({"one": long, "two": long}))
    laid = narrow(figure)["layout"]
    assert n_lines(laid) > n_lines(figure.to_plotly_json()["layout"])
    assert [step["label"] for step in laid["sliders"][0]["steps"]] == ["one", "two"]


@pytest.mark.slow
def test_the_slider_works_in_a_browser(tmp_path):
    sync = pytest.importorskip("playwright.sync_api")
    div = to_div(stepped(Steps(DRAWINGS)), "one")
    page = f"<!DOCTYPE html><html><body><script>{plotly_js()}</script>{div}</body></html>"
    path = tmp_path / "page.html"
    path.write_text(page, "utf-8")
    with sync.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser())
        tab = chromium.new_page()
        tab.goto(path.as_uri())
        wait_until(tab, DRAWN)
        last = "document.getElementById('one')._fullData[0].y[2]"
        assert tab.evaluate(last) == 0
        end = tab.locator(".slider-rail-touch-rect").bounding_box()
        tab.mouse.click(end["x"] + end["width"] - 2, end["y"] + end["height"] / 2)
        wait_until(tab, f"{last} === 4")
        chromium.close()
