"""Heads that attend to one token: the mass off the arg-max set, and what the claim says of hand-set models."""

import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from small_models import long

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.limits.claims.softmax import TARGETS, deltas
from icl_interp.studies.limits.constructions.layers import random_pre_norm, scalar_layer

HARDMAX, UNIFORM = "limits.softmax_hardmax", "limits.softmax_uniform"


# ---- patterns -------------------------------------------------------------------------------------------------------


def check_deltas(delta):
    """One minus the mass on the arg-max set, ties merged; a set of more than half of the keys is evenness."""
    for pattern, expected in (
        ([1.0, 0, 0, 0, 0], 0.0),
        ([0.6, 0.1, 0.1, 0.1, 0.1], 0.4),
        ([0, 0, 0, 0, 1.0], 0.0),
        ([0.5, 0.5, 0, 0, 0], 0.0),
        ([0.4, 0.4, 0.2, 0, 0], 0.2),
        ([0.3, 0.3, 0.3, 0.1, 0], 1.0),
        ([0.2] * 5, 1.0),
        ([0.25] * 4, 1.0),
        ([0.5, 0.5], 1.0),
        ([0.4, 0.4 * (1 - 1e-9), 0.2, 0, 0], 0.2),
        ([0.4, 0.399, 0.201, 0, 0], 0.6),
    ):
        assert float(delta(torch.tensor(pattern).double())) == pytest.approx(expected, abs=1e-8), pattern


def unmerged(pattern):
    return 1 - pattern.amax(-1)


def test_deltas_merge_ties():
    check_deltas(deltas)
    must_fail(check_deltas, unmerged)


def test_a_token_shown_twice_counts_once():
    """A hardmax onto the largest token stays one where that token stands several times in the context."""
    tokens = torch.tensor([3.0, -1.0, 3.0, 0.5, 3.0, 1.0, 0.0]).double()
    pattern = (1e4 * tokens).softmax(-1)
    assert float(deltas(pattern)) == 0
    assert float(unmerged(pattern)) == pytest.approx(2 / 3)


EIGHTHS = st.integers(-40, 40).map(lambda k: k / 8)  # so that ties stay ties when a number is added


@given(st.lists(EIGHTHS, min_size=3, max_size=9), EIGHTHS)
def test_delta_ignores_order_and_shift(scores, shift):
    pattern = torch.tensor(scores).double().softmax(-1)
    assert float(deltas(pattern.flip(-1))) == pytest.approx(float(deltas(pattern)), abs=1e-9)
    moved = (torch.tensor(scores).double() + shift).softmax(-1)
    assert float(deltas(moved)) == pytest.approx(float(deltas(pattern)), abs=1e-9)


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
