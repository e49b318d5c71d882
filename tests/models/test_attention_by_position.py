"""Queries of the token before, and weights of positions: every route, and a second computation."""

import math

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

LAYER = {"n_layers": 1, "attn_only": True, "normalization_type": None, "d_in": 2}
ONE_LAYER = {
    "previous": make("linear", **LAYER, queries="previous"),
    "free": make("linear", **LAYER, position_weights="free"),
    "previous, free": make("linear", **LAYER, queries="previous", position_weights="free"),
    "softmax of positions": make("pre", **LAYER, position_weights="softmax"),
    "similarity of positions": make("linear", **LAYER, position_weights="similarity"),
    "positions alone": make("pre", **LAYER, position_weights="free", score_fn="constant"),
    "previous, softmax": make("pre", **LAYER, queries="previous"),
    "bidirectional": make("bidirectional", **LAYER, queries="previous", position_weights="softmax"),
}
DEEP = {
    "previous, free": make("previous", d_in=2),
    "softmax of positions": make("post", d_in=2, position_weights="softmax"),
    "similarity of positions": make("post", d_in=2, position_weights="similarity"),
    "positions alone": make("pre", d_in=2, position_weights="free", score_fn="constant"),
}
LAYERS, MODELS = pytest.mark.parametrize("name", ONE_LAYER), pytest.mark.parametrize("name", DEEP)


def tokens_of(n_tokens=7, batch=3, stream="test/positions"):
    return torch.randn(batch, n_tokens, 2, generator=generator(0, stream), dtype=torch.float64)


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.std() > 1e-3
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def place(attention, query, key):
    """What is learned of two positions; 1 where nothing is."""
    if attention.cfg.position_weights == "similarity":
        pairs = zip(attention.W_Q_pos[query], attention.W_K_pos[key], strict=True)
        return sum(float(a * b) for a, b in pairs)
    return float(attention.W_P[query, key]) if attention.cfg.position_weights else 1.0


def by_hand(model, tokens, shift=1, times=None):
    """The layer's predictions token by token and key by key."""
    cfg, attention = model.cfg, model.blocks[0].attn
    stream = tokens @ model.embed.W_E + model.embed.b_E
    if hasattr(model, "pos_embed"):
        stream = stream + model.pos_embed.W_pos[: stream.shape[1]]
    n, out = tokens.shape[1], stream.clone() + attention.b_O
    for b in range(len(tokens)):
        for i in range(n):
            seen = range(n) if cfg.attention_dir == "bidirectional" else range(i + 1)
            places = torch.tensor([place(attention, i, j) for j in seen], dtype=torch.float64)
            if cfg.position_weights in ("softmax", "similarity"):
                places = places.softmax(0)
            for h in range(cfg.n_heads):
                query = torch.zeros(cfg.head_width, dtype=torch.float64)
                if not cfg.queries:
                    query = stream[b, i] @ attention.W_Q[h] + attention.b_Q[h]
                elif i >= shift:
                    query = stream[b, i - shift] @ attention.W_Q[h] + attention.b_Q[h]
                keys = [stream[b, j] @ attention.W_K[h] + attention.b_K[h] for j in seen]
                scores = torch.stack([query @ key for key in keys]) / math.sqrt(cfg.head_width)
                weights = {"softmax": scores.softmax(0), "constant": torch.ones_like(scores)}.get(
                    cfg.score_fn, scores / len(scores)
                )
                weights = weights * (places if times is None else places * times)
                for weight, j in zip(weights, seen, strict=True):
                    value = stream[b, j] @ attention.W_V[h] + attention.b_V[h]
                    out[b, i] += weight * (value @ attention.W_O[h])
    return out @ model.unembed.W_U + model.unembed.b_U


@LAYERS
def test_a_layer_is_what_its_config_says(name):
    model, tokens = ONE_LAYER[name], tokens_of(5, 2)
    with torch.no_grad():
        agree(model(tokens), by_hand(model, tokens))
        must_fail(agree, model(tokens), by_hand(model, tokens, times=1.01))
        if model.cfg.queries:
            must_fail(agree, model(tokens), by_hand(model, tokens, shift=2))


@MODELS
def test_every_route_gives_the_same(name):
    model, tokens = DEEP[name], tokens_of()
    with torch.no_grad():
        full = model(tokens)
        for positions in (range(6, 7), range(0, 7, 2)):
            agree(model(tokens, positions), full[:, positions])
        _, cache = model.run_with_cache(tokens, names_filter="blocks.1.hook_resid_pre")
        agree(model.resume(cache["blocks.1.hook_resid_pre"], 1, range(6, 7)), full[:, 6:])
        for block in model.blocks:  # torch's kernel knows no such patterns
            block.attn.fused = True
        agree(model(tokens), full)
        for block in model.blocks:
            block.attn.fused = None
        agree(model(tokens[:, :4]), full[:, :4])  # what comes later is not seen


def after_is_whole(model, context, remembered, cut=None):
    queries = tokens_of(4, stream="test/queries") * 3
    memory = model.remember(remembered)
    if cut is not None:
        memory, context = [m.first(cut) for m in memory], context[:, :cut]
    got = model.after(memory, queries, context.shape[1])
    whole = [model(torch.cat([context, queries[:, i : i + 1]], 1))[:, -1] for i in range(4)]
    agree(got, torch.stack(whole, 1))


@MODELS
@pytest.mark.parametrize("cut", [None, 2])
def test_alternative_queries_after_a_context(name, cut):
    with torch.no_grad():
        context = tokens_of(6)
        after_is_whole(DEEP[name], context, context, cut)
        must_fail(after_is_whole, DEEP[name], context, context.flip(0), cut)


def test_the_pattern_that_hooks_see_is_the_one_that_weighs():
    model, tokens = DEEP["previous, free"], tokens_of()
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        scores, pattern = (
            cache[f"blocks.0.attn.hook_{name}"] for name in ("attn_scores", "pattern")
        )
        expected = scores.masked_fill(scores == -math.inf, 0.0) * model.blocks[0].attn.W_P[:7, :7]
        torch.testing.assert_close(pattern, expected, rtol=1e-12, atol=1e-12)
        assert not cache["blocks.0.attn.hook_q"][:, 0].any()  # nobody stands before the first token
        twice = model.run_with_hooks(
            tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda p, hook: 2 * p)]
        )
        must_fail(agree, twice, model(tokens))


def test_position_weights_are_learned_and_only_there_if_asked_for():
    model = make("previous").requires_grad_(True)
    model(
        torch.randn(2, 7, 1, generator=generator(0, "t"), dtype=torch.float64)
    ).square().sum().backward()
    found = model.blocks[1].attn.W_P.grad
    assert found is not None
    assert found[3, 2] != 0
    assert not any("W_P" in name for name in make("pre").state_dict())
    assert not make("previous").cfg.weights_add_up
    assert not make("pre", position_weights="softmax").cfg.weights_add_up
    alike = make("pre", position_weights="similarity").state_dict()
    assert not any("W_P" in name for name in alike)
    for name in ("W_Q_pos", "W_K_pos"):
        assert not any(name in other for other in make("previous").state_dict())
        assert f"blocks.1.attn.{name}" in alike


def test_weights_of_a_similarity_are_a_distribution_by_position():
    """With scores of 1 the pattern is P itself, and both matrices move it."""
    model = make("pre", position_weights="similarity", score_fn="constant", d_in=2)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens_of())
        pattern = cache["blocks.0.attn.hook_pattern"]
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern.sum(-1)))
        before = pattern.clone()
        for name in ("W_Q_pos", "W_K_pos"):
            weight = getattr(model.blocks[0].attn, name)
            kept = weight.clone()
            weight.neg_()
            _, cache = model.run_with_cache(tokens_of())
            must_fail(agree, cache["blocks.0.attn.hook_pattern"], before)
            weight.copy_(kept)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"mlp_only": True, "queries": "previous"},
            "queries='previous' needs attention, but mlp_only leaves none",
        ),
        ({"mlp_only": True, "position_weights": "free"}, "position_weights='free' needs attention"),
        (
            {"queries": "previous", "keys": "labelled"},
            "queries='previous' and keys='labelled' exclude each other",
        ),
    ],
)
def test_impossible_combinations_are_refused_by_name(settings, said):
    with pytest.raises(InputError) as error:
        HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=4, **settings))
    assert said in str(error.value)
