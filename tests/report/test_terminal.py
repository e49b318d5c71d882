"""What the terminal shows of a report, and of one claim."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import small_reports
from helpers import must_fail

from icl_interp import cli
from icl_interp.analyses import registry
from icl_interp.analyses.claim import QUESTIONS
from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.analyses.finding import Finding
from icl_interp.console import console
from icl_interp.report import terminal

WIDE = 1000  # so wide that each claim has a line


def printed(capsys, report, width=WIDE, verbose=False) -> str:
    console(width=width).print(terminal.screen(report, verbose))
    return capsys.readouterr().out


def row_of(text: str, finding: Finding) -> str:
    """The line of a claim in its table; the answer at the top may name it, too."""
    return next(
        line
        for line in text.splitlines()
        if finding.short in line and not line.startswith("Supported")
    )


def check_number(text: str, finding: Finding) -> None:
    """The line of a claim shows the quantity that the criterion read."""
    assert finding.test is not None
    line = row_of(text, finding)
    assert terminal.measured(finding.test) in line


def test_a_line_shows_what_decided(capsys):
    """Saturation is judged by the change of f per decade; its estimate is the plateau."""
    report = small_reports.report()
    finding = report["limits.layernorm_saturation"]
    assert finding.test
    assert finding.estimate
    assert finding.test.name != finding.estimate.name
    check_number(printed(capsys, report), finding)
    report.findings = [replace(f, test=None) for f in report.findings]
    must_fail(check_number, printed(capsys, report), finding)


def check_needs(text: str, finding: Finding, shown: bool) -> None:
    """What is needed stands beside the number that decides, and beside no other."""
    line = row_of(text, finding)
    assert ("supported: " in line) == shown


@pytest.mark.slow
def test_what_is_needed_stands_beside_what_decides_only(capsys):
    report = small_reports.report()
    finding = report["limits.layernorm_saturation"]
    check_needs(printed(capsys, report), finding, shown=True)
    verbose = printed(capsys, report, verbose=True)
    report.findings = [replace(f, test=None) for f in report.findings]
    check_needs(printed(capsys, report), finding, shown=False)
    must_fail(check_needs, printed(capsys, report), finding, shown=True)
    # Reasons say it too, so what stands beside numbers is what is more.
    without = printed(capsys, report, verbose=True)
    assert verbose.count("(supported: ") > without.count("(supported: ")


def check_note(text: str, data: dict) -> None:
    header = text.splitlines()[1:4]
    assert header[2] == data["note"] == "constant output: [red] r = 0"


def test_the_note_of_a_checkpoint_stands_under_the_header_and_in_the_data(capsys):
    report = small_reports.report()
    must_fail(check_note, printed(capsys, report), {"note": "constant output: [red] r = 0"})
    assert set(terminal.as_data(report)) == {"name", "findings"}
    report.checkpoint["note"] = "constant output: [red] r = 0"
    check_note(printed(capsys, report), terminal.as_data(report))


def test_under_noise_the_best_reference_is_named(capsys):
    report = small_reports.report()
    report.model["in_distribution"]["best ridge"] = 0.125
    assert "best ridge 0.12" in printed(capsys, report).splitlines()[2]


def check_one_screen(text: str, report) -> None:
    lines = text.splitlines()
    # At a width where no line is broken; an open claim has a second one, with the reason.
    n_open = sum(f.verdict == "inconclusive" for f in report.findings)
    assert len(lines) <= 50 + n_open
    applying = [f for f in report.findings if f.verdict != "not_applicable"]
    for f in applying:
        assert sum(f.short in line for line in lines) >= 1
    studies = {f.study for f in report.findings if f.verdict == "not_applicable"}
    left_out = [line for line in lines if line.startswith("– ")]
    named = [line.removeprefix("– ").partition(":")[0] for line in left_out]
    assert sorted(", ".join(named).split(", ")) == sorted(studies)
    told = []
    for line, names in zip(left_out, named, strict=True):
        mine = [f for f in report.findings if f.study in names.split(", ")]
        reasons = [f.reason for f in mine if f.verdict == "not_applicable"]
        (most,) = {reason for reason in reasons if f"not apply: {reason}" in line}
        others = len(reasons) - reasons.count(most)
        assert (f"; {others} for other reasons" in line) == bool(others)
        told.append(most)
    assert len(set(told)) == len(told)  # each reason stands once
    headings = [line for line in lines if line in QUESTIONS]
    assert headings == [q for q in QUESTIONS if any(f.question == q for f in applying)]


def test_a_report_is_one_screen_and_verbose_shows_reasons(capsys):
    report = small_reports.report()
    short, long = printed(capsys, report), printed(capsys, report, verbose=True)
    check_one_screen(short, report)
    must_fail(check_one_screen, long, report)
    words = " ".join(long.split())
    for f in report.findings:
        assert f.id in long
        assert " ".join(f.reason.split()) in words
    assert "several heads" not in short


def test_without_features_there_is_no_least_squares_to_print(capsys):
    report = small_reports.report()
    assert "least squares" in printed(capsys, report).splitlines()[2]
    report.model["in_distribution"].pop("least squares")
    assert "least squares" not in printed(capsys, report).splitlines()[2]


def test_names_are_never_markup(capsys):
    report = small_reports.report()
    report.checkpoint["name"] = "[red]"
    assert "[red]: 2 x" in printed(capsys, report)


def verdicts(*given):
    """Findings of these (question, verdict, firm), called c0, c1, ..."""
    one = small_reports.report().findings[0]
    return [
        replace(one, question=question, verdict=verdict, firm=firm, short=f"c{i}.")
        for i, (question, verdict, firm) in enumerate(given)
    ]


def check_answer(answer):
    attention, far, other = "attention", "far from the data", "algorithm"
    assert answer([]) == "No claim was decided."
    found = verdicts(
        (attention, "supported", None),
        (attention, "supported", True),
        (far, "contradicted", True),
        (other, "supported", True),
        (far, "supported", True),
        (far, "supported", True),
        (far, "inconclusive", None),
    )
    # Firm ones first, one of each question, in the order of the questions.
    assert answer(found) == "Supported: c4; c1; c3. Contradicted: c2."
    assert answer(found[:1]) == "Supported: c0."
    assert answer(found[-1:]) == "No claim was decided."


def test_the_answer_names_firm_verdicts_of_several_questions():
    check_answer(terminal.answer)
    must_fail(check_answer, lambda found: terminal.answer([f for f in found if f.short != "c1."]))


def test_the_answer_says_nearly_the_same_once():
    found = verdicts(*[("algorithm", "supported", True)] * 3)
    sentences = (
        "LayerNorm makes the prediction level off.",
        "LayerNorm causes the prediction to level off far out.",
        "Errors grow with the range.",
    )
    said = terminal.answer([replace(f, short=s) for f, s in zip(found, sentences, strict=True)])
    assert (
        said == "Supported: LayerNorm makes the prediction level off; Errors grow with the range."
    )


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate("e", 0.5, 0.25, 0.75), "0.5 [0.25, 0.75]"),
        (Estimate("e", 0.5, 0.5, 0.5, "share"), "50 %"),
        (Estimate("e", 2.0, 1.0, 3.0, "log10"), "x100 [x10, x1e3]"),
        (Estimate("e", math.log(2), 0.0, math.log(4), "ln"), "x2 [x1, x4]"),
    ],
)
def test_numbers_stand_in_natural_units(estimate, text):
    assert terminal.measured(estimate) == text


@pytest.mark.parametrize(
    ("region", "unit", "text"),
    [
        ((-math.inf, 0.05), "", "at most 0.05"),
        ((0.0, 0.05), "", "at most 0.05"),
        ((0.9, math.inf), "", "at least 0.9"),
        ((0.9, 1.0), "", "at least 0.9"),
        ((1.8, 2.2), "", "1.8 to 2.2"),
        ((-math.inf, math.log10(3)), "log10", "at most x3"),
    ],
)
def test_what_is_needed_in_words(region, unit, text):
    assert terminal.needed(Condition("q", "", region, None), unit) == text
    both = terminal.needed(Condition("q", "", region, (5.0, math.inf)))
    assert both.endswith("; contradicted: at least 5")


def test_explain_gives_thresholds_in_natural_units(capsys):
    """The plateau is to begin within ten times the training range: stored is the logarithm, 1."""
    console(width=WIDE).print(terminal.claim(registry.REGISTRY["limits.boundary_immediate"]))
    shown = capsys.readouterr().out
    assert "onset: at most x10; contradicted: at least x100" in shown


def test_explain_says_all_of_every_claim(capsys):
    for claim in registry.REGISTRY.values():
        console().print(terminal.claim(claim))
        words = " ".join(capsys.readouterr().out.split())
        texts = [
            claim.id,
            claim.denied,
            claim.statement,
            *(c.quantity for c in claim.criterion.conditions),
        ]
        if claim.quote:
            texts += [claim.quote.text, claim.quote.place]
        for text in texts:
            assert " ".join(text.split()) in words, claim.id


def explained(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["icl-interp", "explain", *map(str, arguments)])
    try:
        cli.main()
        status = 0
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


@pytest.mark.slow
def test_explain_shows_the_result_of_a_report(monkeypatch, capsys, tmp_path):
    report = small_reports.report()
    report.save(tmp_path, ("json",))
    status, out, _ = explained(monkeypatch, capsys, "limits.layernorm_saturation", tmp_path)
    assert status in (0, None)
    finding = report["limits.layernorm_saturation"]
    assert " ".join(finding.reason.split()) in " ".join(out.split())
    status, alone, _ = explained(monkeypatch, capsys, "limits.layernorm_saturation")
    assert "result" not in alone
    for arguments, said in (
        (("limits.layernorm_saturatio",), "did you mean 'limits.layernorm_saturation'?"),
        (("limits.layernorm_saturation", tmp_path / "none"), "none"),
    ):
        status, out, error = explained(monkeypatch, capsys, *arguments)
        assert status == 2
        assert said in error
        assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_json_is_all_that_standard_output_holds(monkeypatch, capsys, tmp_path):
    report = small_reports.report()
    monkeypatch.setattr("icl_interp.pipeline.analyze", lambda *args, **settings: report)
    arguments = ["analyze", "affine", "--json", "--out", str(tmp_path), "--format", "json"]
    monkeypatch.setattr(sys, "argv", ["icl-interp", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    out, error = capsys.readouterr()
    found = [Finding.from_dict(one) for one in json.loads(out)["findings"]]
    assert [f.id for f in found] == [f.id for f in report.findings]
    assert "report.json" in error


@pytest.mark.slow
def test_a_wrong_id_is_refused_in_one_line():
    """A wrong id is refused by a process of its own with status 2 and one line."""
    done = subprocess.run(
        [sys.executable, "-m", "icl_interp", "explain", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_verdicts_that_hold_by_algebra_are_counted_with_their_own():
    one = small_reports.report()["limits.layernorm_saturation"]
    found = [
        replace(one, verdict="supported", vacuous=True),
        replace(one, verdict="supported", vacuous=False),
        replace(one, verdict="inconclusive", vacuous=False),
    ]
    said = terminal._counts(found).plain.strip()
    assert said == "3 claims: 2 supported (1 of these by algebra), 1 open"
