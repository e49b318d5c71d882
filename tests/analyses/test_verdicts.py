"""Verdicts: regions, gates, the register, and findings as data. No model but in the last test."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from known import changed, facts
from small_models import TASK, make

import icl_interp
from icl_interp.analyses import verdicts
from icl_interp.analyses.measurement import measurement
from icl_interp.analyses.verdicts import (
    LEARNED_R2,
    MIN_FUNCTIONS,
    REGISTRY,
    Claim,
    Criterion,
    Estimate,
    Finding,
    Judgement,
    register,
    select,
)
from icl_interp.errors import InputError
from icl_interp.provenance import finite
from icl_interp.resampling import Interval
from icl_interp.results import make_array

INF = float("inf")
LOW = Criterion("at most 0.1 / above 0.2", supported=(-INF, 0.1), contradicted=(0.2, INF))
FACTS = facts()
SURE, OPEN, AGAINST = Interval(0.05, 0.02, 0.08), Interval(0.05, 0.02, 0.12), Interval(0.5, 0.4, 0.6)


def claim(found: Interval = SURE, kind: str = "architecture", **judgement) -> Claim:
    """A claim whose judge always finds the same."""
    fixed = Judgement(Estimate.of("share", found), "because.", **judgement)
    return Claim("test.claim", kind, "a statement", "a source", LOW, (), lambda results, facts: fixed)


def verdict(claim: Claim, **known) -> str:
    return claim.judge_results({}, changed(FACTS, **known)).verdict


# ---- regions --------------------------------------------------------------------------------------------------------


def check_regions(decide):
    """The whole interval must lie in a region, bounds included; what touches none or both is open."""
    for low, high, expected in (
        (0.0, 0.05, "supported"), (0.0, 0.1, "supported"), (-1e9, -1e8, "supported"), (0.0, 0.100001, "inconclusive"),
        (0.11, 0.19, "inconclusive"), (0.05, 0.5, "inconclusive"), (0.199999, 0.3, "inconclusive"),
        (0.2, 0.3, "contradicted"), (0.3, 1e9, "contradicted"),
    ):  # fmt: skip
        for value in (low, high, (low + high) / 2):
            assert decide(LOW, Interval(value, low, high)) == expected, (low, high, value)


def test_the_whole_interval_must_lie_in_a_region():
    check_regions(lambda criterion, interval: criterion.verdict(interval))
    must_fail(check_regions, lambda criterion, i: criterion.verdict(Interval(i.value, i.value, i.value)))
    must_fail(check_regions, lambda criterion, i: criterion.verdict(Interval(i.value, i.low, i.value)))


@given(*[st.floats(-1, 1)] * 2)
def test_a_verdict_never_contradicts_the_estimate(low, high):
    low, high = sorted((low, high))
    found = LOW.verdict(Interval((low + high) / 2, low, high))
    assert (found == "supported") == (high <= 0.1)
    assert (found == "contradicted") == (low >= 0.2)


@pytest.mark.parametrize("bad", [Interval(math.nan, math.nan, math.nan), Interval(0.0, -INF, 0.05)])
def test_what_could_not_be_estimated_is_open(bad):
    assert verdict(claim(bad)) == "inconclusive"


def test_the_criterion_reads_the_test_quantity_where_there_is_one():
    assert verdict(claim(SURE, test=Estimate.of("another", AGAINST))) == "contradicted"
    finding = claim(SURE, test=Estimate.of("another", AGAINST)).judge_results({}, FACTS)
    assert (finding.estimate.name, finding.test.name) == ("share", "another")
    assert claim(SURE).judge_results({}, FACTS).test.name == "share"


def test_a_judge_may_overrule_the_criterion():
    assert verdict(claim(SURE, verdict="inconclusive")) == "inconclusive"


# ---- gates ----------------------------------------------------------------------------------------------------------


def check_learning_gate(kind):
    """A learning claim asks for a model that learned, in both directions, and for a twin that fails."""
    for found, expected in ((SURE, "supported"), (AGAINST, "contradicted")):
        assert verdict(claim(found, kind)) == expected
        assert verdict(claim(found, kind), r2=LEARNED_R2) == "inconclusive"
        assert verdict(claim(found, kind), r2=math.nan) == "inconclusive"
        assert verdict(claim(found, kind), r2=LEARNED_R2 + 1e-9) == expected
    assert verdict(claim(SURE, kind, twin_verdict="supported")) == "inconclusive"
    for other in (None, "inconclusive", "contradicted"):
        assert verdict(claim(SURE, kind, twin_verdict=other)) == "supported"
    assert verdict(claim(AGAINST, kind, twin_verdict="contradicted")) == "contradicted"


def test_learning_claims_are_gated():
    check_learning_gate("learning")
    must_fail(check_learning_gate, "architecture")


def test_architecture_claims_hold_for_untrained_models_too():
    assert verdict(claim(SURE), r2=-3.0) == "supported"
    assert verdict(claim(SURE, twin_verdict="supported")) == "supported"


def test_the_reason_says_which_gate_closed():
    def reason(found, **known):
        return found.judge_results({}, changed(FACTS, **known)).reason

    assert "has not learned its task (in-distribution R2 0.500" in reason(claim(kind="learning"), r2=0.5)
    assert "untrained twin passes as well" in reason(claim(kind="learning", twin_verdict="supported"))
    assert f"{MIN_FUNCTIONS} needed" in reason(claim(), n_functions=8)


def test_too_few_functions_decide_nothing():
    for found, expected in ((SURE, "supported"), (AGAINST, "contradicted"), (OPEN, "inconclusive")):
        assert verdict(claim(found), n_functions=MIN_FUNCTIONS) == expected
        assert verdict(claim(found), n_functions=MIN_FUNCTIONS - 1) == "inconclusive"


def test_what_cannot_apply_says_why_and_is_not_measured():
    def judge(results, facts):
        raise AssertionError("a claim that cannot apply was judged")

    excluded = replace(claim(), judge=judge, excluded=lambda facts: "the model has no attention")
    finding = excluded.judge_results({}, changed(FACTS, n_functions=2))
    assert (finding.verdict, finding.reason) == ("not_applicable", "the model has no attention")
    assert finding.estimate is None
    assert finding.test is None


# ---- the register ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", ".", "claim", "claim.", ".claim", "a.b.c"])
def test_a_malformed_id_is_refused(bad, registry):
    with pytest.raises(InputError, match=r"looks like 'study\.claim'"):
        register(replace(claim(), id=bad))
    assert tuple(REGISTRY) == registry


def test_a_taken_id_is_refused(registry):
    register(first := claim())
    assert register(first) is first  # again: a notebook cell run twice
    with pytest.raises(InputError, match=r"'test\.claim' is registered already"):
        register(claim(AGAINST))
    with pytest.raises(InputError, match="registered already"):
        register(replace(claim(), id="limits.softmax_hardmax"))
    assert REGISTRY["test.claim"] is first
    assert first.study == "test"


def test_select_keeps_the_order_of_registration_and_suggests_the_nearest():
    assert [c.id for c in select(None)] == list(REGISTRY)
    assert [c.id for c in select(["limits.context_erased", "heads.orthogonality"])] == [
        c for c in REGISTRY if c in ("limits.context_erased", "heads.orthogonality")
    ]
    assert select(()) == []
    with pytest.raises(InputError, match=r"did you mean 'limits\.softmax_hardmax'"):
        select(["limits.softmax_hardmx"])


def test_the_first_release_is_registered():
    kinds = {name: REGISTRY[name].kind for name in REGISTRY if name.split(".")[0] in ("limits", "heads")}
    limits = ("softmax_hardmax", "softmax_uniform", "layernorm_saturation", "layernorm_causes_saturation",
              "layernorm_causes_failure", "context_erased", "linear_asymptote")  # fmt: skip
    first = {"heads.orthogonality": "learning", **{f"limits.{name}": "architecture" for name in limits}}
    assert first.items() <= kinds.items()


# ---- findings as data -----------------------------------------------------------------------------------------------


def through_json(finding: Finding) -> Finding:
    return Finding.from_dict(json.loads(json.dumps(finite(finding.to_dict()), allow_nan=False)))


def check_round_trip(through):
    full = claim(
        kind="learning", test=Estimate("other", 1 / 3, -INF, INF, "r"), twin=Estimate("twin", 0.1, 0.05, 0.2),
        scope="these weights", causal={"intervention": "freeze", "effect": 1 / 7, "each": {"ln1": 0.5}},
        details=({"head": "0.0", "delta": 0.1}, {"head": "0.1", "delta": 0.2}),
    )  # fmt: skip
    for found in (full, claim(), replace(claim(), excluded=lambda facts: "no"), replace(claim(), figures=("a", "b"))):
        finding = found.judge_results({}, FACTS)
        assert through(finding) == finding


def test_a_finding_survives_json():
    check_round_trip(through_json)
    must_fail(check_round_trip, lambda finding: replace(through_json(finding), details=()))
    must_fail(check_round_trip, lambda finding: replace(through_json(finding), reason=finding.reason + " "))


def test_a_finding_has_the_keys_of_the_schema():
    data = claim().judge_results({}, FACTS).to_dict()
    wanted = {"id", "study", "statement", "source", "verdict", "reason", "estimate", "criterion", "scope", "causal"}
    assert wanted | {"figures"} <= set(data)
    assert {"name", "value", "low", "high", "unit"} == set(data["estimate"])
    assert claim(replace(SURE, value=1 / 3)).judge_results({}, FACTS).to_dict()["estimate"]["value"] == 1 / 3


# ---- one's own claim ------------------------------------------------------------------------------------------------


def test_ones_own_claim_appears_among_the_findings(registry):
    taken = []

    @measurement("mine/size at the query")
    def size(lab):
        taken.append(lab)
        return make_array(lab.by_function(lab.at_own_query().abs()), {"function": tuple(range(lab.n_functions))})

    def judge(results, facts):
        values = results["mine/size at the query"].values
        return Judgement(Estimate("mean size", *[float(f(values)) for f in (np.mean, np.min, np.max)]), "measured.")

    bounded = Criterion("below 1e6 / above", supported=(-INF, 1e6), contradicted=(1e6, INF))
    register(Claim("mine.bounded", "architecture", "f is bounded", "mine", bounded, (size,), judge))
    assert select(None)[-1].id == "mine.bounded"
    asked = ("mine.bounded", "limits.linear_asymptote")
    report = icl_interp.analyze(make("pre").float(), task=TASK, claims=asked, n_prompts=256, progress=False)
    assert [f.id for f in report.findings] == ["limits.linear_asymptote", "mine.bounded"]
    finding = report["mine.bounded"]
    assert (finding.verdict, finding.study, finding.reason) == ("supported", "mine", "measured.")
    assert report["limits.linear_asymptote"].verdict == "not_applicable"
    assert report.results["mine/size at the query"].values.shape == (16,)
    assert len(taken) == 1
    verdicts.REGISTRY.pop("mine.bounded")
    assert tuple(REGISTRY) == registry
    with pytest.raises(InputError, match="unknown claim"):
        select(["mine.bounded"])
    # A report of a claim that is not registered here keeps the finding it came with.
    assert report.judge()["mine.bounded"] == finding
