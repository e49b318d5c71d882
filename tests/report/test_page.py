"""The report's page: whole, self-contained, the same every time, and safe with any text."""

import json
import re
from collections.abc import Collection
from dataclasses import replace

import pytest
from browsers import DRAWN, browser, wait_until
from helpers import mostly_slow, must_fail
from html_outline import HOSTILE, Outline, is_self_contained
from markupsafe import escape
from small_reports import report

from icl_interp.analyses import multiplicity
from icl_interp.analyses.claim import NOT_LEARNED
from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.figures import catalogue, files
from icl_interp.figures.claims import drawable
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import interval
from icl_interp.provenance import finite
from icl_interp.report import Report, banner, glossary, page
from icl_interp.report.bars import bar
from icl_interp.report.findings import found, shown_key
from icl_interp.report.words import (
    answer,
    by_question,
    needed,
    region,
    sentence,
    thresholds,
    why_open,
)


def rendered(r: Report) -> str:
    return page.render(r.to_dict(), r.figures)


@pytest.fixture(scope="module", params=mostly_slow([True, False]), ids=["norm", "no norm"])
def any_report(request):
    return report(request.param)


@pytest.fixture(scope="module")
def drawn(any_report):
    """Its figures, which take most of a second."""
    return any_report.figures


@pytest.fixture(scope="module")
def text(any_report, drawn):
    return page.render(any_report.to_dict(), drawn)


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself(text):
    is_self_contained(text)
    must_fail(
        is_self_contained,
        text.replace("</body>", '<script src="https://example.org/x.js"></script></body>'),
    )
    must_fail(is_self_contained, text.replace("</body>", '<a href="#nowhere">x</a></body>'))
    must_fail(is_self_contained, text.replace("</body>", '<p id="verdicts"></p></body>'))
    must_fail(is_self_contained, text + files.plotly_js())
    must_fail(is_self_contained, text.replace(files.plotly_js(), ""))
    must_fail(is_self_contained, text.replace("</main>", ""))


@pytest.mark.slow
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
        assert finding.id in shown
        assert " ".join(finding.reason.split()) in shown
        assert sentence(finding) in shown
        if finding.verdict == "not_applicable":
            continue
        look = VERDICTS[finding.verdict]
        for part in (finding.statement, finding.source, finding.criterion.text, finding.scope):
            assert " ".join(part.split()) in shown
        assert f"{look.sign} {look.word}" in shown
        for estimate in (finding.estimate, finding.test, finding.control):
            assert estimate is None or interval(estimate) in shown
        assert finding.quote is None or " ".join(finding.quote.text.split()) in shown
        for rule in (*finding.criterion.conditions, *finding.criterion.preconditions):
            estimate = finding.evidence.get(rule.quantity)
            value = f"found {found(estimate)}" if estimate else "not measured"
            unit = estimate.unit if estimate else ""
            asked = needed(rule, unit) if isinstance(rule, Condition) else region(rule.holds, unit)
            quantity = shown_key(rule.quantity)
            before = (
                f"{quantity}: supported"
                if isinstance(rule, Condition)
                else f"precondition: {quantity}"
            )
            assert f"{before}: {asked}; {value}" in shown
        assert finding.kept is None or finding.kept in shown
        for key in finding.causal or {}:
            assert shown_key(key) in shown
        for row in finding.details:
            assert all(shown_key(key) in shown for key in row)
    assert multiplicity.by_chance(r.findings, r.provenance["n_prompts"]) in shown
    assert answer(r.findings) in shown
    for name in figures:
        assert catalogue.FIGURES[name].caption in shown
    for value in (*r.provenance["environment"].values(), r.checkpoint["name"]):
        assert value in shown
    for term, meaning in glossary.TERMS.items():
        assert f"{term} {meaning}" in shown


def test_every_claim_is_told_in_full(any_report, drawn, text):
    says_everything(any_report, drawn, text)
    last = [f for f in any_report.findings if f.verdict != "not_applicable"][-1]
    for part in (
        last.criterion.text,
        last.quote.text,
        f"{last.criterion.conditions[0].quantity}: supported",
    ):
        must_fail(says_everything, any_report, drawn, text.replace(str(escape(part)), ""))
    out = next(f for f in any_report.findings if f.verdict == "not_applicable")
    must_fail(says_everything, any_report, drawn, text.replace(str(escape(out.reason)), ""))


@pytest.mark.slow
def test_a_verdict_that_was_not_judged_again_says_why():
    r = report()
    r.findings[0] = replace(
        r.findings[0], kept="The stored verdict is kept: far/ends is of version 1, not 2."
    )
    drawn = r.figures
    kept = page.render(r.to_dict(), drawn)
    says_everything(r, drawn, kept)
    must_fail(says_everything, r, drawn, kept.replace("The stored verdict is kept", ""))


def test_the_answer_comes_first_and_the_claims_by_question(any_report, text):
    body = text[text.index("<body>") :]
    shown = [f for f in any_report.findings if f.verdict != "not_applicable"]
    order = [
        str(escape(answer(any_report.findings))),
        "in-distribution error",
        "least squares",
        "predicting 0",
        "R²",
        "trained range",
        "trained length",
        'class="board"',
        'id="verdicts"',
        *(f">{question[0].upper()}{question[1:]}</h2>" for question, _ in by_question(shown)),
        'id="left-out"',
        'id="overview"',
        'id="glossary"',
        'id="provenance"',
    ]

    def in_order(parts):
        """Each part stands after the one before it."""
        place = 0
        for part in parts:
            found = body.find(part, place)
            assert found >= 0, part
            place = found + 1

    in_order(order)
    must_fail(in_order, [order[-1], *order[:-1]])
    words = Outline(text.replace(files.plotly_js(), "")).text
    assert "x ~ U(−1, 1)" in words
    assert "5 points trained length 4 pairs and the query" in words
    assert ("pre-LN" if "far/norm arms" in any_report.results else "no normalisation") in words


def test_the_key_figure_is_of_a_claim_that_the_answer_names(any_report, drawn, text):
    shown = [f for f in any_report.findings if f.verdict != "not_applicable"]
    key = page.key_figure(shown, drawn)
    named = [f for f in shown if key in f.figures and sentence(f).rstrip(".") in answer(shown)]
    assert named
    assert text.index(f'id="figure-{key}"') < text.index('id="verdicts"')
    assert page.key_figure(shown, []) is None
    assert page.key_figure([], drawn) is None


def counts(text: str) -> dict[str, list[str]]:
    """The table of the first screen: the cells of each row."""
    (table,) = re.findall(r'<table class="board">(.*?)</table>', text, re.DOTALL)
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]
    ]
    return {name: [cell.replace("–", "0") for cell in cells] for name, *cells in rows}


def test_verdicts_are_counted_by_study(any_report, text):
    def check(findings):
        expected = {
            study: [
                str(sum(f.verdict == v and study in (f.study, "all") for f in findings))
                for v in VERDICTS
            ]
            for study in (*dict.fromkeys(f.study for f in findings), "all")
        }
        assert counts(text) == expected

    check(any_report.findings)
    must_fail(check, any_report.findings[:-1])


def test_what_limits_a_report_is_said_first():
    r = report()

    def said() -> list[str]:
        return list(banner.warnings(r.model, r.findings))

    r.model["companions_left_out"] = []
    r.findings = [replace(f, reason="All is well.", error=None) for f in r.findings]
    assert said() == []
    r.findings[0] = replace(
        r.findings[0], reason=f"It levels off. But {NOT_LEARNED} (R2 0.1), so this says nothing."
    )
    r.findings[1] = replace(r.findings[1], error="KeyError: 'x'")
    r.model["companions_left_out"] = [{"name": "mine", "reason": "cannot be read"}]
    learned, left_out, failed = said()
    assert learned.startswith("The model has not learned its task: 1 claim ")
    assert left_out == "The matched model mine is left out: cannot be read"
    assert r.findings[1].id in failed
    assert learned in Outline(page.render(r.to_dict(), {})).text


def test_a_bar_places_numbers_between_its_zones():
    """Zones, mark, interval and controls stand where a linear and a logarithmic axis have them."""
    f = next(f for f in report().findings if drawable(f))

    def places(scale, value, low, high):
        condition = Condition("q", "", (0.1, 1.0), (10.0, float("inf")), scale=scale)
        test = Estimate("number", value, low, high)
        svg = str(
            bar(
                replace(
                    f,
                    decided_by=condition,
                    test=test,
                    control=None,
                    causal=None,
                    verdict="inconclusive",
                )
            )
        )
        zones = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', svg)]
        left, right = (float(x) for x in re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)"', svg)[0])
        (mark,) = (float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg))
        return zones[2], left, mark, right

    contradicts, left, mark, right = places("linear", 5.5, 1.0, 10.0)
    assert mark == pytest.approx((left + right) / 2, abs=0.1)
    assert right == pytest.approx(contradicts, abs=0.1)
    _, left, mark, right = places("log", 10**0.5, 1.0, 10.0)
    assert mark == pytest.approx((left + right) / 2, abs=0.1)
    _, left, mark, right = places("linear", 10**0.5, 1.0, 10.0)
    assert mark < (left + right) / 2 - 5


def contents_lead_somewhere(text):
    """Each link of the contents leads to a heading of the page, and each heading has one."""
    nav = text.partition('<nav class="contents"')[2].partition("</nav>")[0]
    links = re.findall(r'href="#([^"]+)"', nav)
    headings = re.findall(r'<h2 id="([^"]+)"', text)
    assert links
    assert links == headings


def test_the_page_has_contents(text):
    contents_lead_somewhere(text)
    must_fail(contents_lead_somewhere, text.replace('<h2 id="glossary"', "<h2"))


def rows_explain_themselves(findings, text):
    """A row names its quantity, says both thresholds, and why it is open."""
    for f in findings:
        row = text.partition(f"{escape(f.id)}</span></span>")[2].partition("</summary>")[0]
        if f.verdict == "not_applicable":
            continue
        if f.test:
            assert str(escape(f.test.name)) in row
            assert str(escape(thresholds(f.decided_by, f.test.unit))) in row
        assert ("open: " in row) == (f.verdict == "inconclusive")
        assert str(escape(why_open(f))) in row


def test_a_row_of_the_page_explains_itself(any_report, text):
    rows_explain_themselves(any_report.findings, text)
    must_fail(rows_explain_themselves, any_report.findings, text.replace("contradicted: ", ""))
    must_fail(rows_explain_themselves, any_report.findings, text.replace("open: ", ""))


def test_every_filter_hides_its_own_rows(any_report, text):
    shown = [f for f in any_report.findings if f.verdict != "not_applicable"]
    rules = dict(
        re.findall(
            r"body:has\(#show-([\w-]+):not\(:checked\)\) \.([\w-]+) \{ display: none; \}", text
        )
    )
    assert set(rules) == set(re.findall(r'id="show-([\w-]+)"', text))
    for box, hidden in rules.items():
        assert box == hidden
        assert re.search(rf'class="[^"]*\b{hidden}\b', text)
    rows = re.findall(r'<details class="claim (\w+) study-(\d+)">', text)
    studies = list(dict.fromkeys(f.study for f in shown))
    by_claim = [
        (f.verdict, str(studies.index(f.study))) for _, of_it in by_question(shown) for f in of_it
    ]
    assert rows == by_claim


def hostile() -> Report:
    r = report()
    r.checkpoint = {**r.checkpoint, "name": HOSTILE, "from": {HOSTILE: HOSTILE}}
    r.model = {
        **r.model,
        "task": {"kind": HOSTILE, "inputs": HOSTILE, HOSTILE: [HOSTILE]},
        "encoding": HOSTILE,
    }
    data = r.findings[0].to_dict()
    data |= {
        key: HOSTILE
        for key in ("id", "statement", "source", "reason", "scope", "question", "short")
    }
    data |= {
        "causal": {HOSTILE: HOSTILE},
        "details": [{HOSTILE: HOSTILE}],
        "figures": ["far_query"],
    }
    data["criterion"]["text"] = data["test"]["name"] = data["estimate"]["unit"] = HOSTILE
    r.findings = [type(r.findings[0]).from_dict(finite(data)), *r.findings[1:]]
    return r


@pytest.mark.slow
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
        said = (finding.statement,) if finding.verdict != "not_applicable" else ()
        for part in (finding.id, *said, finding.reason, VERDICTS[finding.verdict].word):
            assert " ".join(part.split()) in outline.text


@pytest.mark.slow
def test_a_browser_draws_every_plot_and_fetches_nothing(any_report, tmp_path):
    from playwright import sync_api as sync  # slow to import

    any_report.to_html(tmp_path / "report.html")
    hostile().to_html(tmp_path / "hostile.html")
    asked, said = [], []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for name, expected in (("report", any_report), ("hostile", hostile())):
            tab = chromium.new_context(
                viewport={"width": 1400, "height": 1000}, offline=True
            ).new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
            tab.goto((tmp_path / f"{name}.html").as_uri())
            wait_until(tab, DRAWN)
            # The view of attention stands in place of the figure of mean patterns.
            view = expected.attention
            n_plots = len(expected.figures) - (view is not None)
            assert tab.locator(".js-plotly-plot").count() == n_plots
            n_heads = len(view.data["heads"]) if view else 0
            assert tab.locator(".maps button").count() == n_heads
            assert tab.locator(".js-plotly-plot path, .js-plotly-plot .point").count() > 0
            assert tab.locator(".answer").bounding_box()["y"] < 200
            for width in (1400, 480):  # nothing is cut off, and no row is wider than the page
                tab.set_viewport_size({"width": width, "height": 1000})
                page_of = "document.documentElement"
                assert tab.evaluate(f"{page_of}.scrollWidth <= {page_of}.clientWidth")
            if name == "report":
                rows = tab.locator("details.claim")
                assert rows.count() == sum(f.verdict != "not_applicable" for f in expected.findings)
                first = rows.first
                assert not first.locator(".said").is_visible()
                first.locator("summary").press("Enter")  # by the keyboard alone
                assert first.locator(".said").is_visible()
                verdict = next(
                    f.verdict for f in expected.findings if f.verdict != "not_applicable"
                )
                of_it = tab.locator(f"details.{verdict}")
                assert of_it.first.is_visible()
                tab.locator(f"#show-{verdict}").uncheck()
                assert not any(of_it.nth(i).is_visible() for i in range(of_it.count()))
        chromium.close()
    assert [url for url in asked if not url.startswith("file:")] == []
    assert said == []


@pytest.mark.slow
def test_companions_that_were_left_out_are_named():
    def text(left_out) -> str:
        r = report()
        r.model["companions_left_out"] = left_out
        return Outline(page.render(r.to_dict(), {})).text

    assert "matched models left out" not in text([])
    shown = text([{"name": "mine", "reason": f"cannot be read {HOSTILE}"}])
    assert "matched models left out" in shown
    assert f"mine · reason cannot be read {HOSTILE}" in shown


def test_a_share_is_found_in_percent():
    assert found(Estimate("share", 0.25, 0.2, 0.3, "share")) == "25 % [20 %, 30 %]"
    assert found(Estimate.exactly("share", 0.25, "share")) == "25 %"
