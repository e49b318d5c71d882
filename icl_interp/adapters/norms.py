"""Norms of other modules: what they divide by, told by trial, so that it can be read and set."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.errors import InputError

TOLERANCE = 1e-4  # of the largest output, in float32
_EPS = ("eps", "variance_epsilon", "epsilon")  # what norms call it


@dataclass(frozen=True)
class Kind:
    """How a norm makes its output of its input: gain * (x - mean) / scale + bias.

    Attributes:
        centred: whether the mean over coordinates is taken off.
        eps: added to the variance, or to the mean square, under the root.
    """

    centred: bool
    eps: float

    def scale(self, x: Tensor) -> Tensor:
        """What x is divided by, (..., 1)."""
        wide = self._without_mean(x)
        return (wide.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def divided(self, x: Tensor) -> Tensor:
        """The input, without its mean where that is taken off, over its scale."""
        return self._without_mean(x) / self.scale(x)

    def _without_mean(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.centred else x


def told(norm: nn.Module, x: Tensor, out: Tensor, name: str) -> Kind:
    """The kind of a norm, by an input and its output.

    Args:
        norm: has `eps` (or another of its names), and `weight` and `bias` where it has them.
        x: the input, (batch, token, d_model).
        out: the output.
        name: of the norm, for messages.

    Raises:
        InputError: it is neither LayerNorm nor root mean square with these weights.

    >>> x = torch.randn(2, 3, 8)
    >>> told(nn.LayerNorm(8), x, nn.LayerNorm(8)(x), "ln")
    Kind(centred=True, eps=1e-05)
    """
    eps = _eps(norm, x)
    gain = getattr(norm, "weight", None)
    one = torch.ones((), dtype=x.dtype, device=x.device)
    gains = [one] if gain is None else [gain, 1 + gain]  # some keep their gain less 1
    shift = bias(norm)
    fits = x.shape == out.shape and all(not t.ndim or t.shape == x.shape[-1:] for t in gains)
    for centred in (True, False) if fits else ():
        kind = Kind(centred, eps)
        for each in gains:
            if _same(kind.divided(x) * each + shift, out):
                return kind
    raise InputError(
        f"{name!r} is neither a LayerNorm nor a root mean square norm with its weight, bias and "
        "eps: it divides by no scale that is known here, so leave it out of norms=[...]"
    )


def bias(norm: nn.Module) -> Any:
    """What a norm adds at the end; 0 where it adds nothing."""
    found = getattr(norm, "bias", None)
    return 0.0 if found is None else found


def rescaled(norm: nn.Module, out: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The output of a norm that divides by another scale."""
    shift = bias(norm)
    return (out - shift) * (old / new) + shift


def _eps(norm: nn.Module, x: Tensor) -> float:
    for name in _EPS:
        value = getattr(norm, name, None)
        if isinstance(value, float):
            return value
    return float(torch.finfo(x.dtype).eps)  # what torch's RMSNorm takes for None


def _same(a: Tensor, b: Tensor) -> bool:
    difference = (a - b).abs().max()
    return bool(difference <= TOLERANCE * b.abs().max().clamp(min=1e-30))
