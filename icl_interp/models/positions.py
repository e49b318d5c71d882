"""Positions that act on scores: rotary, ALiBi and relative, where no vector is added to a token."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

PositionName = Literal["standard", "none", "rotary", "alibi", "relative"]
# These change scores, and leave the stream as it is.
IN_SCORES = ("rotary", "alibi", "relative")
BASE = 10_000.0


def turned(
    x: Float[Tensor, "batch token head d_head"], places: Float[Tensor, " token"]
) -> Float[Tensor, "batch token head d_head"]:
    """Queries or keys, turned by their positions: pair k at place t by t 10000^(-2k / d_head).

    Scores then depend on positions by their difference alone.

    Args:
        x: queries or keys; pairs are neighbours, (0, 1), (2, 3), ...
        places: the position of each token.

    Source: Su, Lu, Pan, Murtadha, Wen & Liu (2024), *RoFormer*, equation (34).

    >>> x, places = torch.randn(1, 5, 2, 4).double(), torch.arange(5).double()
    >>> here, there = turned(x, places), turned(x, places + 7)
    >>> torch.allclose((here[:, 1] * here[:, 3]).sum(), (there[:, 1] * there[:, 3]).sum())
    True
    """
    d = x.shape[-1]
    rates = BASE ** (-torch.arange(0, d, 2, device=x.device, dtype=x.dtype) / d)
    angles = places[:, None, None] * rates
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


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
