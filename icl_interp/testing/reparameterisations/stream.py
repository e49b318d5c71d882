"""Edits of the stream, which all layers write to and read: its width, basis, and norms' gains."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.folding import (
    Reader,
    Weights,
    attentions,
    centre_writers,
    fold_gains,
    readers,
    writers,
)
from icl_interp.testing.reparameterisations.attention import IDLE, OF_A_HEAD, copied_head
from icl_interp.testing.reparameterisations.base import (
    Aspect,
    Edit,
    has_attention,
    keeping_ones,
    orthogonal,
    resized,
    size_of,
    sized,
)

GAINS = tuple(f"{norm}.{part}" for norm in ("ln1", "ln2", "ln_final") for part in "wb")


# ---- width ---------------------------------------------------------------------------------------


def _always(cfg: Config) -> None:
    """It applies to every model."""


def _copied(weights: Weights, cfg: Config, n: int) -> Config:
    """Repeat every coordinate of the stream n times.

    Means, variances and root mean squares stay the same.

    The first copy alone is read.
    """
    for name in weights:
        if ".".join(name.split(".")[-2:]) in GAINS:
            weights[name] = torch.cat([weights[name]] * n, -1)
    for name in writers(cfg):
        weights[name] = torch.cat([weights[name]] * n, -1)
    for matrix, _, _ in readers(cfg):
        first = weights[matrix]
        others = [torch.zeros_like(first)] * (n - 1)
        weights[matrix] = torch.cat([first, *others], -2)
    bound = None if cfg.embed_bound is None else cfg.embed_bound * n**0.5
    return resized(cfg, d_model=n * cfg.d_model, embed_bound=bound)


def _doubled(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Every coordinate of the stream stands twice, and readers read the mean of both."""
    wide = _copied(weights, cfg, 2)
    for matrix, _, _ in readers(cfg):
        first = weights[matrix].narrow(-2, 0, cfg.d_model) / 2
        weights[matrix] = torch.cat([first, first], -2)
    # What one copy adds to the prediction the other takes off.
    out = weights["unembed.W_U"]
    usual = 2 * size_of(out)  # of the read-out before
    noise = torch.randn(cfg.d_model, cfg.d_out, generator=draw, dtype=out.dtype)
    part = size * usual * noise
    weights["unembed.W_U"] = out + torch.cat([part, -part])
    return wide


# ---- coordinates that nobody reads ---------------------------------------------------------------


def _normed(cfg: Config) -> str | None:
    if cfg.normalization_type and not cfg.mlp_only:
        return "norms see every coordinate of the stream, also those that nothing reads"
    return has_attention(cfg)


def _not_normed(cfg: Config) -> str | None:
    if cfg.normalization_type or cfg.mlp_only:
        return has_attention(cfg)
    return "it has no norm whose scale must be kept"


def _more_coordinates(weights: Weights, cfg: Config, added: int) -> Config:
    """Further coordinates of the stream, which nothing writes to yet and nothing reads."""
    for name in writers(cfg):
        weight = weights[name]
        new = weight.new_zeros(*weight.shape[:-1], added)
        weights[name] = torch.cat([weight, new], -1)
    for matrix, _, _ in readers(cfg):
        weight = weights[matrix]
        new = weight.new_zeros(*weight.shape[:-2], added, weight.shape[-1])
        weights[matrix] = torch.cat([weight, new], -2)
    return resized(cfg, d_model=cfg.d_model + added)


def _written(
    head: Float[Tensor, "d_head d_model"], draw: torch.Generator, size: float
) -> Float[Tensor, " d_head"]:
    """A random column of a head's W_O, for one more coordinate of the stream.

    Its length is `size` times the norm of W_O, or `size` for a head that writes nothing.
    """
    direction = torch.randn(len(head), generator=draw, dtype=head.dtype)
    length = float(head.norm()) or 1.0
    return size * length * direction / direction.norm()


def _unread(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """A further coordinate for each head, which it writes to and nothing reads."""
    wide = _more_coordinates(weights, cfg, cfg.n_layers * cfg.n_heads)
    at = cfg.d_model
    for part in attentions(cfg):
        for head in weights[part + "W_O"]:
            head[:, at] = _written(head, draw, size)
            at += 1
    return wide


def _unread_copy(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Copy one head of each layer; the copy writes only to a coordinate that nothing reads."""
    wide = _more_coordinates(weights, cfg, 1)
    for part in attentions(cfg):
        copy = copied_head(weights, part, draw)
        column = _written(copy["W_O"][0], draw, size)
        copy["W_O"].zero_()
        copy["W_O"][0, :, -1] = column
        for name in OF_A_HEAD:
            own = weights[part + name]
            weights[part + name] = torch.cat([own, copy[name]])
    return resized(wide, n_heads=cfg.n_heads + 1)


def _unread_cancelled(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Let each head write to an unread coordinate of its own, which a copy of it cancels.

    The coordinates are copies of others, so that norms find the mean and the scale that they found
    before.
    """
    wide = _copied(weights, cfg, 1 + math.ceil(cfg.n_heads / cfg.d_model))
    for part in attentions(cfg):
        own = weights[part + "W_O"]
        copies = torch.zeros_like(own)
        for i, (head, copy) in enumerate(zip(own, copies, strict=True)):
            column = _written(head, draw, size)
            at = cfg.d_model + i
            head[:, at] += column
            copy[:, at] = -column
        weights[part + "W_O"] = torch.cat([own, copies])
        for name in OF_A_HEAD:
            if name != "W_O":
                weights[part + name] = torch.cat([weights[part + name]] * 2)
    return resized(wide, n_heads=2 * cfg.n_heads)


# ---- gains ---------------------------------------------------------------------------------------


def _foldable(cfg: Config) -> list[Reader]:
    """What reads a norm that nothing else reads, one that has gains."""
    if cfg.normalization_type in (None, "LNPre"):
        return []
    *inner, last = readers(cfg)
    found = inner if cfg.sublayers_read_normed else []
    if cfg.has_final_norm:
        found.append(last)
    elif not cfg.stream_is_a_sum:
        # The output of every other norm goes on in the stream, past what reads it.
        norm = "ln1" if cfg.attn_only and cfg.norm_position == "post" else "ln2"
        found.append(last._replace(norm=f"blocks.{cfg.n_layers - 1}.{norm}"))
    return found


def _without_gains(cfg: Config) -> str | None:
    if _foldable(cfg):
        return None
    if cfg.norm_position == "output":
        return "no norm stands before what reads the stream"
    return "its norms have no gains" if cfg.normalization_type else "it has no norm"


def _folded(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Set gains to 1 and biases to 0.

    The matrix that reads the norm is multiplied by the gains, and its bias takes up the norm's
    bias.
    """
    fold_gains(weights, _foldable(cfg))
    return cfg


# ---- basis ---------------------------------------------------------------------------------------


def _fixed_basis(cfg: Config) -> str | None:
    if cfg.normalization_type == "Tanh":
        return "a tanh acts on each coordinate by itself"
    if cfg.d_model == 1 and cfg.normalization_type in ("LN", "LNPre"):
        return "a stream of one coordinate that is centred cannot be rotated"
    if cfg.norm_position != "pre" and cfg.normalization_type not in (None, "LNPre"):
        return "gains of norms within the stream act on each coordinate by itself"
    return None


def _gains_left(cfg: Config) -> str | None:
    why = _fixed_basis(cfg)
    if why is None and _foldable(cfg):
        return "gains of norms act on each coordinate by itself; they have to be folded first"
    return why


def _no_gains_left(cfg: Config) -> str | None:
    return _fixed_basis(cfg) or _without_gains(cfg)


def _rotated(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Another orthonormal basis of the stream; one that keeps its mean where that is taken off."""
    centred = cfg.normalization_type in ("LN", "LNPre")
    drawn = keeping_ones if centred else orthogonal
    turn = drawn(cfg.d_model, draw)
    for name in writers(cfg):
        weights[name] = weights[name] @ turn
    for matrix, _, _ in readers(cfg):
        weights[matrix] = turn.T @ weights[matrix]
    return cfg


def _folded_and_rotated(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    return _rotated(weights, _folded(weights, cfg, draw), draw)


def _uncentred(cfg: Config) -> str | None:
    if cfg.normalization_type not in ("LN", "LNPre"):
        return "no norm takes off the stream's mean"
    all_normed = cfg.sublayers_read_normed and cfg.output_is_normed
    return None if all_normed else "what reads the tokens has no norm before it"


def _centred(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Remove from all outputs the mean over the stream's coordinates, as every norm does."""
    centre_writers(weights, cfg)
    return cfg


IN_THE_STREAM: tuple[Aspect, ...] = ("weight maps", "affine lens")

WIDTH_DOUBLED = sized(
    "width doubled",
    "width",
    _always,
    _doubled,
    ("certificate", "overlap of heads", "weight maps"),
    small=(0.1, 0.5),
    large=(3.0, 30.0),
)
UNREAD = sized("unread coordinates, one a head", "unread", _normed, _unread, ("certificate",))
UNREAD_CANCELLED = sized(
    "unread coordinates, written to and taken off",
    "unread",
    _not_normed,
    _unread_cancelled,
    ("certificate", *IDLE["may_change"]),
    IDLE["may_refuse"],
)
UNREAD_COPY = sized(
    "a copy of a head, written where nothing reads", "idle heads", _normed, _unread_copy, **IDLE
)
ROTATED = Edit("stream rotated", "basis", _gains_left, _rotated)
FOLDED_ROTATED = Edit(
    "norm gains folded, stream rotated", "basis", _no_gains_left, _folded_and_rotated, IN_THE_STREAM
)
GAINS_FOLDED = Edit(
    "norm gains folded into what reads them", "norm gains", _without_gains, _folded, IN_THE_STREAM
)
CENTRED = Edit("writers centred", "basis", _uncentred, _centred, IN_THE_STREAM)
