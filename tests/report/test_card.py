"""The model card of a report: Markdown that shows every verdict, whatever texts a report holds."""

import re
from dataclasses import replace

import pytest
import yaml
from helpers import must_fail
from small_reports import report

import icl_interp
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.report import card
from icl_interp.report.words import MARKS

NASTY = "a|b\n\n## c <script> [d](e) *f* `g`"


def rows_of(text: str) -> list[list[str]]:
    """The cells of all table rows that are verdicts."""
    cells = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")
    ]
    return [row for row in cells if row[0].strip() in {mark for mark, _ in MARKS.values()}]


def check_card(text: str, findings) -> None:
    shown = [f for f in findings if f.verdict != "not_applicable"]
    rows = rows_of(text)
    assert len(rows) == len(shown)
    assert {len(row) for row in rows} == {4}
    for f in shown:
        [row] = [row for row in rows if f"({card.plain(f.id)})" in row[1]]
        assert row[0].strip() == MARKS[f.verdict][0]
    assert f"{len(findings) - len(shown)} of {len(findings)} claims" in text
    _, head, rest = text.split("---\n", 2)
    assert yaml.safe_load(head)["library_name"] == "icl_interp"
    assert len(re.findall("^#", rest, re.MULTILINE)) == len(
        re.findall("^#{1,3} [A-Za-z]", rest, re.MULTILINE)
    )


def test_every_verdict_has_a_row():
    found = report()
    check_card(found.to_markdown(), found.findings)
    others = [replace(f, verdict="inconclusive") for f in found.findings]
    must_fail(check_card, found.to_markdown(), others)


def nasty():
    found = report()
    name, *rest = found.findings
    return replace(
        found,
        checkpoint={**found.checkpoint, "name": NASTY},
        findings=[replace(name, short=NASTY), *rest],
    )


def test_texts_of_a_report_are_no_markup(monkeypatch):
    found = nasty()
    check_card(found.to_markdown(), found.findings)
    title = next(line for line in found.to_markdown().splitlines() if line.startswith("# "))
    assert "<" not in re.sub(r"\\.", "", title)
    with monkeypatch.context() as patch:
        patch.setattr(card, "plain", str)
        must_fail(check_card, nasty().to_markdown(), found.findings)


def test_it_is_written_beside_the_weights(tmp_path):
    checkpoint = icl_interp.load("affine")
    folder = checkpoint.save_pretrained(tmp_path / "mine", "# a card\n")
    assert (folder / "README.md").read_text() == "# a card\n"
    again = Checkpoint.from_pretrained(folder)
    assert again.config == checkpoint.config
    for name, weight in checkpoint.model.state_dict().items():
        assert weight.equal(again.model.state_dict()[name]), name
    checkpoint.save_pretrained(folder)
    assert (folder / "README.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize("formats", [("md",), ("json", "md")])
def test_it_is_a_format_of_reports(tmp_path, formats):
    found = report()
    found.save(tmp_path, formats)
    assert (tmp_path / "model_card.md").read_text() == found.to_markdown()
    assert (tmp_path / "report.json").exists() == ("json" in formats)
