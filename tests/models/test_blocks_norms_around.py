"""Norms before and after attention, a final norm by itself, factors, and maps without biases."""

import pytest
import torch
from helpers import must_fail
from small_models import PROMPTS, make, small_lab, tokens_for

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.fixed import LEFT_OUT
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.maps import read_in, written
from icl_interp.probes.runner import probe
from icl_interp.studies.limits.measurements import certificates

SCALED = {"no final norm": {"residual_scale": 0.4}, "post": {"residual_scale": 3.0}}


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.std() > 1e-3
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def cached(model):
    with torch.no_grad():
        return model.run_with_cache(tokens_for(model))


def set_fused(model, value):
    for block in model.blocks:
        block.attn.fused = value


@pytest.mark.parametrize("name", ["norms around", *SCALED])
def test_every_route_gives_the_same(name):
    model = make(name, **SCALED.get(name, {}))
    tokens = tokens_for(model)
    with torch.no_grad():
        full = model(tokens)
        set_fused(model, True)
        agree(model(tokens), full)
        set_fused(model, None)
        agree(model(tokens, range(12, 13)), full[:, 12:])
        memory = model.remember(tokens[:, :-1])
        agree(model.after(memory, tokens[:, -1:], 12), full[:, -1:])
        _, cache = cached(model)
        agree(model.resume(cache["blocks.1.hook_resid_pre"], 1), full)
        other = make(name, **{**SCALED.get(name, {}), "residual_scale": 0.5})
        must_fail(agree, other(tokens), full)


def test_hooks_show_what_is_added_and_what_norms_make_of_it():
    model = make("norms around")
    _, cache = cached(model)
    for i in range(2):
        here = f"blocks.{i}."
        b_O = 0.4 * model.blocks[i].attn.b_O
        added = cache[here + "hook_attn_out"]
        agree(cache[here + "attn.hook_result"].sum(2) + b_O, added)
        total = cache[here + "hook_resid_pre"] + added
        agree(model.blocks[i].ln2(total), cache[here + "hook_resid_post"])
        assert torch.equal(cache[here + "hook_resid_mid"], cache[here + "hook_resid_post"])
        must_fail(agree, model.blocks[i].ln2(total + 1.5 * added), cache[here + "hook_resid_post"])
        # Attention reads the first norm, which the stream itself does not pass.
        q = torch.einsum("btd,hde->bthe", cache[here + "ln1.hook_out"], model.W_Q[i])
        agree(q + model.b_Q[i], cache[here + "attn.hook_q"])


def test_parts_add_up_with_the_factor_in_them():
    model = make("pre", residual_scale=0.4)
    out, cache = cached(model)
    agree(cache.decompose_resid().sum(0), cache["resid_post", 1])
    b_O, b_out = model.b_O.sum(0), model.b_out.sum(0)
    agree(model.accumulated_bias(2), 0.4 * (b_O + b_out))
    shares = probe(model, tokens_for(model), [DirectAttribution()])
    assert shares
    for helper in ("stack_head_results", "stack_neuron_results", "get_full_resid_decomposition"):
        with pytest.raises(InputError, match=f"{helper} computes with W_O and W_out as they are"):
            getattr(cache, helper)()


@pytest.mark.parametrize(
    ("name", "helper", "match"),
    [
        ("norms around", "decompose_resid", r"norm_position='both'"),
        ("no final norm", "apply_ln_to_stack", r"has none \(final_norm=False\)"),
    ],
)
def test_what_does_not_add_up_is_refused_by_name(name, helper, match):
    _, cache = cached(make(name))
    with pytest.raises(InputError, match=match):
        getattr(cache, helper)()


def test_attribution_needs_a_stream_that_is_a_sum():
    with pytest.raises(InputError, match="a both-norm model's stream is no sum"):
        probe(make("norms around"), tokens_for(make("norms around")), [DirectAttribution()])


def test_maps_are_those_that_are_read_and_written():
    model = make("norms around")
    folded = read_in(model, 1, "W_V")
    by_hand = model.blocks[1].ln1.w[:, None] * model.W_V[1]
    agree(folded, (by_hand - by_hand.mean(-2, keepdim=True)).detach())
    must_fail(agree, read_in(make("post"), 1, "W_V"), folded)
    centred = 0.4 * (model.W_O[1] - model.W_O[1].mean(-1, keepdim=True))
    agree(written(model, 1), centred.detach())
    # Where the read-out reads the stream itself, its mean counts.
    raw = make("no final norm")
    agree(written(raw, 1), raw.W_O[1].detach())


@pytest.mark.parametrize(
    ("name", "change", "bounded"),
    [
        ("norms around", {}, True),
        ("post", {"final_norm": True}, True),
        ("norm on outputs", {"final_norm": True}, True),
        ("no final norm", {}, False),
        ("norm on outputs", {}, False),
    ],
)
def test_a_last_norm_bounds_the_output_as_the_certificate_says(name, change, bounded):
    lab = small_lab(name, **change)
    assert certificates.has_certificate(lab) is bounded
    tokens = tokens_for(lab.model, PROMPTS)
    tokens[:, -1] *= 1e6
    with torch.no_grad():
        out = lab.model(tokens)[:, -1]
    if not bounded:
        assert out.abs().max() > 1e3
        return

    def within(factor):
        c, r = certificates.certified(lab)
        assert ((out - c).abs() <= factor * r).all()

    within(1.0)
    must_fail(within, 0.01)


def test_the_onset_is_that_of_a_norm_in_the_stream():
    """A query that ln1 has divided out already still grows in the stream, up to ln2."""
    lab = small_lab("norms around")
    assert certificates.levels_off_after_norms(lab)
    assert not certificates.has_plateaus(lab)
    assert not certificates.has_plateaus(small_lab("no final norm"))
    assert certificates._in_stream(lab.model) == ["blocks.0.ln2", "blocks.1.ln2"]
    assert certificates._in_stream(make("post")) == list(make("post").norms)


@pytest.mark.parametrize("which", LEFT_OUT)
def test_biases_that_are_left_out_are_never_trained(which):
    cfg = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=8, no_bias=which)
    model = HookedTransformer(cfg)
    names = {name for name, _ in model.named_parameters()}
    left_out = {name for name in names if name.rpartition(".")[2] in LEFT_OUT[which]}
    fixed = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert fixed == left_out
    assert names - left_out >= {"ln_final.b", "blocks.0.ln1.b"}
    model(torch.ones(2, 5, 1)).square().sum().backward()
    for name, weight in model.named_parameters():
        if name in left_out:
            assert weight.grad is None
            assert not weight.any()
