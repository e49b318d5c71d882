"""A folded model computes what the model did, and its norms have no gains."""

import pytest
import torch
from helpers import must_fail
from small_models import MODELS, OTHERS, freeze, make, tokens_for
from torch.testing import assert_close

import icl_interp
from icl_interp.errors import InputError
from icl_interp.interventions.base import intervene
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.models.folding import fold_gains, readers

FOLDABLE = {name for name, change in MODELS.items() if "norm_position" not in change}


def check_same(model, other):
    tokens = tokens_for(model)
    with torch.no_grad():
        assert_close(other(tokens), model(tokens), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted(FOLDABLE))
def test_the_function_stays(name):
    model = make(name)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    folded = model.folded()
    check_same(model, folded)
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    if model.cfg.has_final_norm:
        assert not any(
            torch.equal(folded.state_dict()[key], before[key]) for key in ("unembed.W_U",)
        )


def no_bias(model):
    """Gains are folded, biases are forgotten."""
    folded = model.folded()
    with torch.no_grad():
        folded.unembed.b_U.copy_(model.unembed.b_U)
    return folded


def test_a_fold_that_forgets_biases_is_noticed():
    must_fail(check_same, make("pre"), no_bias(make("pre")))


def test_what_is_left_of_norms_and_writers():
    folded = make("pre").folded()
    assert folded.cfg.normalization_type == "LNPre"
    assert not any(".ln" in name or "ln_final" in name for name in folded.state_dict())
    for written in (folded.W_E, folded.W_pos, folded.W_O, folded.b_O, folded.W_out, folded.b_out):
        assert written.mean(-1).abs().max() < 1e-15
    root = make("rms").folded()
    assert torch.equal(root.ln_final.w, torch.ones(12).double())


def test_hooks_under_the_fold_hold_the_same_patterns():
    model = make("pre")
    tokens = tokens_for(model)
    name = "blocks.1.attn.hook_pattern"
    _, mine = model.run_with_cache(tokens)
    _, theirs = model.folded().run_with_cache(tokens)
    assert_close(theirs[name], mine[name], rtol=0, atol=1e-12)


def test_factors_of_maps_by_singular_values():
    folded = make("pre").folded()
    for factored, dense in (
        (folded.OV, folded.W_V @ folded.W_O),
        (folded.QK, folded.W_Q @ folded.W_K.mT),
    ):
        sizes = torch.linalg.svdvals(dense)[..., :4]
        assert_close(factored.S, sizes)
        again = factored.U * factored.S[..., None, :] @ factored.V.mT
        assert min((again - dense).abs().max(), 1) < 1e-10
        must_fail(assert_close, factored.S, 1.01 * sizes)


def test_precision_and_mode_stay():
    checkpoint = icl_interp.load("affine")
    folded = checkpoint.model.folded()
    assert folded.unembed.W_U.dtype == checkpoint.model.unembed.W_U.dtype
    assert not folded.training
    tokens = checkpoint.encoding.encode(checkpoint.task.sample(8, torch.Generator()))
    with torch.no_grad():
        assert_close(folded(tokens), checkpoint.model(tokens), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["post", "norm on outputs"])
def test_norms_within_the_stream_are_refused(name):
    with pytest.raises(InputError, match="nothing to fold them into"):
        make(name).folded()


def test_readers_are_folded_once_each():
    model = make("pre")
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = list(readers(model.cfg))
    fold_gains(weights, found)
    gain = model.blocks[0].ln1.w[:, None]
    for name in ("W_Q", "W_K", "W_V"):
        expected = gain * getattr(model.blocks[0].attn, name)
        assert_close(weights[f"blocks.0.attn.{name}"], expected)


# ---- frozen at many scales -----------------------------------------------------------------------


def test_frozen_norms_at_other_scales():
    model = make("pre")
    tokens = tokens_for(model)
    frozen = FreezeNorms.measure(model, tokens_for(model, OTHERS))
    bias = model.ln_final.b @ model.W_U + model.b_U
    with torch.no_grad():
        with intervene(model, frozen):
            before = model(tokens)
        for factor in (0.01, 3.0, 1e4):
            with intervene(model, frozen.scaled(factor, "ln_final")):
                assert_close(factor * (model(tokens) - bias), before - bias)
        with intervene(model, frozen.scaled(2.0)):
            must_fail(assert_close, 2 * (model(tokens) - bias), before - bias)
    with pytest.raises(InputError, match="must be a number above 0"):
        frozen.scaled(0.0)
    with pytest.raises(InputError, match="unknown measured norm"):
        freeze(model, "ln_final").scaled(2.0, "blocks.0.ln1")
