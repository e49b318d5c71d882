"""Weights under TransformerLens' names, attributions to a numeric read-out, and where a model says that it is."""

import copy
import io
import pickle
from typing import get_args

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.errors import InputError
from icl_interp.models.config import ActivationName, HookedTransformerConfig, ScoreName
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

L, H, D, K, M = 2, 3, 12, 4, 48  # layers, heads, d_model, d_head, d_mlp of the small models
SHAPES = {
    "W_E": (1, D),
    "W_pos": (16, D),
    "W_U": (D, 1),
    "b_U": (1,),
    **dict.fromkeys(("W_Q", "W_K", "W_V"), (L, H, D, K)),
    "W_O": (L, H, K, D),
    **dict.fromkeys(("b_Q", "b_K", "b_V"), (L, H, K)),
    "b_O": (L, D),
    "W_in": (L, D, M),
    "b_in": (L, M),
    "W_out": (L, M, D),
    "b_out": (L, D),
}
ATTENTION = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "OV", "QK")
OF_MLP = ("W_in", "b_in", "W_out", "b_out")


def is_stacked(model, name, layers=(0, 1)):
    part = "attn" if name in ATTENTION else "mlp"
    for layer, found in zip(layers, getattr(model, name), strict=True):
        assert torch.equal(found, model.state_dict()[f"blocks.{layer}.{part}.{name}"])


@pytest.mark.parametrize("name", SHAPES)
def test_weights_have_their_names_and_shapes(name):
    model = make()
    assert tuple(getattr(model, name).shape) == SHAPES[name]
    if name in (*ATTENTION, *OF_MLP):
        is_stacked(model, name)
        must_fail(is_stacked, model, name, layers=(1, 0))
    else:
        path = {
            "W_E": "embed.W_E",
            "W_pos": "pos_embed.W_pos",
            "W_U": "unembed.W_U",
            "b_U": "unembed.b_U",
        }[name]
        assert torch.equal(getattr(model, name), model.state_dict()[path])


@pytest.mark.parametrize(
    ("model", "names", "match"),
    [
        ("attention only", OF_MLP, r"no MLP \(attn_only\), so it has no {}"),
        ("attention only", ("W_pos",), r"no {} \(positional_embedding_type='none'\)"),
        ("mlp only", ATTENTION, r"no attention \(mlp_only\), so it has no"),
    ],
)
def test_weights_that_a_model_lacks_are_said_to_lack(model, names, match):
    for name in names:
        with pytest.raises(InputError, match=match.format(name)):
            getattr(make(model), name)


# ---- attributions to a numeric read-out ----------------------------------------------------------


def adds_up(model, channel, part=slice(None)):
    """Attributions of all components are the prediction, less what does not depend on the prompt."""
    tokens = torch.randn(4, 7, 1, generator=generator(0, "test/attribution"), dtype=torch.float64)
    with torch.no_grad():
        out, cache = model.run_with_cache(tokens)
        attributions = cache.logit_attrs(cache.decompose_resid()[part], tokens=channel).sum(0)
        constant = model.b_U[channel]
        bias = getattr(getattr(model, "ln_final", None), "b", None)
        if bias is not None:
            constant = constant + bias @ model.W_U[:, channel]
    torch.testing.assert_close(attributions, out[..., channel] - constant, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", ["LN", "LNPre", "RMS", None])
@pytest.mark.parametrize(
    "change", [{}, {"attn_only": True}, {"positional_embedding_type": "none"}], ids=str
)
def test_attributions_add_up_to_the_prediction(norm, change):
    model = make(normalization_type=norm, d_out=2, **change)
    for channel in (0, 1):
        adds_up(model, channel)
        must_fail(adds_up, model, channel, slice(1, None))


def test_the_norms_gain_is_part_of_the_direction():
    model = make()
    unfolded = copy.deepcopy(model)
    unfolded.tokens_to_residual_directions = lambda tokens: unfolded.W_U[:, tokens]
    adds_up(model, 0)
    must_fail(adds_up, unfolded, 0)


def test_directions_for_several_channels():
    model = make(d_out=3)
    whole = model.ln_final.w[:, None] * model.W_U
    for channels in (2, torch.tensor(1), torch.tensor([0, 2]), torch.tensor([[2, 1, 0]])):
        found = model.tokens_to_residual_directions(channels)
        want = whole.T[channels]
        assert torch.equal(found, want)
    tokens = torch.randn(2, 5, 1, generator=generator(0, "test/attribution"), dtype=torch.float64)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        stack = cache.decompose_resid()
        difference = cache.logit_attrs(stack, tokens=2, incorrect_tokens=0)
        each = [cache.logit_attrs(stack, tokens=channel) for channel in (2, 0)]
    torch.testing.assert_close(difference, each[0] - each[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "wrong", [" Mary", 1, -1, torch.tensor([0, 1]), torch.tensor(0.5), True], ids=str
)
def test_what_is_no_channel_is_refused(wrong):
    model = make()
    _, cache = model.run_with_cache(torch.zeros(1, 3, 1, dtype=torch.float64))
    with pytest.raises(
        InputError, match="an output is named by its channel, a whole number from 0 to 0"
    ) as caught:
        cache.logit_attrs(cache.decompose_resid(), tokens=wrong)
    assert "\n" not in str(caught.value)


# ---- where a model is, and copies of it ----------------------------------------------------------


def says_where_it_is(model):
    assert torch.device(model.cfg.device) == model.unembed.W_U.device


def test_the_device_is_true():
    model = make()
    cfg = model.cfg
    assert cfg.device == "cpu"
    says_where_it_is(model)
    moved = copy.deepcopy(model).to("meta")
    assert moved.cfg.device == "meta"
    says_where_it_is(moved)
    assert moved.cfg == cfg, "a device is no hyperparameter"
    assert model.cfg.device == "cpu"
    says_where_it_is(moved.to_empty(device="cpu"))
    with torch.device("meta"):
        says_where_it_is(HookedTransformer(cfg).to("meta"))
    moved.to("meta")
    moved._cfg = cfg
    must_fail(lambda: says_where_it_is_not_asked(moved))


def says_where_it_is_not_asked(model):
    """A mutant: the config as it was given, which knows nothing of a move."""
    assert torch.device(model._cfg.device) == model.unembed.W_U.device


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "torch.save": lambda model: torch.load(_saved(model), weights_only=False),
}


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "change",
    [{"act_fn": name} for name in get_args(ActivationName)]
    + [{"score_fn": name} for name in get_args(ScoreName)]
    + [{"normalization_type": name} for name in ("LNPre", "RMS", "Tanh", None)],
    ids=str,
)
def test_every_model_can_be_copied(way, change):
    model = HookedTransformer(
        HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=0.5, **change)
    ).eval()
    tokens = torch.linspace(-1, 1, 6)[None, :, None]
    again = WAYS[way](model)
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))
        assert again.cfg == model.cfg
        again.unembed.W_U.mul_(2)
        assert not torch.equal(again(tokens), model(tokens)), "a copy of its own"
