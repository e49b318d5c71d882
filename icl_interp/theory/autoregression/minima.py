"""Where the loss is zero: the minimisers, how to recognise them, and what they estimate in context.

This is one part of the study `autoregression`, which re-exports it; symbols are those of `loss`.
Every minimiser is one of a family: (C / c, c p) has the loss of (C, p) for each number c, also a
negative one, and (M A, M^-T B) has the product C of (A, B) for each invertible M. What is measured
here is left alone by both. rho is p_{T-1} / p_T.
"""

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.theory.autoregression.loss import Positions, Square, check_pair, partners
from icl_interp.theory.softmax import as_float64

__all__ = [
    "OrthogonalDistance",
    "Point",
    "UnitaryDistance",
    "far_valley",
    "orthogonal_distance",
    "orthogonal_map",
    "orthogonal_minimiser",
    "unitary_distance",
    "unitary_map",
    "unitary_minimiser",
]

Path = Complex[Tensor, "*batch token dim"]


class Point(NamedTuple):
    """What the loss is a function of."""

    product: Square  # C = B^T A
    positions: Positions  # p


class UnitaryDistance(NamedTuple):
    """How far (C, p) is from the minimisers of Proposition 3; both numbers are 0 only there."""

    product: Float[Tensor, ""]  # the largest entry of |p_T C - I|
    positions: Float[Tensor, ""]  # the largest |p_t| / |p_T| of another token


class OrthogonalDistance(NamedTuple):
    """How far (C, p) is from the minimisers of Proposition 6, and from which of them."""

    ratio: Float[Tensor, ""]  # rho, free but for -1
    # The largest entry of |p_T C - (I - rho / (1 + rho) J)|; infinite at rho = -1
    product: Float[Tensor, ""]
    positions: Float[Tensor, ""]  # the largest |p_t| / |p_T| of a token before T - 1
    rank: int  # of C: singular values above `tolerance` times the largest


def unitary_minimiser(d: int, n_tokens: int, scale: float = 1.0) -> Point:
    """The minimiser of Proposition 3 with this p_T: C = I / p_T and p = p_T e_T.

    They are all, for each p_T but 0.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 3.

    Args:
        d: coordinates.
        n_tokens: T.
        scale: p_T.

    Raises:
        ValueError: d below 1, T below 2, or p_T = 0.

    Example:
        >>> from icl_interp.theory.autoregression.loss import unitary_loss
        >>> unitary_loss(*unitary_minimiser(3, n_tokens=5, scale=-2.))
        tensor(0., dtype=torch.float64)
    """
    check_sizes(d, n_tokens, scale)
    p = torch.zeros(n_tokens, dtype=torch.float64)
    p[-1] = scale
    identity = torch.eye(d, dtype=torch.float64)
    return Point(identity / scale, p)


def orthogonal_minimiser(d: int, n_tokens: int, ratio: float = -0.5, scale: float = 1.0) -> Point:
    """The minimiser of Proposition 6 with this rho and this p_T.

    C = (I - rho / (1 + rho) J) / p_T, where J swaps partners. Here `ratio` is rho and `scale` is
    p_T.

    These are all minimisers. The rank of C is d, but d / 2 at rho = -1/2: only that one can be had
    with d / 2 heads. rho = 0 is the unitary minimiser.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 6.

    Args:
        d: coordinates, an even number.
        n_tokens: T.
        ratio: rho = p_{T-1} / p_T.
        scale: p_T.

    Raises:
        ValueError: an odd d, T below 2, p_T = 0, or rho = -1, where there is no minimiser.

    Example:
        >>> from icl_interp.theory.autoregression.loss import orthogonal_loss
        >>> minimiser = orthogonal_minimiser(4, n_tokens=6, ratio=.7, scale=3.)
        >>> bool(orthogonal_loss(*minimiser).abs() < 1e-14)
        True
    """
    check_sizes(d, n_tokens, scale)
    if ratio == -1:
        raise ValueError("rho = p_{T-1} / p_T must not be -1: no product C makes the loss 0 there")
    p = torch.zeros(n_tokens, dtype=torch.float64)
    p[-1] = scale
    p[-2] = ratio * scale
    product = torch.eye(d, dtype=torch.float64) - ratio / (1 + ratio) * _swap(d)
    return Point(product / scale, p)


def unitary_distance(C: Square, p: Positions) -> UnitaryDistance:
    """How far (C, p) is from `unitary_minimiser` with its p_T.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 3.

    Args:
        C: B^T A.
        p: a number for each token, p_T not 0.

    Raises:
        ValueError: C is not square, p has fewer than two entries, or p_T = 0.

    Example:
        >>> C, p = unitary_minimiser(3, n_tokens=5, scale=-2.)
        >>> p[0] = .5
        >>> tuple(map(float, unitary_distance(C, p)))
        (0.0, 0.25)
    """
    C, p = _check_last(C, p)
    last = p[-1]
    gap = last * C - torch.eye(len(C), dtype=torch.float64)
    others = p[:-1] / last
    return UnitaryDistance(gap.abs().amax(), others.abs().amax())


def orthogonal_distance(C: Square, p: Positions, *, tolerance: float = 1e-3) -> OrthogonalDistance:
    """How far (C, p) is from `orthogonal_minimiser` with its own rho and p_T.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 6.

    Args:
        C: B^T A.
        p: a number for each token, p_T not 0.
        tolerance: singular values of C below this share of the largest count as 0.

    Raises:
        ValueError: C is not square, d is odd, p has fewer than two entries, or p_T = 0.

    Example:
        >>> found = orthogonal_distance(*orthogonal_minimiser(4, n_tokens=6))
        >>> float(found.ratio), float(found.product), float(found.positions), found.rank
        (-0.5, 0.0, 0.0, 2)
    """
    C, p = _check_last(C, p)
    d = len(C)
    last = p[-1]
    ratio = p[-2] / last
    gap = last * C - torch.eye(d, dtype=torch.float64) + ratio / (1 + ratio) * _swap(d)
    largest = gap.abs().amax() if ratio != -1 else as_float64(torch.inf)
    # With two tokens there are no others.
    others = (p[:-2] / last).abs()
    stray = others.amax() if len(others) else as_float64(0.0)
    values = torch.linalg.svdvals(C)
    rank = (values > tolerance * values[0]).sum()
    return OrthogonalDistance(ratio, largest, stray, int(rank))


def far_valley(d: int, n_tokens: int, ratio: float) -> Point:
    """Points with loss 1 / rho^2 for rotations: a valley that falls to 0 but never reaches it.

    The loss falls as rho = p_{T-1} / p_T grows.

    C = blockdiag([[1, -1], [-1, 1]]) + 1 1^T / (rho d) with p_T = 1: rank d / 2 + 1. So with
    d / 2 + 1 heads or more a small loss does not mean that a minimiser is near. Large or
    accelerated steps go along it; plain descent with small steps from small weights does not.

    Source: not in Sander, Giryes, Suzuki, Blondel & Peyré (2024); beside the minimisers of their
    Proposition 6.

    Args:
        d: coordinates, an even number.
        n_tokens: T.
        ratio: rho, not 0.

    Raises:
        ValueError: an odd d, T below 2, or rho = 0.

    Example:
        >>> from icl_interp.theory.autoregression.loss import orthogonal_loss
        >>> round(float(orthogonal_loss(*far_valley(4, n_tokens=6, ratio=10.))), 12)
        0.01
    """
    check_sizes(d, n_tokens, ratio)
    p = torch.zeros(n_tokens, dtype=torch.float64)
    p[-1] = 1.0
    p[-2] = ratio
    blocks = torch.eye(d, dtype=torch.float64) - _swap(d)
    return Point(blocks + 1 / (ratio * d), p)


def unitary_map(states: Path) -> Complex[Tensor, "*batch dim"]:
    """The estimate of lambda that a minimiser for unitary W makes in context.

    The estimate is s_{T-1} conj(s_{T-2}), entry by entry.

    The minimiser predicts lambda s_{T-1} with it: s_T without noise.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 3.

    Args:
        states: two or more, s_{T-1} last.

    Raises:
        ValueError: fewer than two states.

    Example:
        >>> states = torch.tensor([1, 1j, -1])[:, None]
        >>> unitary_map(states)
        tensor([0.+1.j], dtype=torch.complex128)
    """
    states = _check_states(states)
    last = states[..., -1, :]
    before = states[..., -2, :]
    return last * before.conj()


def orthogonal_map(states: Path) -> Complex[Tensor, "*batch dim"]:
    """The estimate of lambda^2 that d / 2 heads make in context: 2 cos(theta) lambda - 1.

    lambda is that of `unitary_map`, and 2 cos(theta) the sum of a pair of its entries. They predict
    lambda^2 s_{T-2} with it: s_T without noise.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 6 and what follows it.

    Args:
        states: two or more, s_{T-1} last; conjugate pairs of coordinates.

    Raises:
        ValueError: fewer than two states, or an odd number of coordinates.

    Example:
        >>> turn = torch.polar(torch.ones(1), torch.tensor([.3]))
        >>> states = torch.stack([torch.ones(2) + 0j, torch.cat([turn, turn.conj()])])
        >>> torch.allclose(orthogonal_map(states), states[1].to(torch.complex128)**2)
        True
    """
    states = _check_states(states)
    found = unitary_map(states)
    d = found.shape[-1]
    twice_cosine = found + found[..., partners(d)]
    return twice_cosine * found - 1


def _swap(d: int) -> Square:
    """J, which swaps the partners of each pair."""
    return torch.eye(d, dtype=torch.float64)[partners(d)]


def _check_states(states: Tensor) -> Tensor:
    if states.ndim < 2 or states.shape[-2] < 2:
        raise ValueError(
            f"an estimate in context needs two states or more, got shape {tuple(states.shape)}"
        )
    return states.to(torch.complex128)


def _check_last(C: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    C, p = check_pair(C, p)
    if p[-1] == 0:
        raise ValueError(
            "p_T, the last entry of p, is 0: no minimiser is near, and there is nothing to scale by"
        )
    return C, p


def check_sizes(d: int, n_tokens: int, scale: float) -> None:
    """ValueError unless there are coordinates, two tokens, and a scale or ratio other than 0."""
    if d < 1:
        raise ValueError(f"d counts coordinates and must be at least 1, got {d}")
    if n_tokens < 2:
        raise ValueError(
            "T counts tokens and must be at least 2: a query and the token after it, got "
            f"{n_tokens}"
        )
    if not scale or not abs(scale) < torch.inf:
        raise ValueError(f"a scale or ratio must be a finite number other than 0, got {scale}")
