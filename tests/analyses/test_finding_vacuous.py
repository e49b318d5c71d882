"""A verdict that is true of every network of a kind is marked, and named after the others."""

from dataclasses import replace

import pytest
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, at_least, at_most
from icl_interp.analyses.finding import Finding
from icl_interp.console import console
from icl_interp.report import terminal, words

RULE = Criterion((Condition("error", "error", at_most(1.0), at_least(2.0)),))


def judged(error, by_algebra):
    claim = Claim(
        id="own.claim",
        kind="architecture",
        statement="Its error is small.",
        denied="Its error is large.",
        criterion=RULE,
        measurements=(),
        evidence=lambda results, known: {"error": error},
        remarks=lambda results, known, found: Remarks(by_algebra=by_algebra),
    )
    return claim.judge_results({}, facts(n_units=64))


@pytest.mark.parametrize(
    ("error", "by_algebra", "vacuous"),
    [
        (0.5, "its weights are 0", True),
        (3.0, "its weights are 0", True),
        (1.5, "its weights are 0", False),  # what is open is true of no kind
        (0.5, "", False),
    ],
)
def test_a_decided_verdict_by_algebra_is_vacuous(error, by_algebra, vacuous):
    finding = judged(error, by_algebra)

    def check(found):
        assert found.vacuous is vacuous
        assert found.reason.startswith("By algebra") is vacuous

    check(finding)
    must_fail(check, replace(finding, vacuous=not vacuous))
    stored = finding.to_dict()
    assert Finding.from_dict(stored).vacuous is vacuous
    del stored["vacuous"]  # as an older report has it
    assert Finding.from_dict(stored).vacuous is False


def test_the_answer_names_such_verdicts_last():
    findings = []
    for name in ("first", "second", "third", "fourth"):
        statement = f"The {name} thing holds for {name} reasons."
        one = replace(judged(0.5, ""), id=f"own.{name}", statement=statement, firm=False)
        findings.append(one)
    marked = replace(findings[0], firm=True, vacuous=True)

    def names_it(first):
        assert first in words.answered([first, *findings[1:]])

    names_it(replace(marked, vacuous=False))
    must_fail(names_it, marked)
    assert words.answered([marked]) == [marked]


def test_a_terminal_says_it_in_the_row_and_counts_it():
    marked, other = judged(0.5, "its weights are 0"), judged(0.5, "")
    shown = console(100)
    with shown.capture() as capture:
        shown.print(terminal._lines([marked]), terminal._counts([marked, other]))
    text = " ".join(capture.get().split())
    assert "by algebra, true of every network" in text
    assert "2 claims: 2 supported (1 of these by algebra)" in text
