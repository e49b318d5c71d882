"""A norm on what sublayers write, and a stream of tokens themselves: relation (4), layer by layer.

The second computation is the layer of the code of Sander et al. (2024) in torch's own modules:
linear attention with bias terms, summed over heads, one more linear map, LayerNorm, and the sum
with the stream.
"""

import math

import pytest
import torch
from helpers import must_fail
from small_models import make
from torch import nn

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.maps import read_in
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator

N_TOKENS = 6
LAYER = {
    "n_layers": 3,
    "d_in": 12,
    "d_out": 4,
    "attn_only": True,
    "score_fn": "linear",
    "read_in": "token",
    "norm_position": "output",
    "positional_embedding_type": "none",
}
ONE_HEAD = {"n_heads": 1, "d_head": 12}


def relation_4(**change):
    """A random model of such layers with biases and gains that matter; the read-in stays fixed."""
    model = make(**(LAYER | change))
    with torch.no_grad():
        model.embed.b_E.zero_()
    return model


def tokens_of(batch=3, stream="test/outputs"):
    numbers = generator(0, stream)
    return torch.randn(batch, N_TOKENS, LAYER["d_in"], generator=numbers, dtype=torch.float64)


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.std() > 0.01
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def linear_map(weight, bias):
    """torch's module of a matrix (input, output) and a bias."""
    module = nn.Linear(*weight.shape, dtype=torch.float64)
    module.load_state_dict({"weight": weight.T.contiguous(), "bias": bias})
    return module


def by_torch(model, tokens, residual=1.0):
    """Predictions by torch's modules, each head by itself."""
    cfg, stream = model.cfg, tokens
    future = torch.ones(N_TOKENS, N_TOKENS, dtype=torch.bool).triu(1)
    for block in model.blocks:
        attention, heads = block.attn, []
        for h in range(cfg.n_heads):
            maps = {
                c: (getattr(attention, f"W_{c}")[h], getattr(attention, f"b_{c}")[h]) for c in "QKV"
            }
            q, k, v = (linear_map(*maps[c])(stream) for c in "QKV")
            energy = torch.einsum("nqd,nkd->nqk", q, k).masked_fill(future, 0.0)
            heads.append(torch.einsum("nqk,nkd->nqd", energy / math.sqrt(cfg.head_width), v))
        out = linear_map(attention.W_O.flatten(0, 1), attention.b_O)(torch.cat(heads, -1))
        norm = nn.LayerNorm(cfg.d_model, eps=cfg.eps, dtype=torch.float64)
        norm.load_state_dict({"weight": block.ln1.w, "bias": block.ln1.b})
        stream = residual * stream + norm(out)
    return linear_map(model.unembed.W_U, model.unembed.b_U)(stream)


@pytest.mark.parametrize("heads", [ONE_HEAD, {}])
def test_layers_are_those_of_relation_4(heads):
    model, tokens = relation_4(**heads), tokens_of()
    with torch.no_grad():
        agree(model(tokens), by_torch(model, tokens))
        must_fail(agree, model(tokens), by_torch(model, tokens, residual=0.9))
        post = HookedTransformer(
            HookedTransformerConfig(**{**vars(model.cfg), "norm_position": "post"})
        ).double()
        post.load_state_dict(model.state_dict())
        must_fail(agree, post(tokens), by_torch(model, tokens))


def test_every_route_gives_the_same():
    model, tokens = relation_4(), tokens_of()
    with torch.no_grad():
        full = model(tokens)
        agree(model(tokens, range(5, 6)), full[:, 5:])
        _, cache = model.run_with_cache(tokens)
        agree(model.resume(cache["blocks.1.hook_resid_pre"], 1), full)
        memory = model.remember(tokens[:, :-1])
        agree(model.after(memory, tokens[:, -1:], N_TOKENS - 1), full[:, -1:])
        third = list(model.streams_after(memory, tokens[:, -1:], N_TOKENS - 1))[2]
        agree(model.resume_after(memory, third, 2), full[:, -1:])
        must_fail(agree, model.resume_after(memory, third, 1), full[:, -1:])


def test_what_is_added_is_behind_the_norm():
    model, tokens = relation_4(), tokens_of()
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    for i in range(3):
        before, after = (cache[f"blocks.{i}.hook_resid_{place}"] for place in ("pre", "post"))
        agree(before + cache[f"blocks.{i}.hook_attn_out"], after)
        assert torch.equal(cache[f"blocks.{i}.ln1.hook_out"], cache[f"blocks.{i}.hook_attn_out"])
        heads = cache[f"blocks.{i}.attn.hook_result"].sum(2) + model.blocks[i].attn.b_O
        must_fail(agree, before + heads, after)
    agree(cache["hook_embed"], tokens)
    agree(cache.decompose_resid().sum(0), cache["resid_post", 2])
    agree(cache.accumulated_resid()[-1], cache["resid_post", 2])


@pytest.mark.parametrize(
    "name",
    ["stack_head_results", "get_full_resid_decomposition", "stack_neuron_results",
     "apply_ln_to_stack"],
)  # fmt: skip
def test_parts_that_a_norm_adds_up_are_refused_by_name(name):
    model, tokens = relation_4(), tokens_of()
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    with pytest.raises(InputError, match=rf"{name} needs parts .*norm_position='output'"):
        getattr(cache, name)()
    with pytest.raises(InputError, match="normalises what each sublayer writes"):
        model.accumulated_bias(1)
    with pytest.raises(InputError, match="no sum of what heads write"):
        probe(model, tokens, [DirectAttribution()])
    assert torch.equal(read_in(model, 0, "W_V"), model.blocks[0].attn.W_V.detach())


def test_the_read_in_of_tokens_is_never_trained():
    model = HookedTransformer(HookedTransformerConfig(**(LAYER | ONE_HEAD), d_model=12, n_ctx=6))
    assert torch.equal(model.embed.W_E, torch.eye(12))
    fixed = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert fixed == {"embed.W_E", "embed.b_E"}
    model(tokens_of().float()).square().sum().backward()
    assert model.embed.W_E.grad is None
