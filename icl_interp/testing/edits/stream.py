"""Edits of the stream that all layers write to and read: its width, its basis, and the norms' gains."""

import torch

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.testing.edits.base import (
    Aspect,
    Edit,
    Reader,
    Weights,
    keeping_ones,
    orthogonal,
    readers,
    resized,
    writers,
)

GAINS = tuple(f"{norm}.{part}" for norm in ("ln1", "ln2", "ln_final") for part in "wb")
CANCELLING = 3.0  # size of the read-out part that cancels, beside the read-out itself


# ---- width ----------------------------------------------------------------------------------------------------------


def _always(cfg: Config) -> None:
    """It applies to every model."""


def _doubled(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Every coordinate of the stream stands twice, so that means, variances and roots of mean squares stay."""
    gains = [name for name in weights if ".".join(name.split(".")[-2:]) in GAINS]
    for name in (*writers(cfg), *gains):
        weights[name] = torch.cat([weights[name]] * 2, -1)
    for matrix, _, _ in readers(cfg):
        weights[matrix] = torch.cat([weights[matrix]] * 2, -2) / 2
    # What one copy adds to the prediction the other takes off.
    out = weights["unembed.W_U"]
    size = CANCELLING * out.square().mean().sqrt()
    part = size * torch.randn(cfg.d_model, cfg.d_out, generator=draw, dtype=out.dtype)
    weights["unembed.W_U"] = out + torch.cat([part, -part])
    bound = None if cfg.embed_bound is None else cfg.embed_bound * 2**0.5
    return resized(cfg, d_model=2 * cfg.d_model, embed_bound=bound)


# ---- gains ----------------------------------------------------------------------------------------------------------


def _foldable(cfg: Config) -> list[Reader]:
    """What reads a norm that nothing else reads, one that has gains."""
    if cfg.normalization_type in (None, "LNPre"):
        return []
    if cfg.norm_position == "pre":
        return list(readers(cfg))
    *_, last = readers(cfg)
    # The output of every other norm goes on in the stream, past what reads it.
    return [last._replace(norm=f"blocks.{cfg.n_layers - 1}.{'ln1' if cfg.attn_only else 'ln2'}")]


def _without_gains(cfg: Config) -> str | None:
    return None if _foldable(cfg) else "its norms have no gains" if cfg.normalization_type else "it has no norm"


def _folded(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Gains of 1 and biases of 0: what reads the norm is multiplied by the gains, its bias takes up the norm's."""
    found = _foldable(cfg)
    for matrix, bias, norm in found:
        if f"{norm}.b" in weights:
            weights[bias] += weights[f"{norm}.b"] @ weights[matrix]
        weights[matrix] *= weights[f"{norm}.w"][:, None]
    for name in (f"{norm}.{part}" for _, _, norm in found for part in "wb"):
        if name in weights:
            weights[name].fill_(1.0 if name.endswith("w") else 0.0)
    return cfg


# ---- basis ----------------------------------------------------------------------------------------------------------


def _fixed_basis(cfg: Config) -> str | None:
    if cfg.normalization_type == "Tanh":
        return "a tanh acts on each coordinate by itself"
    if cfg.d_model == 1 and cfg.normalization_type in ("LN", "LNPre"):
        return "a stream of one coordinate that is centred cannot be rotated"
    if cfg.norm_position == "post" and cfg.normalization_type != "LNPre":
        return "gains of norms within the stream act on each coordinate by itself"
    return None


def _gains_left(cfg: Config) -> str | None:
    return _fixed_basis(cfg) or (
        "gains of norms act on each coordinate by itself; they have to be folded first" if _foldable(cfg) else None
    )


def _no_gains_left(cfg: Config) -> str | None:
    return _fixed_basis(cfg) or _without_gains(cfg)


def _rotated(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Another orthonormal basis of the stream; one that keeps its mean where that is taken off."""
    centred = cfg.normalization_type in ("LN", "LNPre")
    turn = (keeping_ones if centred else orthogonal)(cfg.d_model, draw)
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
    return None if cfg.norm_position == "pre" else "what reads the tokens has no norm before it"


def _centred(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Nothing that is written has a mean over the stream's coordinates: each norm takes it off anyway."""
    # A bound on the length of what tokens are read in as sees their mean too.
    for name in writers(cfg, embedding=cfg.embed_bound is None):
        weights[name] -= weights[name].mean(-1, keepdim=True)
    return cfg


IN_THE_STREAM: tuple[Aspect, ...] = ("weight maps", "affine lens")

WIDTH_DOUBLED = Edit("width doubled", "width", _always, _doubled, ("certificate", "overlap of heads", "weight maps"))
ROTATED = Edit("stream rotated", "basis", _gains_left, _rotated)
FOLDED_ROTATED = Edit("norm gains folded, stream rotated", "basis", _no_gains_left, _folded_and_rotated, IN_THE_STREAM)
GAINS_FOLDED = Edit("norm gains folded into what reads them", "norm gains", _without_gains, _folded, IN_THE_STREAM)
CENTRED = Edit("writers centred", "basis", _uncentred, _centred, IN_THE_STREAM)
