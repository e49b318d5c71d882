"""Entropies of attention, against their definitions on the keys that a query is known to see."""

import math

import numpy as np
import pytest
import torch
from activations import KINDS, cached
from helpers import must_fail
from small_models import PROMPTS, make

from icl_interp.interventions.attention import SwapPattern
from icl_interp.interventions.base import intervene
from icl_interp.probes.attention import AttentionEntropy, PatternStatistics
from icl_interp.probes.runner import probe


def row_statistics(weights, visible):
    """Of one query, from the definitions and the keys that it is known to see."""
    p = weights[list(visible)]
    entropy = -sum(a * math.log(a) for a in p if a > 0)
    top = p.max()
    return {
        "entropy": entropy,
        "normalised_entropy": entropy / math.log(len(p)),
        "deficit": math.log(len(p)) - entropy,
        "effective_keys": math.exp(entropy),
        "max_weight": top,
        "delta": 1 - sum(a for a in p if a > top * (1 - 1e-6)),
        "visible_keys": len(p),
    }


def check_entropy(results, cache, visible, kinds):
    """`visible(query)`: the keys a query sees, by construction; None for a query to be left out."""
    for layer in range(2):
        for head in range(3):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
            for kind, queries in kinds.items():
                rows = [
                    list(row_statistics(prompt[q], visible(q)).values())
                    for prompt in pattern
                    for q in queries
                    if visible(q) is not None
                ]
                expected = np.array([np.mean(rows, 0), np.std(rows, 0)])
                for i, key in enumerate(PatternStatistics._fields):
                    got = results[f"attention_entropy.{key}"].sel(layer=layer, head=head, position=kind).values
                    np.testing.assert_allclose(got, expected[:, i], rtol=1e-7, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", ["pre", "hardmax", "no norm"])
def test_attention_entropy(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    check_entropy(results, cache, lambda q: range(q + 1) if q else None, KINDS)
    # The first token sees only itself, and says nothing.
    must_fail(check_entropy, results, cache, lambda q: range(max(q + 1, 2)), KINDS)


def test_attention_entropy_of_bidirectional_attention():
    model = make("bidirectional")
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    kinds = {"xy": range(6), "query": [6]}
    assert tuple(results["attention_entropy.entropy"].indexes["position"]) == ("xy", "query")
    check_entropy(results, cache, lambda q: range(7), kinds)
    must_fail(check_entropy, results, cache, lambda q: range(q + 1) if q else None, kinds)


def hide_third_key(scores, hook):
    scores = scores.clone()
    scores[..., 2] = -torch.inf
    return scores


def test_attention_entropy_counts_what_is_visible_from_the_scores():
    model, p = make(), AttentionEntropy()
    hooks = [(f"blocks.{i}.attn.hook_attn_scores", hide_third_key) for i in range(2)]
    with torch.no_grad(), model.hooks(fwd_hooks=hooks):
        results, cache = probe(model, PROMPTS, [p]), cached(model)

    def seen(q):
        keys = [k for k in range(q + 1) if k != 2]
        return keys if len(keys) > 1 else None

    check_entropy(results, cache, seen, KINDS)


@pytest.mark.parametrize(
    ("to", "ends"),
    [
        ("uniform", {"normalised_entropy": 1, "deficit": 0, "effective_keys": 13, "max_weight": 1 / 13, "delta": 0}),
        ("hardmax", {"normalised_entropy": 0, "deficit": np.log(13), "effective_keys": 1, "max_weight": 1, "delta": 0}),
    ],
)
def test_attention_entropy_at_the_two_ends(to, ends):
    model = make()
    with intervene(model, SwapPattern(to)):
        results = probe(model, PROMPTS, [AttentionEntropy()])
    for key, number in ends.items():
        got = results[f"attention_entropy.{key}"].sel(position="query", statistic="mean").values
        np.testing.assert_allclose(got, number, atol=1e-12, err_msg=key)


def test_delta_merges_ties():
    statistics = PatternStatistics.of(torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]), torch.tensor([3, 3]))
    torch.testing.assert_close(statistics.delta, torch.tensor([0.2, 0.5]).double(), atol=1e-7, rtol=0)
