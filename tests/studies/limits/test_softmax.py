"""Heads that attend to one token: what is measured along x, and what the claim says of hand-set models."""

from dataclasses import replace

import numpy as np
import torch
from helpers import must_fail
from small_models import long, small_lab

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import TARGETS, hardmax_distance
from icl_interp.provenance import generator
from icl_interp.studies.limits.claims import softmax as limits_softmax
from icl_interp.studies.limits.claims.softmax import CONCENTRATED, FAR_CONDITIONS
from icl_interp.studies.limits.constructions.layers import random_pre_norm, scalar_layer

HARDMAX, UNIFORM = "limits.softmax_hardmax", "limits.softmax_uniform"


# ---- what is measured -----------------------------------------------------------------------------------------------


def last_rows(lab, x=None):
    """Weights of every head at the last query of whole prompts, put at x or left at its own: (batch, head, key)."""
    xs = lab.prompts.xs.clone()
    if x is not None:
        xs[:, -1] = x
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(lab.prompts, xs=xs)))
    return torch.cat([cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1] for i in range(2)], 1)


def check_concentration(result, lab):
    """The share of a function's contexts in which a head is at its hardmax, at their own queries and far out."""
    places = [None, *(lab.x_unit * x for x in FAR_CONDITIONS)]
    assert list(result.indexes["condition"]) == ["in distribution", *places[1:]]
    for condition, x in zip(result.indexes["condition"], places, strict=True):
        near = (hardmax_distance(last_rows(lab, x)) <= CONCENTRATED).double()
        expected = near.view(4, 3, 6).mean(1).T
        np.testing.assert_allclose(result.sel(condition=condition).values, expected, atol=1e-12)


def check_curve(result, lab):
    """delta and the targets, means over all contexts, at each place of the query."""
    kinds = np.array(lab.encoding.kinds(7))
    for x in (-1e6, 1.0, 10.0):
        rows = last_rows(lab, x)
        best = rows.argmax(-1).numpy()
        hits = [best == 12, best == 0, (kinds[best] == "x") & (best != 12), kinds[best] == "y", kinds[best] == "xy"]
        expected = np.stack([hardmax_distance(rows).mean(0).numpy(), *(h.mean(0) for h in hits)])
        np.testing.assert_allclose(result.sel(x=x).values, expected, rtol=1e-9, atol=1e-12)


def test_concentration_is_counted_over_contexts():
    lab = small_lab(init_std=1.5)
    result = limits_softmax.concentration(lab)
    assert 0 < result.values.mean() < 1
    check_concentration(result, lab)
    must_fail(check_concentration, result.copy(data=result.values[:, :, ::-1]), lab)
    must_fail(check_concentration, result.copy(data=result.values[::-1]), lab)
    must_fail(check_concentration, result.copy(data=np.roll(result.values, 1, 1)), lab)


def test_delta_along_x_is_that_of_whole_prompts():
    lab = small_lab()
    result = limits_softmax.delta(lab)
    assert list(result.indexes["statistic"]) == ["delta", *TARGETS]
    check_curve(result, lab)
    must_fail(check_curve, result.copy(data=result.values[..., ::-1]), lab)
    must_fail(check_curve, result.copy(data=result.values[:, ::-1]), lab)


# ---- the claim ------------------------------------------------------------------------------------------------------


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
