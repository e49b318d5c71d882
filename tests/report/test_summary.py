"""What a report says of its model in a few sentences, and why a claim is open."""

import re
from dataclasses import replace

import numpy as np
import pytest
import small_reports
from helpers import must_fail

from icl_interp.analyses import mechanism, relevance
from icl_interp.analyses.criterion import Condition, Estimate, at_least, at_most
from icl_interp.analyses.measurement import Results
from icl_interp.figures.text import number
from icl_interp.report.summary import looks, summary
from icl_interp.report.words import OPEN, thresholds, why_open
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements import boundary

RULE = Condition("share", "share of heads", at_least(0.9, 1.0), at_most(0.5, 0.0), "share")


def check_numbers(report, said):
    """Each sentence holds the number that its measurement gave."""
    assert f"{100 * report.model['r2']:.0f} %" in said
    effects = relevance.effects(report.results, report.facts)
    sure = [name for name, effect in effects.items() if effect.role == "yes"]
    # Those that matter stand in the order of how much they do.
    named = [name for name in re.findall(r"\b\d+\.\d+\b", said) if name in sure]
    each = relevance.without_each(report.results[relevance.relevance], report.facts.has_learned)
    assert named[0] == max(sure, key=each.__getitem__)
    assert number(each[named[0]]) in said
    rows = report.results[boundary.boundary]
    upward = rows[rows["direction"] == "+"].set_index("quantity")["value"]
    level, onset = number(upward["level"]), number(upward["onset"])
    assert f"level at {level} from x = {onset} on" in said


@pytest.mark.slow
def test_sentences_hold_the_numbers_that_they_rest_on():
    report = small_reports.report()
    assert 2 <= len(report.summary) <= 4
    check_numbers(report, " ".join(report.summary))
    assert report.to_dict()["summary"] == report.summary
    other = replace(report, model={**report.model, "r2": report.model["r2"] + 0.05})
    assert other.summary != report.summary
    must_fail(check_numbers, report, " ".join(report.summary[1:]))
    must_fail(check_numbers, report, " ".join(report.summary[:-1]))


def roles(**scores):
    """Results with one role a head: score, and an interval of .1 on both sides of it."""
    names = ["labels", "previous token", "position only"]
    values = np.zeros((4, len(scores), len(names)))
    for place, (name, score) in enumerate(scores.values()):
        role = names.index(name)
        values[:3, place, role] = score, score - 0.1, score + 0.1
    axes = {"statistic": mechanism.SCORES, "head": list(scores), "role": names}
    return {mechanism.roles.name: make_array(values, axes)}


def test_heads_with_a_clear_role_are_said_to_have_it():
    """Its whole interval is above one half; where a head looks by position is no role here."""
    results = Results(
        roles(
            **{
                "0.0": ("labels", 0.9),
                "0.1": ("labels", 0.75),
                "1.0": ("previous token", 0.55),
                "1.1": ("position only", 0.9),
                "1.2": ("previous token", -0.9),
            }
        )
    )
    said = looks(results, ["0.1", "0.0", "1.0", "1.1", "1.2"])
    assert said == (
        "; in 0.1 and 0.0 the query looks at labels (scores from 0.75; 0 is chance, 1 the most)"
    )
    clearer = Results(roles(**{"1.0": ("previous token", 0.65)}))
    assert "in 1.0 a token looks at the one before it (score 0.65" in looks(clearer, ["1.0"])
    assert looks(Results({}), ["0.0"]) == ""


def test_what_was_not_measured_is_not_said():
    report = small_reports.report()
    assert len(summary(report.model, type(report.results)({}))) == 1
    assert summary({}, report.results) == []


def test_a_damaged_result_costs_its_sentence_only(caplog):
    report = small_reports.report()
    spoiled = dict(report.results)
    spoiled[boundary.boundary.name] = spoiled[boundary.boundary.name].drop(columns="value")
    said = summary(report.model, type(report.results)(spoiled))
    assert len(said) == len(report.summary) - 1
    assert "cannot be made" in caplog.text


def finding(low, high, reason=f"{OPEN} it is so. Share of heads: 0.7."):
    any_one = small_reports.report()["limits.layernorm_saturation"]
    number = Estimate("share of heads", (low + high) / 2, low, high, "share")
    changes = {"test": number, "decided_by": RULE, "verdict": "inconclusive", "reason": reason}
    return replace(any_one, **changes)


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        (0.6, 0.8, "it lies between the thresholds"),
        (0.4, 0.95, "its interval reaches from one threshold to the other"),
        (0.4, 0.6, "its interval lies across a threshold"),
        (0.8, 0.95, "its interval lies across a threshold"),
        (np.nan, np.nan, "the number is not known"),
    ],
)
def test_an_interval_tells_why_a_claim_is_open(low, high, why):
    assert why_open(finding(low, high)) == why


def test_what_came_before_the_number_is_the_reason():
    failed = finding(0.95, 0.99, "The control edit moves it. So it cannot be told.")
    assert why_open(failed) == "the control edit moves it"
    own = finding(0.6, 0.8, f"{OPEN} it is so. No seeds were compared. Share of heads: 0.7.")
    assert why_open(own) == "no seeds were compared"
    assert why_open(replace(failed, verdict="supported")) == ""


def test_both_thresholds_stand_in_natural_units():
    assert thresholds(RULE, "share") == "supported: at least 90 %, contradicted: at most 50 %"
