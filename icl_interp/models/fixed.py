"""Weights that are not learned: of a single unit (`cfg.unit`), a read-in of tokens, no biases."""

from typing import Literal

import torch
from torch import nn

_ATTENTION = "blocks.0.attn."
# M = W_K W_Q^T on the coordinates of x: with W_K fixed, W_Q is M^T there.
LEARNED: dict[Literal["M", "KQV"], tuple[str, ...]] = {
    "M": (f"{_ATTENTION}W_Q",),
    "KQV": tuple(f"{_ATTENTION}W_{letter}" for letter in "KQV"),
}
_QKV = ("b_Q", "b_K", "b_V")
# The biases that a config's `no_bias` leaves out, by the ends of their names.
LEFT_OUT: dict[Literal["qkv", "attention", "linear"], tuple[str, ...]] = {
    "qkv": _QKV,
    "attention": (*_QKV, "b_O"),
    "linear": (*_QKV, "b_O", "b_E", "b_in", "b_out", "b_U"),
}


def leave_out_biases(model: nn.Module, which: Literal["qkv", "attention", "linear"]) -> None:
    """Make biases of linear maps 0, and take them out of training.

    They stay in the state dict, where analyses look for them.

    Args:
        model: a fresh `HookedTransformer`; it is changed.
        which: of which maps (`cfg.no_bias`).
    """
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] in LEFT_OUT[which]:
            with torch.no_grad():
                parameter.zero_()
            parameter.requires_grad_(False)


def read_tokens(model: nn.Module) -> None:
    """Make the stream start as the token itself: W_E the identity, b_E zero, both untrained.

    Args:
        model: a fresh `HookedTransformer` with `cfg.read_in="token"`; it is changed.
    """
    named = dict(model.named_parameters())
    weight = named["embed.W_E"]
    bias = named["embed.b_E"]
    with torch.no_grad():
        weight.copy_(torch.eye(len(weight)))
        bias.zero_()
    weight.requires_grad_(False)
    bias.requires_grad_(False)


def fix_weights(model: nn.Module, unit: Literal["M", "KQV"]) -> None:
    """Give a fresh model the weights that its unit does not learn, and take these out of training.

    Tokens are the residual stream, one head reads and writes all of it, and the last coordinate is
    read out. In the unit "M" keys are x, values are y, and W_Q is 0 outside its block of x. It
    stays 0 there, because the loss has no gradient outside the block: the label slot of the query
    holds 0, and so does that coordinate of every key.

    Args:
        model: a `HookedTransformer` with this `cfg.unit`; it is changed.
        unit: which weights are learned.
    """
    # The weights that are not learned: `label` takes the last coordinate of a token, y.
    named = dict(model.named_parameters())
    width = named["unembed.W_U"].shape[0]
    identity = torch.eye(width)
    label = torch.zeros(width, width)
    label[-1, -1] = 1
    fixed = {
        "embed.W_E": identity,
        f"{_ATTENTION}W_O": identity[None],
        "unembed.W_U": identity[:, -1:],
    }
    if unit == "M":
        fixed |= {f"{_ATTENTION}W_K": (identity - label)[None], f"{_ATTENTION}W_V": label[None]}
    with torch.no_grad():
        for name, value in fixed.items():
            named[name].copy_(value)
        if unit == "M":
            inputs = named[f"{_ATTENTION}W_Q"]
            inputs[:, -1, :] = 0
            inputs[:, :, -1] = 0
    for name, parameter in named.items():
        parameter.requires_grad_(name in LEARNED[unit])
