"""Edits of attention: the order of heads, coordinates within a head, biases, the size of scores, copies of a head."""

import functools

import torch

from icl_interp.models.config import HookedTransformerConfig as Config
from icl_interp.testing.edits.base import Edit, Weights, attentions, has_attention, resized, well_conditioned

OF_A_HEAD = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O")


def _one_head(cfg: Config) -> str | None:
    return has_attention(cfg) or ("a layer has one head" if cfg.n_heads == 1 else None)


def _not_a_distribution(cfg: Config) -> str | None:
    return has_attention(cfg) or (
        None if cfg.weights_add_up else f"{cfg.score_fn} weights over the keys do not add up to 1"
    )


def _not_homogeneous(cfg: Config) -> str | None:
    return has_attention(cfg) or (
        None if cfg.score_fn in ("linear", "relu") else f"{cfg.score_fn} weights are not proportional to scores"
    )


def _permuted(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """The heads of each layer in another order."""
    for part in attentions(cfg):
        order = torch.randperm(cfg.n_heads, generator=draw)
        if torch.equal(order, order.sort().values):
            order = order.roll(1)
        for name in OF_A_HEAD:
            weights[part + name] = weights[part + name][order]
    return cfg


def _turned(weights: Weights, cfg: Config, draw: torch.Generator, stretch: float) -> Config:
    """Other coordinates within each head: W_V A, A^-1 W_O and W_Q B, W_K B^-T."""
    for part in attentions(cfg):
        for head in range(cfg.n_heads):
            values, keys = (well_conditioned(cfg.head_width, draw, stretch) for _ in range(2))
            for letter, matrix in (("V", values.matrix), ("Q", keys.matrix), ("K", keys.inverse.T)):
                for name in (f"{part}W_{letter}", f"{part}b_{letter}"):
                    weights[name][head] = weights[name][head] @ matrix
            weights[part + "W_O"][head] = values.inverse @ weights[part + "W_O"][head]
    return cfg


def _no_key_bias(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """b_K = 0: it adds the same number to all scores of a query, which such weights do not depend on."""
    for part in attentions(cfg):
        weights[part + "b_K"].zero_()
    return cfg


def _no_value_bias(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """b_V = 0, and b_O takes up what it made heads write."""
    for part in attentions(cfg):
        weights[part + "b_O"] += torch.einsum("he,hed->d", weights[part + "b_V"], weights[part + "W_O"])
        weights[part + "b_V"].zero_()
    return cfg


def _scores_scaled(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """Queries c times as long and W_O / c, with a c between 2 and 4 for each head."""
    for part in attentions(cfg):
        c = 2 + 2 * torch.rand(cfg.n_heads, 1, generator=draw, dtype=torch.float64)
        weights[part + "W_Q"] *= c[..., None]
        weights[part + "b_Q"] *= c
        weights[part + "W_O"] /= c[..., None]
    return cfg


def _split(weights: Weights, cfg: Config, draw: torch.Generator) -> Config:
    """In each layer one head becomes two with the same pattern, each of which writes half."""
    for part in attentions(cfg):
        head = int(torch.randint(cfg.n_heads, (), generator=draw))
        weights[part + "W_O"][head] /= 2
        for name in OF_A_HEAD:
            weights[part + name] = torch.cat([weights[part + name], weights[part + name][head : head + 1]])
    return resized(cfg, n_heads=cfg.n_heads + 1)


PERMUTED = Edit("heads permuted", "heads", _one_head, _permuted, ("order of heads",))
SPLIT = Edit(
    "a head split in two",
    "heads",
    has_attention,
    _split,
    ("shares of heads", "overlap of heads", "order of heads", "single head"),
)
TURNED = Edit("heads turned within themselves", "values", has_attention, functools.partial(_turned, stretch=1.0))
STRETCHED = Edit(
    "heads turned and stretched within themselves",
    "values",
    has_attention,
    functools.partial(_turned, stretch=2.0),
    ("balance",),
)
NO_KEY_BIAS = Edit("b_K dropped", "biases", _not_a_distribution, _no_key_bias)
NO_VALUE_BIAS = Edit("b_V moved into b_O", "biases", _not_a_distribution, _no_value_bias)
SCORES_SCALED = Edit("W_Q times c, W_O over c", "values", _not_homogeneous, _scores_scaled, ("balance", "weight maps"))
