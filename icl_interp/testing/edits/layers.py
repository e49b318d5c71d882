"""Edits of what stands in a row: a hidden unit that is split, a layer that writes nothing."""

import torch

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.testing.edits.base import Edit, Weights, mlps, resized, writers


def _no_mlp(cfg: Config) -> str | None:
    return "this model has no MLP (attn_only)" if cfg.attn_only else None


def _unit_split(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """In each MLP the unit with the largest weights becomes two, each of which writes half."""
    for part in mlps(cfg):
        reads, writes = weights[part + "W_in"], weights[part + "W_out"]
        unit = int((reads.norm(dim=0) * writes.norm(dim=1)).argmax())
        writes[unit] /= 2
        for name, axis in (("W_in", 1), ("b_in", 0), ("W_out", 0)):
            weight = weights[part + name]
            weights[part + name] = torch.cat([weight, weight.narrow(axis, unit, 1)], axis)
    return resized(cfg, d_mlp=cfg.mlp_width + 1)


def _normed_stream(cfg: Config) -> str | None:
    return "the norms of a further layer would act on the stream itself" if cfg.norm_position == "post" else None


def _layer_appended(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """The last layer once more, with 0 for all that it writes."""
    longer = resized(cfg, n_layers=cfg.n_layers + 1)
    last, added = f"blocks.{cfg.n_layers - 1}.", f"blocks.{cfg.n_layers}."
    for name in [name for name in weights if name.startswith(last)]:
        weights[added + name.removeprefix(last)] = weights[name].clone()
    for name in writers(longer):
        if name.startswith(added):
            weights[name].zero_()
    return longer


UNIT_SPLIT = Edit("an MLP unit split in two", "mlp", _no_mlp, _unit_split)
LAYER_APPENDED = Edit(
    "a layer appended that writes nothing",
    "layers",
    _normed_stream,
    _layer_appended,
    ("depth", "single layer", "overlap of heads", "weight maps"),
)
