"""How gradient flow trains the layer: what it conserves, and where it ends for d = 1.

The source is Propositions 4 and 5 of Sander, Giryes, Suzuki, Blondel & Peyré (2024).

This is one part of the study `autoregression`, which re-exports it; symbols are those of `loss`.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.autoregression.loss import (
    Heads,
    Positions,
    check_pair,
    head_product,
    orthogonal_loss,
    partners,
    unitary_loss,
)
from icl_interp.theory.softmax import Scalar, as_float64

__all__ = ["ScalarLimit", "Trajectory", "gradient_flow", "scalar_limit", "scalar_loss"]


class Trajectory(NamedTuple):
    """What `gradient_flow` returns: the weights at the times asked for, and their loss."""

    times: Float[Tensor, " time"]
    queries: Float[Tensor, "time head dim"]  # A
    values: Float[Tensor, "time head dim"]  # B
    positions: Float[Tensor, "time token"]  # p
    loss: Float[Tensor, " time"]

    @property
    def imbalance(self) -> Float[Tensor, "time head head"]:
        """A A^T - B B^T, which the flow conserves because the loss depends on B^T A alone.

        For d = 1 it is a^2 - b^2.
        """
        return self.queries @ self.queries.mT - self.values @ self.values.mT

    @property
    def scale_imbalance(self) -> Float[Tensor, " time"]:
        """|A|_F^2 - |p|^2, which the flow conserves where p moves.

        The loss at (C / c, c p) is the same for all c. For d = 1 it is a^2 - |p|^2.
        """
        return self.queries.square().sum((1, 2)) - self.positions.square().sum(1)


class ScalarLimit(NamedTuple):
    """Where gradient flow ends for d = 1: a b p_T = 1, and p_t = 0 for the other tokens."""

    query: Float[Tensor, ""]  # a
    value: Float[Tensor, ""]  # b
    last: Float[Tensor, ""]  # p_T


def gradient_flow(
    A: Heads,
    B: Heads,
    p: Positions,
    times: Float[Tensor, " time"],
    *,
    paired: bool,
    moving: bool = True,
    tolerance: float = 1e-10,
) -> Trajectory:
    """(A, B, p) along gradient flow on the population loss from time 0, by scipy's LSODA.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Propositions 4 and 5, "Convergence of
    gradient descent".

    Args:
        A: a_h as rows, at time 0.
        B: b_h as rows.
        p: a number for each token.
        times: increasing, from 0 up.
        paired: whether eigenvalues come in conjugate pairs (`orthogonal_loss`) or not
            (`unitary_loss`).
        moving: whether p moves too; otherwise it stays what it is.
        tolerance: of a step, relative, and a hundredth of it absolute. The global error is some
            tens of it.

    Raises:
        ValueError: sizes that do not fit, times that do not increase from 0 up, or the solver gives
            up.

    Example:
        >>> start = torch.full((1, 1), .5), torch.full((1, 1), .4), torch.tensor([.1, .2, .3])
        >>> path = gradient_flow(*start, torch.tensor([0., 60.]), paired=False)
        >>> torch.allclose(path.positions[-1, -1], scalar_limit(.5, .4, start[2]).last)
        True
    """
    # Only here: nothing else in the package waits for scipy to load.
    from scipy.integrate import solve_ivp

    product = head_product(A, B)
    _, p = check_pair(product, p)
    A = as_float64(A)
    B = as_float64(B)
    times = as_float64(times)
    if not len(times) or times[0] < 0 or not (times.diff() > 0).all():
        raise ValueError(f"times must increase from 0 up, got {times.tolist()}")
    d = A.shape[1]
    if paired:
        loss = orthogonal_loss
        swap = np.eye(d)[partners(d)]
    else:
        loss = unitary_loss
        swap = np.zeros((d, d))

    # The solver's state holds the entries of A, then those of B, then p.
    start = torch.cat([A.flatten(), B.flatten(), p])
    size = A.numel()
    cut = [size, 2 * size]

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        a, b, positions = np.split(state, cut)
        a = a.reshape(A.shape)
        b = b.reshape(A.shape)
        product = b.T @ a
        in_product, in_positions = _gradient(product, positions, swap)
        in_a = b @ in_product
        in_b = a @ in_product.T
        return -np.concatenate([in_a.ravel(), in_b.ravel(), in_positions * moving])

    # From an interval of length 0 the solver returns no state.
    end = max(float(times[-1]), 1e-300)
    solved = solve_ivp(
        velocity,
        (0.0, end),
        start.numpy(),
        method="LSODA",
        t_eval=times.numpy(),
        rtol=tolerance,
        atol=tolerance / 100,
    )
    if not solved.success:
        raise ValueError(
            f"the flow could not be integrated to t={float(times[-1]):g}: {solved.message}; try a "
            "larger tolerance"
        )
    states = torch.from_numpy(solved.y.T.copy())
    queries, values, positions = states.tensor_split(cut, -1)
    queries = queries.unflatten(-1, A.shape)
    values = values.unflatten(-1, A.shape)
    losses = []
    for a, b, at_time in zip(queries, values, positions, strict=True):
        product = b.mT @ a
        losses.append(loss(product, at_time))
    return Trajectory(times, queries, values, positions, torch.stack(losses))


def scalar_loss(a: Scalar, b: Scalar, p: Positions) -> Float[Tensor, ""]:
    """|p|^2 (a b)^2 - 2 a b p_T + 1: the loss for d = 1 and one head; 1 at the origin.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Propositions 4 and 5.

    Args:
        a: a_1.
        b: b_1.
        p: a number for each of two tokens or more.

    Raises:
        ValueError: p has fewer than two entries.

    Example:
        >>> scalar_loss(2., .5, torch.tensor([0., 0., 1.]))
        tensor(0., dtype=torch.float64)
    """
    product = as_float64(a) * as_float64(b)
    return unitary_loss(product.view(1, 1), p)


def scalar_limit(a: Scalar, b: Scalar, p: Positions) -> ScalarLimit:
    """Where gradient flow from (a, b, p) ends for d = 1, in closed form.

    The loss must be below 1 at the start.

    The loss falls, so a b p_T stays positive and no sign changes. At the end a b p_T = 1 and
    p = p_T e_T, and with a^2 - b^2 and a^2 - |p|^2, which are conserved, a^2 is the largest root of
    u (u - a^2 + b^2) (u - a^2 + |p|^2) = 1. The condition is sufficient, not necessary: nearly all
    other starts end at a minimum too, but (1, 1, -e_T) ends at the origin.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 5; its proof needs this
    condition.

    Args:
        a: a_1 at time 0.
        b: b_1.
        p: a number for each of two tokens or more.

    Raises:
        ValueError: the loss at the start is 1 or more.

    Example:
        >>> tuple(map(float, scalar_limit(-.5, -.5, torch.tensor([0., .5]))))
        (-1.0, -1.0, 1.0)
    """
    # Only here: it loads slowly.
    from scipy.optimize import brentq

    start = float(scalar_loss(a, b, p))
    if not start < 1:
        raise ValueError(
            f"the loss at the start is {start:g}: Proposition 5 asks for less than 1. The "
            "condition is sufficient, so gradient_flow may reach a minimum all the same"
        )
    a = float(a)
    b = float(b)
    p = as_float64(p)
    # The two imbalances are conserved.
    a_square = a * a
    imbalance = a_square - b * b
    scale_imbalance = a_square - float(p.square().sum())

    def excess(u: float) -> float:
        return u * (u - imbalance) * (u - scale_imbalance) - 1

    # Above `low` all three factors grow from 0 on, and at low + 1 each is at least 1.
    low = max(0.0, imbalance, scale_imbalance)
    root: float = brentq(excess, low, low + 1, xtol=1e-15)  # pyright: ignore
    query = math.copysign(math.sqrt(root), a)
    b_square = root - imbalance
    value = math.copysign(math.sqrt(b_square), b)
    last = 1 / (query * value)
    return ScalarLimit(as_float64(query), as_float64(value), as_float64(last))


def _gradient(C: np.ndarray, p: np.ndarray, swap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of the loss in C and in p.

    `swap` marks each coordinate's partner, and is 0 where there are no partners.
    """
    at_query = p[-2]
    last = p[-1]
    elsewhere = p.sum() - at_query
    others = p @ p - at_query**2
    marked = C * swap
    partner = marked.sum(1)
    apart = C - marked
    row_sums = C.sum(1)
    # In a row, the terms of the query's own key and those of the partner add up before they are
    # squared.
    same = at_query * row_sums + elsewhere * partner
    weights = at_query + elsewhere * swap
    in_product = others * apart + same[:, None] * weights
    in_product -= last * np.eye(len(C))
    in_positions = p * np.sum(apart**2) + same @ partner
    in_positions[-2] = same @ row_sums
    in_positions[-1] -= np.trace(C)
    return 2 * in_product, 2 * in_positions
