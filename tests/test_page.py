"""The report's page: whole, self-contained, the same every time, and safe with any text."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from browsers import browser
from helpers import must_fail
from markupsafe import escape
from small_reports import report

from icl_interp.analyses import multiplicity
from icl_interp.figures import catalogue, files
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import interval, number
from icl_interp.provenance import finite
from icl_interp.report import Report, page

VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = "</script><script>alert('<b>&amp;\"x\"')</script>"


class Outline(HTMLParser):
    """Tags, ids, addresses and visible text of a page; complains about tags that don't match."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.ids, self.addresses, self.words, self._open = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open += [] if tag in VOID else [tag]
        for name, value in attrs:
            self.ids += [value] if name == "id" else []
            self.addresses += [value] if name in ("src", "href", "action", "data", "poster") else []

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rendered(r: Report) -> str:
    return page.render(r.to_dict(), r.figures)


@pytest.fixture(scope="module", params=[True, False], ids=["norm", "no norm"])
def any_report(request):
    return report(request.param)


@pytest.fixture(scope="module")
def drawn(any_report):
    """Its figures, which take most of a second."""
    return any_report.figures


@pytest.fixture(scope="module")
def text(any_report, drawn):
    return page.render(any_report.to_dict(), drawn)


def is_self_contained(text: str):
    assert text.count(files.plotly_js()) == ('class="plotly-graph-div"' in text)
    outline = Outline(text.replace(files.plotly_js(), ""))
    assert len(outline.ids) == len(set(outline.ids))
    for address in outline.addresses:
        assert address == "data:," or (address[0] == "#" and address[1:] in outline.ids), address
    assert "@import" not in text.replace(files.plotly_js(), "")


def test_the_page_needs_nothing_but_itself(text):
    is_self_contained(text)
    must_fail(is_self_contained, text.replace("</body>", '<script src="https://example.org/x.js"></script></body>'))
    must_fail(is_self_contained, text.replace("</body>", '<a href="#nowhere">x</a></body>'))
    must_fail(is_self_contained, text.replace("</body>", '<p id="verdicts"></p></body>'))
    must_fail(is_self_contained, text + files.plotly_js())
    must_fail(is_self_contained, text.replace(files.plotly_js(), ""))
    must_fail(is_self_contained, text.replace("</main>", ""))


def test_the_page_is_the_same_every_time_also_after_json(any_report, drawn, text, tmp_path):
    any_report.to_json(tmp_path / "report.json")
    assert rendered(Report.load(tmp_path)) == text
    raw = json.loads((tmp_path / "report.json").read_text())
    assert page.render(raw, drawn) == text
    assert page.render({**raw, "checkpoint": {**raw["checkpoint"], "step": -1}}, drawn) != text


def says_everything(r: Report, figures: Collection[str], text: str):
    shown = Outline(text.replace(files.plotly_js(), "")).text
    assert set(re.findall(r'id="figure-(\w+)"', text)) == set(figures)
    for finding in r.findings:
        look = VERDICTS[finding.verdict]
        words = finding.id, finding.statement, finding.source, finding.reason, finding.criterion.text, finding.scope
        for part in words:
            assert " ".join(part.split()) in shown
        assert f"{look.sign} {look.word}" in shown
        for estimate in (finding.estimate, finding.test, finding.twin):
            assert estimate is None or interval(estimate) in shown
        assert finding.quote is None or " ".join(finding.quote.text.split()) in shown
        for condition in finding.criterion.conditions:
            assert f"{condition.quantity}: supported in [" in shown
        for precondition in finding.criterion.preconditions:
            assert f"precondition: {precondition.quantity} in [" in shown
        for estimate in finding.evidence.values():
            exact = f"found {number(estimate.value)} {estimate.unit}".rstrip()
            assert (exact if estimate.low == estimate.high else f"found {interval(estimate)}") in shown
        assert finding.kept is None or finding.kept in shown
        for key in finding.causal or {}:
            assert key in shown
        for row in finding.details:
            assert all(str(key) in shown for key in row)
    assert multiplicity.by_chance(r.findings) in shown
    for name in figures:
        assert name == "claims" or catalogue.FIGURES[name].caption in shown
    for value in (*r.provenance["environment"].values(), r.checkpoint["name"]):
        assert value in shown


def test_every_claim_is_told_in_full(any_report, drawn, text):
    says_everything(any_report, drawn, text)
    last = any_report.findings[-1]
    for part in (last.criterion.text, last.quote.text, f"{last.criterion.conditions[0].quantity}: supported"):
        must_fail(says_everything, any_report, drawn, text.replace(str(escape(part)), ""))


def test_a_verdict_that_was_not_judged_again_says_why():
    r = report()
    r.findings[0] = replace(r.findings[0], kept="The stored verdict is kept: far/ends is of version 1, not 2.")
    drawn = r.figures
    kept = page.render(r.to_dict(), drawn)
    says_everything(r, drawn, kept)
    must_fail(says_everything, r, drawn, kept.replace("The stored verdict is kept", ""))


def test_the_first_screen_holds_banner_and_forest(any_report, text):
    body = text[text.index("<body>") :]
    order = [
        "in-distribution error",
        "least squares",
        "predicting 0",
        "R²",
        "trained range",
        "trained length",
        "figure-claims",
        'id="verdicts"',
        "figure-far_query",
        'id="findings"',
        'id="provenance"',
    ]
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    shown = Outline(text.replace(files.plotly_js(), "")).text
    assert "x ~ U(−1, 1)" in shown
    assert "5 points trained length 4 pairs and the query" in shown
    assert ("pre-LN" if "far/norm arms" in any_report.results else "no normalisation") in shown


def hostile() -> Report:
    r = report()
    r.checkpoint = {**r.checkpoint, "name": HOSTILE, "from": {HOSTILE: HOSTILE}}
    r.model = {**r.model, "task": {"kind": HOSTILE, "inputs": HOSTILE, HOSTILE: [HOSTILE]}, "encoding": HOSTILE}
    data = r.findings[0].to_dict()
    data |= {key: HOSTILE for key in ("id", "statement", "source", "reason", "scope")}
    data |= {"causal": {HOSTILE: HOSTILE}, "details": [{HOSTILE: HOSTILE}], "figures": ["far_query"]}
    data["criterion"]["text"] = data["test"]["name"] = data["estimate"]["unit"] = HOSTILE
    r.findings = [type(r.findings[0]).from_dict(finite(data)), *r.findings[1:]]
    return r


def test_text_of_others_stays_text():
    benign = Outline(rendered(report()).replace(files.plotly_js(), ""))

    def is_safe(text: str):
        outline = Outline(text.replace(files.plotly_js(), ""))
        assert outline.tags.count("script") == benign.tags.count("script")
        assert HOSTILE in outline.text
        assert "<script>alert" not in text

    text = rendered(hostile())
    is_safe(text)
    is_self_contained(text)
    must_fail(is_safe, text.replace(str(escape(HOSTILE)), HOSTILE))
    fragment = page.summary(hostile().to_dict())
    assert "script" not in Outline(fragment).tags
    assert HOSTILE in Outline(fragment).text


def test_a_report_with_one_claim_and_no_results_is_still_a_page():
    r = report()
    r.findings, r.results = r.findings[:1], {}
    is_self_contained(rendered(r))
    r.findings = []
    is_self_contained(rendered(r))


def test_notebooks_get_a_light_fragment(any_report):
    fragment = any_report._repr_html_()
    outline = Outline(fragment)
    assert len(fragment) < 30_000
    assert not {"script", "style", "link"} & set(outline.tags)
    for finding in any_report.findings:
        for part in (finding.id, finding.statement, finding.reason, VERDICTS[finding.verdict].word):
            assert " ".join(part.split()) in outline.text


@pytest.mark.slow
def test_a_browser_draws_every_plot_and_fetches_nothing(any_report, tmp_path):
    sync = pytest.importorskip("playwright.sync_api")
    any_report.to_html(tmp_path / "report.html")
    hostile().to_html(tmp_path / "hostile.html")
    asked, said = [], []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for name, expected in (("report", any_report), ("hostile", hostile())):
            tab = chromium.new_context(viewport={"width": 1400, "height": 1000}, offline=True).new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
            tab.goto((tmp_path / f"{name}.html").as_uri())
            tab.wait_for_function(
                f"document.querySelectorAll('.js-plotly-plot .main-svg').length >= {len(expected.figures)}"
            )
            assert tab.locator(".js-plotly-plot").count() == len(expected.figures)
            assert tab.locator(".js-plotly-plot path, .js-plotly-plot .point").count() > 0
            # The answer is on the first screen: all verdicts, and where the forest plot begins.
            board, forest = (tab.locator(part).bounding_box() for part in (".board", "#figure-claims"))
            assert board["y"] > 0
            if name == "report":
                assert tab.locator(".board li").count() == len(expected.findings)
                assert board["y"] + board["height"] <= forest["y"] <= 500
        chromium.close()
    assert [url for url in asked if not url.startswith("file:")] == []
    assert said == []


def test_companions_that_were_left_out_are_named():
    def text(left_out) -> str:
        r = report()
        r.model["companions_left_out"] = left_out
        return Outline(page.render(r.to_dict(), {})).text

    assert "companions left out" not in text([])
    shown = text([{"name": "mine", "reason": f"cannot be read {HOSTILE}"}])
    assert "companions left out" in shown
    assert f"mine · reason cannot be read {HOSTILE}" in shown
