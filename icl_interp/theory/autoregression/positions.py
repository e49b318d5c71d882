"""Attention by position alone, for small angles: its conditioning, and early stopping.

This is one part of the study `autoregression`, which re-exports it. One coordinate, s_t = e^(i
theta t) with theta uniform on [0, 2 pi / mu]; a = b = 1, and only p moves. Each coordinate is such
a problem, and each query has its own. The loss is (p - e_T)^T H (p - e_T): its only minimiser is
e_T, the last token, unless H is singular.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.autoregression.loss import Positions
from icl_interp.theory.softmax import as_float64

__all__ = [
    "EarlyStop",
    "early_stop",
    "position_hessian",
    "position_loss",
    "roughness",
    "significant_count",
]

MAX_STEPS = 2**60


class EarlyStop(NamedTuple):
    """Where gradient descent from p = 0 stops."""

    positions: Positions  # p
    loss: Float[Tensor, ""]
    n_steps: int


def position_hessian(n_tokens: int, mu: float) -> Float[Tensor, "token token"]:
    """The matrix H of the loss in p, with H_tt' = sin(x) / x at x = 4 pi (t - t') / mu.

    The loss is quadratic in p, with second derivative 2 H.

    Tokens t and t' go into the prediction with s_t^2 / s_q and s_t'^2 / s_q: their angles differ by
    2 theta (t - t'). H = I where 4 / mu is a whole number; for mu to infinity its eigenvalues tend
    to T, 0, 0, ... (`significant_count`).

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 7.

    Args:
        n_tokens: T.
        mu: what angles are divided by.

    Raises:
        ValueError: T below 1, or mu not positive.

    Example:
        >>> position_hessian(2, mu=8.)
        tensor([[1.0000, 0.6366],
                [0.6366, 1.0000]], dtype=torch.float64)
    """
    if n_tokens < 1:
        raise ValueError(f"T counts tokens and must be at least 1, got {n_tokens}")
    if not 0 < mu < torch.inf:
        raise ValueError(f"mu, what angles are divided by, must be a positive number, got {mu}")
    t = torch.arange(n_tokens, dtype=torch.float64)
    lags = t[:, None] - t
    return torch.sinc(4 * lags / mu)


def position_loss(p: Positions, mu: float) -> Float[Tensor, ""]:
    """E |sum_t p_t s_t^2 conj(s_q) - s_T|^2 = (p - e_T)^T H (p - e_T).

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), equation (7).

    Args:
        p: a number for each token.
        mu: what angles are divided by.

    Raises:
        ValueError: p is empty, or mu not positive.

    Example:
        >>> last, none = torch.tensor([0., 1.]), torch.tensor([0., 0.])
        >>> position_loss(last, mu=50.), position_loss(none, mu=50.)
        (tensor(0., dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    p = as_float64(p)
    n_tokens = len(p)
    # The sum over no rows is 0, so that an empty p is refused below.
    last = torch.eye(n_tokens, dtype=torch.float64)[-1:].sum(0)
    gap = p - last
    hessian = position_hessian(n_tokens, mu)
    return gap @ hessian @ gap


def significant_count(n_tokens: int, mu: float) -> float:
    """The number of eigenvalues of H that matter, about: max(1, 4 T / mu).

    About as many eigenvalues lie near mu / 4, and the others fall off faster than any power.

    This holds for mu of 4 or more, up to a number of eigenvalues between that grows like log T.

    Source: sharpens Proposition 7 of Sander, Giryes, Suzuki, Blondel & Peyré (2024): H is a prolate
    matrix (Slepian, 1978) with bandwidth 2 / mu.

    Args:
        n_tokens: T.
        mu: what angles are divided by, at least 4.

    Raises:
        ValueError: T below 1, or mu below 4.

    Example:
        >>> trace = float(position_hessian(30, mu=50.).trace())
        >>> significant_count(30, mu=50.), round(trace)  # times 50 / 4
        (2.4, 30)
    """
    if n_tokens < 1 or not 4 <= mu < torch.inf:
        raise ValueError(f"T must be at least 1 and mu at least 4, got T={n_tokens} and mu={mu}")
    return max(1.0, 4 * n_tokens / mu)


def early_stop(
    n_tokens: int, mu: float, tolerance: float = 1e-3, step: float | None = None
) -> EarlyStop:
    """p where gradient descent from 0 first has a population loss below the tolerance.

    After k steps of size eta, p = e_T - (I - 2 eta H)^k e_T: directions of small eigenvalues have
    not moved yet. Those of large ones vary slowly along the prompt, so for large mu p is smooth and
    far from e_T, and its loss is small.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), section 5.3 after Proposition 7, and
    "Change in the context distribution" of section 6.

    Args:
        n_tokens: T.
        mu: what angles are divided by.
        tolerance: the loss at which to stop, between 0 and 1.
        step: eta, below 1 / (largest eigenvalue of H); by default half of that.

    Raises:
        ValueError: T, mu, the tolerance or the step is out of range, or rounding keeps the loss
            above the tolerance.

    Example:
        >>> found = early_stop(5, mu=1.)  # H = I: one step goes to the minimiser
        >>> last = torch.tensor([0., 0., 0., 0., 1.]).double()
        >>> torch.allclose(found.positions, last), found.n_steps
        (True, 1)
    """
    hessian = position_hessian(n_tokens, mu)
    values, vectors = torch.linalg.eigh(hessian)
    values = values.clamp(min=0)
    # e_T in the eigenbasis
    start = vectors[-1]
    largest = float(values[-1])
    if step is None:
        step = 0.5 / largest
    if not 0 < tolerance < 1:
        raise ValueError(
            "the loss is 1 at the start and falls to 0: the tolerance must lie between, got "
            f"{tolerance}"
        )
    if not 0 < step < 1 / largest:
        raise ValueError(
            f"steps between 0 and {1 / largest:.6g} (1 / the largest eigenvalue) converge, got "
            f"{step}"
        )
    factors = 1 - 2 * step * values

    def loss(n_steps: int) -> Tensor:
        gap = start * factors**n_steps
        return (values * gap.square()).sum()

    # The loss falls with every step: doubling finds a bracket, and bisection the first step.
    high = 1
    while not loss(high) < tolerance:
        if high >= MAX_STEPS:
            raise ValueError(
                f"after {high:.1g} steps the loss is still {float(loss(high)):.2g}: raise the "
                "tolerance"
            )
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if loss(middle) < tolerance:
            high = middle
        else:
            low = middle
    moved = (1 - factors**high) * start
    return EarlyStop(vectors @ moved, loss(high), high)


def roughness(p: Positions) -> Float[Tensor, ""]:
    """The largest |p_{t-1} - 2 p_t + p_{t+1}|: 1 for e_T, near 0 for a smooth row.

    Source: a measure of what Sander, Giryes, Suzuki, Blondel & Peyré (2024), sections 5.3 and 6,
    call smooth.

    Args:
        p: a number for each of three tokens or more.

    Raises:
        ValueError: fewer than three tokens.

    Example:
        >>> roughness(torch.tensor([0., 0., 0., 1.])), roughness(torch.tensor([1., 2., 3., 4.]))
        (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    p = as_float64(p)
    if p.ndim != 1 or len(p) < 3:
        raise ValueError(f"second differences take three tokens or more, got shape {[*p.shape]}")
    bends = p.diff(n=2)
    return bends.abs().amax()
