"""Judges: pure functions of stored results, and what they make of models at the edge of their questions."""

import copy
import json
import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from small_models import make
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Verdict
from icl_interp.analyses.facts import Facts
from icl_interp.experiments.calibration import TASK
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import finite, generator
from icl_interp.report import Report
from icl_interp.results import from_dict, make_curve, make_table, to_dict
from icl_interp.studies.limits.claims import layernorm as limits_layernorm
from icl_interp.studies.limits.claims.softmax import TARGETS
from icl_interp.studies.limits.constructions import (
    CAUSE,
    ERASED,
    HARDMAX,
    LINEAR,
    ORTHOGONAL,
    SATURATES,
    UNIFORM,
    blind_read_out,
    random_pre_norm,
    scalar_layer,
)
from icl_interp.tasks.functions import Polynomial

FAILURE, IMMEDIATE = "limits.layernorm_causes_failure", "limits.boundary_immediate"
LAYERNORM = (SATURATES, CAUSE, FAILURE)
NECESSARY, SUFFICIENT, LAST, ALIKE = (
    f"limits.{name}" for name in ("attention_necessary", "attention_sufficient", "last_layer", "patterns_alike")
)


def long(name: str, **change) -> HookedTransformer:
    """A small random model for prompts of 20 points."""
    return make(name, n_ctx=40, **change)


def weights(model: HookedTransformer, **scales: float) -> HookedTransformer:
    """The model with some weights scaled: names with _ for a dot."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= scales.get(name.replace(".", "_"), 1.0)
    return model


# ---- pure functions -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_models(measured):
    """All claims on a model with LayerNorm beside one without, and on one without."""
    without = long("no norm")
    return [measured(long("pre"), counterpart=without, n_contexts=2), measured(without, n_contexts=2)]


def as_data(findings) -> str:
    return json.dumps(finite([finding.to_dict() for finding in findings]))


def check_purity(judge, bench):
    """Judging twice gives the same findings and leaves results and facts as they were."""
    stored = {name: copy.deepcopy(to_dict(result)) for name, result in bench.results.items()}
    known = copy.deepcopy(bench.facts)
    for claim in registry.select(None):
        first, second = (as_data([judge(claim, bench.results, bench.facts)]) for _ in range(2))
        assert first == second, claim.id
    for name, result in bench.results.items():
        assert as_text(to_dict(result)) == as_text(stored[name]), name
    assert known == bench.facts


def as_text(data) -> str:
    return json.dumps(data, sort_keys=True)


def test_judging_is_pure(two_models):
    calls = []

    def mutates(claim, results, facts):
        for result in results.values():
            if isinstance(result, DataArray):
                result.values[...] *= 1.001
        return claim.judge_results(results, facts)

    def drifts(claim, results, facts):
        calls.append(1)
        return replace(claim.judge_results(results, facts), reason=str(len(calls)))

    for bench in two_models:
        check_purity(lambda claim, results, facts: claim.judge_results(results, facts), bench)
        mutable = replace(bench, results=copy.deepcopy(bench.results))
        must_fail(check_purity, mutates, mutable)
        must_fail(check_purity, drifts, bench)


def test_stored_results_judged_again_give_the_same_findings(two_models, tmp_path):
    for bench in two_models:
        findings = [bench.judge(claim.id) for claim in registry.select(None)]
        stored = {name: json.dumps(finite(to_dict(r)), allow_nan=False) for name, r in bench.results.items()}
        loaded = {name: from_dict(json.loads(text)) for name, text in stored.items()}
        known = Facts.from_dict(json.loads(json.dumps(bench.facts.to_dict())))
        again = [claim.judge_results(loaded, known) for claim in registry.select(None)]
        assert as_data(again) == as_data(findings)

        report = Report({"name": "a model"}, bench.facts.to_dict(), findings, bench.results)
        report.to_json(tmp_path / "report.json")
        read = Report.load(tmp_path)
        assert as_data(read.findings) == as_data(findings)
        assert as_data(read.judge().findings) == as_data(findings)


def test_other_results_are_judged_otherwise(two_models):
    """Judging again reads the results: double f far out, and it no longer levels off."""
    bench = two_models[0]
    ends = bench.results["far/ends"]
    grown = ends.copy(data=ends.values * np.array([1.0, 10.0, 100.0])[:, None, None])
    finding = registry.REGISTRY[SATURATES].judge_results({**bench.results, "far/ends": grown}, bench.facts)
    assert finding.verdict == "contradicted"
    assert bench.judge(SATURATES).verdict == "supported"


def test_every_finding_is_complete(two_models):
    for bench in two_models:
        for claim in registry.select(None):
            finding = bench.judge(claim.id)
            assert finding.reason
            assert finding.statement
            assert finding.source
            if finding.verdict == "not_applicable":
                continue
            assert "these weights" in finding.scope
            assert np.isfinite([finding.estimate.value, finding.estimate.low, finding.estimate.high]).all()
            assert finding.estimate.low <= finding.estimate.value <= finding.estimate.high
            assert finding.twin is not None or claim.id == FAILURE
            wanted = {ORTHOGONAL, HARDMAX, UNIFORM, CAUSE, FAILURE, ERASED, NECESSARY, LAST}
            assert (finding.causal is not None) == (claim.id in wanted)


# ---- what cannot apply ----------------------------------------------------------------------------------------------


SEVERAL = replace(TASK, degrees=(1, 2, 3))


def excluded(model: HookedTransformer, task: Polynomial = SEVERAL) -> dict[str, str]:
    known = Facts.of(model, task, "interleaved", {"error": 0.01, "r2": 0.99}, n_functions=64)
    found = {claim.id: claim.excluded(known) for claim in registry.select(None)}
    for claim, reason in found.items():
        if reason:
            finding = registry.REGISTRY[claim].judge_results({}, known)
            assert (finding.verdict, finding.reason) == ("not_applicable", reason)
    return {claim: reason for claim, reason in found.items() if reason}


def by_design(model: HookedTransformer) -> dict[str, str]:
    """What the model's own design excludes, whatever companions are at hand, in the studies of any task."""
    found = {claim: reason for claim, reason in excluded(model).items() if "pass companions=" not in reason}
    return {claim: reason for claim, reason in found.items() if not claim.startswith("linear_attention.")}


def test_what_cannot_apply():
    no_norm = {claim: "the model has no normalisation" for claim in (*LAYERNORM, IMMEDIATE)}
    normalises = {LINEAR: "the model normalises; the claim is about models without"}
    assert by_design(make("pre")) == by_design(make("post")) == by_design(make("attention only")) == normalises
    assert by_design(make("no norm")) == no_norm
    rms = by_design(make("rms"))
    assert set(rms) == {*LAYERNORM, IMMEDIATE, LINEAR}
    assert "does not centre" in rms[SATURATES]
    for score in ("hardmax", "linear"):
        found = by_design(make(score))
        assert set(found) - {ALIKE} == {HARDMAX, UNIFORM, LINEAR}
        assert (ALIKE in found) == (score == "linear")  # its weights are no distribution
        assert found[HARDMAX] == found[UNIFORM] == f"the model's score function is {score}, not softmax"
    found = by_design(make("mlp only"))
    assert set(found) == {HARDMAX, UNIFORM, ORTHOGONAL, LINEAR, SUFFICIENT, LAST, ALIKE}
    assert found[HARDMAX] == found[ORTHOGONAL] == "the model has no attention"
    assert set(by_design(make("one head"))) == {ORTHOGONAL, LINEAR}
    assert by_design(make("one head"))[ORTHOGONAL] == "a layer has a single head"


LATER = [pytest.param(name, marks=pytest.mark.slow) for name in ("one head", "rms", "post", "bidirectional")]


@pytest.mark.parametrize("name", ["mlp only", "hardmax", *LATER])
def test_every_kind_of_model_is_judged(name, judged):
    """Whatever applies is measured and judged without a hitch."""
    findings = judged(long(name), n_contexts=2)
    assert list(findings) == [claim.id for claim in registry.select(None)]
    open_or_sure = {finding.verdict for finding in findings.values()}
    assert open_or_sure <= set(get_args(Verdict))
    not_applicable = {claim for claim, finding in findings.items() if finding.verdict == "not_applicable"}
    assert not_applicable == set(excluded(make(name), TASK))
    if name == "mlp only":
        assert findings[ERASED].verdict == "inconclusive"
        assert "does not depend on the context in distribution either" in findings[ERASED].reason
        assert findings[SATURATES].verdict == findings[CAUSE].verdict == "supported"


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_a_norm_of_width_one_is_a_constant(judged):
    """It divides 0 by something: f is one number, which no claim about far out can be read from."""
    cfg = HookedTransformerConfig(n_layers=1, d_model=1, n_heads=1, d_head=1, n_ctx=40, attn_only=True, init_std=1.0)
    findings = judged(HookedTransformer(cfg, seed=1), *LAYERNORM, ERASED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert "The output is constant" in findings[SATURATES].reason
    assert "The output is constant" in findings[CAUSE].reason


def test_an_onset_beyond_the_range_is_open(judged):
    """x is read in a million times smaller: nothing far out has been seen yet."""
    findings = judged(weights(random_pre_norm(generator(0, "test/onset")), embed_W_E=1e-7), SATURATES, CAUSE, ERASED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all("predicted onset" in f.reason for f in findings.values())
    assert findings[ERASED].estimate.value > 0.2  # which would contradict, if this were far


def test_post_norm_has_no_closed_form(judged):
    model = scalar_layer(generator(0, "test/post"), 4.0, norm="LN", position="post")
    finding = judged(model, SATURATES)[SATURATES]
    assert finding.verdict == "supported"
    assert "no closed form" in finding.reason


def test_a_plateau_elsewhere_than_the_closed_form_is_not_supported(measured):
    bench = measured(long("pre"), SATURATES)
    table = bench.results["far/certificate"]
    row = table.to_dict("records")[0]
    for shift, expected in ((0.0, "supported"), (0.02, "inconclusive")):
        moved = {**table, "plateau +": [row["plateau +"] + shift * row["r"]]}
        results = {**bench.results, "far/certificate": make_table(moved)}
        assert registry.REGISTRY[SATURATES].judge_results(results, bench.facts).verdict == expected


def test_the_scale_of_every_norm_is_reported(measured):
    """Pre-norm: all grow like |x|; post-norm: the first does, the last stands still."""
    pre = measured(long("pre"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in pre.details if "norm" in row}
    assert set(grows) == {"blocks.0.ln1", "blocks.0.ln2", "blocks.1.ln1", "blocks.1.ln2", "ln_final"}
    assert all(value == pytest.approx(1, abs=0.01) for value in grows.values())
    post = measured(long("post"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in post.details if "norm" in row}
    assert grows["blocks.0.ln1"] == pytest.approx(1, abs=0.01)
    assert grows["blocks.1.ln2"] == pytest.approx(0, abs=0.01)


def test_which_norm_suffices(measured):
    """Pre-norm: the final one. Post-norm: none alone, all together."""
    pre = measured(long("pre"), CAUSE).judge(CAUSE)
    assert pre.verdict == "supported"
    check_one_number(pre)
    assert "alone, ln_final suffices" in pre.reason
    assert abs(pre.causal["sham"]) < 0.1
    post = measured(long("post"), CAUSE).judge(CAUSE)
    assert post.verdict == "supported"
    assert "no norm suffices" in post.reason
    each = post.causal["each norm alone"]
    assert max(each.values()) < 0.2


def check_one_number(finding):
    """The estimate, the causal effect and the sentence say the same of one quantity."""
    causal = finding.causal
    assert causal["effect"] == finding.estimate.value
    assert causal["frozen"] - causal["intact"] == pytest.approx(finding.estimate.value, abs=1e-9)
    assert f"is {causal['intact']:.2f} intact and {causal['frozen']:.2f} with every norm" in finding.reason


def test_a_decay_to_zero_is_a_plateau_too(measured):
    """f ~ 1/x far out, since the read-out is blind to the far direction and has no constant: exponent -1 intact."""
    model = blind_read_out(generator(0, "test/decay"))
    with torch.no_grad():
        model.unembed.b_U.zero_()
    bench = measured(model, CAUSE)
    finding = bench.judge(CAUSE)
    assert finding.causal["intact"] == 0
    assert re.search(r"f falls towards 0 intact like \|x\|\^-(1\.0|0\.9)", finding.reason)
    assert finding.estimate.value == pytest.approx(finding.causal["frozen"], abs=1e-9)  # not 1 more
    assert "no norm suffices" in finding.reason
    check_one_number(finding)
    must_fail(check_one_number, replace(finding, causal={**finding.causal, "effect": finding.estimate.value + 1}))

    # Were frozen f to rest at another constant, that would be no growth either.
    arms = bench.results["far/norm arms"]
    values = arms.values.copy()
    values[list(arms.indexes["arm"]).index("frozen")] = 1.0
    results = {**bench.results, "far/norm arms": arms.copy(data=values)}
    assert registry.REGISTRY[CAUSE].judge_results(results, bench.facts).verdict == "contradicted"


# ---- causes failure -------------------------------------------------------------------------------------------------


def arms(**error: float) -> DataArray:
    """Far errors as stored, twenty functions of slightly different size, constant over x."""
    names = ("intact", "frozen", "sham", "zero predictor")
    size = 1 + 0.1 * np.random.default_rng(0).normal(size=(20, 1)) ** 2
    values = [np.broadcast_to(error.get(name.split()[0], 1.0) * size, (3, 20, 4)) for name in names]
    axes = {
        "arm": names,
        "statistic": ("mean", "mean square", "squared error"),
        "function": tuple(range(20)),
        "x": (-1e4, -1e3, 1e3, 1e4),
    }
    return make_curve(values, axes)


def other(error: float | None) -> DataArray:
    """The model trained without normalisation, if there is one."""
    size = arms(intact=error or 1.0).sel(arm="intact").values
    n = 0 if error is None else 20
    axes = {**arms().indexes, "function": tuple(range(n))}
    return make_curve(size[:, :n], {name: axes[name] for name in ("statistic", "function", "x")})


def check_signs(judge):
    """Smaller errors without the norm support, larger ones contradict, and two ways that disagree decide nothing."""
    for frozen, without, expected in (
        (0.5, None, "supported"),
        (2.0, None, "contradicted"),
        (1.0, None, "inconclusive"),
        (0.5, 0.7, "supported"),
        (2.0, 1.5, "contradicted"),
        (0.5, 2.0, "inconclusive"),
        (2.0, 0.5, "inconclusive"),
        (1.0, 2.0, "inconclusive"),
        (1 - 1e-13, None, "inconclusive"),
        (1 + 1e-13, None, "inconclusive"),
    ):
        results = {
            "far/norm arms": arms(frozen=frozen),
            "twin/far/norm arms": arms(),
            "far/counterpart": other(without),
        }
        assert judge(results).verdict == expected, (frozen, without)


def test_the_signs_of_the_failure():
    known = facts(n_functions=20)
    claim = registry.REGISTRY[FAILURE]
    check_signs(lambda results: claim.judge_results(results, known))
    must_fail(check_signs, lambda results: claim.judge_results({**results, "far/counterpart": other(None)}, known))
    swapped = {"intact": "frozen", "frozen": "intact"}

    def exchanged(results):
        curve = results["far/norm arms"]
        names = tuple(swapped.get(name, name) for name in curve.indexes["arm"])
        renamed = curve.assign_coords(arm=list(names))
        return claim.judge_results({**results, "far/norm arms": renamed}, known)

    must_fail(check_signs, exchanged)


def test_errors_that_differ_by_rounding_do_not_differ(measured):
    """At 1e3 a polynomial of degree 5 outgrows any plateau and any line: every model fails alike."""
    bench = measured(long("pre"), FAILURE, task=replace(TASK, degrees=(5,)), counterpart=long("no norm"))
    finding = bench.judge(FAILURE)
    assert finding.verdict == "inconclusive"
    assert 0 < abs(finding.estimate.value) < 1e-9


def test_errors_of_one_function_are_compared_with_that_function():
    """Sizes differ a hundredfold between functions, ratios hardly at all: the interval is about the ratio."""
    size = 10 ** np.random.default_rng(0).uniform(-1, 1, 20)
    ratio = limits_layernorm._log_ratio(1.1 * size, size)
    assert ratio.low == pytest.approx(np.log10(1.1))
    unpaired = limits_layernorm._log_ratio(1.1 * size[::-1], size)
    assert unpaired.low < 0 < unpaired.high


def test_the_reason_names_what_was_compared(measured):
    bench = measured(long("pre"), FAILURE)
    alone = bench.judge(FAILURE)
    assert "no model trained without normalisation was at hand" in alone.reason
    assert set(alone.causal["far error / zero predictor"]) == {"intact", "frozen"}
    both = measured(long("pre"), FAILURE, counterpart=long("no norm")).judge(FAILURE)
    assert set(both.causal["far error / zero predictor"]) == {"intact", "frozen", "trained without"}


def test_the_far_error_is_that_of_the_models(measured):
    bench = measured(long("pre"), FAILURE)
    f, truth = bench.lab.sweep([1e3, -1e3]), bench.lab.truth([1e3, -1e3])
    relative = float((f - truth).square().mean() / truth.square().mean())
    assert bench.judge(FAILURE).causal["far error / zero predictor"]["intact"] == pytest.approx(relative, rel=1e-9)


# ---- heads ----------------------------------------------------------------------------------------------------------


def test_heads_are_counted_among_the_relevant(measured):
    """Silencing all heads but one leaves that one to decide."""
    model = long("no norm")
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            for h in range(3):
                if (i, h) != (1, 2):
                    block.attn.W_O[h] = 0
    bench = measured(model, HARDMAX, UNIFORM)
    finding = bench.judge(HARDMAX)
    assert [row["head"] for row in finding.details if row["relevant"]] == ["1.2"]
    assert "of 1 relevant heads" in finding.reason
    assert finding.estimate.value in (0.0, 1.0)
    assert len(finding.details) == 6
    assert {row["target"] for row in finding.details} <= set(TARGETS)


def test_no_relevant_head_decides_nothing(measured):
    model = long("pre")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_O.zero_()
    bench = measured(model, HARDMAX, UNIFORM)
    for claim in (HARDMAX, UNIFORM):
        finding = bench.judge(claim)
        assert finding.verdict == "inconclusive"
        assert "No head matters" in finding.reason


def test_a_sink_is_named_and_not_a_hardmax(measured):
    """All weight on the first token at every x: concentrated already in distribution."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=4, n_heads=1, d_head=1, n_ctx=40, attn_only=True, normalization_type=None
    )
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[0, 0] = 1
        model.pos_embed.W_pos[0, 1] = 1
        attn = model.blocks[0].attn
        attn.b_Q[0, 0], attn.W_K[0, 1, 0], attn.W_V[0, 0, 0], attn.W_O[0, 0, 2] = 30, 1, 1, 1
        model.unembed.W_U[[0, 2], 0] = 1
    finding = measured(model, HARDMAX).judge(HARDMAX)
    assert finding.verdict == "contradicted"
    assert "1 are concentrated already in distribution" in finding.reason
    assert finding.details[0]["target"] == "the first token"


def test_heads_that_nobody_reads_far_out_are_called_idle(measured):
    """Pre-norm far out: the stream drowns what heads write, so they cause nothing there."""
    finding = measured(random_pre_norm(generator(0, "test/idle")), HARDMAX).judge(HARDMAX)
    assert finding.causal["heads idle far out"]
    assert "cause nothing there" in finding.reason
    bare = measured(scalar_layer(generator(0, "test/read"), 4.0), HARDMAX).judge(HARDMAX)
    assert not bare.causal["heads idle far out"]
    assert bare.causal["effect"] < 0.02
    assert bare.causal["power: the same swap in distribution"] > 0.02


def test_short_prompts_say_nothing_about_many_tokens(judged):
    finding = judged(make("pre"), UNIFORM, task=TASK.with_points(4))[UNIFORM]
    assert finding.verdict == "inconclusive"
    assert "7 tokens are too short" in finding.reason


def test_a_falling_deficit_is_not_held_against_a_head(measured):
    """Above the threshold at ten trained lengths but below it in the limit: open, not contradicted."""
    bench = measured(scalar_layer(generator(0, "test/falling"), 3.0), UNIFORM)
    result = bench.results["heads/deficit"]
    for at_ten, limit, expected in ((0.3, 0.3, "contradicted"), (0.3, 0.05, "inconclusive"), (0.05, 0.05, "supported")):
        values = result.values.copy()
        values[1], values[2] = at_ten, limit
        results = {**bench.results, "heads/deficit": result.copy(data=values)}
        assert registry.REGISTRY[UNIFORM].judge_results(results, bench.facts).verdict == expected


def test_information_is_reported_beside_the_amplitude(judged):
    """Attenuated is not erased: a pre-norm model still tells the function at 1e4, a line without context does not."""
    kept = judged(random_pre_norm(generator(1, "test/info")), ERASED, n_functions=48)[ERASED]
    gone = judged(scalar_layer(generator(1, "test/info"), 4.0), ERASED)[ERASED]
    assert kept.verdict == gone.verdict == "supported"
    assert "what is left still tells the function" in kept.reason
    assert "what is left still tells" not in gone.reason
    numbers = {row["statistic"]: row["value"] for row in kept.details}
    assert numbers["information R2"] > 0.15 > numbers["R2 with permuted coefficients"]
    assert {row["statistic"]: row["value"] for row in gone.details}["information R2"] == 0
