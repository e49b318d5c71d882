"""Untrained twins beside a model: most of three decide what training, or the design, made."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from beartype import beartype
from helpers import must_fail
from known import facts

from icl_interp.analyses.claim import Claim, Evidence, asked_once
from icl_interp.analyses.controls import measure
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.lab import Lab, Twins
from icl_interp.analyses.measurement import TWINS, Results, measurement
from icl_interp.results import make_array

RULE = Criterion("at most 0.1 / above 0.2", (Condition("size", (-INF, 0.1), (0.2, INF)),))
LOW, OPEN, HIGH = 0.05, 0.15, 0.5


@measurement("test/size")
def size(lab):
    raise AssertionError("nothing is measured here")


def evidence(results: Results, known: object) -> Evidence:
    own, twin = (
        {"size": Estimate.exactly("size", r[size].item())} for r in (results, results.twin)
    )
    return Evidence(own, "measured.", twin=twin)


LEARNING = Claim(
    "test.size", "learning", "sizes are small", "a source", RULE, (size,), evidence, twin=(size,)
)
DESIGN = replace(LEARNING, kind="architecture", twins_agree=True)


def results(own: float, *twins: float) -> Results:
    """What a report stores: the model's result, and one of each twin."""
    names = ["", *TWINS[: len(twins)]]
    return Results(
        {
            name + size.name: make_array([v], {"one": ("it",)})
            for name, v in zip(names, (own, *twins), strict=True)
        }
    )


def verdict(claim: Claim, own: float, *twins: float) -> str:
    return claim.judge_results(results(own, *twins), facts()).verdict


def check_majority(judge):
    """What most twins do as well was not learned; which of them they are is all one."""
    for twins in itertools.product((LOW, OPEN, HIGH), repeat=3):
        passing = sum(twin == LOW for twin in twins)
        assert judge(LEARNING, LOW, *twins) == ("inconclusive" if passing >= 2 else "supported"), (
            twins
        )
        opposite = sum(twin == HIGH for twin in twins)
        assert judge(DESIGN, LOW, *twins) == ("inconclusive" if opposite >= 2 else "supported"), (
            twins
        )
        assert judge(DESIGN, HIGH, *twins) == (
            "inconclusive" if passing >= 2 else "contradicted"
        ), twins


def test_most_twins_decide():
    check_majority(verdict)
    must_fail(check_majority, lambda claim, own, *twins: verdict(claim, own, twins[0]))
    must_fail(
        check_majority,
        lambda claim, own, *twins: verdict(claim, own, min(twins), min(twins), min(twins)),
    )
    must_fail(
        check_majority,
        lambda claim, own, *twins: verdict(replace(claim, kind="architecture"), own, *twins),
    )
    must_fail(
        check_majority,
        lambda claim, own, *twins: verdict(replace(claim, twins_agree=False), own, *twins),
    )


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


class Bench(Lab):
    """Stands in for a lab whose twins' results are known; it remembers which were asked for."""

    def __init__(self, own: float, twins: Sequence[float]) -> None:
        self.known, self.asked = results(own, *twins), [""]
        self.twins = [SimpleNamespace(measure_all=partial(self.ask, prefix)) for prefix in TWINS]

    def measure_all(self, measurements, watch):
        assert [m.name for m in measurements] == [size.name]
        return {}

    def ask(self, prefix, measurements, watch):
        assert [m.name for m in measurements] == [size.name]
        self.asked.append(prefix)
        return {}

    @property
    def results(self):
        return Results(
            {prefix + size.name: self.known[prefix + size.name] for prefix in self.asked}
        )


def as_measured(claim: Claim, own: float, *twins: float) -> str:
    """The verdict from what is measured, one twin after another."""
    bench = Bench(own, twins)
    assert measure(bench, [claim], facts()) == {}
    return claim.judge_results(bench.results, facts()).verdict


def check_same_as_with_all(judge):
    for claim, own in itertools.product(
        (LEARNING, DESIGN, replace(DESIGN, twins_agree=False)), (LOW, OPEN, HIGH)
    ):
        for twins in itertools.product((LOW, OPEN, HIGH), repeat=3):
            assert judge(claim, own, *twins) == verdict(claim, own, *twins), (
                claim.kind,
                own,
                twins,
            )


def test_what_is_measured_of_twins():
    check_needs(lambda claim: set(claim.needs))
    must_fail(check_needs, lambda claim: set(LEARNING.needs))
    must_fail(check_needs, lambda claim: set(replace(claim, kind="architecture").needs))


def test_twins_that_are_not_measured_would_change_no_verdict():
    check_same_as_with_all(as_measured)
    must_fail(check_same_as_with_all, lambda claim, own, *twins: verdict(claim, own, twins[0]))
    must_fail(check_same_as_with_all, lambda claim, own, *twins: verdict(claim, own, *twins[:2]))


def n_twins(claim: Claim, own: float, *twins: float, known=None) -> int:
    bench = Bench(own, twins)
    measure(bench, [claim], known or facts())
    return len(bench.asked) - 1


def test_twins_are_measured_as_far_as_they_decide():
    assert (
        n_twins(LEARNING, LOW, HIGH, HIGH, LOW) == 2
    )  # two of three do not pass: the third is all one
    assert n_twins(LEARNING, LOW, LOW, LOW, HIGH) == 2
    assert (
        n_twins(LEARNING, LOW, LOW, HIGH, HIGH) == n_twins(DESIGN, LOW, HIGH, LOW, LOW) == 3
    )  # the first two differ
    assert n_twins(LEARNING, HIGH, LOW, LOW, LOW) == 1  # contradicted whatever they show
    assert n_twins(LEARNING, LOW, LOW, LOW, LOW, known=facts(r2=0.5)) == 1  # it has not learned
    assert n_twins(LEARNING, LOW, LOW, LOW, LOW, known=facts(n_units=8)) == 1
    assert n_twins(replace(DESIGN, twins_agree=False), LOW, LOW, LOW, LOW) == 1
    assert n_twins(replace(LEARNING, twin=()), LOW, LOW, LOW, LOW) == 0


def test_a_claim_that_fails_asks_for_no_further_twins():
    def broken(results, known):
        raise ValueError("no")

    assert n_twins(replace(LEARNING, evidence=broken), LOW, LOW, LOW, LOW) == 1


def untrained(seed: int) -> Lab:
    """Stands in for the lab of a twin."""
    lab = object.__new__(Lab)
    lab.seed = seed
    return lab


def test_twins_are_made_when_they_are_asked_for():
    twins = Twins(untrained)
    assert not twins.made
    assert twins[2] is twins[2]
    assert list(twins.made) == [2]
    assert [twin.seed for twin in twins] == [1, 2, 3]
    with pytest.raises(IndexError):
        twins[3]


def test_a_check_of_types_makes_no_twin():
    lab = SimpleNamespace(twins=Twins(untrained))

    @beartype
    def read(lab) -> Twins:
        return lab.twins

    assert not read(lab).made


def counted(claim: Claim) -> tuple[Claim, list[object]]:
    """A claim that is asked once, and what its own evidence was asked."""
    calls: list[object] = []

    def asked(stored: Results, known: object) -> Evidence:
        calls.append(known)
        return evidence(stored, known)

    return asked_once(replace(claim, evidence=asked)), calls


def test_evidence_is_found_once_for_the_same_results():
    claim, calls = counted(DESIGN)
    stored = results(LOW, HIGH)
    assert claim.needs_another_twin(stored, facts())
    further = Results(
        {**stored, **{TWINS[i] + size.name: make_array([LOW], {"one": ("it",)}) for i in (1, 2)}}
    )
    finding = claim.finding(further, facts())
    assert finding == DESIGN.finding(further, facts())
    assert len(calls) == 3  # of the model and each further twin: the first was asked before


def check_asked_anew(once):
    """Another result of the model or of the first twin, another fact: another answer."""
    stored = results(LOW, LOW)
    claim = once(DESIGN)
    assert claim.finding(stored, facts()).verdict == "supported"
    for other in (results(HIGH, LOW), results(LOW, HIGH)):
        assert claim.finding(other, facts()) == DESIGN.finding(other, facts())
    short = replace(facts(), n_units=4)
    assert claim.finding(stored, short) == DESIGN.finding(stored, short)


def test_other_results_and_facts_are_asked_about_anew():
    check_asked_anew(asked_once)
    claim, calls = counted(DESIGN)
    for _ in range(3):
        claim.finding(results(LOW, HIGH), facts())
    assert len(calls) == 3  # equal numbers, but not the same objects
    stored = results(LOW, HIGH)
    for n_units in (64, 128, 64):
        claim.finding(stored, replace(facts(), n_units=n_units))
    assert len(calls) == 5  # other facts
    claim.finding(Results({**stored, "another": make_array(1.0, {})}), replace(facts(), n_units=64))
    assert len(calls) == 6  # a result more
    must_fail(
        check_asked_anew,
        lambda claim: replace(claim, evidence=lambda *_: evidence(results(LOW, LOW), None)),
    )
