"""Positions that act on scores: rotary, ALiBi and relative, where no vector is added to a token."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

PositionName = Literal["standard", "none", "rotary", "alibi", "relative"]
# These change scores, and leave the stream as it is.
IN_SCORES = ("rotary", "alibi", "relative")
BASE = 10_000.0


def rotated(
    x: Float[Tensor, "batch token head d_head"], first: int
) -> Float[Tensor, "batch token head d_head"]:
    """Queries or keys, turned by their positions: pair k of position t by t 10000^(-2k / d_head).

    Scores then depend on positions by their difference alone.

    Args:
        x: queries or keys; pairs are neighbours, (0, 1), (2, 3), ...
        first: the position of the first token.

    Source: Su, Lu, Pan, Murtadha, Wen & Liu (2024), *RoFormer*, equation (34).

    >>> x = torch.randn(1, 5, 2, 4, dtype=torch.float64)
    >>> here, there = rotated(x, 0), rotated(x, 7)
    >>> torch.allclose((here[:, 1] * here[:, 3]).sum(), (there[:, 1] * there[:, 3]).sum())
    True
    """
    places = first + torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
    return turned(x, places)


def turned(
    x: Float[Tensor, "batch token head d_head"], places: Float[Tensor, " token"]
) -> Float[Tensor, "batch token head d_head"]:
    """`rotated` for tokens at any positions."""
    d = x.shape[-1]
    rates = BASE ** (-torch.arange(0, d, 2, device=x.device, dtype=x.dtype) / d)
    angles = places[:, None, None] * rates
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., ::2], x[..., 1::2]
    pairs = torch.stack([cos * even - sin * odd, sin * even + cos * odd], -1)
    return pairs.flatten(-2)


def slopes(n_heads: int, like: Tensor) -> Float[Tensor, " head"]:
    """ALiBi's factors of the distance: 2^(-8 h / H) for the heads h = 1, ..., H.

    Source: Press, Smith & Lewis (2022), *Train short, test long*, section 3. For numbers of heads
    that are no powers of 2 their code takes other factors; here the formula stands for all.

    >>> slopes(2, torch.zeros(()))
    tensor([0.0625, 0.0039])
    """
    heads = torch.arange(1, n_heads + 1, device=like.device, dtype=like.dtype)
    return 2 ** (-8 * heads / n_heads)


def distances(n_tokens: int, like: Tensor) -> Int[Tensor, "query key"]:
    """How far each key lies before each query: i - j, negative for later keys."""
    places = torch.arange(n_tokens, device=like.device)
    return places[:, None] - places
