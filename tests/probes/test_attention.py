"""Entropies of attention, against their definitions on the keys that a query is known to see."""

import math

import numpy as np
import pytest
import torch
from cached_activations import KINDS, cached
from helpers import must_fail
from small_models import PROMPTS, make

from icl_interp.errors import InputError
from icl_interp.interventions.attention import SwapPattern
from icl_interp.interventions.base import intervene
from icl_interp.probes.attention import (
    TARGETS,
    AttentionEntropy,
    AttentionTargets,
    PatternStatistics,
)
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
        "delta": 1
        if (tied := [a for a in p if a > top * (1 - 1e-6)])[len(p) // 2 :]
        else 1 - sum(tied),
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
                    got = (
                        results[f"attention_entropy.{key}"]
                        .sel(layer=layer, head=head, position=kind)
                        .values
                    )
                    np.testing.assert_allclose(
                        got, expected[:, i], rtol=1e-7, atol=1e-9, err_msg=key
                    )


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
        (
            "uniform",
            {
                "normalised_entropy": 1,
                "deficit": 0,
                "effective_keys": 13,
                "max_weight": 1 / 13,
                "delta": 1,
            },
        ),
        (
            "hardmax",
            {
                "normalised_entropy": 0,
                "deficit": np.log(13),
                "effective_keys": 1,
                "max_weight": 1,
                "delta": 0,
            },
        ),
    ],
)
def test_attention_entropy_at_the_two_ends(to, ends):
    model = make()
    with intervene(model, SwapPattern(to)):
        results = probe(model, PROMPTS, [AttentionEntropy()])
    for key, number in ends.items():
        got = results[f"attention_entropy.{key}"].sel(position="query", statistic="mean").values
        np.testing.assert_allclose(got, number, atol=1e-12, err_msg=key)


# ---- softmax times a matrix of positions ---------------------------------------------------------


def test_entropy_of_softmax_times_positions_is_that_of_weights_over_their_sum():
    model = make("pre", position_weights="softmax")
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    scaled = {}
    for name, weights in cache.items():
        if name.endswith("hook_pattern"):
            scaled[name] = weights / weights.sum(-1, keepdims=True)

    def seen(query):
        return range(query + 1) if query else None

    check_entropy(results, scaled, seen, KINDS)
    must_fail(check_entropy, results, cache, seen, KINDS)  # as they are, they add up to less than 1


def test_weights_below_zero_have_no_entropy():
    model = make("pre", position_weights="free")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_P.abs_()
    found = probe(model, PROMPTS, [AttentionEntropy()])["attention_entropy.entropy"]
    assert np.isfinite(found.values).all()
    with torch.no_grad():
        model.blocks[1].attn.W_P[12, 0] = -0.1  # of the last query alone
    found = probe(model, PROMPTS, [AttentionEntropy()])["attention_entropy.entropy"]
    assert np.isnan(found.sel(layer=1, position="query").values).all()
    assert np.isfinite(found.sel(layer=1, position="x").values).all()


# ---- a value a prompt, and some of the keys ------------------------------------------------------


def check_per_prompt(results, cache, visible=lambda q: range(q + 1) if q else None, n=24):
    """Each prompt's mean over the queries of a kind that see more than one key."""
    pattern = cache["blocks.1.attn.hook_pattern"]
    for key in PatternStatistics._fields:
        found = results[f"attention_entropy.{key}"]
        assert found.dims == ("layer", "head", "position", "prompt")
        for kind, queries in KINDS.items():
            expected = [
                np.mean(
                    [
                        row_statistics(prompt[2, q], visible(q))[key]
                        for q in queries
                        if visible(q) is not None
                    ]
                )
                for prompt in pattern[:n]
            ]
            got = found.sel(layer=1, head=2, position=kind).values
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", ["pre", "hardmax"])
def test_a_value_for_each_prompt(name):
    model = make(name)
    results = probe(model, PROMPTS, [AttentionEntropy(per_prompt=True)], batch_size=7)
    check_per_prompt(results, cached(model))
    must_fail(check_per_prompt, results, cached(model), lambda q: range(max(q + 1, 2)))


def test_prompts_in_another_order_are_noticed():
    model = make()
    results = probe(model, PROMPTS, [AttentionEntropy(per_prompt=True)])
    shuffled = {key: r.copy(data=r.values[..., ::-1]) for key, r in results.items()}
    must_fail(check_per_prompt, shuffled, cached(model))


def test_a_prompt_whose_queries_see_one_key_has_no_value():
    results = probe(make(), PROMPTS[:3].first(1), [AttentionEntropy(per_prompt=True)])
    assert np.isnan(results["attention_entropy.deficit"].values).all()


def check_among(results, cache, keys):
    """Weights on some of the keys are scaled to add up to 1."""
    part = cache["blocks.0.attn.hook_pattern"][:, 1, 12][:, keys]
    part = part / part.sum(-1, keepdims=True)
    for key in PatternStatistics._fields:
        rows = [row_statistics(prompt, range(len(keys)))[key] for prompt in part]
        got = results[f"attention_entropy.{key}"].sel(layer=0, head=1, position="query").values
        np.testing.assert_allclose(
            got, [np.mean(rows), np.std(rows)], rtol=1e-7, atol=1e-9, err_msg=key
        )


def test_entropy_among_some_of_the_keys():
    model, among_y = make(), list(KINDS["y"])
    results, cache = probe(model, PROMPTS, [AttentionEntropy(keys=among_y)]), cached(model)
    check_among(results, cache, among_y)
    must_fail(check_among, results, cache, list(KINDS["x"]))
    must_fail(check_among, probe(model, PROMPTS, [AttentionEntropy()]), cache, among_y)
    # An x before the second y sees one of these keys at most.
    first = probe(model, PROMPTS.first(2), [AttentionEntropy(keys=[1])])
    assert np.isnan(first["attention_entropy.entropy"].values).all()


# ---- targets -------------------------------------------------------------------------------------


def target_shares(pattern, kinds):
    """Of one head, by looking at each prompt's last row."""
    hits = {target: 0 for target in TARGETS}
    for row in pattern[:, -1]:
        best = int(np.argmax(row))
        hits["itself"] += best == len(kinds) - 1
        hits["the first token"] += best == 0
        hits["an x"] += kinds[best] == "x" and best != len(kinds) - 1
        hits["a y"] += kinds[best] == "y"
        hits["a pair"] += kinds[best] == "xy"
    return [hits[target] / len(pattern) for target in TARGETS]


def check_targets(name, kinds):
    model = make(name, init_std=1.5)
    found = probe(model, PROMPTS, [AttentionTargets(kinds)])["attention_targets.share"]
    assert found.dims == ("layer", "head", "position", "target")
    assert tuple(found.indexes["position"]) == ("query",)
    cache, used = cached(model), set()
    for layer in range(2):
        for head in range(3):
            expected = target_shares(cache[f"blocks.{layer}.attn.hook_pattern"][:, head], kinds)
            np.testing.assert_allclose(
                found.sel(layer=layer, head=head, position="query").values, expected
            )
            used |= {target for target, share in zip(TARGETS, expected, strict=True) if share}
    return used


def test_what_heads_attend_to_most():
    interleaved = ("x", "y") * 6 + ("x",)
    assert check_targets("pre", interleaved) == {"itself", "the first token", "an x", "a y"}
    assert "a pair" in check_targets("bidirectional", ("xy",) * 6 + ("x",))
    model = make()
    mislabelled = probe(model, PROMPTS, [AttentionTargets(("y", "x") * 6 + ("y",))])[
        "attention_targets.share"
    ]
    right = probe(model, PROMPTS, [AttentionTargets(interleaved)])["attention_targets.share"]
    assert not np.allclose(mislabelled.values, right.values)


def test_of_equal_weights_the_first_counts():
    model = make()
    with intervene(model, SwapPattern("uniform")):
        found = probe(model, PROMPTS, [AttentionTargets(("x", "y") * 6 + ("x",))])[
            "attention_targets.share"
        ]
    assert (found.sel(position="query").values == [0, 1, 1, 0, 0]).all()


def test_targets_need_attention():
    with pytest.raises(InputError, match="attention_targets: this model has no attention"):
        probe(make("mlp only"), PROMPTS, [AttentionTargets(("x",))])


def check_refused(kinds):
    with pytest.raises(InputError) as refusal:
        probe(make(), PROMPTS, [AttentionTargets(kinds)])
    expected = f"AttentionTargets was told what {len(kinds)} tokens show, but these prompts have 13"
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_kinds_of_another_length_are_refused():
    """Read anyway, the token called the last would be another one, and "itself" a wrong number."""
    for n in (5, 20):
        check_refused(("x", "y") * n + ("x",))
    must_fail(check_refused, ("x", "y") * 6 + ("x",))
