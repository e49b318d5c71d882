"""Edits of attention: order and copies of heads, their coordinates, biases, size of scores."""

import functools

import torch
from torch import Tensor

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.models.folding import Weights, attentions
from icl_interp.testing.reparameterisations.base import (
    Edit,
    has_attention,
    resized,
    size_of,
    sized,
    well_conditioned,
)

OF_A_HEAD = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O")
# The weights of one head or of several, by the names in `OF_A_HEAD`, heads first.
Head = dict[str, Tensor]


def _one_head(cfg: Config) -> str | None:
    if cfg.n_heads == 1 and not cfg.mlp_only:
        return "a layer has one head"
    return has_attention(cfg)


def _not_a_distribution(cfg: Config) -> str | None:
    if cfg.mlp_only or cfg.weights_add_up:
        return has_attention(cfg)
    return f"{cfg.score_fn} weights over the keys do not add up to 1"


def _not_homogeneous(cfg: Config) -> str | None:
    if cfg.mlp_only or cfg.score_fn in ("linear", "relu"):
        return has_attention(cfg)
    return f"{cfg.score_fn} weights are not proportional to scores"


def _permuted(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """The heads of each layer in another order."""
    for part in attentions(cfg):
        order = torch.randperm(cfg.n_heads, generator=draw)
        if torch.equal(order, order.sort().values):
            order = order.roll(1)
        _reorder(weights, part, order)
    return cfg


def _reorder(weights: Weights, part: str, order: Tensor) -> None:
    for name in OF_A_HEAD:
        own = weights[part + name]
        weights[part + name] = own[order]


def _turned(weights: Weights, cfg: Config, draw: torch.Generator, stretch: float) -> Config:
    """Other coordinates within each head: W_V A, A^-1 W_O and W_Q B, W_K B^-T."""
    for part in attentions(cfg):
        for head in range(cfg.n_heads):
            values = well_conditioned(cfg.head_width, draw, stretch)
            keys = well_conditioned(cfg.head_width, draw, stretch)
            turns = {"V": values.matrix, "Q": keys.matrix, "K": keys.inverse.T}
            for letter, matrix in turns.items():
                for name in (f"{part}W_{letter}", f"{part}b_{letter}"):
                    own = weights[name]
                    own[head] = own[head] @ matrix
            out = weights[part + "W_O"]
            out[head] = values.inverse @ out[head]
    return cfg


def _no_key_bias(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Set b_K to 0; it adds the same number to all scores of a query, which cancels in weights."""
    for part in attentions(cfg):
        weights[part + "b_K"].zero_()
    return cfg


def _no_value_bias(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """b_V = 0, and b_O takes up what it made heads write."""
    for part in attentions(cfg):
        bias = weights[part + "b_V"]
        written = torch.einsum("he,hed->d", bias, weights[part + "W_O"])
        weights[part + "b_O"] += written
        bias.zero_()
    return cfg


def _value_bias(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Add `size` times W_V's output for a stream of size 1 to b_V, and subtract it in b_O."""
    for part in attentions(cfg):
        bias = weights[part + "b_V"]
        # A coordinate of a value is a sum over the stream's.
        usual = size_of(weights[part + "W_V"]) * cfg.d_model**0.5
        noise = torch.randn(bias.shape, generator=draw, dtype=bias.dtype)
        added = size * usual * noise
        bias += added
        written = torch.einsum("he,hed->d", added, weights[part + "W_O"])
        weights[part + "b_O"] -= written
    return cfg


def _no_output_bias(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Move b_O into b_V, as far as heads can write it, by the smallest change of b_V."""
    for part in attentions(cfg):
        written = weights[part + "W_O"].flatten(0, 1)
        of_values = weights[part + "b_V"]
        of_output = weights[part + "b_O"]
        moved = of_output @ torch.linalg.pinv(written)
        of_values += moved.view_as(of_values)
        of_output -= moved @ written
    return cfg


def _scores_scaled(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Multiply queries by c and W_O by 1 / c, with c from `size` to twice `size` for each head."""
    for part in attentions(cfg):
        c = size * (1 + torch.rand(cfg.n_heads, 1, generator=draw, dtype=torch.float64))
        weights[part + "W_Q"] *= c[..., None]
        weights[part + "b_Q"] *= c
        weights[part + "W_O"] /= c[..., None]
    return cfg


def _one_of(n: int, draw: torch.Generator) -> int:
    return int(torch.randint(n, (), generator=draw))


def _split(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """In each layer one head becomes two with the same pattern, each of which writes half."""
    for part in attentions(cfg):
        head = _one_of(cfg.n_heads, draw)
        weights[part + "W_O"][head] /= 2
        for name in OF_A_HEAD:
            own = weights[part + name]
            weights[part + name] = torch.cat([own, own[head : head + 1]])
    return resized(cfg, n_heads=cfg.n_heads + 1)


# ---- heads that do nothing -----------------------------------------------------------------------


def _with_heads(weights: Weights, part: str, added: Head, draw: torch.Generator) -> None:
    """Put further heads into a layer, at places that are drawn."""
    for name in OF_A_HEAD:
        weights[part + name] = torch.cat([weights[part + name], added[name]])
    n_heads = len(weights[part + "W_O"])
    order = torch.randperm(n_heads, generator=draw)
    _reorder(weights, part, order)


def _random_head(weights: Weights, part: str, draw: torch.Generator) -> Head:
    """A head of random weights, each as large as the layer's own are."""
    found = {}
    for name in OF_A_HEAD:
        own = weights[part + name]
        drawn = torch.randn(1, *own.shape[1:], generator=draw, dtype=own.dtype)
        # Biases of a layer that has none are 0.
        size = size_of(own) if name.startswith("W") or own.any() else 0.0
        found[name] = size * drawn
    return found


def copied_head(weights: Weights, part: str, draw: torch.Generator) -> Head:
    """A copy of one of a layer's heads, which is drawn."""
    n_heads = len(weights[part + "W_O"])
    place = _one_of(n_heads, draw)
    found = {}
    for name in OF_A_HEAD:
        own = weights[part + name]
        found[name] = own[place : place + 1].clone()
    return found


def _null_head(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """One more head in each layer, with random queries, keys and values, that writes nothing."""
    for part in attentions(cfg):
        head = _random_head(weights, part, draw)
        head["W_O"].zero_()
        _with_heads(weights, part, head, draw)
    return resized(cfg, n_heads=cfg.n_heads + 1)


def _idle_copy(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """A copy of one head of each layer that writes nothing."""
    for part in attentions(cfg):
        head = copied_head(weights, part, draw)
        head["W_O"].zero_()
        _with_heads(weights, part, head, draw)
    return resized(cfg, n_heads=cfg.n_heads + 1)


def _cancelling(head: Head, size: float) -> Head:
    """Two heads that write `size` times the given head's output, with opposite signs."""
    pair = {name: torch.cat([head[name], head[name]]) for name in OF_A_HEAD}
    written = size * head["W_O"]
    pair["W_O"] = torch.cat([written, -written])
    return pair


def _random_pair(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Two more heads in each layer, of random weights, that cancel."""
    for part in attentions(cfg):
        head = _random_head(weights, part, draw)
        _with_heads(weights, part, _cancelling(head, size), draw)
    return resized(cfg, n_heads=cfg.n_heads + 2)


def _copied_pair(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """A copy of one head of each layer, and its negative."""
    for part in attentions(cfg):
        head = copied_head(weights, part, draw)
        _with_heads(weights, part, _cancelling(head, size), draw)
    return resized(cfg, n_heads=cfg.n_heads + 2)


# ---- shape ---------------------------------------------------------------------------------------


def _wider_heads(weights: Weights, cfg: Config, draw: torch.Generator, size: float) -> Config:
    """Add coordinates to each head, `size` times as many, that only queries or only keys hold.

    Likewise values that are not written, and weights of W_O that no value meets.
    """
    width = cfg.head_width
    n_added = max(1, round(size * width))
    scale = ((width + n_added) / width) ** 0.5 if cfg.use_attn_scale else 1.0
    for part in attentions(cfg):
        # What Q and V hold of the new coordinates; K and W_O hold the others.
        holds = torch.rand(n_added, generator=draw, dtype=torch.float64) < 0.5

        def more(name: str, held: Tensor, axis: int, part: str = part) -> None:
            own = weights[part + name]
            shape = list(own.shape)
            shape[axis] = n_added
            new = size_of(own) * torch.randn(shape, generator=draw, dtype=own.dtype)
            along = [1] * own.ndim
            along[axis] = -1
            mask = held.to(own).view(along)
            weights[part + name] = torch.cat([own, new * mask], axis)

        for letter, held in (("Q", holds), ("K", ~holds), ("V", holds)):
            more(f"W_{letter}", held, 2)
            more(f"b_{letter}", held, 1)
        more("W_O", ~holds, 1)
        for name in ("W_Q", "b_Q"):
            weights[part + name][..., :width] *= scale
    return resized(cfg, d_head=width + n_added)
    return resized(cfg, d_head=width + added)


IDLE = {"may_change": ("list of heads", "order of heads"), "may_refuse": ("single head",)}

PERMUTED = Edit("heads permuted", "heads", _one_head, _permuted, ("order of heads",))
SPLIT = Edit(
    "a head split in two",
    "heads",
    has_attention,
    _split,
    ("shares of heads", "overlap of heads", "order of heads", "single head"),
)
NULL_HEAD = Edit("a head that writes nothing", "idle heads", has_attention, _null_head, **IDLE)
IDLE_COPY = Edit(
    "a copy of a head that writes nothing", "idle heads", has_attention, _idle_copy, **IDLE
)
COPIED_PAIR = sized(
    "a copy of a head and its negative", "idle heads", has_attention, _copied_pair, **IDLE
)
RANDOM_PAIR = sized(
    "two random heads that cancel", "idle heads", has_attention, _random_pair, **IDLE
)
TURNED = Edit(
    "heads turned within themselves",
    "values",
    has_attention,
    functools.partial(_turned, stretch=1.0),
)
STRETCHED = sized(
    "heads turned and stretched within themselves",
    "values",
    has_attention,
    _turned,
    ("balance",),
    small=(1.1, 1.5),
    large=(4.0, 10.0),
)
NO_KEY_BIAS = Edit("b_K dropped", "biases", _not_a_distribution, _no_key_bias)
NO_VALUE_BIAS = Edit("b_V moved into b_O", "biases", _not_a_distribution, _no_value_bias)
VALUE_BIAS = sized(
    "b_V moved out of b_O",
    "biases",
    _not_a_distribution,
    _value_bias,
    small=(0.05, 0.5),
    large=(5.0, 20.0),
)
NO_OUTPUT_BIAS = Edit("b_O moved into b_V", "biases", _not_a_distribution, _no_output_bias)
SCORES_SCALED = sized(
    "W_Q times c, W_O over c",
    "values",
    _not_homogeneous,
    _scores_scaled,
    ("balance", "weight maps"),
)
WIDER_HEADS = sized(
    "heads wider", "shape", has_attention, _wider_heads, small=(0.1, 0.3), large=(1.0, 2.0)
)
