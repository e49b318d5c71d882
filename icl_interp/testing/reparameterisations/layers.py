"""Edits of what stands in a row: hidden units, layers that write nothing, positions."""

import torch

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.folding import Weights, mlps, writers
from icl_interp.testing.reparameterisations.base import Edit, resized, size_of, sized

OF_AN_MLP = (
    ("W_in", 1),
    ("b_in", 0),
    ("W_out", 0),
)  # weights that name hidden units, and on which axis


def _no_mlp(cfg: Config) -> str | None:
    return "this model has no MLP (attn_only)" if cfg.attn_only else None


def _unit_split(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """In each MLP the unit with the largest weights becomes two, each of which writes half."""
    for part in mlps(cfg):
        reads = weights[part + "W_in"]
        writes = weights[part + "W_out"]
        unit = int((reads.norm(dim=0) * writes.norm(dim=1)).argmax())
        writes[unit] /= 2
        for name, axis in OF_AN_MLP:
            weight = weights[part + name]
            weights[part + name] = torch.cat([weight, weight.narrow(axis, unit, 1)], axis)
    return resized(cfg, d_mlp=cfg.mlp_width + 1)


def _padded(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Add hidden units to each MLP, `size` times as many, that read anything and write nothing."""
    added = max(1, round(size * cfg.mlp_width))
    for part in mlps(cfg):
        for name, axis in OF_AN_MLP:
            weight = weights[part + name]
            shape = [*weight.shape]
            shape[axis] = added
            new = size_of(weight) * torch.randn(shape, generator=draw, dtype=weight.dtype)
            weights[part + name] = torch.cat([weight, 0 * new if name == "W_out" else new], axis)
    return resized(cfg, d_mlp=cfg.mlp_width + added)


def _one_unit(cfg: Config) -> str | None:
    return _no_mlp(cfg) or ("an MLP has one hidden unit" if cfg.mlp_width == 1 else None)


def _units_permuted(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """The hidden units of each MLP in another order."""
    for part in mlps(cfg):
        order = torch.randperm(cfg.mlp_width, generator=draw)
        if torch.equal(order, order.sort().values):
            order = order.roll(1)
        for name, axis in OF_AN_MLP:
            weights[part + name] = weights[part + name].index_select(axis, order)
    return cfg


def _normed_stream(cfg: Config) -> str | None:
    if cfg.norm_position == "output":
        return "the norms of a further layer would write their bias"
    return (
        "the norms of a further layer would act on the stream itself"
        if not cfg.stream_is_a_sum
        else None
    )


def _layer_appended(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """The last layer once more, with 0 for all that it writes."""
    longer = resized(cfg, n_layers=cfg.n_layers + 1)
    last = f"blocks.{cfg.n_layers - 1}."
    added = f"blocks.{cfg.n_layers}."
    for name in [name for name in weights if name.startswith(last)]:
        weights[added + name.removeprefix(last)] = weights[name].clone()
    for name in writers(longer):
        if name.startswith(added):
            weights[name].zero_()
    return longer


def _layer_before(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """A layer before the first one, a copy of one that is drawn, with 0 for all that it writes."""
    longer = resized(cfg, n_layers=cfg.n_layers + 1)
    like = f"blocks.{int(torch.randint(cfg.n_layers, (), generator=draw))}."
    empty = {}
    for name, weight in weights.items():
        if name.startswith(like):
            empty[name.removeprefix(like)] = weight.clone()
    # Every layer moves on by one, the last one first.
    for i in reversed(range(cfg.n_layers)):
        here = f"blocks.{i}."
        next_one = f"blocks.{i + 1}."
        for name in [name for name in weights if name.startswith(here)]:
            weights[next_one + name.removeprefix(here)] = weights[name]
    for name, weight in empty.items():
        weights["blocks.0." + name] = weight
    for name in writers(longer, embedding=False):
        if name.startswith("blocks.0."):
            weights[name].zero_()
    return longer


# ---- positions -----------------------------------------------------------------------------------


def _has_positions(cfg: Config) -> str | None:
    return (
        "it has vectors of positions already"
        if cfg.positional_embedding_type == "standard"
        else None
    )


def _zero_positions(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """A vector of zeros for each position."""
    weights["pos_embed.W_pos"] = torch.zeros(cfg.n_ctx, cfg.d_model, dtype=torch.float64)
    return resized(cfg, positional_embedding_type="standard")


def _longer(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Make room for prompts with `size` times as many tokens.

    The new positions are random, and no prompt reaches them.
    """
    added = max(1, round(size * cfg.n_ctx))
    n = cfg.n_ctx + added
    if "pos_embed.W_pos" in weights:
        vectors = weights["pos_embed.W_pos"]
        new = size_of(vectors) * torch.randn(
            added, cfg.d_model, generator=draw, dtype=vectors.dtype
        )
        weights["pos_embed.W_pos"] = torch.cat([vectors, new])
    for name in [name for name in weights if name.endswith("attn.W_P")]:
        table = weights[name]
        wider = size_of(table) * torch.randn(n, n, generator=draw, dtype=table.dtype)
        wider[: cfg.n_ctx, : cfg.n_ctx] = table
        weights[name] = wider
    for name in [name for name in weights if name.endswith(("attn.W_Q_pos", "attn.W_K_pos"))]:
        table = weights[name]
        wider = size_of(table) * torch.randn(n, n, generator=draw, dtype=table.dtype)
        # What the known positions are multiplied with stays what it was.
        wider[: cfg.n_ctx] = 0
        wider[: cfg.n_ctx, : cfg.n_ctx] = table
        weights[name] = wider
    return resized(cfg, n_ctx=n)


def _always(cfg: Config) -> None:
    """It applies to every model."""


UNIT_SPLIT = Edit("an MLP unit split in two", "mlp", _no_mlp, _unit_split)
PADDED = sized("MLP padded", "mlp", _no_mlp, _padded, small=(0.02, 0.1), large=(1.0, 2.0))
UNITS_PERMUTED = Edit("MLP units permuted", "mlp", _one_unit, _units_permuted)
LAYER_APPENDED = Edit(
    "a layer appended that writes nothing",
    "layers",
    _normed_stream,
    _layer_appended,
    ("depth", "single layer", "overlap of heads", "weight maps"),
)
LAYER_BEFORE = Edit(
    "a layer before that writes nothing",
    "layers",
    _normed_stream,
    _layer_before,
    ("depth", "list of heads", "order of heads"),
    ("single layer",),
)
ZERO_POSITIONS = Edit("positions of zeros", "shape", _has_positions, _zero_positions)
LONGER = sized("n_ctx longer", "shape", _always, _longer, small=(0.02, 0.1), large=(1.0, 2.0))
