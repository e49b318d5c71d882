"""Three untrained twins beside a model: most of them decide what training, or the design, made."""

import itertools
from dataclasses import replace

import pytest
from helpers import must_fail
from known import facts

from icl_interp.analyses.claim import Claim, Evidence, of_twins
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.measurement import TWINS, Results, measurement
from icl_interp.results import make_array

RULE = Criterion("at most 0.1 / above 0.2", (Condition("size", (-INF, 0.1), (0.2, INF)),))
LOW, OPEN, HIGH = 0.05, 0.15, 0.5


@measurement("test/size")
def size(lab):
    raise AssertionError("nothing is measured here")


def evidence(results: Results, known: object) -> Evidence:
    own, twin = ({"size": Estimate.exactly("size", r[size].item())} for r in (results, results.twin))
    return Evidence(own, "measured.", twin=twin)


LEARNING = Claim("test.size", "learning", "sizes are small", "a source", RULE, (size,), evidence, twin=(size,))
DESIGN = replace(LEARNING, kind="architecture", twins_agree=True)


def results(own: float, *twins: float) -> Results:
    """What a report stores: the model's result, and one of each twin."""
    names = ["", *TWINS[: len(twins)]]
    return Results(
        {name + size.name: make_array([v], {"one": ("it",)}) for name, v in zip(names, (own, *twins), strict=True)}
    )


def verdict(claim: Claim, own: float, *twins: float) -> str:
    return claim.judge_results(results(own, *twins), facts()).verdict


def check_majority(judge):
    """What most twins do as well was not learned; which of them they are is all one."""
    for twins in itertools.product((LOW, OPEN, HIGH), repeat=3):
        passing = sum(twin == LOW for twin in twins)
        assert judge(LEARNING, LOW, *twins) == ("inconclusive" if passing >= 2 else "supported"), twins
        opposite = sum(twin == HIGH for twin in twins)
        assert judge(DESIGN, LOW, *twins) == ("inconclusive" if opposite >= 2 else "supported"), twins
        assert judge(DESIGN, HIGH, *twins) == ("inconclusive" if passing >= 2 else "contradicted"), twins


def test_most_twins_decide():
    check_majority(verdict)
    must_fail(check_majority, lambda claim, own, *twins: verdict(claim, own, twins[0]))
    must_fail(check_majority, lambda claim, own, *twins: verdict(claim, own, min(twins), min(twins), min(twins)))
    must_fail(check_majority, lambda claim, own, *twins: verdict(replace(claim, kind="architecture"), own, *twins))
    must_fail(check_majority, lambda claim, own, *twins: verdict(replace(claim, twins_agree=False), own, *twins))


@pytest.mark.parametrize("twins", [(LOW,) * 3, (HIGH,) * 3])
def test_twins_decide_nothing_else(twins):
    assert verdict(LEARNING, HIGH, *twins) == "contradicted"
    assert verdict(replace(DESIGN, twins_agree=False), LOW, *twins) == "supported"


def test_a_report_from_before_there_were_three_has_one_twin():
    assert verdict(LEARNING, LOW, LOW) == "inconclusive"
    assert verdict(LEARNING, LOW, HIGH) == "supported"


def test_results_by_twin():
    stored = results(1.0, 2.0, 3.0, 4.0)
    assert [r.twin[size].item() for r in stored.by_twin] == [2.0, 3.0, 4.0]
    assert [r[size].item() for r in stored.by_twin] == [1.0] * 3
    assert [sorted(r) for r in stored.by_twin] == [["test/size", "twin/test/size"]] * 3
    assert results(1.0).by_twin == []


def check_needs(needs):
    """Where twins decide, all are measured; beside another architecture claim one is shown."""
    all_of_them = {"test/size", *(twin + "test/size" for twin in TWINS)}
    assert needs(LEARNING) == needs(DESIGN) == all_of_them
    assert needs(replace(DESIGN, twins_agree=False)) == {"test/size", "twin/test/size"}


def enumerated(of_each):
    """What is asked of each twin, with the prefix of its results."""
    return zip(TWINS, of_each, strict=False)


def test_what_is_measured_of_twins():
    check_needs(lambda claim: set(claim.needs))
    check_needs(lambda claim: {"test/size", *(t + n for t, asked in enumerated(of_twins([claim])) for n in asked)})
    must_fail(check_needs, lambda claim: set(LEARNING.needs))
    must_fail(check_needs, lambda claim: set(replace(claim, kind="architecture").needs))
    assert of_twins([replace(LEARNING, twin=())]) == []
