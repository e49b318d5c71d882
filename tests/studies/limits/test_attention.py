"""The claims about what attention does: made-up errors, the gate, and models of known truth."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import answered
from seed_tables import SPREAD, arm, table
from tiny_runs import checkpoint
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.claim import low_r2
from icl_interp.analyses.lab import Lab
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.attention import ratio
from icl_interp.studies.limits.constructions.mechanisms import step_beside_attention, step_in_layers
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements.ablation import ALL, BLIND, NOTHING, QUERY
from icl_interp.studies.limits.measurements.seeds import OWN
from icl_interp.tasks import AutoregressiveProcess, Continuous, Uniform

NECESSARY, SUFFICIENT = "limits.attention_necessary", "limits.attention_sufficient"
N = 40


def matrix(noise=0.2, seed=0, **arms: float) -> DataArray:
    """Errors by arm at a level, noisy by group of functions; "_" in a name is a space."""
    g = np.random.default_rng(seed)
    base = np.exp(noise * g.standard_normal(N))
    own = {
        name.replace("_", " "): level * base * np.exp(0.05 * g.standard_normal(N))
        for name, level in arms.items()
    }
    values = [[row, row] for row in own.values()]
    return make_array(values, {"arm": tuple(own), "points": (ALL, QUERY), "group": tuple(range(N))})


def results(control_level=1.1, blind=0.9, **arms):
    control = {"intact": control_level, "no attention": 1.05}
    context = {BLIND.replace(" ", "_"): blind, NOTHING: 1.0}
    parts = matrix(no_MLP=0.3, block_0=0.5, block_1=0.2, reordered=arms["intact"])
    return {
        "layers/without attention": matrix(**arms, **context),
        "twin/layers/without attention": matrix(
            **{k.replace(" ", "_"): v for k, v in control.items()}, **context
        ),
        "layers/ablated": parts,
        "layers/edit size": make_array([0.6, 0.1], {"edit": ("mean", "reordered")}),
    }


def known(*roles, attn_only=False, mlp_only=False, **more):
    config = {"attn_only": attn_only, "mlp_only": mlp_only, "n_layers": 2}
    return facts(*roles, config=config, n_units=N, **more)


def judge(claim, found, facts):
    return registry.REGISTRY[claim].judge_results(found, facts)


# ---- necessary -----------------------------------------------------------------------------------


def check_necessary(rate, verdict):
    """The rate is relative to the law's mean, whose error is 1.3 where predicting 0 has 1."""
    finding = judge(NECESSARY, results(intact=1e-3, no_attention=1.3 * rate, blind=1.3), known())
    assert finding.verdict == verdict
    assert finding.estimate.value == pytest.approx(rate, rel=0.03)
    assert finding.causal["effect"] == finding.estimate.value
    assert finding.causal["sham: the same points in another order"] == pytest.approx(
        1e-3 / 1.3, rel=0.3
    )
    by_algebra = finding.reason.startswith("By algebra, nothing is learned in context without ")
    assert by_algebra if verdict == "supported" else answered(finding)
    assert finding.reason.count(". ") == 2
    assert ("something beside attention connects" in finding.reason) == (rate < 0.9)


RATES = ((3.0, "supported"), (0.95, "supported"), (0.84, "inconclusive"), (0.56, "inconclusive"))
RATES = (*RATES, (0.46, "contradicted"), (0.02, "contradicted"))


@pytest.mark.parametrize(("rate", "verdict"), RATES)
def test_necessary_by_the_error_without_attention(rate, verdict):
    check_necessary(rate, verdict)


def with_regions(monkeypatch, claim, **regions):
    """The claim with other regions for some quantities."""
    old = registry.REGISTRY[claim]
    conditions = [
        replace(c, supports=regions[c.quantity][0], contradicts=regions[c.quantity][1])
        if c.quantity in regions
        else c
        for c in old.criterion.conditions
    ]
    monkeypatch.setitem(
        registry.REGISTRY,
        claim,
        replace(old, criterion=replace(old.criterion, conditions=tuple(conditions))),
    )


@pytest.mark.parametrize(
    ("lost", "kept", "i"), [(1.0, 0.5, 1), (0.8, 0.5, 2), (0.9, 0.6, 3), (0.9, 0.4, 4)]
)
def test_other_limits_of_necessity_are_noticed(lost, kept, i, monkeypatch):
    with_regions(monkeypatch, NECESSARY, rate=((lost, np.inf), (-np.inf, kept)))
    must_fail(check_necessary, *RATES[i])


def test_a_companion_that_learns_with_mlps_only_decides():
    found = results(intact=1e-3, no_attention=1.0, MLP_only=0.1)
    finding = judge(NECESSARY, found, known("MLP only"))
    assert finding.verdict == "contradicted"
    assert finding.estimate.value > 1 > 0.2 > finding.test.value
    assert finding.reason.startswith("Something is learned in context without attention.")
    assert finding.details[1]["model"] == "for a matched model with MLPs only"
    assert finding.decided_by.quantity == "rate, companion"
    assert (
        judge(NECESSARY, results(intact=1e-3, no_attention=1.0, MLP_only=0.95), known()).verdict
        == "supported"
    )
    assert (
        judge(NECESSARY, results(intact=1e-3, no_attention=1.0, MLP_only=0.6), known()).verdict
        == "inconclusive"
    )
    assert (
        judge(NECESSARY, results(intact=1e-3, no_attention=0.1, MLP_only=1.0), known()).verdict
        == "contradicted"
    )


def test_a_model_with_mlps_only_is_judged_by_its_own_error():
    for level, verdict in ((0.9, "supported"), (0.2, "contradicted")):
        finding = judge(NECESSARY, results(intact=level), known(mlp_only=True, r2=0.0))
        assert finding.verdict == verdict
        assert finding.causal is None


def test_necessity_needs_something_to_lose():
    found = results(intact=0.8, no_attention=0.9)
    finding = judge(NECESSARY, found, known(r2=0.2))
    assert finding.verdict == "inconclusive"
    said = (
        "The model explains 0.2 of what can be explained in distribution (0.9 needed), so it has "
        "nothing to lose."
    )
    assert finding.reason.startswith(said)
    assert judge(NECESSARY, found, known(r2=0.95)).verdict == "supported"
    alike = results(intact=1e-3, no_attention=0.9, blind=1e-12)
    finding = judge(NECESSARY, alike, known())
    assert (finding.verdict, finding.estimate) == ("inconclusive", None)
    assert finding.reason.startswith(
        "All prompts show one function: there is nothing to learn in context."
    )


def check_paired(ratio):
    """Both errors vary tenfold with the function, their ratio hardly: pairs tell it."""
    found = ratio(matrix(noise=1.5, intact=2.0, zero=1.0), "intact", "zero")
    assert found.value == pytest.approx(2.0, rel=0.05)
    assert found.high - found.low < 0.2


def test_ratios_are_paired_by_function():
    check_paired(ratio)

    def unpaired(result, arm, over):
        other = make_array(
            np.random.default_rng(1).permuted(result.values, axis=-1), result.indexes
        )
        return ratio(result, arm, over, reference=other)

    must_fail(check_paired, unpaired)


# ---- sufficient ----------------------------------------------------------------------------------


def sufficient(alone, full, n=(5, 5), side="alone", facts=None, spread=SPREAD, fresh=1.0):
    """Error rates with attention only and with MLPs, analysed from the side of either."""
    mine = side == "alone"
    rows = arm(
        OWN if mine else "attention only",
        n[0],
        rate=alone,
        spread=spread,
        fresh=fresh,
        **{"functions 1": alone},
    )
    rows += arm("with MLP" if mine else OWN, n[1], rate=full, fresh=1.0, **{"functions 1": full})
    found = results(intact=1e-3, no_attention=1.0) | {"seeds/functions": table(rows)}
    role = "with MLP" if mine else "attention only"
    return judge(SUFFICIENT, found, facts or known(role, attn_only=mine))


@pytest.mark.parametrize(
    ("alone", "full", "verdict"),
    [
        (1e-3, 1e-3, "supported"),
        (1.8e-3, 1e-3, "supported"),
        (5e-3, 1e-3, "contradicted"),  # learns, but not as well
        (0.5, 1e-3, "contradicted"),
        (0.098, 0.09, "inconclusive"),  # some seeds above the limit, some below
        (2.5e-3, 1e-3, "inconclusive"),
        (1e-3, 5e-3, "supported"),  # better without
        (0.165, 0.09, "contradicted"),  # not learned, though hardly worse than the others
        (0.093, 0.09, "supported"),
        (0.13, 0.09, "inconclusive"),
        (2.8e-3, 1e-3, "inconclusive"),
        (3.3e-3, 1e-3, "contradicted"),
    ],
)
def test_sufficient_from_both_sides(alone, full, verdict):
    check_sufficient(alone, full, verdict)


@pytest.mark.parametrize(
    ("low", "high", "as_good", "worse", "case"),
    [
        (0.09, 0.15, 2, 3, (0.093, 0.09, "supported")),
        (0.15, 0.2, 2, 3, (0.13, 0.09, "inconclusive")),
        (0.1, 0.12, 2, 3, (0.13, 0.09, "inconclusive")),
        (0.1, 0.2, 2, 3, (0.165, 0.09, "contradicted")),
        (0.1, 0.15, 1.5, 3, (1.8e-3, 1e-3, "supported")),
        (0.1, 0.15, 2.7, 3, (2.5e-3, 1e-3, "inconclusive")),
        (0.1, 0.15, 2, 2.5, (2.8e-3, 1e-3, "inconclusive")),
        (0.1, 0.15, 2, 4, (3.3e-3, 1e-3, "contradicted")),
    ],
)
def test_other_limits_of_sufficiency_are_noticed(low, high, as_good, worse, case, monkeypatch):
    with_regions(
        monkeypatch,
        SUFFICIENT,
        rate=((0, low), (high, np.inf)),
        ratio=((0, as_good), (worse, np.inf)),
    )
    must_fail(check_sufficient, *case)


def check_sufficient(alone, full, verdict):
    """The same two kinds, whichever of them is analysed."""
    mine, other = sufficient(alone, full), sufficient(alone, full, side="full")
    assert mine.verdict == other.verdict == verdict
    assert mine.estimate == other.estimate
    assert mine.estimate.value == pytest.approx(alone / full)
    assert mine.causal is None
    assert other.causal["effect"] == pytest.approx(0.3, rel=0.2)
    assert answered(mine)
    if verdict == "contradicted":
        assert mine.decided_by.quantity == ("ratio" if alone < 0.15 else "rate")


def test_sufficient_is_gated():
    assert sufficient(1e-3, 1e-3, n=(5, 3)).verdict == "inconclusive"
    assert "with MLP: 3 of 4" in sufficient(1e-3, 1e-3, n=(5, 3)).reason
    with_mlps = known("attention only", r2=0.5)
    assert (
        sufficient(1e-3, 1e-3, side="full", facts=with_mlps).verdict == "inconclusive"
    )  # the analysed run has not
    assert sufficient(1e-3, 1e-3, fresh=1e-3).verdict == "inconclusive"  # untrained runs do as well
    behind = sufficient(1e-3, 1e-3, spread=(0.96, 0.98, 1.0, 1.02, 2.5))
    assert behind.verdict == "inconclusive"
    assert "2.5 times off the median" in behind.reason


def check_unlearned():
    """That runs with attention only do not learn is an answer, not a reason to ask nothing."""
    finding = sufficient(0.5, 1e-3, facts=known("with MLP", attn_only=True, r2=0.5))
    assert finding.verdict == "contradicted"
    # If the others have learned: those with MLPs that have not are left out.
    finding = sufficient(0.5, 0.4, facts=known("with MLP", attn_only=True, r2=0.5))
    assert finding.verdict == "inconclusive"
    assert "with MLP: 0 of 4" in finding.reason


def test_attention_that_does_not_learn_is_not_sufficient(monkeypatch):
    check_unlearned()
    claim = registry.REGISTRY[SUFFICIENT]
    monkeypatch.setitem(registry.REGISTRY, SUFFICIENT, replace(claim, learned=low_r2))
    must_fail(check_unlearned)


def test_who_cannot_be_asked():
    assert (
        judge(SUFFICIENT, {}, known(mlp_only=True)).reason
        == "The claim is about attention; this model has none."
    )
    assert "none trained without MLPs is at hand" in judge(SUFFICIENT, {}, known()).reason
    assert (
        "none trained with MLPs is at hand" in judge(SUFFICIENT, {}, known(attn_only=True)).reason
    )
    fixed = known(task=Continuous(function="abs", inputs=Uniform(-1, 1), n_points=9))
    assert judge(NECESSARY, {}, fixed).verdict == "not_applicable"
    path = known(
        "with MLP",
        attn_only=True,
        task=AutoregressiveProcess(n_dims=2, n_points=9),
        encoding="states",
    )
    for claim in (NECESSARY, SUFFICIENT):
        assert "in this model's task prompts are paths" in judge(claim, {}, path).reason


# ---- known truth ---------------------------------------------------------------------------------


def necessary(measured, case):
    return measured(case.model, NECESSARY, task=case.task, n_units=32).judge(NECESSARY)


def check_exact(measured, lean=0.0):
    """Without its head it always says the same.

    The error is that of the law's mean, and no more.
    """
    causal = necessary(measured, step_in_layers(generator(0, "test/step"), 1.0, lean=lean)).causal
    for key in ("effect", "at the query only"):
        assert causal[key] == pytest.approx(1.0, abs=1e-6)
    # Order does not matter to a sum.
    same = causal["sham: the same points in another order"] - causal["intact, last query"]
    assert same == pytest.approx(0, abs=1e-5)


def test_one_step_of_gradient_descent_is_all_attention(measured):
    check_exact(measured)
    must_fail(check_exact, measured, lean=1.0)


def check_decided(measured, share, verdict, n=1, least=1):
    """A share of the step is beside attention; None: all of it is attention's."""
    found = []
    for seed in range(n):
        g = generator(seed, "test/decided")
        case = step_beside_attention(g, *share) if share else step_in_layers(g, 1.0)
        found.append(necessary(measured, case).verdict)
    assert found.count(verdict) >= least


BESIDE = ((None, "supported"), ((0.7, 0.95), "contradicted"), ((0.16, 0.22), "inconclusive"))


@pytest.mark.slow
def test_a_path_beside_attention_contradicts(measured):
    """What makes the claim able to fail: an answer that no head carries."""
    for share, verdict in BESIDE:
        check_decided(measured, share, verdict)
    must_fail(check_decided, measured, BESIDE[2][0], "contradicted")


@pytest.mark.slow
@pytest.mark.parametrize(("share", "verdict"), BESIDE)
def test_nine_draws_of_ten_are_decided(measured, share, verdict):
    check_decided(measured, share, verdict, n=20, least=18)


def check_at_least_the_law_s(task):
    """Whatever the weights are, in every unit: partners lie on either side of the law's mean.

    They get one answer.
    """
    run = checkpoint(task={"degrees": [1], **task})
    lab = Lab(run.model, run.task, run.encoding, n_units=16, n_contexts=2)
    result = lab.measure(ablation.without_attention)
    own, law = (result.sel(arm=arm, points=ALL).values for arm in ("no attention", BLIND))
    assert (own >= law * (1 - 1e-6)).all()
    assert own.mean() > 1.01 * law.mean()


def test_nobody_beats_the_law_s_mean_without_attention(monkeypatch):
    off_centre = {"coefficients": {"kind": "Uniform", "low": -1, "high": 2}}
    check_at_least_the_law_s(off_centre)

    def one_by_one(lab):
        return lab.task.sample(
            2 * lab.n_units, generator(0, "test/one by one"), dtype=torch.float64
        )

    monkeypatch.setattr(ablation, "sample", one_by_one)
    must_fail(check_at_least_the_law_s, off_centre)
