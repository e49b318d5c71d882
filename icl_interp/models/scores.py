"""Score functions: from attention scores (hidden keys at -inf) to an attention pattern.

Each takes scores `(..., query, key)` and returns a pattern of the same shape in which hidden keys weigh 0. What is
hidden is read off the scores themselves, so an intervention may hide a key by setting its score to -inf.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Scores = Float[Tensor, "*batch query key"]


def softmax(scores: Scores) -> Scores:
    """exp(s_j) / sum_k exp(s_k)."""
    return scores.softmax(-1)


class _Hardmax(torch.autograd.Function):
    """One-hot at the arg max going forward, softmax's gradient going back.

    A function of its own because the usual trick `onehot + p - p.detach()` is one-hot only up to rounding.
    """

    @staticmethod
    def forward(ctx, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (scores,) = ctx.saved_tensors
        p = scores.softmax(-1)
        return p * (grad - (grad * p).sum(-1, keepdim=True))


def hardmax(scores: Scores) -> Scores:
    """Exactly one-hot at the largest score (the first on ties), with softmax's gradient.

    >>> hardmax(torch.tensor([[0.0, 2.0, 2.0]]))
    tensor([[0., 1., 0.]])
    """
    return _Hardmax.apply(scores)


def linear(scores: Scores, norm: str | None = None) -> Scores:
    """The scores themselves, divided by the number of "visible" keys, of "labelled" ones (all but one), or nothing.

    >>> linear(torch.tensor([[3.0, 6.0, -math.inf]]), "visible")
    tensor([[1.5000, 3.0000, 0.0000]])
    """
    hidden = scores == -math.inf
    pattern = scores.masked_fill(hidden, 0.0)
    if norm is None:
        return pattern
    visible = (~hidden).sum(-1, keepdim=True)
    return pattern / (visible if norm == "visible" else visible - 1).clamp(min=1)


def apply(name: str, scores: Scores, norm: str | None = None) -> Scores:
    """The pattern under the score function of that name."""
    if name == "linear":
        return linear(scores, norm)
    return {"softmax": softmax, "hardmax": hardmax}[name](scores)
