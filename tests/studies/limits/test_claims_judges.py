"""Judges: pure functions of stored results, and what they make of models at an edge."""

import copy
import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from helpers import must_fail
from measured_claims import judged_on
from small_models import long, make
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Verdict
from icl_interp.analyses.facts import Facts
from icl_interp.experiments.calibration import TASK
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import finite
from icl_interp.report import Report
from icl_interp.results import from_dict, to_dict
from icl_interp.tasks.functions import Polynomial

SATURATES, CAUSE, FAILURE = (
    f"limits.layernorm_{n}" for n in ("saturation", "causes_saturation", "causes_failure")
)
HARDMAX, UNIFORM = "limits.softmax_hardmax", "limits.softmax_uniform"
ERASED, LINEAR, IMMEDIATE = (
    "limits.context_erased",
    "limits.linear_asymptote",
    "limits.boundary_immediate",
)
ORTHOGONAL, NO_ICL = "heads.orthogonality", "limits.no_icl_at_high_norm"
SIZE = "limits.size_does_not_help"
LAYERNORM = (SATURATES, CAUSE, FAILURE)
NECESSARY, SUFFICIENT, LAST, ALIKE = (
    f"limits.{name}"
    for name in ("attention_necessary", "attention_sufficient", "last_layer", "patterns_alike")
)


# ---- pure functions ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_models(measured):
    """All claims on a model with LayerNorm beside one without, and on one without."""
    without = long("no norm")
    return [measured(long("pre"), matched=without, n_contexts=2), measured(without, n_contexts=2)]


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


@pytest.mark.slow
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


def same_findings(read: Report, findings) -> None:
    """Judging a stored report again gives these findings."""
    assert as_data(read.judge().findings) == as_data(findings)


@pytest.mark.slow
def test_stored_results_judged_again_give_the_same_findings(two_models, tmp_path):
    for bench in two_models:
        findings = [bench.judge(claim.id) for claim in registry.select(None)]
        stored = {
            name: json.dumps(finite(to_dict(r)), allow_nan=False)
            for name, r in bench.results.items()
        }
        loaded = {name: from_dict(json.loads(text)) for name, text in stored.items()}
        known = Facts.from_dict(json.loads(json.dumps(bench.facts.to_dict())))
        again = [claim.judge_results(loaded, known) for claim in registry.select(None)]
        assert as_data(again) == as_data(findings)

        # As `analyze` does: what was not measured, because a claim does not apply, has no version.
        applying = [claim for claim in registry.select(None) if claim.applies(bench.facts)]
        versions = {name: m.version for claim in applying for name, m in claim.needs.items()}
        assert max(versions.values()) > 1
        provenance = {"measurements": versions}
        report = Report(
            {"name": "a model"}, bench.facts.to_dict(), findings, bench.results, provenance
        )
        report.to_json(tmp_path / "report.json")
        read = Report.load(tmp_path)
        assert as_data(read.findings) == as_data(findings)
        same_findings(read, findings)
        must_fail(same_findings, replace(read, provenance={}), findings)


@pytest.mark.slow
def test_other_results_are_judged_otherwise(two_models):
    """Judging again reads the results: double f far out, and it no longer levels off."""
    bench = two_models[0]
    ends = bench.results["far/ends"]
    grown = ends.copy(data=ends.values * np.array([1.0, 10.0, 100.0])[:, None, None])
    finding = judged_on(SATURATES, {**bench.results, "far/ends": grown}, bench.facts)
    assert finding.verdict == "contradicted"
    assert bench.judge(SATURATES).verdict == "supported"


@pytest.mark.slow
def test_every_finding_is_complete(two_models):
    for bench in two_models:
        for claim in registry.select(None):
            if claim.study not in ("limits", "heads"):
                continue
            finding = bench.judge(claim.id)
            assert finding.reason
            assert finding.statement
            assert finding.source
            if finding.verdict == "not_applicable":
                continue
            if claim.id == SIZE:  # it is about seeds of two sizes, and there are none
                assert (finding.verdict, finding.estimate) == ("inconclusive", None)
                assert "these kinds of training" in finding.scope
                continue
            assert "these weights" in finding.scope
            assert np.isfinite(
                [finding.estimate.value, finding.estimate.low, finding.estimate.high]
            ).all()
            assert finding.estimate.low <= finding.estimate.value <= finding.estimate.high
            assert finding.control is not None
            wanted = {ORTHOGONAL, HARDMAX, UNIFORM, CAUSE, FAILURE, ERASED, NO_ICL, NECESSARY, LAST}
            assert (finding.causal is not None) == (claim.id in wanted)


# ---- what cannot apply ---------------------------------------------------------------------------


SEVERAL = replace(TASK, degrees=(1, 2, 3))


def excluded(model: HookedTransformer, task: Polynomial = SEVERAL) -> dict[str, str]:
    known = Facts.of(model, task, "interleaved", {"error": 0.01, "r2": 0.99}, n_units=64)
    found = {claim.id: claim.exclusion(known) for claim in registry.select(None)}
    for claim, reason in found.items():
        if reason:
            finding = judged_on(claim, {}, known)
            assert (finding.verdict, finding.reason) == ("not_applicable", reason)
    return {claim: reason for claim, reason in found.items() if reason}


def by_design(model: HookedTransformer) -> dict[str, str]:
    """What the model's own design excludes, whatever companions are at hand.

    It is looked at in the studies of any task.
    """
    found = {
        claim: reason
        for claim, reason in excluded(model).items()
        if "pass companions=" not in reason
    }
    return {
        claim: reason for claim, reason in found.items() if claim.startswith(("limits.", "heads."))
    }


def test_what_cannot_apply():
    no_norm = {
        claim: "The claim is about LayerNorm; this model has no norm."
        for claim in (*LAYERNORM, IMMEDIATE)
    }
    normalises = {LINEAR: "The claim is about models without normalisation; this one normalises."}
    assert (
        by_design(make("pre"))
        == by_design(make("post"))
        == by_design(make("attention only"))
        == normalises
    )
    assert by_design(make("no norm")) == no_norm
    rms = by_design(make("rms"))
    assert set(rms) == {*LAYERNORM, IMMEDIATE, LINEAR}
    assert "does not centre" in rms[SATURATES]
    softmax = "The claim is about softmax attention;"
    for score in ("hardmax", "linear"):
        found = by_design(make(score))
        assert set(found) - {ALIKE} == {HARDMAX, UNIFORM, LINEAR}
        assert (ALIKE in found) == (score == "linear")  # its weights are no distribution
        assert (
            found[HARDMAX] == found[UNIFORM] == f"{softmax} this model's score function is {score}."
        )
    found = by_design(make("mlp only"))
    assert set(found) == {HARDMAX, UNIFORM, "heads.orthogonality", LINEAR, SUFFICIENT, LAST, ALIKE}
    assert found[HARDMAX] == f"{softmax} this model has no attention."
    assert (
        found["heads.orthogonality"] == "The claim is about attention heads; this model has none."
    )
    assert set(by_design(make("one head"))) == {"heads.orthogonality", LINEAR}
    single = "The claim compares the heads of a layer; here a layer has a single head."
    assert by_design(make("one head"))["heads.orthogonality"] == single


LATER = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("hardmax", "one head", "rms", "post", "bidirectional")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp only", *LATER])
def test_every_kind_of_model_is_judged(name, judged):
    """Whatever applies is measured and judged without a hitch."""
    findings = judged(long(name), n_contexts=2)
    assert list(findings) == [claim.id for claim in registry.select(None)]
    open_or_sure = {finding.verdict for finding in findings.values()}
    assert open_or_sure <= set(get_args(Verdict))
    not_applicable = {
        claim for claim, finding in findings.items() if finding.verdict == "not_applicable"
    }
    assert not_applicable == set(excluded(make(name), TASK))
    if name == "mlp only":
        assert findings[ERASED].verdict == "inconclusive"
        assert findings[ERASED].reason.startswith("The model explains -")
        assert findings[SATURATES].verdict == findings[CAUSE].verdict == "supported"
