"""Pages of experiments: what came out is counted, found and read on every screen."""

import re

import pytest
from browsers import browser
from helpers import must_fail
from html_outline import HOSTILE, Outline

from icl_interp.experiments import statements
from icl_interp.reproduction import page
from icl_interp.reproduction.page import counted


def record(name: str, says: list[str], source: str = "Author (2025), Table 1"):
    """What an experiment writes down, in short."""
    return {
        "id": name,
        "title": f"What {name} shows",
        "source": source,
        "says": says,
        "missing": [],
        "models": {},
        "comparison": None,
        "scale": {"name": "smoke", "words": "one layer"},
        "provenance": {
            "seconds": 12.0,
            "command": f"icl-interp reproduce {name}",
            "measured": 1,
            "kept from before": 0,
            "seed": 0,
            "written": "2026-01-01",
        },
    }


RECORDS = (
    record("one.table1", [f"{statements.AGREES}it grows.", f"{statements.AGREES}it stays."]),
    record("one.table2", [f"{statements.DIFFERS}it falls.", f"{statements.OPEN}it turns."]),
    record("two.figure1", ["A note.", f"{statements.HOLDS}3 of 3."]),
)


def sums_up(text: str) -> None:
    words = Outline(text).text
    assert "3 experiments. Findings of the works: ✓ 2 as in the paper" in words
    assert "✗ 1 not as in the paper · ? 1 undecided" in words
    for r in RECORDS:
        assert f'href="{r["id"]}/figure.html"' in text
        assert r["title"] in words
        for line in r["says"]:
            assert line.partition(": ")[2] in words


def test_the_index_counts_what_came_out():
    sums_up(page.index(RECORDS))
    must_fail(sums_up, page.index((*RECORDS[:2], RECORDS[0])))
    must_fail(sums_up, page.index(RECORDS[:2]))


def boxes_hide(text: str) -> None:
    """A row is hidden where no result that it has is ticked; without a result by its study."""
    rules = re.findall(r"body((?::has\(#show-[\w-]+:not\(:checked\)\))+) \.([\w-]+) \{", text)
    hides = {hidden: re.findall(r"#show-([\w-]+):", boxes) for boxes, hidden in rules}
    rows = re.findall(r'class="claim experiment ([^"]+)"', text)
    for r, row in zip(RECORDS, rows, strict=True):
        mix, study = row.split()
        assert hides.get(mix, []) == list(counted(r["says"]))
        assert hides[study] == [study]


def test_filters_hide_what_they_say():
    text = page.index(RECORDS)
    boxes_hide(text)
    must_fail(boxes_hide, text.replace("experiment mix-0", "experiment mix-1", 1))


def test_one_experiment_has_a_page_with_contents():
    text = page.page(RECORDS[1], {}, None)
    nav = text.partition('<nav class="contents"')[2].partition("</nav>")[0]
    assert re.findall(r'href="#([^"]+)"', nav) == re.findall(r'<h2 id="([^"]+)"', text)
    assert "✗ 1 not as in the paper · ? 1 undecided" in Outline(text).text


def test_text_of_others_stays_text():
    r = record("one.table1", [f"{statements.AGREES}{HOSTILE}"], HOSTILE)
    for text in (page.index([r]), page.page(r, {}, None)):
        assert "<script>alert" not in text
        assert HOSTILE in Outline(text).text


@pytest.mark.slow
def test_a_browser_shows_the_index_on_every_screen(tmp_path):
    from playwright import sync_api as sync  # slow to import

    (tmp_path / "index.html").write_text(page.index(RECORDS), "utf-8")
    said = []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        tab = chromium.new_context(offline=True).new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.goto((tmp_path / "index.html").as_uri())
        for width in (1400, 768, 480):
            tab.set_viewport_size({"width": width, "height": 900})
            page_of = "document.documentElement"
            assert tab.evaluate(f"{page_of}.scrollWidth <= {page_of}.clientWidth")
            # No word is broken: the shortest cell is wider than its letters.
            cells = "[...document.querySelectorAll('.experiment > summary > span')]"
            assert tab.evaluate(f"Math.min(...{cells}.map(e => e.clientWidth))") > 80
        rows = tab.locator("details.experiment")
        tab.locator("#show-supported").uncheck()
        assert [rows.nth(i).is_visible() for i in range(3)] == [False, True, True]
        tab.locator("#show-contradicted").uncheck()
        assert rows.nth(1).is_visible()  # one of its findings is undecided
        tab.locator("#show-study-1").uncheck()
        assert not rows.nth(2).is_visible()
        chromium.close()
    assert said == []
