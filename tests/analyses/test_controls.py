"""Untrained controls beside a model: most of three decide what training, or the design, made."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from beartype import beartype
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.claim import Claim, Evidence, asked_once
from icl_interp.analyses.controls import measure
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.lab import Controls, Lab
from icl_interp.analyses.measurement import CONTROLS, Results, measurement
from icl_interp.results import make_array

RULE = Criterion((Condition("size", "", (-INF, 0.1), (0.2, INF)),), terms="at most 0.1 / above 0.2")
LOW, OPEN, HIGH = 0.05, 0.15, 0.5


@measurement("test/size")
def size(lab):
    raise AssertionError("nothing is measured here")


def evidence(results: Results, known: object) -> Evidence:
    own, control = (
        {"size": Estimate.exactly("size", r[size].item())} for r in (results, results.control)
    )
    return Evidence(own, "measured.", control=control)


LEARNING = Claim(
    "test.size", "learning", "sizes are small", RULE, (size,), evidence, control=(size,)
)
DESIGN = replace(LEARNING, kind="architecture", controls_agree=True)


def results(own: float, *controls: float) -> Results:
    """What a report stores: the model's result, and one of each control."""
    names = ["", *CONTROLS[: len(controls)]]
    return Results(
        {
            name + size.name: make_array([v], {"one": ("it",)})
            for name, v in zip(names, (own, *controls), strict=True)
        }
    )


def verdict(claim: Claim, own: float, *controls: float) -> str:
    return claim.judge_results(results(own, *controls), facts()).verdict


def check_majority(judge):
    """What most controls do as well was not learned; which of them they are is all one."""
    for controls in itertools.product((LOW, OPEN, HIGH), repeat=3):
        passing = sum(control == LOW for control in controls)
        assert judge(LEARNING, LOW, *controls) == (
            "inconclusive" if passing >= 2 else "supported"
        ), controls
        opposite = sum(control == HIGH for control in controls)
        assert judge(DESIGN, LOW, *controls) == (
            "inconclusive" if opposite >= 2 else "supported"
        ), controls
        assert judge(DESIGN, HIGH, *controls) == (
            "inconclusive" if passing >= 2 else "contradicted"
        ), controls


def test_most_controls_decide():
    check_majority(verdict)
    must_fail(check_majority, lambda claim, own, *controls: verdict(claim, own, controls[0]))
    must_fail(
        check_majority,
        lambda claim, own, *controls: verdict(
            claim, own, min(controls), min(controls), min(controls)
        ),
    )
    must_fail(
        check_majority,
        lambda claim, own, *controls: verdict(replace(claim, kind="architecture"), own, *controls),
    )
    must_fail(
        check_majority,
        lambda claim, own, *controls: verdict(replace(claim, controls_agree=False), own, *controls),
    )


@pytest.mark.parametrize("controls", [(LOW,) * 3, (HIGH,) * 3])
def test_controls_decide_nothing_else(controls):
    assert verdict(LEARNING, HIGH, *controls) == "contradicted"
    assert verdict(replace(DESIGN, controls_agree=False), LOW, *controls) == "supported"


def of_control(**settings) -> dict[str, float]:
    """Its numbers of the control, of a model whose own size is 3 and its control's 0.5."""
    own = replace(LEARNING, evidence=lambda results, known: {"size": results[size].item()})
    found = replace(own, **settings).found(results(3.0, HIGH), facts())
    return {key: estimate.value for key, estimate in found.control.items()}


def test_a_control_s_numbers_come_from_its_own_results():
    """By the claim's function, or by one of their own where that one asks for more."""
    assert of_control() == {"size": HIGH}
    twice = {"untrained": lambda results, known: {"size": 2 * results.control[size].item()}}
    assert of_control(**twice) == {"size": 2 * HIGH}
    assert of_control(of_control=()) == {}  # no quantity tells of the control


def test_a_report_from_before_there_were_three_has_one_control():
    assert verdict(LEARNING, LOW, LOW) == "inconclusive"
    assert verdict(LEARNING, LOW, HIGH) == "supported"


def test_results_by_control():
    stored = results(1.0, 2.0, 3.0, 4.0)
    assert [r.control[size].item() for r in stored.by_control] == [2.0, 3.0, 4.0]
    assert [r[size].item() for r in stored.by_control] == [1.0] * 3
    assert [sorted(r) for r in stored.by_control] == [["test/size", "twin/test/size"]] * 3
    assert results(1.0).by_control == []


def check_needs(needs):
    """Where controls decide, all are measured; beside another architecture claim one is shown."""
    all_of_them = {"test/size", *(control + "test/size" for control in CONTROLS)}
    assert needs(LEARNING) == needs(DESIGN) == all_of_them
    assert needs(replace(DESIGN, controls_agree=False)) == {"test/size", "twin/test/size"}


class Bench(Lab):
    """Stands in for a lab whose controls' results are known; it remembers which were asked for."""

    def __init__(self, own: float, controls: Sequence[float]) -> None:
        self.known, self.asked = results(own, *controls), [""]
        self.controls = [
            SimpleNamespace(measure_all=partial(self.ask, prefix)) for prefix in CONTROLS
        ]

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


def as_measured(claim: Claim, own: float, *controls: float) -> str:
    """The verdict from what is measured, one control after another."""
    bench = Bench(own, controls)
    assert measure(bench, [claim], facts()) == {}
    return claim.judge_results(bench.results, facts()).verdict


def check_same_as_with_all(judge):
    for claim, own in itertools.product(
        (LEARNING, DESIGN, replace(DESIGN, controls_agree=False)), (LOW, OPEN, HIGH)
    ):
        for controls in itertools.product((LOW, OPEN, HIGH), repeat=3):
            assert judge(claim, own, *controls) == verdict(claim, own, *controls), (
                claim.kind,
                own,
                controls,
            )


def test_what_is_measured_of_controls():
    check_needs(lambda claim: set(claim.needs))
    must_fail(check_needs, lambda claim: set(LEARNING.needs))
    must_fail(check_needs, lambda claim: set(replace(claim, kind="architecture").needs))


@pytest.mark.slow
def test_controls_that_are_not_measured_would_change_no_verdict():
    check_same_as_with_all(as_measured)
    must_fail(
        check_same_as_with_all, lambda claim, own, *controls: verdict(claim, own, controls[0])
    )
    must_fail(
        check_same_as_with_all, lambda claim, own, *controls: verdict(claim, own, *controls[:2])
    )


def n_controls(claim: Claim, own: float, *controls: float, known=None) -> int:
    bench = Bench(own, controls)
    measure(bench, [claim], known or facts())
    return len(bench.asked) - 1


def test_controls_are_measured_as_far_as_they_decide():
    assert (
        n_controls(LEARNING, LOW, HIGH, HIGH, LOW) == 2
    )  # two of three do not pass: the third is all one
    assert n_controls(LEARNING, LOW, LOW, LOW, HIGH) == 2
    assert (
        n_controls(LEARNING, LOW, LOW, HIGH, HIGH) == n_controls(DESIGN, LOW, HIGH, LOW, LOW) == 3
    )  # the first two differ
    assert n_controls(LEARNING, HIGH, LOW, LOW, LOW) == 1  # contradicted whatever they show
    assert n_controls(LEARNING, LOW, LOW, LOW, LOW, known=facts(r2=0.5)) == 1  # it has not learned
    assert n_controls(LEARNING, LOW, LOW, LOW, LOW, known=facts(n_units=8)) == 1
    assert n_controls(replace(DESIGN, controls_agree=False), LOW, LOW, LOW, LOW) == 1
    assert n_controls(replace(LEARNING, control=()), LOW, LOW, LOW, LOW) == 0


def test_a_claim_that_fails_asks_for_no_further_controls():
    def broken(results, known):
        raise ValueError("no")

    assert n_controls(replace(LEARNING, evidence=broken), LOW, LOW, LOW, LOW) == 1


def untrained(seed: int) -> Lab:
    """Stands in for the lab of a control."""
    lab = object.__new__(Lab)
    lab.seed = seed
    return lab


def test_controls_are_made_when_they_are_asked_for():
    controls = Controls(untrained)
    assert not controls.made
    assert controls[2] is controls[2]
    assert list(controls.made) == [2]
    assert [control.seed for control in controls] == [1, 2, 3]
    with pytest.raises(IndexError):
        controls[3]


def test_a_check_of_types_makes_no_control():
    lab = SimpleNamespace(controls=Controls(untrained))

    @beartype
    def read(lab) -> Controls:
        return lab.controls

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
    assert claim.needs_another_control(stored, facts())
    further = Results(
        {**stored, **{CONTROLS[i] + size.name: make_array([LOW], {"one": ("it",)}) for i in (1, 2)}}
    )
    finding = claim.finding(further, facts())
    assert finding == DESIGN.finding(further, facts())
    assert len(calls) == 3  # of the model and each further control: the first was asked before


def check_asked_anew(once):
    """Another result of the model or of the first control, another fact: another answer."""
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
