"""Claims: conditions, gates, the register, and findings as data. No model but in the last tests."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from made_up_facts import changed, facts
from small_models import TASK, make

import icl_interp
from icl_interp.analyses.claim import LEARNED_R2, MIN_UNITS, Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.finding import Finding, Quote
from icl_interp.analyses.measurement import CONTROLS, measurement
from icl_interp.analyses.registry import REGISTRY, register, select
from icl_interp.errors import InputError
from icl_interp.provenance import finite
from icl_interp.resampling import Interval
from icl_interp.results import make_array

SHARE = Condition("share", "", supports=(-INF, 0.1), contradicts=(0.2, INF))
LEVEL = Condition("level", "", supports=(0.5, INF), contradicts=None, optional=True)
SECOND = Condition(
    "second", "", supports=(-INF, 0.1), contradicts=(0.2, INF), scale="log", optional=True
)
ENOUGH = Precondition("n", (2, INF), "Only {value:g} were there.", optional=True)
RULE = Criterion(
    (SHARE, SECOND, LEVEL),
    (ENOUGH,),
    terms="share and second at most 0.1 / above 0.2; level at least 0.5",
)
FACTS = facts()
SURE, OPEN, AGAINST = (
    Interval(0.05, 0.02, 0.08),
    Interval(0.05, 0.02, 0.12),
    Interval(0.5, 0.4, 0.6),
)


def estimates(**intervals: Interval) -> dict[str, Estimate]:
    return {name: Estimate.of(name, interval) for name, interval in intervals.items()}


def claim(
    found: Interval = SURE, kind: str = "architecture", control: Interval | None = None, **evidence
) -> Claim:
    """A claim whose evidence is always the same."""
    quantities = {**estimates(share=found), **evidence.pop("quantities", {})}
    fixed = Evidence(
        quantities, "because.", control=estimates(share=control) if control else {}, **evidence
    )
    return Claim("test.claim", kind, "a statement", RULE, (), lambda results, facts: fixed)


def verdict(claim: Claim, **known) -> str:
    return claim.judge_results({}, changed(FACTS, **known)).verdict


# ---- regions -------------------------------------------------------------------------------------


def check_regions(decide):
    """The whole interval must lie in a region, bounds included.

    What touches no region or both is open.
    """
    for low, high, expected in (
        (0.0, 0.05, "supported"),
        (0.0, 0.1, "supported"),
        (-1e9, -1e8, "supported"),
        (0.0, 0.100001, "inconclusive"),
        (0.11, 0.19, "inconclusive"),
        (0.05, 0.5, "inconclusive"),
        (0.199999, 0.3, "inconclusive"),
        (0.2, 0.3, "contradicted"),
        (0.3, 1e9, "contradicted"),
    ):
        for value in (low, high, (low + high) / 2):
            assert decide(Estimate("share", value, low, high)) == expected, (low, high, value)


def test_the_whole_interval_must_lie_in_a_region():
    check_regions(SHARE.outcome)
    must_fail(check_regions, lambda e: SHARE.outcome(Estimate.exactly("share", e.value)))
    must_fail(check_regions, lambda e: SHARE.outcome(Estimate("share", e.value, e.low, e.value)))


@pytest.mark.slow
@given(*[st.floats(-1, 1)] * 2)
def test_a_verdict_never_contradicts_the_estimate(low, high):
    low, high = sorted((low, high))
    found = SHARE.outcome(Estimate("share", (low + high) / 2, low, high))
    assert (found == "supported") == (high <= 0.1)
    assert (found == "contradicted") == (low >= 0.2)


def test_an_interval_in_both_regions_decides_nothing():
    touching = Condition("ratio", "", supports=(-INF, 0.0), contradicts=(0.0, INF))
    assert touching.outcome(Estimate.exactly("ratio", 0.0)) == "inconclusive"
    assert touching.outcome(Estimate("ratio", -0.1, -0.2, 0.0)) == "supported"


@pytest.mark.parametrize("bad", [Interval(math.nan, math.nan, math.nan), Interval(0.0, -INF, 0.05)])
def test_what_could_not_be_estimated_is_open(bad):
    assert verdict(claim(bad)) == "inconclusive"


# ---- conditions and preconditions ----------------------------------------------------------------


def check_conditions(decide):
    """Supported by all, contradicted by any, open otherwise; and which condition decided."""
    high, low = Interval(0.9, 0.8, 1.0), Interval(0.1, 0.0, 0.2)
    for found, expected, decided in (
        ({"share": SURE}, "supported", "share"),
        ({"share": SURE, "second": SURE, "level": high}, "supported", "share"),
        ({"share": SURE, "second": OPEN, "level": high}, "inconclusive", "second"),
        ({"share": SURE, "second": AGAINST}, "contradicted", "second"),
        ({"share": OPEN, "second": AGAINST}, "contradicted", "second"),
        ({"share": AGAINST, "second": SURE}, "contradicted", "share"),
        ({"share": SURE, "level": low}, "inconclusive", "level"),  # it can only fail to support
        ({"share": AGAINST, "level": low}, "contradicted", "share"),
    ):
        decision = decide(estimates(**found))
        assert (decision.verdict, decision.condition.quantity) == (expected, decided), found


def test_all_conditions_support_or_one_contradicts():
    check_conditions(RULE.decide)
    must_fail(check_conditions, Criterion((SHARE,), terms="").decide)
    must_fail(
        check_conditions,
        Criterion((SHARE, SECOND, replace(LEVEL, contradicts=(-INF, 0.4))), terms="").decide,
    )


def test_without_its_preconditions_nothing_is_decided():
    for n, expected in ((2, "supported"), (1, "inconclusive"), (math.nan, "inconclusive")):
        decision = RULE.decide({**estimates(share=SURE), "n": Estimate.exactly("n", n)})
        assert decision.verdict == expected
        no_number = "'n' is no number here: what it is measured from overflows."
        said = {2: None, 1: "Only 1 were there."}.get(n, no_number)
        assert decision.failed == said
    finding = claim(AGAINST, quantities={"n": Estimate.exactly("n", 1)}).judge_results({}, FACTS)
    assert (finding.verdict, finding.reason) == ("inconclusive", "Only 1 were there. because.")
    only = replace(ENOUGH, optional=False)
    early = Criterion((SHARE,), (only,), terms="").decide(
        {"n": Estimate.exactly("n", 0)}
    )  # nothing else was measured
    assert (early.verdict, early.condition) == ("inconclusive", None)


def test_evidence_that_lacks_what_is_asked_is_an_error():
    with pytest.raises(InputError, match="the evidence lacks 'share'"):
        RULE.decide({})
    with pytest.raises(InputError, match="the evidence lacks 'n'"):
        Criterion((SHARE,), (replace(ENOUGH, optional=False),), terms="").decide(
            estimates(share=SURE)
        )
    with pytest.raises(InputError, match="at least one condition"):
        Criterion((), terms="nothing")
    assert RULE.decide(estimates(share=SURE)).verdict == "supported"


def test_several_intervals_in_one_condition_must_agree():
    def decide(*intervals):
        return SHARE.outcome(Estimate.spanning("share", list(intervals)))

    assert decide(SURE, SURE) == "supported"
    assert decide(SURE, OPEN) == decide(SURE, AGAINST) == "inconclusive"
    assert decide(AGAINST, Interval(0.3, 0.25, 0.7)) == "contradicted"
    assert decide(SURE, Interval(math.nan, math.nan, math.nan)) == "inconclusive"
    for both in ([SURE, AGAINST], [AGAINST, SURE]):
        spanning = Estimate.spanning("share", both)
        assert (spanning.value, spanning.low, spanning.high) == (
            both[0].value,
            SURE.low,
            AGAINST.high,
        )


def test_the_estimate_need_not_be_what_decides():
    other = claim(SURE, quantities=estimates(second=AGAINST), estimate=Estimate.of("another", OPEN))
    finding = other.judge_results({}, FACTS)
    assert (finding.estimate.name, finding.test.name, finding.decided_by) == (
        "another",
        "second",
        SECOND,
    )
    assert claim(SURE).judge_results({}, FACTS).estimate.name == "share"


# ---- gates ---------------------------------------------------------------------------------------


def check_learning_gate(kind):
    """A learning claim asks for a model that learned, both ways, and a control that fails."""
    for found, expected in ((SURE, "supported"), (AGAINST, "contradicted")):
        assert verdict(claim(found, kind)) == expected
        assert verdict(claim(found, kind), r2=LEARNED_R2) == "inconclusive"
        assert verdict(claim(found, kind), r2=math.nan) == "inconclusive"
        assert verdict(claim(found, kind), r2=LEARNED_R2 + 1e-9) == expected
    assert verdict(claim(SURE, kind, control=SURE)) == "inconclusive"
    for other in (None, OPEN, AGAINST):
        assert verdict(claim(SURE, kind, other)) == "supported"
    assert verdict(claim(AGAINST, kind, AGAINST)) == "contradicted"
    # Only what was asked of the model is asked of the control, and all of it must pass there.
    both = estimates(second=SURE)
    half = claim(SURE, kind, SURE, quantities=both)
    assert verdict(half) == "inconclusive"
    fixed = half.evidence({}, FACTS)
    passing = replace(fixed, control={**fixed.control, **estimates(second=AGAINST)})
    assert verdict(replace(half, evidence=lambda results, facts: passing)) == "supported"


def test_learning_claims_are_gated():
    check_learning_gate("learning")
    must_fail(check_learning_gate, "architecture")


def test_architecture_claims_hold_for_untrained_models_too():
    assert verdict(claim(SURE), r2=-3.0) == "supported"
    assert verdict(claim(SURE, control=SURE)) == "supported"


def test_the_reason_says_which_gate_closed():
    def reason(found, **known):
        return found.judge_results({}, changed(FACTS, **known)).reason

    assert "has not learned its task (in-distribution R2 0.500" in reason(
        claim(kind="learning"), r2=0.5
    )
    assert "randomly initialised control passes as well" in reason(
        claim(kind="learning", control=SURE)
    )
    assert f"{MIN_UNITS} needed" in reason(claim(), n_units=8)


def test_too_few_functions_decide_nothing():
    for found, expected in ((SURE, "supported"), (AGAINST, "contradicted"), (OPEN, "inconclusive")):
        assert verdict(claim(found), n_units=MIN_UNITS) == expected
        assert verdict(claim(found), n_units=MIN_UNITS - 1) == "inconclusive"


def test_what_cannot_apply_says_why_and_is_not_measured():
    def evidence(results, facts):
        raise AssertionError("a claim that cannot apply was judged")

    excluded = replace(
        claim(), evidence=evidence, excluded=lambda facts: "the model has no attention"
    )
    finding = excluded.judge_results({}, changed(FACTS, n_units=2))
    assert (finding.verdict, finding.reason) == ("not_applicable", "the model has no attention.")
    assert finding.estimate is None
    assert finding.test is None


# ---- the register --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", ".", "claim", "claim.", ".claim", "a.b.c"])
def test_a_malformed_id_is_refused(bad, registry):
    with pytest.raises(InputError, match=r"looks like 'study\.claim'"):
        register(replace(claim(), id=bad))
    assert tuple(REGISTRY) == registry


def test_the_id_of_a_study_s_claim_is_taken(registry):
    with pytest.raises(InputError, match="already: choose another name"):
        register(replace(claim(), id="limits.softmax_hardmax"))
    assert tuple(REGISTRY) == registry


def test_a_claim_that_is_registered_again_replaces_the_first(registry):
    """As a notebook cell that runs a second time does."""
    register(first := claim())
    assert register(first) is first
    register(replace(claim(), id="test.other"))
    register(second := claim(AGAINST))
    assert REGISTRY["test.claim"] is second
    assert tuple(REGISTRY) == (*registry, "test.claim", "test.other")  # at its place
    assert first.study == "test"


CELL = """
@measurement("own/one")
def one(lab):
    return make_array([1.0], {"n": (0,)})

RULE = Criterion((Condition("n", "", supports=(0, 1), contradicts=(2, 3)),), terms="c")
WORDS = dict(kind="architecture", statement="s", criterion=RULE, measurements=(one,))

def found(results, facts):
    return Evidence({"n": Estimate.exactly("n", 1.0)}, "One.", scope="all")

CLAIMS = [register(Claim(id=name, evidence=found, **WORDS)) for name in ("own.one", "own.two")]
"""


def run_twice(cell: str) -> None:
    """What a notebook does, whose functions all belong to one module."""
    space = {
        name: globals()[name]
        for name in ("Claim", "Condition", "Criterion", "Estimate", "Evidence", "register")
    }
    space |= {"measurement": measurement, "make_array": make_array, "__name__": "a_notebook"}
    for _ in range(2):
        exec(cell, space)
    assert REGISTRY["own.one"] is space["CLAIMS"][0]


def test_a_cell_with_claims_that_share_a_measurement_runs_twice(registry):
    run_twice(CELL)
    with pytest.raises(InputError, match="two measurements are called 'own/one'"):
        run_twice(CELL.replace("def one(", "def another(").replace("(one,)", "(another,)"))


def test_a_claim_registered_by_itself_gives_way_to_its_study(registry):
    """A cell that registers a claim, and one that checks or registers the study with it."""
    from icl_interp.studies.base import STUDIES, Study, make_room
    from icl_interp.studies.base import register as register_study

    register(mine := claim())
    study = Study("test", "here", claims=(mine,))
    make_room(study)
    assert "test.claim" not in REGISTRY
    register(mine)
    assert register_study(study) is study
    again = register_study(replace(study, work="there"))
    assert REGISTRY["test.claim"] is mine
    assert STUDIES.pop(study.name) is again
    assert "test.claim" not in REGISTRY


def test_select_keeps_the_order_of_registration_and_suggests_the_nearest():
    assert [c.id for c in select(None)] == list(REGISTRY)
    assert [c.id for c in select(["limits.context_erased", "heads.orthogonality"])] == [
        c for c in REGISTRY if c in ("limits.context_erased", "heads.orthogonality")
    ]
    assert select(()) == []
    with pytest.raises(InputError, match=r"did you mean 'limits\.softmax_hardmax'"):
        select(["limits.softmax_hardmx"])


def test_the_first_release_is_registered():
    kinds = {
        name: REGISTRY[name].kind for name in REGISTRY if name.split(".")[0] in ("limits", "heads")
    }
    limits = (
        "softmax_hardmax",
        "softmax_uniform",
        "layernorm_saturation",
        "layernorm_causes_saturation",
        "context_erased",
        "linear_asymptote",
    )
    learned = {"heads.orthogonality": "learning", "limits.layernorm_causes_failure": "learning"}
    first = {**learned, **{f"limits.{name}": "architecture" for name in limits}}
    assert first.items() <= kinds.items()


# ---- findings as data ----------------------------------------------------------------------------


def through_json(finding: Finding) -> Finding:
    return Finding.from_dict(json.loads(json.dumps(finite(finding.to_dict()), allow_nan=False)))


def check_round_trip(through):
    full = claim(
        kind="learning",
        quantities={"second": Estimate("other", 1 / 3, -INF, INF, "r")},
        control=SURE,
        scope="these weights",
        causal={"intervention": "freeze", "effect": 1 / 7, "each": {"ln1": 0.5}},
        details=({"head": "0.0", "delta": 0.1}, {"head": "0.1", "delta": 0.2}),
    )
    quoted = replace(
        claim(),
        question="attention",
        statement="it is so",
        quote=Quote("so it is", "page 3", "a bit"),
    )
    for found in (
        full,
        claim(),
        quoted,
        replace(claim(), excluded=lambda facts: "no"),
        replace(claim(), figures=("a",)),
    ):
        finding = found.judge_results({}, FACTS)
        assert through(finding) == finding


def test_a_finding_survives_json():
    check_round_trip(through_json)
    must_fail(check_round_trip, lambda finding: replace(through_json(finding), details=()))
    must_fail(
        check_round_trip,
        lambda finding: replace(through_json(finding), reason=finding.reason + " "),
    )


def test_a_finding_has_the_keys_of_the_schema():
    data = claim().judge_results({}, FACTS).to_dict()
    wanted = {
        "id",
        "study",
        "statement",
        "source",
        "verdict",
        "reason",
        "estimate",
        "criterion",
        "scope",
        "causal",
    }
    assert wanted | {"figures"} <= set(data)
    keys = {"name", "value", "low", "high", "unit", "se", "tails", "positive", "extremes"}
    assert keys == set(data["estimate"])
    # Those of the condition that decided, beside all of them.
    data = (
        claim(SURE, quantities=estimates(second=AGAINST))
        .judge_results({}, FACTS)
        .to_dict()["criterion"]
    )
    assert (data["supported"], data["contradicted"], data["scale"]) == (
        (-INF, 0.1),
        (0.2, INF),
        "log",
    )
    assert [c["quantity"] for c in data["conditions"]] == ["share", "second", "level"]
    assert [p["quantity"] for p in data["preconditions"]] == ["n"]


def test_a_finding_from_before_there_were_conditions_can_be_read():
    data = claim().judge_results({}, FACTS).to_dict()
    for key in ("evidence", "kept", "question", "short", "quote", "error"):
        del data[key]
    for key in ("conditions", "preconditions", "decided_by"):
        del data["criterion"][key]
    finding = Finding.from_dict(json.loads(json.dumps(finite(data))))
    assert (finding.decided_by.supports, finding.decided_by.contradicts) == (
        SHARE.supports,
        SHARE.contradicts,
    )
    assert (finding.verdict, finding.test) == ("supported", Estimate.of("share", SURE))


def test_numbers_are_kept_to_the_last_bit():
    assert (
        claim(replace(SURE, value=1 / 3)).judge_results({}, FACTS).to_dict()["estimate"]["value"]
        == 1 / 3
    )


# ---- one's own claim -----------------------------------------------------------------------------


@pytest.mark.slow
def test_ones_own_claim_appears_among_the_findings(registry):
    taken = []

    @measurement("mine/size at the query")
    def size(lab):
        taken.append(lab)
        return make_array(
            lab.by_unit(lab.sweep()[:, 0, 0].abs()), {"unit": tuple(range(lab.n_units))}
        )

    def evidence(results, facts):
        values = results[size].values
        found = Estimate("mean size", *[float(f(values)) for f in (np.mean, np.min, np.max)])
        return Evidence({"size": found}, "measured.")

    bounded = Criterion(
        (Condition("size", "", (-INF, 1e6), (1e6, INF)),), terms="below 1e6 / above"
    )
    register(Claim("mine.bounded", "architecture", "f is bounded", bounded, (size,), evidence))
    assert select(None)[-1].id == "mine.bounded"
    asked = ("mine.bounded", "limits.linear_asymptote")
    report = icl_interp.analyze(
        make("pre").float(), task=TASK, claims=asked, n_prompts=256, progress=False
    )
    assert [f.id for f in report.findings] == ["limits.linear_asymptote", "mine.bounded"]
    finding = report["mine.bounded"]
    assert (finding.verdict, finding.study, finding.reason) == ("supported", "mine", "measured.")
    assert report["limits.linear_asymptote"].verdict == "not_applicable"
    assert report.results["mine/size at the query"].values.shape == (32,)
    assert len(taken) == 1
    REGISTRY.pop("mine.bounded")
    assert tuple(REGISTRY) == registry
    with pytest.raises(InputError, match="unknown claim"):
        select(["mine.bounded"])
    # A report of a claim that is not registered here keeps the finding it came with.
    assert report.judge()["mine.bounded"] == finding


@pytest.mark.slow
def test_results_of_another_version_are_not_judged_again(registry):
    """A measurement that was changed gives another result, so what was judged before stands."""

    def claim_of(version):
        size = measurement("mine/size", version)(lambda lab: make_array(1.0, {}))
        evidence = lambda results, facts: Evidence(estimates(share=SURE), "measured.")  # noqa: E731
        return Claim("mine.size", "architecture", "s", RULE, (size,), evidence)

    register(claim_of(1))
    report = icl_interp.analyze(
        make("pre").float(), task=TASK, claims=["mine.size"], n_prompts=256, progress=False
    )
    assert report.provenance["measurements"] == {"mine/size": 1}
    assert report.judge()["mine.size"] == report["mine.size"]
    REGISTRY["mine.size"] = replace(claim_of(2), statement="another")
    (kept,) = report.judge().findings
    assert (kept.verdict, kept.statement) == ("supported", "s")
    assert (
        kept.kept
        == "The stored verdict is kept: mine/size is of version 1, not 2. Analyse the model again."
    )
    assert through_json(kept) == kept


def test_what_a_reason_has_no_room_for_stands_with_the_scope():
    """Three sentences of sixty words at most; the answer and its number always stay."""

    def finding(says, caveat=""):
        found = Evidence(estimates(share=SURE), says, scope="these weights", caveat=caveat)
        return replace(claim(), evidence=lambda results, known: found).judge_results({}, FACTS)

    four = finding("It is. So. A b. C.")
    assert (four.reason, four.scope) == ("It is. So. A b.", "these weights. C.")
    long = "B " + "b " * 60 + "b."
    assert finding("It is. So.", long).reason == "It is. So."
    short = finding("It is. So.", "A b.")
    assert (short.reason, short.scope) == ("It is. So. A b.", "these weights")


NAMED = Criterion(
    (Condition("share", "share of heads", (0.9, 1.0), (0.0, 0.5), "share", denied="Few do."),),
    terms="A head is a head.",
)


def named_finding() -> Finding:
    known = replace(claim(SURE), criterion=NAMED)
    return known.judge_results({}, FACTS)


def check_names_return(data) -> None:
    back = Finding.from_dict(data)
    assert back.criterion == NAMED
    assert back.criterion.text == NAMED.text


def test_names_units_and_terms_of_a_criterion_return_from_a_file():
    data = json.loads(json.dumps(finite(named_finding().to_dict())))
    check_names_return(data)
    for key in ("name", "unit", "denied"):
        (condition,) = data["criterion"]["conditions"]
        other = {**condition, key: "another"}
        changed = {**data["criterion"], "conditions": [other]}
        must_fail(check_names_return, {**data, "criterion": changed})
    must_fail(check_names_return, {**data, "criterion": {**data["criterion"], "terms": "other"}})


def test_a_criterion_from_before_conditions_had_names_keeps_its_words():
    data = json.loads(json.dumps(finite(named_finding().to_dict())))
    (condition,) = data["criterion"]["conditions"]
    for key in ("name", "unit", "denied"):
        del condition[key]
    del data["criterion"]["terms"]
    back = Finding.from_dict(data)
    assert back.criterion.text == NAMED.text
    assert back.decided_by.supports == (0.9, 1.0)


def alike(asked: Claim, known, n_controls: int) -> None:
    """The verdict from stored numbers is the one from results, with as many controls."""
    results = {f"{prefix}x": make_array([0.0], {"unit": (0,)}) for prefix in CONTROLS[:n_controls]}
    numbers, controls = asked.numbers(results, known)
    assert asked.decided(numbers, controls, known)[0] == asked.judge_results(results, known).verdict


@pytest.mark.parametrize("kind", ["architecture", "learning"])
@pytest.mark.parametrize("found", [SURE, OPEN, AGAINST])
def test_numbers_alone_give_the_verdict(kind, found):
    for control in (None, SURE, AGAINST):
        for known in (FACTS, changed(FACTS, n_units=4), changed(FACTS, r2=0.5)):
            alike(claim(found, kind, control), known, 1)
    passing = claim(SURE, "learning", SURE)
    numbers, _ = passing.numbers({}, FACTS)
    assert passing.decided(numbers, [numbers], FACTS)[0] == "inconclusive"
    # A control that fails leaves the verdict as it is.
    assert passing.decided(numbers, [estimates(share=AGAINST)], FACTS)[0] == "supported"
