"""Rotary, ALiBi and relative positions: every route, a second computation, and what is refused."""

import cmath
import math

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.limits.measurements import scalar_layer
from icl_interp.testing.null_models import no_copier
from icl_interp.testing.reparameterisations.stream import WIDTH_DOUBLED

KINDS = ("rotary", "alibi", "relative")
WAYS = {"plain": {}, "previous": {"queries": "previous", "score_fn": "linear"}}
ONE = {"n_layers": 1, "attn_only": True, "normalization_type": None, "d_in": 2}
MODELS = {
    (kind, way): make(d_in=2, positional_embedding_type=kind, **WAYS[way])
    for kind in KINDS
    for way in WAYS
}
EACH = pytest.mark.parametrize("key", MODELS, ids=" ".join)


def tokens_of(n_tokens=7, batch=3, stream="test/positions in scores"):
    return torch.randn(batch, n_tokens, 2, generator=generator(0, stream), dtype=torch.float64)


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.std() > 1e-3
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def turned(vector, place):
    """Pairs of numbers as complex ones, each turned by its own angle."""
    d, out = len(vector), []
    for k in range(0, d, 2):
        number = complex(float(vector[k]), float(vector[k + 1]))
        number *= cmath.exp(1j * place * 10_000 ** (-k / d))
        out += [number.real, number.imag]
    return torch.tensor(out, dtype=torch.float64)


def score(model, query, key, i, j, h, step=1.0):
    """The score of key j for query i in head h; `step` scales distances, for mutants."""
    cfg, attention = model.cfg, model.blocks[0].attn
    if cfg.positional_embedding_type == "rotary":
        query, key = turned(query, step * i), turned(key, step * j)
    plain = float(query @ key) / math.sqrt(cfg.head_width)
    if cfg.positional_embedding_type == "alibi":
        return plain - step * abs(i - j) * 2 ** (-8 * (h + 1) / cfg.n_heads)
    if cfg.positional_embedding_type == "relative":
        middle = cfg.n_ctx - 1 if cfg.attention_dir == "bidirectional" else 0
        return plain + step * float(attention.W_R[h, middle + i - j])
    return plain


def by_hand(model, tokens, step=1.0):
    """One layer's predictions, query by query and key by key."""
    cfg, attention = model.cfg, model.blocks[0].attn
    stream = tokens @ model.embed.W_E + model.embed.b_E
    n, out = tokens.shape[1], stream.clone() + attention.b_O
    made = {c: torch.einsum("bte,hed->bthd", stream, getattr(attention, f"W_{c}")) for c in "QKV"}
    made = {c: made[c] + getattr(attention, f"b_{c}") for c in "QKV"}
    for b in range(len(tokens)):
        for i in range(n):
            seen = range(n) if cfg.attention_dir == "bidirectional" else range(i + 1)
            for h in range(cfg.n_heads):
                scores = torch.tensor(
                    [score(model, made["Q"][b, i, h], made["K"][b, j, h], i, j, h, step)
                     for j in seen],
                    dtype=torch.float64,
                )  # fmt: skip
                for weight, j in zip(scores.softmax(0), seen, strict=True):
                    out[b, i] += weight * (made["V"][b, j, h] @ attention.W_O[h])
    return out @ model.unembed.W_U + model.unembed.b_U


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["causal", "bidirectional"])
def test_a_layer_is_what_its_config_says(kind, way):
    model = make(**ONE, positional_embedding_type=kind, attention_dir=way)
    tokens = tokens_of(5, 2)
    with torch.no_grad():
        agree(model(tokens), by_hand(model, tokens))
        must_fail(agree, model(tokens), by_hand(model, tokens, step=1.1))


@EACH
def test_every_route_gives_the_same(key):
    model, tokens = MODELS[key], tokens_of()
    with torch.no_grad():
        full = model(tokens)
        for positions in (range(6, 7), range(0, 7, 2)):
            agree(model(tokens, positions), full[:, positions])
        _, cache = model.run_with_cache(tokens)
        agree(model.resume(cache["blocks.1.hook_resid_pre"], 1, range(6, 7)), full[:, 6:])
        for block in model.blocks:
            block.attn.fused = True
        agree(model(tokens), full)
        for block in model.blocks:
            block.attn.fused = None
        agree(model(tokens[:, :4]), full[:, :4])
        must_fail(agree, model(tokens.flip(1)), full.flip(1))


def after_is_whole(model, context, remembered, cut=None):
    queries = tokens_of(4, stream="test/queries") * 3
    memory = model.remember(remembered)
    if cut is not None:
        memory, context = [m.first(cut) for m in memory], context[:, :cut]
    got = model.after(memory, queries, context.shape[1])
    whole = [model(torch.cat([context, queries[:, i : i + 1]], 1))[:, -1] for i in range(4)]
    agree(got, torch.stack(whole, 1))


@EACH
@pytest.mark.parametrize("cut", [None, 2])
def test_alternative_queries_after_a_context(key, cut):
    with torch.no_grad():
        context = tokens_of(6)
        after_is_whole(MODELS[key], context, context, cut)
        must_fail(after_is_whole, MODELS[key], context, context.flip(0), cut)


@EACH
def test_hooks_read_edit_and_differentiate(key):
    """Who reads changes nothing, who edits does, and a pattern is that of the scores shown."""
    model, tokens = MODELS[key], tokens_of()
    with torch.no_grad():
        plain = model(tokens)
        out, cache = model.run_with_cache(tokens)
        assert torch.equal(out, plain)
        scores, pattern = (cache[f"blocks.0.attn.hook_{n}"] for n in ("attn_scores", "pattern"))
        expected = scores.softmax(-1) if key[1] == "plain" else scores.masked_fill(
            scores == -math.inf, 0.0
        )  # fmt: skip
        agree(pattern, expected)
        for name in ("q", "k"):
            hook = [(f"blocks.0.attn.hook_{name}", lambda t, hook: 2 * t)]
            must_fail(agree, model.run_with_hooks(tokens, fwd_hooks=hook), plain)
    seen = []
    with model.hooks(bwd_hooks=[("blocks.0.attn.hook_k", lambda g, hook: seen.append(g))]):
        model(tokens.requires_grad_()).sum().backward()
    assert seen
    assert seen[0].abs().sum() > 0


def test_relative_numbers_are_weights_and_travel():
    kind = {"positional_embedding_type": "relative"}
    model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, **kind))
    assert model.blocks[0].attn.W_R.shape == (2, model.cfg.n_ctx)
    assert "blocks.1.attn.W_R" in model.state_dict()
    assert not hasattr(model, "pos_embed")
    assert not any("W_R" in name for name in MODELS["alibi", "plain"].state_dict())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mlp_only": True}, "acts on attention scores, but mlp_only leaves none"),
        ({"score_fn": "constant"}, "which score_fn='constant' does not read"),
        ({"d_head": 3}, "d_head must be even, but got 3"),
    ],
)
def test_settings_that_exclude_each_other(change, match):
    with pytest.raises(InputError, match=match):
        make(positional_embedding_type="rotary", **change)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_stand_them_says_so(kind):
    layer = {**ONE, "d_in": 1}
    model = make(**layer, positional_embedding_type=kind)
    for act in (lambda: model.read_in_bias, lambda: model.W_pos):
        with pytest.raises(InputError, match=f"positional_embedding_type='{kind}'"):
            act()
    assert kind in scalar_layer.why_not(model)
    assert "positions" in no_copier(model.cfg)
    assert kind in WIDTH_DOUBLED[0].applies(model.cfg)
    bare = make(**layer, positional_embedding_type="none")
    assert scalar_layer.why_not(bare) is None
