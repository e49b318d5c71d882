"""The view of a report shows what the report holds: patterns, tokens, and what heads do."""

import re

import numpy as np
import pytest
from browsers import browser, wait_until
from helpers import must_fail
from small_reports import report

from icl_interp.analyses import example_prompts, mechanism, relevance
from icl_interp.analyses.measurement import Results
from icl_interp.figures import files, stored_attention
from icl_interp.report import Report


@pytest.fixture(scope="module")
def small():
    return report()


def weights_of(data, prompt) -> np.ndarray:
    """(head, query, key) of a prompt, by its place."""
    n = len(data["tokens"])
    return np.array(data["weights"][prompt]).reshape(-1, n, n) * data["unit"]


def test_weights_are_those_that_the_report_holds(small):
    data = small.attention.data
    stored = small.results[example_prompts.patterns]
    mean = small.results[mechanism.patterns].values
    assert data["prompts"][0].startswith("mean over ")
    assert data["prompts"][1:] == ["prompt 0", "prompt 1"]

    def shows(prompt, expected):
        np.testing.assert_allclose(weights_of(data, prompt), expected, atol=data["unit"], rtol=0)

    shows(0, mean.reshape(-1, *mean.shape[2:]))
    shows(1, stored.sel(prompt=0).values)
    shows(2, stored.sel(prompt=1).values)
    must_fail(shows, 1, stored.sel(prompt=1).values)
    must_fail(shows, 0, stored.sel(prompt=0).values)
    shown = small.results[example_prompts.tokens].sel(prompt=1, token="y1", channel=0)
    assert data["values"][0] is None
    assert f"{float(shown):.3g}" in data["values"][2][1]


def test_a_head_says_what_its_ablation_does(small):
    data = small.attention.data
    means = small.results[relevance.relevance].sel(intervention="mean ablation").mean("unit")
    # The small model has not learned its task.
    moved = means.sel(statistic="movement") ** 0.5

    def says(told):
        for name, value in zip(means["head"].values, moved.values, strict=True):
            assert float(told[str(name)].split()[0]) == pytest.approx(value, rel=0.01)

    says(data["marks"])
    must_fail(says, dict(zip(data["marks"], [*data["marks"].values()][::-1], strict=True)))
    for name, sentence in data["effects"].items():
        assert f"the prediction changes by {data['marks'][name]}" in sentence
        assert "of the prediction's variance into the read-out" in sentence


def test_where_no_patterns_are_held_there_is_no_view(small):
    left = Results({**small.results})
    del left[example_prompts.patterns.name]
    assert stored_attention.view(left, small.facts) is None
    # Of a large model the mean is not known: prompts are.
    left = Results({**small.results})
    left[mechanism.patterns.name] = left[mechanism.patterns].sel(query=["query"])
    shown = stored_attention.view(left, small.facts)
    assert shown is not None
    assert shown.data["prompts"] == ["prompt 0", "prompt 1"]


@pytest.mark.slow
def test_it_is_the_same_from_a_stored_report(small, tmp_path):
    small.to_json(tmp_path / "report.json")
    assert Report.load(tmp_path).attention.data == small.attention.data


@pytest.mark.slow
def test_the_page_has_it_in_place_of_the_mean_patterns(small, tmp_path):
    from playwright import sync_api as sync  # slow to import

    path = small.to_html(tmp_path / "report.html")
    text = path.read_text("utf-8")
    assert 'id="figure-mechanism_patterns"' not in text
    assert 'id="figure-mechanism"' in text
    assert text.count(f'id="{stored_attention.DIV}"') == 1
    assert stored_attention.CAPTION.split(":")[0] in re.sub("<[^>]+>", "", text)
    data = small.attention.data
    n_heads = len(data["heads"])
    said: list[str] = []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_context(offline=True).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(path.as_uri())
        # Drawn when it is its turn: the page is there before.
        wait_until(tab, "document.querySelectorAll('.maps button').length > 0", 60)
        buttons = tab.locator(".maps button")
        assert buttons.count() == n_heads
        # A click on a head shows what it does.
        for place in (n_heads - 1, 0):
            buttons.nth(place).click()
            assert tab.locator(".does").inner_text() == data["effects"][data["heads"][place]]
            name = tab.locator("canvas.map").get_attribute("aria-label")
            layer, head = data["heads"][place].split(".")
            assert f"Layer {layer}, head {head}, mean over" in name
        # A click on the square of a head, in the map of what ablation does, opens it.
        wait_until(tab, "document.querySelector('#figure-mechanism .heatmaplayer')", 60)
        asked = "document.dispatchEvent(new CustomEvent('head', {detail: '1.2'}))"
        tab.evaluate(asked)
        assert tab.locator("canvas.map").get_attribute("aria-label").count("Layer 1, head 2")
        squares = tab.locator("#figure-mechanism .heatmaplayer image").last
        squares.scroll_into_view_if_needed()
        corner = squares.bounding_box()
        place = (corner["x"] + 9, corner["y"] + 9)  # the first head of the first layer
        tab.mouse.move(*place, steps=5)
        wait_until(tab, "document.querySelector('#figure-mechanism .hoverlayer .hovertext')", 10)
        tab.mouse.click(*place)
        label = "document.querySelector('canvas.map').getAttribute('aria-label')"
        wait_until(tab, f"{label}.includes('Layer 0, head 0')", 10)
        tab.locator("select.layer").select_option(label="1")
        assert tab.locator("select.head option").count() == 3
        for width in (1400, 768, 480):
            tab.set_viewport_size({"width": width, "height": 900})
            page_of = "document.documentElement"
            assert tab.evaluate(f"{page_of}.scrollWidth <= {page_of}.clientWidth")
        # On paper there is nothing to choose with.
        tab.emulate_media(media="print")
        assert not tab.locator(".attention .controls").is_visible()
        assert tab.locator("canvas.map").is_visible()
        assert tab.locator(".on-paper").is_visible()
        tab.emulate_media(media="screen", color_scheme="dark")
        turned = "getComputedStyle(document.querySelector('.looked-through')).filter"
        assert "invert" in tab.evaluate(turned)
        chromium.close()
    assert said == []


@pytest.mark.slow
def test_without_it_the_mean_patterns_stand(small, tmp_path):
    left = report()
    del left.results[example_prompts.patterns.name]
    assert left.attention is None
    text = left.to_html(tmp_path / "report.html").read_text("utf-8")
    assert 'id="figure-mechanism_patterns"' in text
    assert f'id="{stored_attention.DIV}"' not in text
    assert files.plotly_js() in text
