"""What is left of a prediction without the last layer, and both questions' verdicts on it."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail, one_in
from made_up_facts import facts
from small_models import TASK, encoding_of, make
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.interventions.outputs import sublayers
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import Interval
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import last_layer as last_layer_claim
from icl_interp.studies.limits.claims.last_layer import left, seen_by
from icl_interp.studies.limits.constructions.mechanisms import (
    step_elsewhere,
    step_in_layers,
    step_twice,
)
from icl_interp.studies.limits.measurements import lens as measured_lens
from icl_interp.studies.limits.measurements.ablation import ALL, BLIND, QUERY
from icl_interp.studies.limits.measurements.lens import EDITS, LENSES, PARTS

LAST_ID = "limits.last_layer"
N = 40


# ---- what is left --------------------------------------------------------------------------------


def moments(rho, n_groups=400, per=50, mean=0.0, scale=3.0, shift=0.0):
    """Groups' mean products of 1, d, g and m, with a correlation rho of d and g; m is in g, too."""
    draw = np.random.default_rng(0).standard_normal((3, n_groups, per))
    d, m = draw[0], mean * draw[2] + shift
    g = scale * (rho * d + np.sqrt(1 - rho**2) * draw[1]) + 2 * m - 5
    rows = np.stack([np.ones_like(d), d, g, m])
    values = np.einsum("agp,bgp->abg", rows, rows)[None] / per
    return make_array(
        values,
        {"edit": ("last block",), "of": PARTS, "and": PARTS, "group": tuple(range(n_groups))},
    )


def check_left(share, rho):
    # The last is a law whose mean is one number, and of which rounding makes several.
    for law in ({}, {"mean": 2.0}, {"shift": 0.7, "mean": 1e-16}):
        found = share(moments(rho, **law), "last block")
        assert found.value == pytest.approx(rho**2, abs=0.02)
        assert found.low <= rho**2 <= found.high or rho in (0.0, 1.0)
    assert (
        share(moments(0.0, scale=0.0), "last block").value < 1e-15
    )  # it says the same whatever the prompt


def test_what_is_left_has_scale_offset_and_the_law_s_mean_set_right():
    for rho in (0.0, 0.6, 0.9, 1.0):
        check_left(left, rho)

    def raw(result, edit):
        m = result.sel(edit=edit).values.mean(-1)
        value = m[1, 2] ** 2 / (m[1, 1] * m[2, 2])
        return Interval(value, value, value)

    must_fail(check_left, raw, 0.6)


def check_without_last(measure):
    """By full forward passes, with what the last block writes at its mean over other prompts."""
    model = make("pre").float()
    lab = Lab(model, TASK, encoding_of(model), n_units=4, n_contexts=2)
    result = measure(lab)
    prompts = measured_lens.prompts_of(lab)
    names = ("blocks.1.hook_attn_out", "blocks.1.hook_mlp_out")
    _, cache = lab.single.run_with_cache(lab.tokens(lab.few).float())
    tokens = lab.tokens(prompts).float()
    intact = lab.single(tokens)[:, -1, 0].double() - TASK.expected(prompts.xs)[:, -1, 0]
    for edit, some in (
        ("last block", names),
        ("last attention", names[:1]),
        ("last MLP", names[1:]),
    ):
        means = {name: cache[name].mean(0) for name in some}
        with lab.single.hooks(
            fwd_hooks=[(name, lambda t, hook, m=m: m.expand_as(t)) for name, m in means.items()]
        ):
            g = lab.single(tokens)[:, -1, 0].double()
        for what, values in (("edited", g), ("intact", intact)):
            cell = result.sel({"edit": edit, "of": "intact", "and": what}).values
            expected = (intact * values).view(4, -1).mean(1)
            assert np.allclose(cell, expected, rtol=1e-3, atol=1e-5)


def test_the_last_layer_is_left_out_by_brute_force(monkeypatch):
    check_without_last(measured_lens.without_last)

    monkeypatch.setattr(
        measured_lens, "sublayers", lambda model, kind, layer: sublayers(model, kind, layer - 1)
    )
    must_fail(check_without_last, measured_lens.without_last)


# ---- known truth ---------------------------------------------------------------------------------


def judged_step(measured, case):
    """The bench and the finding on a step of gradient descent that some layer takes."""
    found = measured(case.model, LAST_ID, task=case.task, n_units=32, n_contexts=8)
    return found, found.judge(LAST_ID)


def check_decodable_is_not_formed(measured):
    """The first layer writes the answer where the second layer reads it: it can be decoded.

    But without the second layer nothing of the prediction is left.
    """
    found, finding = judged_step(measured, step_elsewhere(generator(0, "test/elsewhere")))
    assert finding.estimate.low > 0.99
    assert left(found.results["layers/without last"], "last block").high < 1e-6
    assert finding.verdict == "inconclusive"
    assert finding.reason.startswith("It is open whether")
    assert "The last layer makes a prediction that could have been read before it" in finding.reason


@pytest.mark.slow
def test_decodable_is_not_formed(measured, monkeypatch):
    check_decodable_is_not_formed(measured)
    monkeypatch.setattr(
        last_layer_claim,
        "_before",
        lambda results, n: {
            "before": Estimate.of("", seen_by(results["layers/lens"], "affine", n - 1))
        },
    )
    must_fail(check_decodable_is_not_formed, measured)


def check_what_nothing_reads_is_not_there(measured):
    """The first layer writes the answer where nothing reads it, and the second makes it anew."""
    _, finding = judged_step(measured, step_twice(generator(0, "test/twice")))
    assert finding.estimate.high < 0.1
    assert finding.verdict == "supported"


@pytest.mark.slow
def test_an_answer_that_nothing_reads_is_not_seen(measured, monkeypatch):
    check_what_nothing_reads_is_not_there(measured)
    monkeypatch.setattr(measured_lens, "as_read", lambda model, streams: streams)
    must_fail(check_what_nothing_reads_is_not_there, measured)


def check_what_the_query_tells(measured):
    """Functions with a mean: what the query alone tells of the prediction is not counted.

    The query tells it before any layer.
    """
    _, finding = judged_step(
        measured, step_in_layers(generator(1, "test/mean"), 0.0, 1.0, lean=1.5)
    )
    assert finding.verdict == "supported"


@pytest.mark.slow
def test_the_mean_of_the_functions_is_not_formed_anywhere(measured, monkeypatch):
    check_what_the_query_tells(measured)
    monkeypatch.setattr(
        measured_lens, "_of_context", lambda lab, prompts, out: as_numbers(out).double()
    )
    must_fail(check_what_the_query_tells, measured)


# ---- verdicts ------------------------------------------------------------------------------------


def lensed(affine, logit=None, noise=0.05) -> DataArray:
    """Made-up results with an R2 at each depth before the last, where it is 1."""
    g = np.random.default_rng(0)
    total = np.exp(0.3 * g.standard_normal(N))
    shares = [[*(logit or affine), 1.0], [*affine, 1.0]]
    values = [
        [[(1 - r) * total * np.exp(noise * g.standard_normal(N)), total] for r in row]
        for row in shares
    ]
    axes = {
        "lens": LENSES,
        "depth": tuple(range(len(affine) + 1)),
        "statistic": ("residual", "total"),
        "group": tuple(range(N)),
    }
    return make_array(values, axes)


def without(share) -> DataArray:
    """Made-up moments with a share that is left without the last block, and without its parts."""
    return make_array(
        np.repeat(moments(np.sqrt(share), n_groups=N).values, 3, axis=0),
        {"edit": EDITS, "of": PARTS, "and": PARTS, "group": tuple(range(N))},
    )


def results(affine, logit=None, control=0.99, share=None):
    """By default the share left without the last layer is the one that is seen before it."""
    n = len(affine)
    axes = {"points": (ALL, QUERY), "group": tuple(range(N))}
    parts = {f"block {i}": np.full((2, N), 0.1 * (i + 1)) for i in range(n)} | {
        "reordered": np.full((2, N), np.nan)
    }
    whole = {
        "intact": np.full((2, N), 1e-3),
        BLIND: np.full((2, N), 0.5),
        "zero": np.full((2, N), 0.8),
    }
    return {
        "layers/lens": lensed(affine, logit),
        "twin/layers/lens": lensed([control] * n),
        "layers/without last": without(affine[-1] if share is None else share),
        "twin/layers/without last": without(control),
        "layers/ablated": make_array(list(parts.values()), {"arm": tuple(parts), **axes}),
        "layers/without attention": make_array(list(whole.values()), {"arm": tuple(whole), **axes}),
    }


def known(n_layers=3, **more):
    config = {
        key: more.pop(key)
        for key in list(more)
        if key in ("mlp_only", "norm_position", "normalization_type")
    }
    return facts(config={"n_layers": n_layers, **config}, n_units=N, **more)


def judge(found, facts=None):
    return registry.REGISTRY[LAST_ID].judge_results(found, facts or known())


def check_verdict(before, share, verdict):
    finding = judge(results([0.0, 0.1, before], share=share))
    assert finding.verdict == verdict
    assert finding.estimate.value == pytest.approx(before, abs=0.02)
    assert finding.causal["share left, last block at its mean"] == pytest.approx(share, abs=0.04)
    assert finding.causal["by block"] == pytest.approx([0.2, 0.4, 0.6])
    assert finding.causal["effect"] == pytest.approx(0.6)
    assert finding.causal["the same for another block (the largest effect)"] == pytest.approx(0.4)
    assert len(finding.details) == 8
    claim = registry.REGISTRY[LAST_ID]
    first = {"supported": claim.statement, "contradicted": claim.denied}
    opened = f"It is open whether {in_a_sentence(claim.statement)}."
    assert finding.reason.startswith(first.get(verdict, opened))
    assert finding.reason.count(". ") == 2
    assert ("could have been read before it" in finding.reason) == (before > 0.9 and share < 0.4)


CASES = (
    (0.2, 0.1, "supported"),
    (0.36, 0.35, "supported"),
    (0.44, 0.35, "inconclusive"),
    (0.36, 0.45, "inconclusive"),
    (0.56, 0.67, "inconclusive"),
    (0.64, 0.55, "inconclusive"),
    (0.64, 0.67, "contradicted"),
    (0.95, 0.98, "contradicted"),
    (0.95, 0.1, "inconclusive"),  # decodable is not formed
    (0.1, 0.95, "inconclusive"),
)


@pytest.mark.parametrize(("before", "share", "verdict"), one_in(2, CASES))
def test_a_verdict_needs_both(before, share, verdict):
    check_verdict(before, share, verdict)


@pytest.mark.parametrize(
    ("mainly", "already", "i"), [(0.3, 0.6, 1), (0.5, 0.6, 2), (0.4, 0.5, 4), (0.4, 0.7, 6)]
)
def test_other_limits_are_noticed(mainly, already, i, monkeypatch):
    claim = registry.REGISTRY[LAST_ID]
    (condition,) = claim.criterion.conditions
    other = replace(condition, supports=(-np.inf, mainly), contradicts=(already, np.inf))
    changed = replace(claim, criterion=replace(claim.criterion, conditions=(other,)))
    monkeypatch.setitem(registry.REGISTRY, LAST_ID, changed)
    must_fail(check_verdict, *CASES[i])


def test_the_affine_read_out_decides_and_not_the_logit_lens():
    finding = judge(results([0, 0.7, 0.9], logit=[0, 0, 0]))
    assert finding.verdict == "contradicted"
    assert [row["R2"] < 0.1 for row in finding.details if row["lens"] == "logit"] == [
        True,
        True,
        True,
        False,
    ]
    turned = judge(results([0, 0.1, 0.2], logit=[0.9, 0.9, 0.9]))
    assert turned.verdict == "supported"


@pytest.mark.slow
def test_the_gate():
    assert judge(results([0, 0.1, 0.2], control=0.1)).verdict == "inconclusive"
    assert judge(results([0, 0.1, 0.2]), known(r2=0.5)).verdict == "inconclusive"
    assert "has no final norm" in judge(results([0, 0.1, 0.2]), known(norm_position="post")).scope
    assert "has no final norm" not in judge(results([0, 0.1, 0.2])).scope


def test_who_cannot_be_asked():
    one = judge({}, known(n_layers=1))
    assert (
        one.reason
        == "The claim compares the last layer with those before; this model has one layer."
    )
    assert judge({}, known(mlp_only=True)).verdict == "not_applicable"
