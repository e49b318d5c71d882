"""Gains of norms folded into the matrices that read them, and writers centred.

The folded model computes the same function, and its weights say more: a matrix then acts on what
the norm gives, with nothing in between, and no writer writes what every norm takes off again.

Source: Elhage et al. (2021), "A mathematical framework for transformer circuits", on handling layer
normalization; TransformerLens' `fold_ln` and `center_writing_weights`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig as Config

Weights = dict[str, Tensor]  # a state dict
CENTRED = ("LN", "LNPre")  # norms that take off the mean over the stream


class Reader(NamedTuple):
    """A reader of the stream: its matrix, its bias and, in a pre-norm model, the norm before it."""

    matrix: str
    bias: str
    norm: str


def attentions(cfg: Config) -> list[str]:
    """What names of attention weights start with, a layer each."""
    return [] if cfg.mlp_only else [f"blocks.{i}.attn." for i in range(cfg.n_layers)]


def mlps(cfg: Config) -> list[str]:
    """What names of MLP weights start with, a layer each."""
    return [] if cfg.attn_only else [f"blocks.{i}.mlp." for i in range(cfg.n_layers)]


def writers(cfg: Config, embedding: bool = True) -> list[str]:
    """Weights whose last axis is the stream: what is added to it.

    Args:
        cfg: of the model.
        embedding: the read-in of tokens too.
    """
    names = []
    if embedding:
        names += ["embed.W_E", "embed.b_E"]
    if cfg.positional_embedding_type == "standard":
        names.append("pos_embed.W_pos")
    for part in attentions(cfg):
        names += [f"{part}W_O", f"{part}b_O"]
    for part in mlps(cfg):
        names += [f"{part}W_out", f"{part}b_out"]
    return names


def readers(cfg: Config) -> Iterator[Reader]:
    """Weights whose last axis but one is the stream: what reads it."""
    for i, part in enumerate(attentions(cfg)):
        for c in "QKV":
            yield Reader(f"{part}W_{c}", f"{part}b_{c}", f"blocks.{i}.ln1")
    for i, part in enumerate(mlps(cfg)):
        yield Reader(f"{part}W_in", f"{part}b_in", f"blocks.{i}.ln2")
    yield Reader("unembed.W_U", "unembed.b_U", "ln_final")


def fold_gains(weights: Weights, found: list[Reader]) -> None:
    """Multiply matrices by the gains of the norms that they read, and set these to 1, in place.

    The bias of a reader takes up the norm's bias, which becomes 0.
    """
    for matrix, bias, norm in found:
        shift = weights.get(f"{norm}.b")
        if shift is not None:
            weights[bias] += shift @ weights[matrix]
        weights[matrix] *= weights[f"{norm}.w"][:, None]
    for _, _, norm in found:
        weights[f"{norm}.w"].fill_(1.0)
        if f"{norm}.b" in weights:
            weights[f"{norm}.b"].fill_(0.0)


def centre_writers(weights: Weights, cfg: Config) -> None:
    """Take off the mean over the stream's coordinates from all that is written, in place."""
    # A bound on the length of what tokens are read in as sees their mean too.
    for name in writers(cfg, embedding=cfg.embed_bound is None):
        weights[name] -= weights[name].mean(-1, keepdim=True)


def folded(model: Any) -> Any:
    """A new model that computes the same function with gains folded and writers centred.

    LayerNorms with gains become those without ("LNPre"). Root mean square and tanh norms keep
    gains of 1. Writers are centred where all that reads the stream takes the mean off: not where
    the read-out sees the stream itself (`final_norm=False`). A model without norms stays as it is.

    Raises:
        InputError: norms that do not stand before what reads the stream (post-norm, or on
            outputs): their gains act on the stream itself.
    """
    cfg = model.cfg
    if cfg.norm_position != "pre":
        raise InputError(
            "gains fold into what reads a norm, but in this model the stream itself goes through "
            f"norms (norm_position={cfg.norm_position!r}), so there is nothing to fold them into"
        )
    own = model.unembed.W_U
    weights = {}
    for name, weight in model.state_dict().items():
        weights[name] = weight.detach().to("cpu", torch.float64, copy=True)
    # Weights that a unit holds fixed are edited, too, so that those of the new model are free.
    plain = replace(cfg, unit=None, read_in="learned")
    if cfg.normalization_type not in (None, "LNPre"):
        fold_gains(weights, [one for one in readers(cfg) if f"{one.norm}.w" in weights])
    if cfg.normalization_type in CENTRED and cfg.has_final_norm:
        centre_writers(weights, cfg)
    if cfg.normalization_type in CENTRED:
        plain = replace(plain, normalization_type="LNPre")
    made = type(model)(plain).double()
    for name, room in made.state_dict().items():
        room.copy_(weights[name])
    return made.to(own).train(model.training)
