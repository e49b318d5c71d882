"""TransformerLens' own helpers work on our cache, and what they return is true."""

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.errors import InputError
from icl_interp.models.hooks import ActivationCache, FactoredMatrix
from icl_interp.provenance import generator

MODELS = {
    "LN": {},
    "LNPre": {"normalization_type": "LNPre"},
    "RMS": {"normalization_type": "RMS"},
    "no norm": {"normalization_type": None},
    "attention only": {"attn_only": True},
    "no positions": {"positional_embedding_type": "none"},
}
LAYERS, HEADS, WIDTH = 2, 3, 12


def run(**change):
    model = make(**change)
    tokens = torch.randn(4, 7, 1, generator=generator(0, "test/cache"), dtype=torch.float64)
    with torch.no_grad():
        return model, *model.run_with_cache(tokens)


def equal(got, want):
    assert got.shape == want.shape
    assert want.std() > 0.01
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def without_one(components):
    """A mutant: the last component but one is lost."""
    return torch.cat([components[:-2], components[-1:]]).sum(0)


@pytest.mark.parametrize("name", MODELS)
def test_the_stream_is_the_sum_of_its_components(name):
    model, _, cache = run(**MODELS[name])
    assert isinstance(cache, ActivationCache)
    final = cache["resid_post", LAYERS - 1]
    per_layer = 1 if model.cfg.attn_only else 2
    components, labels = cache.decompose_resid(return_labels=True)
    assert len(labels) == 1 + ("hook_pos_embed" in cache) + LAYERS * per_layer
    equal(components.sum(0), final)
    must_fail(equal, without_one(components), final)
    equal(
        cache.decompose_resid(layer=1, mlp_input=not model.cfg.attn_only).sum(0),
        cache["resid_mid", per_layer - 1],
    )
    for expand in (True, False):
        parts, labels = cache.get_full_resid_decomposition(
            expand_neurons=expand, return_labels=True
        )
        assert len(labels) == len(parts)
        equal(parts.sum(0), final)
        must_fail(equal, without_one(parts), final)
    assert "bias" in labels


@pytest.mark.parametrize("name", MODELS)
def test_heads_add_up_to_what_attention_writes(name):
    model, _, cache = run(**MODELS[name])
    results, labels = cache.stack_head_results(return_labels=True)
    assert labels == [f"L{layer}H{head}" for layer in range(LAYERS) for head in range(HEADS)]
    for layer in range(LAYERS):
        written = results[layer * HEADS : (layer + 1) * HEADS].sum(0) + model.blocks[layer].attn.b_O
        equal(written, cache["attn_out", layer])
        must_fail(equal, written - model.blocks[layer].attn.b_O, cache["attn_out", layer])
    equal(cache.stack_head_results(incl_remainder=True).sum(0), cache["resid_post", LAYERS - 1])


@pytest.mark.parametrize("name", MODELS)
def test_accumulated_resid_is_the_stream_from_place_to_place(name):
    _, _, cache = run(**MODELS[name])
    streams, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    wanted = [
        cache[key]
        for key in (("resid_pre", 0), ("resid_mid", 0), ("resid_pre", 1), ("resid_mid", 1))
    ]
    equal(streams, torch.stack([*wanted, cache["resid_post", 1]]))


def test_normalised_components_add_up_to_what_the_read_out_reads():
    model, out, cache = run(normalization_type="LNPre")
    last = cache.accumulated_resid(apply_ln=True)[-1]
    equal(last @ model.W_U + model.unembed.b_U, out)
    for parts in (
        cache.decompose_resid(apply_ln=True),
        cache.get_full_resid_decomposition(apply_ln=True),
    ):
        equal(parts.sum(0), cache["ln_final.hook_normalized"])
        equal(parts.sum(0) @ model.W_U + model.unembed.b_U, out)
        must_fail(equal, without_one(parts), cache["ln_final.hook_normalized"])


def test_neurons_add_up_to_what_the_mlp_writes():
    model, _, cache = run()
    neurons = cache.stack_neuron_results(layer=1)
    assert len(neurons) == model.cfg.d_mlp
    equal(neurons.sum(0) + model.blocks[0].mlp.b_out, cache["mlp_out", 0])


def test_an_mlp_only_model_has_no_heads_to_stack():
    _, _, cache = run(mlp_only=True)
    embeddings = cache["hook_embed"] + cache["hook_pos_embed"]
    equal(
        cache.decompose_resid(mode="mlp", incl_embeds=False).sum(0) + embeddings,
        cache["resid_post", 1],
    )
    for name in ("stack_head_results", "get_full_resid_decomposition"):
        with pytest.raises(
            InputError, match=f"{name} needs attention heads, but this model has none"
        ):
            getattr(cache, name)()


def test_factored_matrices_are_the_heads_maps():
    model, _, cache = run()
    assert isinstance(model.OV, FactoredMatrix)
    assert model.OV.shape == model.QK.shape == (LAYERS, HEADS, WIDTH, WIDTH)
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            attn, read = block.attn, cache[f"blocks.{layer}.ln1.hook_out"]
            for head in range(HEADS):
                ov, qk = model.OV[layer, head].AB, model.QK[layer, head].AB
                equal(ov, attn.W_V[head] @ attn.W_O[head])
                # What the head writes: its pattern's mixture of what it reads, mapped by OV, and
                # its value bias.
                mixed = cache["pattern", layer][:, head] @ (
                    read @ ov + attn.b_V[head] @ attn.W_O[head]
                )
                equal(mixed, cache["result", layer][:, :, head])
                must_fail(equal, mixed, cache["result", layer][:, :, (head + 1) % HEADS])
                attn.b_Q[head], attn.b_K[head] = 0, 0
                scores = (read @ qk @ read.transpose(-1, -2)) * attn.scale
                q, k = (read @ w[head] for w in (attn.W_Q, attn.W_K))
                equal(scores, q @ k.transpose(-1, -2) / 2)
        u, s, v = model.OV.svd()
        equal(u @ s.diag_embed() @ v.transpose(-1, -2), model.OV.AB)


@pytest.mark.parametrize(
    "name",
    [
        "accumulated_resid",
        "decompose_resid",
        "get_full_resid_decomposition",
        "stack_head_results",
        "stack_neuron_results",
        "logit_attrs",
        "apply_ln_to_stack",
    ],
)
def test_components_of_a_post_norm_stream_are_refused_by_name(name):
    """They do not add up, so helpers that take them for a sum would return wrong numbers."""
    _, _, cache = run(norm_position="post")
    stream = cache["hook_embed"] + cache["hook_pos_embed"]
    total = stream + sum(
        cache[place, layer] for place in ("attn_out", "mlp_out") for layer in range(LAYERS)
    )
    must_fail(equal, total, cache["resid_post", LAYERS - 1])
    with pytest.raises(InputError, match=rf"{name} needs a residual stream .*norm_position='post'"):
        getattr(cache, name)()
    assert cache["resid_mid", 0].shape == (4, 7, WIDTH)
    assert cache.stack_activation("pattern").shape == (LAYERS, 4, HEADS, 7, 7)


def test_a_batch_of_one_may_lose_its_axis():
    model = make()
    tokens = torch.randn(1, 7, 1, generator=generator(0, "test/cache"), dtype=torch.float64)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, remove_batch_dim=True)
    assert not cache.has_batch_dim
    assert cache["resid_pre", 0].shape == (7, WIDTH)
    equal(cache.decompose_resid().sum(0), cache["resid_post", LAYERS - 1])


@pytest.mark.parametrize("name", ["LN", "attention only"])
def test_accumulated_bias_is_the_sum_of_what_sublayers_always_add(name):
    model, _, _ = run(**MODELS[name])
    attention = [block.attn.b_O for block in model.blocks]
    mlps = (
        [torch.zeros(WIDTH)] * LAYERS
        if model.cfg.attn_only
        else [block.mlp.b_out for block in model.blocks]
    )
    with torch.no_grad():
        equal(model.accumulated_bias(2), sum(attention) + sum(mlps))
        equal(model.accumulated_bias(1, mlp_input=True), sum(attention) + mlps[0])
        equal(model.accumulated_bias(1, include_mlp_biases=False), attention[0])
        assert not model.accumulated_bias(0).any()
