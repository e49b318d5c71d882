"""The documentation: links work, the catalogue is whole, and the site needs no network."""

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browsers import browser
from helpers import must_fail
from small_reports import report

from icl_interp.analyses import REGISTRY
from icl_interp.experiments.power import DIALS
from icl_interp.studies import BUNDLED
from icl_interp.testing import battery, curves

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "docs"
CLAIMS = [claim for study in BUNDLED for claim in study.claims]


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("catalogue", DOCS / "catalogue.py")
    catalogue = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as m:
        m.syspath_prepend(DOCS)
        spec.loader.exec_module(catalogue)
    return catalogue.pages()


def words(text):
    """The text without what Markdown adds to it."""
    return " ".join(text.replace("\\", "").split())


def is_whole(page, claim):
    """A page holds the sentence, its place, all deciding quantities, measurements and controls."""
    said = words(page)
    assert words(claim.quote.text) in said
    assert words(claim.quote.place) in said
    assert words(claim.criterion.text) in said
    for rule in (*claim.criterion.conditions, *claim.criterion.preconditions):
        assert (
            f"`{rule.quantity}`" in page.partition("## What decides")[2].partition("## Controls")[0]
        )
    for measurement in claim.measurements:
        assert (
            f"`{measurement.name}`"
            in page.partition("## How it is measured")[2].partition("## What decides")[0]
        )
    controls = page.partition("## Controls")[2]
    assert controls.strip().startswith(claim.kind)
    assert ("on randomly initialised models of this architecture" in words(controls)) == bool(
        claim.control
    )
    must = controls.partition("## Hand-built models")[2].partition("## Verdicts")[0]
    assert "supported |" in must
    # An identity is false of no model, and its study says so.
    excepted = {key for study in BUNDLED for key in study.exceptions}
    assert ("contradicted |" in must) == (("both_ways", claim.id) not in excepted)


def test_every_claim_has_a_whole_page(pages):
    assert set(pages) == {"index"} | {claim.id for claim in CLAIMS}
    assert {claim.id for claim in CLAIMS} <= set(REGISTRY)
    for claim in CLAIMS:
        assert f"({claim.id}.md)" in pages["index"]
        is_whole(pages[claim.id], claim)
    first, page = CLAIMS[0], pages[CLAIMS[0].id]
    must_fail(
        is_whole, page.replace("> ", "", 1).replace(first.quote.text.split()[0], "", 3), first
    )
    must_fail(is_whole, page.replace("## Controls", ""), first)
    must_fail(is_whole, page, CLAIMS[1])


def test_verdicts_are_those_of_the_record(pages):
    record = json.loads((ROOT / "tests" / "golden" / "findings" / "affine.json").read_text("utf-8"))
    for claim in CLAIMS:
        shown = re.search(r"^\| `affine` \| .\s(\w+) ", pages[claim.id], re.MULTILINE)
        assert (shown and shown[1]) == (record[claim.id]["verdict"] if claim.id in record else None)


def shows_its_battery(page, claim, kept):
    """A page counts each family and kind of trial, if the study has a battery."""
    assert ("## What its verdicts withstood" in page) == ("| was |" in page) == (kept is not None)
    if kept is None:
        return
    for row in kept.draws.to_dict("records"):
        if row["claim"] == claim.id:
            lines = page.replace("\\", "").splitlines()
            (line,) = (line for line in lines if line.startswith(f"| {row['construction']} |"))
            assert line.endswith(f"| {row['as expected']} of {row['draws']} |")
    trials = page.partition("## What its verdicts withstood")[2]
    for row in kept.claims.to_dict("records"):
        if row["claim"] == claim.id:
            assert f"| {row['verdicts']} | {row['decided']} | {row['wrong']} |" in trials


def test_a_page_shows_what_verdicts_withstood(pages):
    batteries = {study.name: battery.kept(study) for study in BUNDLED}
    assert batteries["heads"] is not None
    for claim in CLAIMS:
        shows_its_battery(pages[claim.id], claim, batteries[claim.study])
    (claim,) = (claim for claim in CLAIMS if claim.study == "heads")
    page = pages[claim.id]
    must_fail(
        shows_its_battery, page.replace("200 of 200", "199 of 200", 1), claim, batteries["heads"]
    )
    n_edits = batteries["heads"].claims["verdicts"][0]
    other = page.replace(f"| {n_edits} |", f"| {n_edits + 1} |")
    must_fail(shows_its_battery, other, claim, batteries["heads"])
    must_fail(shows_its_battery, page, claim, None)


def numbers(stored):
    """Numbers of a plotly figure as JSON: a list, or the bytes of an array."""
    if isinstance(stored, list):
        return stored
    return np.frombuffer(base64.b64decode(stored["bdata"]), stored["dtype"]).tolist()


def shows_its_power(page, claim, kept):
    """A page has a figure for each dial of the claim, if the study has power curves."""
    names = [name for name in (kept.tables if kept else ()) if DIALS[name].claim == claim.id]
    assert ("## Power" in page) == bool(names)
    figures = re.findall(r'<script type="application/json">(.+?)</script>', page)
    drawn = [json.loads(text)["figure"] for text in figures]
    assert [one["layout"]["xaxis"]["title"]["text"] for one in drawn] == names
    for name, one in zip(names, drawn, strict=True):
        (shares,) = [numbers(bar["y"]) for bar in one["data"] if "supported" in bar["name"]]
        assert shares == list(kept.tables[name]["supported"] / kept.tables[name]["draws"])


def test_a_page_shows_the_power_of_its_claim(pages):
    power = {study.name: curves.kept(study) for study in BUNDLED}
    assert power["heads"] is not None
    for claim in CLAIMS:
        shows_its_power(pages[claim.id], claim, power[claim.study])
    (claim,) = (claim for claim in CLAIMS if claim.study == "heads")
    must_fail(shows_its_power, pages[claim.id], claim, None)
    must_fail(shows_its_power, pages[claim.id].replace("## Power", ""), claim, power["heads"])
    (table,) = power["heads"].tables.values()
    turned = {name: table[::-1].reset_index(drop=True) for name in power["heads"].tables}
    must_fail(shows_its_power, pages[claim.id], claim, replace(power["heads"], tables=turned))


def leads_somewhere(path, text):
    """Links of a page that stands in the repository, as GitHub shows it."""
    links = re.findall(r"\]\((?!https?:|#)([^)\s#]+)", text)
    for link in links:
        assert (path.parent / link).exists(), f"{path}: {link}"
    return links


def test_links_lead_somewhere():
    for path in (
        *DOCS.rglob("*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    ):
        leads_somewhere(path, path.read_text("utf-8"))
    assert len(leads_somewhere(DOCS / "index.md", (DOCS / "index.md").read_text("utf-8"))) > 10
    must_fail(leads_somewhere, DOCS / "index.md", "[a](nowhere.md)")


def test_the_page_on_reports_names_every_key():
    text, data = (DOCS / "reference" / "report.md").read_text("utf-8"), report().to_dict()
    finding = next(f for f in data["findings"] if f["estimate"])
    keys = {*data, *finding, *finding["estimate"], *finding["criterion"]}

    def check(text):
        assert [key for key in keys if f"`{key}`" not in text] == []

    check(text)
    must_fail(check, text.replace("`kept`", ""))


@pytest.mark.slow
def test_the_page_on_reports_gets_their_numbers_from_probes():
    (block,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "reference" / "report.md").read_text("utf-8"), re.DOTALL
    )
    exec(compile(block, "report.md", "exec"), {})
    must_fail(exec, compile(block.replace("< 1e-9", "< 0"), "report.md", "exec"), {})


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_site_builds_without_a_warning_and_opens_without_a_network():
    from playwright import sync_api as sync  # slow to import

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in (
        ["docs/assemble.py", "build/docs/source"],
        [
            "-m",
            "sphinx",
            *("-c", "docs"),
            "-E",
            "-W",
            "--keep-going",
            "-q",
            "build/docs/source",
            "build/docs/html",
        ],
    ):
        run = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr[-3000:]
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):  # each was executed
        assert "cell_output" in (SITE / "html" / "tutorials" / f"{notebook.stem}.html").read_text(
            "utf-8"
        ), notebook
    asked, said = [], []
    with sync.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for page, mark in (
            ("tutorials/00_quickstart.html", ".plotly-figure .main-svg path"),
            ("tutorials/autoregression.html", "math msub"),
            (f"claims/{CLAIMS[0].id}.html", "blockquote"),
            ("reference/icl_interp.html", "dl.function"),
        ):
            tab = chromium.new_context(
                viewport={"width": 1400, "height": 1000}, offline=True
            ).new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto((SITE / "html" / page).as_uri())
            tab.locator(mark).first.wait_for(state="attached")
            for width in (1400, 480):
                tab.set_viewport_size({"width": width, "height": 1000})
                assert tab.evaluate(
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
        chromium.close()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith("file:")] == []
    assert said == []
