"""Score functions: from attention scores (hidden keys at -inf) to an attention pattern.

Each takes scores `(..., query, key)` and returns a pattern of the same shape in which hidden keys
weigh 0. What is hidden is read off the scores themselves, so an intervention may hide a key by
setting its score to -inf.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable

Scores = Float[Tensor, "*batch query key"]
# Below the largest score by this much (halved scores), an entmax weight is 0 whatever the other
# scores are.
_FAR_BELOW = -2.0


def softmax(scores: Scores) -> Scores:
    """exp(s_j) / sum_k exp(s_k)."""
    return scores.softmax(-1)


def visible_keys(scores: Scores) -> Int[Tensor, "*batch query 1"]:
    """How many keys each query sees: those whose score is not -inf."""
    return (scores > -math.inf).sum(-1, keepdim=True)


def scaled_softmax(scores: Scores) -> Scores:
    """softmax(s log n) with n visible keys.

    Weights become sharper as n grows, so they need not disperse.

    Plain softmax of scores within a range R gives no key more than e^R / n. Here the same scores
    give up to n^R / n. Source: Chiang & Cholak (2022), *Overcoming a theoretical limitation of
    self-attention*, a factor log n; Nakanishi (2025), *Scalable-Softmax is superior for attention*,
    makes it s log n with a learned s for each head. No s here: a head's W_Q and b_Q can take any
    multiple of themselves, so s would add nothing to what the model can compute, and the state dict
    stays that of softmax.

    >>> scaled_softmax(torch.tensor([[1.0, 0.0, 0.0, -math.inf]]))  # e^(log 3) = 3
    tensor([[0.6000, 0.2000, 0.2000, 0.0000]])
    """
    # A single key weighs 1 whatever its factor; log 1 = 0 would make NaN of a hidden key's -inf.
    n_keys = visible_keys(scores).clamp(min=2).to(scores)
    return (scores * n_keys.log()).softmax(-1)


def sigmoid(scores: Scores) -> Scores:
    """1 / (1 + n exp(-s)) with n visible keys: each key is weighed by itself.

    At a score of 0 the weight is 1 / (n + 1).

    Weights do not compete and need not add up to 1. Source: Ramapuram et al. (2024), *Theory,
    analysis, and best practices for sigmoid self-attention*, bias -log n.

    >>> sigmoid(torch.tensor([[0.0, 0.0, 0.0, -math.inf]]))
    tensor([[0.2500, 0.2500, 0.2500, 0.0000]])
    """
    n_keys = visible_keys(scores).clamp(min=1).to(scores)
    return (scores - n_keys.log()).sigmoid()


def relu(scores: Scores) -> Scores:
    """max(s, 0) / n with n visible keys.

    Weights can be exactly 0, and they grow with the scores without limit.

    Source: Wortsman, Lee, Gilmer & Kornblith (2023), *Replacing softmax with ReLU in vision
    transformers*.

    >>> relu(torch.tensor([[3.0, -6.0, 1.5, -math.inf]]))
    tensor([[1.0000, 0.0000, 0.5000, 0.0000]])
    """
    return scores.relu() / visible_keys(scores).clamp(min=1)


class _Entmax(torch.autograd.Function):
    """Entmax of order 1.5 by sorting, and its Jacobian diag(r) - r r^T / sum(r), r = sqrt(p)."""

    @staticmethod
    def forward(ctx: FunctionCtx, scores: Tensor) -> Tensor:
        half = scores / 2
        half = (half - half.amax(-1, keepdim=True)).clamp(min=_FAR_BELOW)
        ordered = half.sort(dim=-1, descending=True).values
        n_keys = half.shape[-1]
        count = torch.arange(1, n_keys + 1, device=half.device, dtype=half.dtype)
        mean = ordered.cumsum(-1) / count
        spread = ordered.square().cumsum(-1) - count * mean.square()
        # Of the k largest, tau solves sum (s / 2 - tau)^2 = 1; the support is the largest k whose
        # own tau it exceeds.
        taus = mean - ((1 - spread) / count).clamp(min=0).sqrt()
        support = (taus <= ordered).sum(-1, keepdim=True)
        tau = taus.gather(-1, support - 1)
        p = (half - tau).clamp(min=0).square()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: BackwardCFunction, grad: Tensor) -> Tensor:
        (p,) = ctx.saved_tensors
        root = p.sqrt()
        total = root.sum(-1, keepdim=True)
        mean = (grad * root).sum(-1, keepdim=True) / total
        return root * (grad - mean)


def entmax(scores: Scores) -> Scores:
    """Entmax of order 1.5, between softmax and sparsemax: max(s / 2 - tau, 0)^2.

    tau is such that the weights add up to 1.

    Keys that score 2 or more below the best weigh exactly 0.

    Source: Peters, Niculae & Martins (2019), *Sparse sequence-to-sequence models*, the exact
    algorithm for 1.5.

    >>> entmax(torch.tensor([[1.0, 1.0, -1.5, -math.inf]]))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    return _Entmax.apply(scores)


class _Hardmax(torch.autograd.Function):
    """One-hot at the arg max going forward, softmax's gradient going back.

    A function of its own because the usual trick `onehot + p - p.detach()` is one-hot only up to
    rounding.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        best = scores.argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)

    @staticmethod
    def backward(ctx: BackwardCFunction, grad: Tensor) -> Tensor:
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
    """The scores themselves, divided by a number of keys.

    The number is that of "visible" keys or of "labelled" ones (all but one); None divides by
    nothing.

    >>> linear(torch.tensor([[3.0, 6.0, -math.inf]]), "visible")
    tensor([[1.5000, 3.0000, 0.0000]])
    """
    hidden = scores == -math.inf
    pattern = scores.masked_fill(hidden, 0.0)
    if norm is None:
        return pattern
    visible = visible_keys(scores)
    return pattern / (visible if norm == "visible" else visible - 1).clamp(min=1)


def constant(scores: Scores) -> Scores:
    """1 for each visible key, whatever its score.

    With `position_weights`, attention then depends on positions alone.

    Source: Sander, Giryes, Suzuki, Blondel & Peyre (2024), section 5.3.

    >>> constant(torch.tensor([[3.0, -6.0, -math.inf]]))
    tensor([[1., 1., 0.]])
    """
    return (scores > -math.inf).to(scores)


def apply(name: str, scores: Scores, norm: str | None = None) -> Scores:
    """The pattern under the score function of that name."""
    if name == "linear":
        return linear(scores, norm)
    return _FUNCTIONS[name](scores)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": softmax,
    "scaled_softmax": scaled_softmax,
    "sigmoid": sigmoid,
    "relu": relu,
    "entmax": entmax,
    "hardmax": hardmax,
    "constant": constant,
}
