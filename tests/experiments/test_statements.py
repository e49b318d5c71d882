"""Statements: their first words come from a criterion.

What is no finding of the source is not counted.
"""

import json

import pytest
from helpers import must_fail

from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Precondition
from icl_interp.errors import InputError
from icl_interp.experiments import base, kept, statements
from icl_interp.experiments.base import Experiment
from icl_interp.experiments.statements import (
    AGREES,
    COUNTED,
    DIFFERS,
    FAILS,
    HOLDS,
    LEFT_OUT,
    MISPRINT,
    OPEN,
    UNSETTLED,
    Statement,
    at_least,
    at_most,
    note,
    statement,
)
from icl_interp.resampling import Interval

RATIO = at_most("error / error", 3, 10)
LEARNED = at_most("error / error", 3, 10, Precondition("R2", (0.9, 1.0), "But R² is {value:.2g}."))
INSIDE, BETWEEN, BEYOND = (
    Interval(2.0, 1.5, 2.5),
    Interval(3.0, 2.0, 4.0),
    Interval(20.0, 15.0, 30.0),
)
KEPT = [name for name in base.names() if kept.path(name)]


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("finding", (AGREES, OPEN, DIFFERS)),
        ("formula", (HOLDS, UNSETTLED, FAILS)),
        ("printed", (HOLDS, UNSETTLED, MISPRINT)),
    ],
)
def test_the_criterion_alone_decides_the_words(kind, words):
    def check(words):
        for found, word in zip((INSIDE, BETWEEN, BEYOND), words, strict=True):
            assert statement("it is so.", RATIO, found, kind=kind).sentence.startswith(
                f"{word}it is so. Rule: error"
            )

    check(words)
    must_fail(check, words[::-1])


def test_several_numbers_have_to_lie_in_one_region():
    assert statement("a", RATIO, INSIDE, 2.9).word == AGREES
    assert statement("a", RATIO, INSIDE, BEYOND).word == OPEN
    assert statement("a", RATIO, 11, BEYOND).word == DIFFERS
    assert statement("a", RATIO, float("nan")).word == OPEN


def test_no_free_prose_passes_for_a_decision():
    for word in statements.WORDS:
        with pytest.raises(InputError, match="come from its criterion"):
            note(f"{word}whatever")
        with pytest.raises(InputError, match="come from its criterion"):
            statement(f"{word}whatever", RATIO, BEYOND)
    with pytest.raises(InputError, match="note has no criterion"):
        Statement("a finding without a rule")
    with pytest.raises(InputError, match="note has no criterion"):
        Statement("a note with a rule", RATIO, kind="note")

    def forged(setup):
        return Experiment(
            "mine.table",
            "a table",
            "me",
            (),
            lambda setup: {},
            lambda results: (f"{AGREES}trust me.",),
        )

    with pytest.raises(InputError, match="come from its criterion"):
        forged(None).says({})
    plain = Experiment(
        "mine.table", "a table", "me", (), lambda setup: {}, lambda results: ("Nothing.",)
    )
    assert plain.says({}) == ("Nothing.",)


def test_what_a_precondition_leaves_out_is_not_counted():
    learned, poor = ({"R2": Estimate.exactly("R2", r2)} for r2 in (0.95, 0.42))
    ratio = {"error / error": Estimate.of("error / error", INSIDE)}
    assert Statement("a.", LEARNED, ratio | learned).word == AGREES
    out = Statement("a.", LEARNED, ratio | poor)
    rule = "Rule: error / error at most 3 agrees, at least 10 differs."
    assert out.sentence == f"{LEFT_OUT}a. But R² is 0.42. {rule}"
    assert LEFT_OUT not in COUNTED
    assert Statement("a.", LEARNED, ratio | poor, kind="printed").word == UNSETTLED
    assert statement("a.", LEARNED, INSIDE, given={"R2": 0.42}) == out


def test_nothing_is_decided_by_models_that_are_not_trained():
    for found in (INSIDE, BETWEEN, BEYOND):
        rule = {"error / error": Estimate.of("error / error", found)}
        assert Statement("a.", RATIO, rule, trained=False).word == OPEN
        assert (
            Statement("a.", RATIO, rule, "formula", trained=False).word != OPEN
        )  # needs no training
    assert note("a.").word == ""


# ---- rules ---------------------------------------------------------------------------------------


def test_rules_say_what_their_regions_are():
    def check(rule, agrees, differs, between=None):
        (condition,) = rule.conditions
        found = {v: condition.outcome(Estimate.exactly("x", v)) for v in (agrees, differs)}
        assert list(found.values()) == ["supported", "contradicted"]
        if between is not None:
            assert condition.outcome(Estimate.exactly("x", between)) == "inconclusive"

    check(at_most("x", 3), 2.9, 3.1)
    check(at_most("x", 3, 10), 3, 10, 5)
    check(at_least("x", 0.9, 0.5), 0.9, 0.5, 0.7)
    check(statements.none_of("x"), 0, 1)
    check(statements.share("x"), 0.8, 0.6, 0.7)
    must_fail(check, at_least("x", 0.9, 0.5), 0.7, 0.5)
    for rule, words in (
        (at_most("x", 3), "x at most 3 agrees, above 3 differs."),
        (at_least("x", 0.9, 0.5), "x at least 0.9 agrees, at most 0.5 differs."),
        (statements.share("x"), "x at least 80 % agrees, at most 60 % differs."),
    ):
        assert statement("a.", rule, 2.0).rule == words


def test_unclear_cells_count_both_ways():
    """86 of 129 in order, 34 in the opposite order and 9 unclear are mixed.

    They are neither most nor hardly any.
    """
    rule = statements.share("share")

    def check(agree, unclear, total, word):
        assert (
            statement("a.", rule, statements.share_of("share", agree, unclear, total)).word == word
        )

    check(86, 9, 129, OPEN)
    check(46, 0, 100, DIFFERS)
    check(29, 23, 100, DIFFERS)
    check(29, 32, 100, OPEN)
    check(90, 10, 100, AGREES)
    check(79, 21, 100, OPEN)
    must_fail(check, 86, 9, 129, AGREES)
    must_fail(check, 86, 9, 129, DIFFERS)


# ---- records -------------------------------------------------------------------------------------


def test_as_data_a_statement_tells_what_decided():
    both = Criterion(
        (Condition("a", "", (0, 1), (2, 3)), Condition("b", "", (0, 1), None)), terms="both"
    )
    one = Statement("it.", both, {key: Estimate.exactly(key, 0.5) for key in "ab"})
    data = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert (data["word"], data["kind"], data["decided by"]) == ("As in the paper", "finding", "a")
    assert data["sentence"] == one.sentence
    assert note("b.").to_dict()["criterion"] is None
    assert statement("a", RATIO, INSIDE).to_dict()["criterion"]["conditions"][0]["supports"] == [
        "-inf",
        3.0,
    ]


def decided_again(data):
    """The word in front of a stored statement, decided from its stored rule and evidence."""
    rule = data["criterion"]
    conditions = tuple(
        Condition(
            c["quantity"],
            "",
            _region(c["supports"]),
            c["contradicts"] and _region(c["contradicts"]),
        )
        for c in rule["conditions"]
    )
    asked = tuple(
        Precondition(p["quantity"], _region(p["holds"]), p["otherwise"])
        for p in rule["preconditions"]
    )
    evidence = {
        key: Estimate(
            e["name"],
            *(float(e[part]) for part in ("value", "low", "high")),
            e["unit"],
            float(e["se"]),
            tuple(map(_region, e["tails"])),
            e["positive"],
        )
        for key, e in data["evidence"].items()
    }
    return Statement(
        "a.", Criterion(conditions, asked, terms=rule["text"]), evidence, data["kind"]
    ).word


def _region(bounds):
    return tuple(map(float, bounds))


@pytest.mark.parametrize("name", KEPT)
def test_kept_statements_are_what_their_criteria_say(name):
    record = kept.record(name)
    assert [data["sentence"] for data in record["statements"]] == record["says"]

    def check(all_data):
        for data in all_data:
            word = decided_again(data) if data["criterion"] else ""
            assert data["sentence"].startswith(word)
            assert word.rstrip(": ") == data["word"]

    check(record["statements"])
    decided = [data for data in record["statements"] if data["criterion"]]
    if decided:
        out = {key: {**e, "low": "nan"} for key, e in decided[0]["evidence"].items()}
        must_fail(check, [{**decided[0], "evidence": out, "word": AGREES.rstrip(": ")}])


def test_counts_are_of_what_the_source_found():
    """Misprints, algebra and models that are left out are listed and not counted."""
    lines = [f"{word}a." for word in (AGREES, AGREES, DIFFERS, OPEN, MISPRINT, HOLDS, LEFT_OUT)] + [
        "A note."
    ]
    found = statements.counts(lines)
    assert [found[word] for word in COUNTED] == [2, 1, 1]
    record = kept.record("limits.appendix_g")["says"]  # algebra
    assert sum(statements.counts(record)[word] for word in COUNTED) == 0
    assert statements.counts(record)[MISPRINT] == 3


@pytest.mark.parametrize("key", ["sentence", "kind", "word"])
def test_a_record_with_broken_statements_is_refused(key):
    record = kept.record("limits.table4")
    broken = [{**record["statements"][0], key: 3}]
    with pytest.raises(InputError, match=key):
        kept.checked({**record, "statements": broken}, "results.json")
    with pytest.raises(InputError, match="statements"):
        kept.checked({**record, "statements": "x"}, "results.json")
    assert kept.checked({**record, "statements": None}, "results.json")  # of an earlier version
