"""Functions of a few directions, f(x) = g(B^T x): Theorem 4.

Theorem 4 says what M* keeps of the other directions.

This is one part of the study `lipschitz`, which re-exports it. B is (d, k) with orthonormal
columns. By symmetry the best M for linear functions is c B B^T + c' (I - B B^T), and the loss is
even in c'.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.classes import FunctionClass, function_class
from icl_interp.theory.lipschitz.matrices import Contexts, Square, as_basis, matrix_loss
from icl_interp.theory.lipschitz.window import check_dimension, mean_cosine, noise_limit
from icl_interp.theory.softmax import as_float64

__all__ = [
    "GLM_LINKS",
    "Pair",
    "PairOptimum",
    "glm_class",
    "long_prompt_linear_loss",
    "low_rank_matrix",
    "optimal_pair",
    "outside_energy",
    "pair_of",
    "recovery_distance",
    "subspace_distance",
]

Basis = Float[Tensor, "dim rank"]
GLM_LINKS = {"affine": ("linear", 1.0), "quadratic": ("quadratic", 2.0), "cosine": ("cosine", 4.0)}


class Pair(NamedTuple):
    """The part c B B^T + c' (I - B B^T) of a matrix, and what else there is."""

    inside: Float[Tensor, ""]  # c
    outside: Float[Tensor, ""]  # c'
    deviation: Float[Tensor, ""]  # spectral norm of the rest over |c|


class PairOptimum(NamedTuple):
    """The best M = c B B^T + c' (I - B B^T) on fixed contexts.

    The sign of c' is theirs, not the law's.
    """

    inside: Float[Tensor, ""]
    outside: Float[Tensor, ""]
    loss: Float[Tensor, ""]


def glm_class(link: str) -> FunctionClass:
    """The generalised linear model g(w^T x) with w = B q: w^T x + 2, (w^T x)^2 or cos(4 w^T x).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Softmax Attention Learns Low-Dimensional Structure in Nonlinear Functions". The constant 2
    drops out.

    Args:
        link: "affine", "quadratic" or "cosine".

    Raises:
        ValueError: another name.

    Example:
        >>> glm_class("cosine").lipschitz
        4.0
    """
    if link not in GLM_LINKS:
        raise ValueError(f"a link is one of {', '.join(GLM_LINKS)}, got {link!r}")
    return function_class(*GLM_LINKS[link])


def low_rank_matrix(basis: Basis, inside: float | Tensor, outside: float | Tensor = 0.0) -> Square:
    """M = c B B^T + c' (I - B B^T).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 4, where c' = 0.

    Args:
        basis: B, orthonormal columns.
        inside: c.
        outside: c'.

    Raises:
        ValueError: B's columns are not orthonormal.

    Example:
        >>> import torch
        >>> low_rank_matrix(torch.eye(3)[:, :2], inside=5., outside=1.).diagonal()
        tensor([5., 5., 1.], dtype=torch.float64)
    """
    basis = as_basis(basis)
    identity = torch.eye(len(basis), dtype=torch.float64)
    projection = basis @ basis.T
    others = identity - projection
    return inside * projection + outside * others


def pair_of(matrix: Square, basis: Basis) -> Pair:
    """c, c' and what is left of a matrix besides: all but c small where M = c B B^T.

    Source: a measure of how far Theorem 4 holds; the projection of M on B B^T and I - B B^T.

    Args:
        matrix: M.
        basis: B, orthonormal columns, fewer than d.

    Raises:
        ValueError: B's columns are not orthonormal, or there are d of them.

    Example:
        >>> import torch
        >>> B = torch.eye(3)[:, :2]
        >>> pair = pair_of(low_rank_matrix(B, 5., 1.), B)
        >>> tuple(map(float, pair))
        (5.0, 1.0, 0.0)
    """
    matrix = as_float64(matrix)
    basis = as_basis(basis)
    d, k = basis.shape
    _check_rank(d, k)
    read = basis.T @ matrix @ basis
    inside = read.trace() / k
    outside = (matrix.trace() - k * inside) / (d - k)
    rest = matrix - low_rank_matrix(basis, inside, outside)
    size = torch.linalg.matrix_norm(rest, 2)
    return Pair(inside, outside, size / inside.abs())


def optimal_pair(
    contexts: Contexts,
    basis: Basis,
    noise: float,
    *,
    outside: float | None = None,
    cap: float = math.inf,
    start: tuple[float, float] = (2.0, 1.0),
) -> PairOptimum:
    """The best (c, c') on fixed contexts, with c at most a cap: Theorem 4's C.

    Theorem 4 says c' = 0. That needs the cap (or n = 2, or a small n): without it and without noise
    c' > 0 is better for long prompts, because e^(c u_i . u_q) in the projections u = B^T x lacks
    the factor e^(-c |u_i|^2 / 2).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Theorem 4, with |B^T M B| <= C.

    Args:
        contexts: from `draw_contexts`, with the same basis.
        basis: B, orthonormal columns, fewer than d.
        noise: sigma.
        outside: c' if it is to be held, 0 for c B B^T; None is free.
        cap: the largest c allowed.
        start: (c, c') at the start.

    Raises:
        ValueError: B's columns are not orthonormal, there are d of them, or the cap is not
            positive.

    Example:
        >>> import torch
        >>> from icl_interp.theory.lipschitz.matrices import draw_contexts
        >>> B = torch.eye(4)[:, :2]
        >>> drawn = draw_contexts(5, glm_class("affine"), 400, d=4, basis=B)
        >>> optimal_pair(drawn, B, noise=0., outside=0., cap=1.).inside
        tensor(1., dtype=torch.float64)
    """
    from scipy.optimize import minimize

    basis = as_basis(basis)
    _check_rank(*basis.shape)
    if not cap > 0:
        raise ValueError(f"the cap C on |B^T M B| must be positive, got {cap}")
    project = low_rank_matrix(basis, 1.0)
    others = low_rank_matrix(basis, 0.0, 1.0)

    def loss_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        pair = torch.from_numpy(values.copy()).requires_grad_()
        matrix = pair[0] * project + pair[1] * others
        loss = matrix_loss(matrix, contexts, noise)
        (gradient,) = torch.autograd.grad(loss, pair)
        return float(loss.detach()), gradient.numpy()

    # Bounds that meet hold c' where it is.
    first_inside, first_outside = start
    first_inside = min(first_inside, cap)
    bounds = [(0.0, cap), (-math.inf, math.inf)]
    if outside is not None:
        first_outside = outside
        bounds[1] = (outside, outside)
    found = minimize(
        loss_and_gradient,
        np.array([first_inside, first_outside]),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 200, "ftol": 1e-13, "gtol": 1e-8},
    )
    best_inside, best_outside = found.x
    return PairOptimum(as_float64(best_inside), as_float64(best_outside), as_float64(found.fun))


def long_prompt_linear_loss(
    inside: float | Tensor, outside: float | Tensor, d: int, k: int, noise_over_n: float = 0.0
) -> Float[Tensor, ""]:
    """The loss of c B B^T + c' (I - B B^T) on f(x) = q^T B^T x for long prompts.

    The integrals are by Gauss-Jacobi quadrature.

    With r = |B^T x_q| and s = |M x_q| = sqrt(c^2 r^2 + c'^2 (1 - r^2)) the local average of B^T x
    is A_d(s) (c/s) B^T x_q: the loss is (1/k) E r^2 (1 - A_d(s) c / s)^2, plus (sigma^2 / n) E
    Z(2s) / Z(s)^2. The first tends to 0 for c = c' to infinity, but not for c' = 0.

    Source: replaces the case sigma = 0 without the cap of Collins, Parulekar, Mokhtari, Sanghavi &
    Shakkottai (2024), slides by A. Mokhtari, Theorem 4.

    Args:
        inside: c, positive.
        outside: c'.
        d: coordinates of x.
        k: of B^T x, below d.
        noise_over_n: sigma^2 / n.

    Raises:
        ValueError: c is not positive, or d and k are out of range.

    Example:
        >>> round(float(long_prompt_linear_loss(6.62, 0., d=4, k=2)), 5)
        0.00622
    """
    from scipy.special import roots_jacobi

    check_dimension(d)
    _check_rank(d, k)
    inside = as_float64(inside)
    outside = as_float64(outside)
    if not inside > 0:
        raise ValueError(f"c must be positive, got {float(inside)}")

    # r^2 has a Beta law, so these are the nodes for 2 r^2 - 1.
    nodes, weights = roots_jacobi(60, (d - k) / 2 - 1, k / 2 - 1)
    r_squared = torch.from_numpy((1 + nodes) / 2)
    law = torch.from_numpy(weights / weights.sum())

    s_squared = inside**2 * r_squared + outside**2 * (1 - r_squared)
    s = s_squared.sqrt()
    kept = mean_cosine(s, d) * inside / s
    bias = r_squared * (1 - kept).square() / k
    variance = noise_over_n * noise_limit(s, d)
    return law @ (bias + variance)


def subspace_distance(first: Basis, second: Basis) -> Float[Tensor, ""]:
    """sin theta_max, the sine of the largest principal angle between two subspaces.

    Both have the same dimension. The sine is 0 if they agree.

    Source: principal angles (Jordan); what Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai
    (2024), slides by A. Mokhtari, "Results Part II", call recovering col(B).

    Args:
        first: orthonormal columns.
        second: as many orthonormal columns.

    Raises:
        ValueError: columns are not orthonormal, or their numbers differ.

    Example:
        >>> import torch
        >>> subspace_distance(torch.eye(3)[:, :2], torch.eye(3)[:, 1:])
        tensor(1., dtype=torch.float64)
    """
    first = as_basis(first)
    second = as_basis(second)
    if first.shape != second.shape:
        raise ValueError(
            f"two subspaces of one dimension are compared, got {first.shape[1]} and "
            f"{second.shape[1]}"
        )
    projected = first @ (first.T @ second)
    missed = second - projected
    sine = torch.linalg.matrix_norm(missed, 2)
    return sine.clamp(max=1)


def recovery_distance(matrix: Square, basis: Basis) -> Float[Tensor, ""]:
    """`subspace_distance` of the k leading left singular vectors of M to col(B).

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Softmax Attention Learns Low-Dimensional Structure in Nonlinear Functions".

    Args:
        matrix: M.
        basis: B, orthonormal columns.

    Raises:
        ValueError: B's columns are not orthonormal.

    Example:
        >>> import torch
        >>> B = torch.eye(4)[:, 1:3]
        >>> bool(recovery_distance(low_rank_matrix(B, 5., 1.), B) < 1e-12)
        True
    """
    matrix = as_float64(matrix)
    k = basis.shape[1]
    left, _, _ = torch.linalg.svd(matrix)
    leading = left[:, :k]
    return subspace_distance(leading, basis)


def outside_energy(matrix: Square, basis: Basis) -> Float[Tensor, ""]:
    """The share of M's squared entries that reads other directions: 1 - |P M P|_F^2 / |M|_F^2.

    P = B B^T.

    The share is 0 for c B B^T; (d - k) / d for the identity.

    Source: a measure of how far Theorem 4 holds.

    Args:
        matrix: M, not 0.
        basis: B, orthonormal columns.

    Raises:
        ValueError: B's columns are not orthonormal.

    Example:
        >>> import torch
        >>> outside_energy(torch.eye(4), torch.eye(4)[:, :1])
        tensor(0.7500, dtype=torch.float64)
    """
    matrix = as_float64(matrix)
    basis = as_basis(basis)
    read = basis.T @ matrix @ basis
    inside = read.square().sum()
    return 1 - inside / matrix.square().sum()


def _check_rank(d: int, k: int) -> None:
    if not 1 <= k < d:
        raise ValueError(
            f"k directions of {d} matter, so k must lie between 1 and {d - 1}, got {k}"
        )
