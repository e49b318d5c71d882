"""The page of several models: whole, safe with any text, with every verdict and its reason."""

import json
import re
from dataclasses import replace

import pytest
import small_reports
from browsers import DRAWN, browser, wait_until
from compared_reports import CLAIM, named, seeds
from helpers import must_fail
from html_outline import HOSTILE, Outline, is_self_contained
from markupsafe import escape

from icl_interp.analyses.criterion import Estimate
from icl_interp.errors import InputError
from icl_interp.figures import files
from icl_interp.figures.style import VERDICTS
from icl_interp.report import comparison_page
from icl_interp.report.bars import bar
from icl_interp.report.comparison import Comparison
from icl_interp.report.page import value_of
from icl_interp.report.words import sentence, thresholds, what_decides, why_open

pytestmark = pytest.mark.slow  # several whole reports are made


@pytest.fixture(scope="module")
def compared():
    return seeds()


@pytest.fixture(scope="module")
def text(compared):
    return comparison_page.render(compared, {"a": "reports/a/report.html"})


def without_scripts(text: str) -> str:
    return text.replace(files.plotly_js(), "")


def rows_of(text: str) -> dict[str, str]:
    """The row of each claim, by its id."""
    rows = re.findall(r'<details class="claim versus.*?</details>', text, re.DOTALL)
    return {re.findall(r'<div id="([^"]+)"', row)[0]: row for row in rows}


def says_everything(compared: Comparison, text: str) -> None:
    """Each row has the verdict, number and reason of each model, and what decides."""
    rows = rows_of(text)
    for claim in compared.claims:
        found = [report[claim] for report in compared.reports]
        if all(f.verdict == "not_applicable" for f in found):
            assert claim not in rows
            assert sentence(found[0]) in Outline(without_scripts(text)).text
            continue
        cells = rows[claim].split('<span class="cell ')[1:]
        assert len(cells) == len(found)
        for f, cell in zip(found, cells, strict=True):
            look = VERDICTS[f.verdict]
            assert f"{look.sign} {look.word}" in cell
            if f.verdict != "not_applicable":
                assert str(escape(value_of(f.test or f.estimate))) in cell
                assert str(escape(why_open(f))) in cell
        body = Outline(rows[claim]).text
        for f in found:
            assert " ".join(f.reason.split()) in body
        if len({what_decides(f) for f in found}) == 1 and found[0].test:
            assert thresholds(found[0].decided_by, found[0].test.unit) in body


def test_every_verdict_stands_there_with_its_reason(compared, text):
    says_everything(compared, text)
    f = compared.reports[3][CLAIM]
    must_fail(says_everything, compared, text.replace(str(escape(value_of(f.test))), ""))
    must_fail(says_everything, compared, text.replace(str(escape(f.reason)), ""))
    must_fail(says_everything, Comparison(compared.reports[:3]), text)


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself(text):
    link = 'href="reports/a/report.html"'
    assert link in text
    is_self_contained(text.replace(link, 'href="#verdicts"'))
    must_fail(is_self_contained, text)


def test_a_link_leads_to_the_page_of_each_report(compared, tmp_path):
    folders = [tmp_path / "reports" / f"{name}, seed=1" for name in compared.names]
    compared.save(tmp_path, folders)
    assert (
        'href="reports/a%2C%20seed%3D1/report.html"' in (tmp_path / "comparison.html").read_text()
    )


def test_bars_of_a_row_have_one_axis(compared):
    """A number stands at the same place in the bars of two models."""
    found = [report[CLAIM] for report in compared.reports]
    assert len({f.decided_by for f in found}) == 1

    def has_one_axis(bars):
        zones = {tuple(re.findall(r'<rect x="([\d.]+)"[^>]*width="([\d.]+)"', one)) for one in bars}
        assert len(zones) == 1

    has_one_axis([str(bar(f, found)) for f in found])
    must_fail(has_one_axis, [str(bar(f)) for f in found])


def pooled_are_shown(text: str, supported: int) -> None:
    section = text.partition('id="seeds"')[2].partition('id="curves"')[0]
    row = section.partition(f'href="#{CLAIM}"')[2].partition("</tr>")[0]
    cells = re.findall(r'<td class="number">(.*?)</td>', row)
    assert cells == ["3", str(supported), "2", "–", "1 to 6 u"]
    assert "<h3>a, b, c</h3>" in section


def test_seeds_of_one_recipe_are_pooled(text):
    pooled_are_shown(text, 1)
    must_fail(pooled_are_shown, text, 2)


def test_the_first_sentence_counts():
    verdicts = [("supported", "supported"), ("supported", "contradicted"), ("inconclusive",) * 2]
    f = small_reports.report()[CLAIM]
    rows = [[replace(f, verdict=one) for one in pair] for pair in verdicts]
    assert comparison_page.agreement(rows) == (
        "3 claims apply to at least one of these models; 2 have the same verdict for all. 1 is "
        "supported for one model and contradicted for another."
    )
    assert comparison_page.agreement(rows[:1]) == (
        "1 claim applies to at least one of these models; 1 has the same verdict for all."
    )


def boxes_hide_rows(compared: Comparison, text: str) -> None:
    """Of the boxes of verdicts those that a row has hide it together."""
    rules = re.findall(r"body((?::has\(#show-[\w-]+:not\(:checked\)\))+) \.([\w-]+) \{", text)
    hides = {hidden: re.findall(r"#show-([\w-]+):", boxes) for boxes, hidden in rules}
    boxes = set(re.findall(r'id="show-([\w-]+)"', text))
    assert {box for of_it in hides.values() for box in of_it} == boxes
    for claim, row in rows_of(text).items():
        classes = re.findall(r'class="claim versus ([^"]+)"', row)[0].split()
        verdicts = {report[claim].verdict for report in compared.reports}
        (mix,) = [name for name in classes if name.startswith("mix-")]
        assert set(hides[mix]) == verdicts
        assert ("differ" in classes) == (len(verdicts) > 1)
    for i in range(len(compared.names)):
        assert hides[f"model-{i}"] == [f"model-{i}"]


def test_filters_hide_what_they_say(compared, text):
    boxes_hide_rows(compared, text)
    must_fail(boxes_hide_rows, compared, text.replace("versus differ", "versus alike"))
    must_fail(boxes_hide_rows, compared, text.replace(":has(#show-contradicted:not(:checked))", ""))


def test_curves_are_of_as_many_models_as_can_be_told_apart():
    many = Comparison(tuple(named(name) for name in "abcdefgh"))
    with pytest.raises(InputError, match="lines of 2 to 6 models can be told apart, but got 8"):
        many.curves()
    first = many.curves(many.names[:2])
    assert "context" in first
    assert "a, b<" in first["context"].layout.title.text.replace("</", "<")


@pytest.mark.slow
def test_the_page_of_many_models_says_which_are_drawn():
    many = Comparison(tuple(named(name) for name in "abcdefgh"))
    shown = Outline(without_scripts(comparison_page.render(many))).text
    said = "Lines of more than 6 models cannot be told apart, so only the first 6 are drawn."
    assert said in shown


def test_text_of_others_stays_text():
    other = named("b")
    data = other.findings[0].to_dict()
    data |= {key: HOSTILE for key in ("statement", "source", "reason", "short")}
    data["criterion"]["text"] = data["test"]["name"] = HOSTILE
    other.findings = [type(other.findings[0]).from_dict(data), *other.findings[1:]]
    hostile = Comparison((named(HOSTILE), other))
    for shown in (comparison_page.render(hostile), hostile._repr_html_()):
        assert "<script>alert" not in shown
        assert HOSTILE in Outline(without_scripts(shown)).text


def test_a_page_that_cannot_be_made_costs_no_table(compared, tmp_path, monkeypatch, caplog):
    def broken(*given):
        raise InputError("no page today")

    monkeypatch.setattr(comparison_page, "render", broken)
    compared.save(tmp_path)
    assert "no page today" in caplog.text
    assert not (tmp_path / "comparison.html").exists()
    table = json.loads((tmp_path / "comparison.json").read_text())["table"]
    assert len(table) == len(compared.table)


def test_a_stored_report_that_lacks_data_is_named(tmp_path):
    path = tmp_path / "report.json"
    broken = replace(named("b"), file=path, model={"config": "x"})
    with pytest.raises(InputError, match=f"one of {path} does not hold what the page of the"):
        Comparison((named("a"), broken)).to_html(tmp_path / "x.html")


def test_notebooks_get_a_light_table(compared):
    fragment = compared._repr_html_()
    outline = Outline(fragment)
    assert not {"script", "style", "link"} & set(outline.tags)
    for name in compared.names:
        assert name in outline.words
    rows = fragment.count("<tr>") - 1
    assert rows == len(rows_of(comparison_page.render(compared)))


@pytest.mark.slow
def test_a_browser_shows_it_on_every_screen(compared, tmp_path):
    from playwright import sync_api as sync  # slow to import

    compared.to_html(tmp_path / "comparison.html")
    said = []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_context(
            viewport={"width": 1400, "height": 1000}, offline=True
        ).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto((tmp_path / "comparison.html").as_uri())
        wait_until(tab, DRAWN)
        row = tab.locator(f"details.versus:has([id='{CLAIM}'])")
        # Nothing is cut off or wider than the page, with a row that is open.
        row.locator("summary").press("Enter")
        assert row.locator(".said").is_visible()
        for width in (1400, 768, 480):
            tab.set_viewport_size({"width": width, "height": 1000})
            page_of = "document.documentElement"
            assert tab.evaluate(f"{page_of}.scrollWidth <= {page_of}.clientWidth"), width
            boxes = tab.evaluate(
                "[...document.querySelectorAll('details.versus .cell > span:not(.who)')].map(e => "
                "e.scrollWidth - e.clientWidth)"
            )
            assert max(boxes) <= 1, width
            heads = tab.locator(".heads").is_visible()
            assert heads == (width > 1000)
        # A dark screen has light letters on dark paper.
        tab.emulate_media(color_scheme="dark")
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = tab.evaluate("getComputedStyle(document.body).color")
        assert brightness(paper) < 80 < 180 < brightness(ink)
        # Each filter by itself.
        verdicts = {report[CLAIM].verdict for report in compared.reports}
        for verdict in verdicts:
            assert row.is_visible()
            tab.locator(f"#show-{verdict}").uncheck()
        assert not row.is_visible()
        tab.locator(f"#show-{verdicts.pop()}").check()
        assert row.is_visible()
        tab.locator("#show-differ").uncheck()
        assert not row.is_visible()
        tab.locator("#show-differ").check()
        cell = row.locator(".cell.model-1")
        assert cell.is_visible()
        tab.locator("#show-model-1").uncheck()
        assert not cell.is_visible()
        chromium.close()
    assert said == []


def brightness(colour: str) -> float:
    """Mean of red, green and blue, of 255."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_a_range_has_the_unit_of_its_claim():
    f = named("a", 0.25, "supported")[CLAIM]
    share = replace(f, test=Estimate("share", 0.25, 0.2, 0.3, "share"))
    assert comparison_page._range({"min": 0.25, "max": 0.5}, [share]) == "25 % to 50 %"
    assert comparison_page._range({"min": float("nan"), "max": float("nan")}, [share]) == "–"
