"""Figures on a narrow screen: panels stand below each other, words fit, no number changes.

A browser draws them.
"""

import html
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from browsers import DRAWN, browser, wait_until
from helpers import must_fail
from plotly.graph_objects import Figure
from small_reports import report

from icl_interp.figures import files
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points
from icl_interp.figures.letters import LETTER
from icl_interp.figures.narrow import WIDTH, narrow, script
from icl_interp.figures.render import render
from icl_interp.report import page


@pytest.fixture(scope="module")
def figures() -> Mapping[str, Figure]:
    return report().figures


def domains(layout: dict) -> list[tuple[list[float], ...]]:
    """Across and up, of each panel."""
    return [
        tuple(layout[axis].get("domain", [0, 1]) for axis in (key, "yaxis" + key[5:]))
        for key in layout
        if key.startswith("xaxis") and layout[key].get("overlaying") is None
    ]


def stand_below_each_other(layout: dict) -> None:
    """Each panel takes most of the width, and no two share a height."""
    rows = sorted(up for _, up in domains(layout))
    assert all(across[1] - across[0] > 0.5 for across, _ in domains(layout))
    assert all(above[0] > below[1] for below, above in itertools.pairwise(rows))


@pytest.mark.slow
def test_panels_stand_below_each_other(figures):
    stacked = 0
    for name, figure in figures.items():
        wide = figure.to_plotly_json()["layout"]
        laid = narrow(figure)
        assert laid is not None, name
        stand_below_each_other(laid["layout"])
        rows = {tuple(up) for _, up in domains(wide)}
        beside = len(rows) < len(domains(wide))
        stacked += beside
        if beside:
            assert laid["layout"]["height"] > wide["height"]
            must_fail(stand_below_each_other, wide)
    assert stacked > 4


def words(text: str) -> str:
    """Without marks; exponents behind a ^."""
    return html.unescape(re.sub(r"<[^>]*>", "", text.replace("<sup>", "^")))


def words_fit(title: dict) -> None:
    """No line of the title is wider than the figure."""
    bold, _, below = title["text"].partition("</b>")
    for part, size in ((bold, 16), (below, 12)):
        assert all(LETTER * size * len(words(line)) < WIDTH for line in part.split("<br>"))


@pytest.mark.slow
def test_the_title_keeps_its_words(figures):
    for figure in figures.values():
        laid = narrow(figure)
        was, now = (
            layout["title"]["text"]
            for layout in (figure.to_plotly_json()["layout"], laid["layout"])
        )
        assert words(now.replace("<br>", " ")).split() == words(was.replace("<br>", " ")).split()
        words_fit(laid["layout"]["title"])
    must_fail(words_fit, {"text": "<b>" + "word " * 20 + "</b>"})


@pytest.mark.slow
def test_no_number_changes(figures):
    """A trace gets another name or place of its bar of colours, and nothing else."""
    for figure in figures.values():
        before = json.dumps(figure.to_plotly_json(), default=np.ndarray.tolist)
        laid = narrow(figure)
        assert json.dumps(figure.to_plotly_json(), default=np.ndarray.tolist) == before
        assert len(laid["traces"]) == len(figure.to_plotly_json()["data"])
        assert {key for trace in laid["traces"] for key in trace} <= {"name", "colorbar", "bar"}
        assert "width" not in laid["layout"]


def test_no_text_ends_the_script():
    marks = [Points([0.0], [1.0], name="</script><b>&")]
    text = script(render(Drawing("", "", [Panel(x=Axis("</script>"), marks=marks)])))
    assert text is not None
    assert "</script" not in text
    assert "u003c" in text


def test_a_figure_of_ones_own_keeps_its_width():
    assert narrow(Figure({"type": "scatter", "x": [0], "y": [1]})) is None


@pytest.mark.slow
def test_a_browser_lays_it_out_anew_and_back(figures, tmp_path: Path):
    from playwright import sync_api as sync  # slow to import

    chosen = {name: figures[name] for name in ("growth", "context")}
    divs = [files.to_div(figure, name) for name, figure in chosen.items()]
    frames = "".join(f'<main><div class="plot">{div}</div></main>' for div in divs)
    (tmp_path / "page.html").write_text(
        page.document("figures", type(divs[0])(frames), divs, "nothing"), "utf-8"
    )
    said = []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_context(
            viewport={"width": 1200, "height": 1000}, offline=True
        ).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto((tmp_path / "page.html").as_uri())
        wait_until(tab, DRAWN)
        lefts = (
            "name => [...document.querySelectorAll(`#${name} .nsewdrag`)].map(e => "
            "e.getBoundingClientRect().x)"
        )
        wide = {name: tab.evaluate(lefts, name) for name in ("growth", "context")}
        tab.set_viewport_size({"width": 480, "height": 1000})
        wait_until(
            tab, "document.querySelector('#growth .main-svg').getBoundingClientRect().width < 480"
        )
        for name in ("growth", "context"):
            assert max(tab.evaluate(lefts, name)) < 240 < max(wide[name])
            frame = f"document.querySelector('#{name}').parentElement.parentElement"
            assert tab.evaluate(f"{frame}.scrollWidth <= {frame}.clientWidth")
            laid = narrow(figures[name])
            assert laid is not None
            for what in (
                ".main-svg",
                ".folds",
            ):  # as high as its panels: nothing is cut off, and nothing covered
                height = tab.evaluate(
                    f"{frame}.querySelector('{what}').getBoundingClientRect().height"
                )
                assert abs(height - laid["layout"]["height"]) < 1
        tab.set_viewport_size({"width": 1200, "height": 1000})
        wait_until(
            tab, "document.querySelector('#growth .main-svg').getBoundingClientRect().width > 700"
        )
        assert {name: tab.evaluate(lefts, name) for name in wide} == wide
        chromium.close()
    assert said == []
