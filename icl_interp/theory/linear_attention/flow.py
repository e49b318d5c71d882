"""How gradient flow trains a linear self-attention layer: the flow, its start, and its rate.

This is one part of the study `linear_attention`, which re-exports it. U = W11^KQ and u = w22^PV are
the weights that move, see `landscape`.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.linear_attention.landscape import Landscape, landscape
from icl_interp.theory.linear_attention.unit import Square, as_covariance, check_count, gamma
from icl_interp.theory.softmax import Scalar, as_float64

__all__ = [
    "Trajectory",
    "check_initial_scale",
    "excess_bound",
    "gradient_flow",
    "initial_point",
    "initial_scale_limit",
    "initial_scale_limit_random",
    "pl_constant",
    "read_out_floor",
]


class Trajectory(NamedTuple):
    """What `gradient_flow` returns: the weights at the times asked for."""

    times: Float[Tensor, " time"]
    matrices: Float[Tensor, "time dim dim"]
    scalars: Float[Tensor, " time"]

    @property
    def imbalance(self) -> Float[Tensor, " time"]:
        """u^2 - |U|_F^2, which the flow conserves: 0 from a balanced start (Lemma A.3)."""
        return self.scalars.square() - self.matrices.square().sum((1, 2))


def gradient_flow(
    where: Landscape,
    matrix: Square,
    scalar: Scalar,
    times: Float[Tensor, " time"],
    *,
    tolerance: float = 1e-10,
) -> Trajectory:
    """(U, u) along gradient flow (5.4) from time 0.

    scipy's LSODA integrates it: where the problem is stiff it takes a method for stiff problems.

    In Lambda's eigenbasis entries meet through u only: the Jacobian, given in closed form, is an
    arrow.

    Source: Zhang, Frei & Bartlett (2023), equations (3.9) and (5.4).

    Args:
        where: from `landscape` or `random_landscape`.
        matrix: U at time 0; `initial_point` gives the paper's.
        scalar: u at time 0.
        times: increasing, from 0 up; in units of 1 / (loss per squared weight).
        tolerance: of a step, relative, and a hundredth of it absolute. The global error is some
            tens of it.

    Raises:
        ValueError: times that do not increase from 0 up; the solver gives up.

    Example:
        >>> import torch
        >>> where = landscape(torch.diag(torch.tensor([1., 2.])), n=4)
        >>> path = gradient_flow(where, torch.eye(2) / 2, .5**.5, torch.tensor([0., 100.]))
        >>> torch.allclose(path.matrices[-1], where.minimiser[0])
        True
    """
    # Only here: nothing else in the package waits for scipy to load.
    from scipy.integrate import solve_ivp

    times = as_float64(times)
    if not len(times) or times[0] < 0 or not (times.diff() > 0).all():
        raise ValueError(f"times must increase from 0 up, got {times.tolist()}")
    # The solver's state holds V, U in Lambda's eigenbasis, and then u.
    d = len(where.slope)
    curvature = where.curvature.numpy()
    slope = np.diag(where.slope.numpy())

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        v = state[:-1].reshape(d, d)
        u = state[-1]
        pull = curvature * v
        dv = u * slope - u**2 * pull
        du = (slope * v).sum() - u * (pull * v).sum()
        return np.append(dv, du)

    def jacobian(_: float, state: np.ndarray) -> np.ndarray:
        v = state[:-1].reshape(d, d)
        u = state[-1]
        of_v = -(u**2) * curvature.flatten()
        of_u = -(curvature * v**2).sum()
        cross = slope - 2 * u * curvature * v
        cross = cross.flatten()
        diagonal = np.append(of_v, of_u)
        arrow = np.diag(diagonal)
        arrow[:-1, -1] = cross
        arrow[-1, :-1] = cross
        return arrow

    rotated = where.basis.T @ as_float64(matrix) @ where.basis
    start = np.append(rotated.numpy().flatten(), float(scalar))
    # From an interval of length 0 the solver returns no state.
    end = max(float(times[-1]), 1e-300)
    solved = solve_ivp(
        velocity,
        (0.0, end),
        start,
        method="LSODA",
        jac=jacobian,
        t_eval=times.numpy(),
        rtol=tolerance,
        atol=tolerance / 100,
    )
    if not solved.success:
        raise ValueError(
            f"the flow could not be integrated to t={end:g}: {solved.message}; try a larger "
            "tolerance"
        )
    states = torch.from_numpy(solved.y.T.copy())
    rotated = states[:, :-1].view(-1, d, d)
    matrices = where.basis @ rotated @ where.basis.T
    return Trajectory(times, matrices, states[:, -1])


def initial_point(sigma: float, theta: Square) -> tuple[Square, Float[Tensor, ""]]:
    """(U, u) at time 0: U = sigma Theta Theta^T and u = sigma, which is balanced.

    Source: Zhang, Frei & Bartlett (2023), Assumption 3.3, equation (3.10); Theta is any matrix with
    |Theta Theta^T|_F = 1 (and Theta Lambda != 0, which holds for every such Theta where Lambda is
    invertible).

    Raises:
        ValueError: sigma is not positive, or |Theta Theta^T|_F is not 1.

    Example:
        >>> import torch
        >>> U, u = initial_point(.5, torch.eye(2) / 2**.25)
        >>> torch.allclose(U.norm(), u)
        True
    """
    theta = as_float64(theta)
    square = theta @ theta.T
    size = square.norm()
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}: at 0 the flow stays where it is")
    if abs(size - 1) > 1e-6:
        raise ValueError(
            f"|Theta Theta^T|_F must be 1, got {float(size):g}: divide Theta by its square root"
        )
    # Divided by its norm it is balanced for a Theta in float32 too.
    matrix = sigma * square / size
    return matrix, as_float64(sigma)


def initial_scale_limit(covariance: Square, n: int) -> Float[Tensor, ""]:
    """sigma_max = sqrt(2 / (sqrt(d) |Gamma|_op)): below it Theorem 4.1 promises convergence.

    Sufficient, not necessary: the flow also converged from 1.5 to 30 sigma_max wherever it was
    tried.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.1 and (A.13).

    Example:
        >>> import torch
        >>> initial_scale_limit(torch.diag(torch.tensor([1., 2.])), n=4)
        tensor(0.6597, dtype=torch.float64)
    """
    shrinkage = gamma(covariance, n)
    size = torch.linalg.matrix_norm(shrinkage, 2)
    root_d = len(covariance) ** 0.5
    square = 2 / (root_d * size)
    return square.sqrt()


def initial_scale_limit_random(
    diagonals: Float[Tensor, "draw dim"], theta: Square, n: int
) -> Float[Tensor, ""]:
    """The largest initial scale sigma_max for which Theorem 4.5 holds.

    sigma^2 < 2 |E[Lambda] Theta|_F^2 / (sqrt(d) E[|Gamma|_op |Lambda|_F^2]).

    Expectations are means over the diagonals given: exact for a law of finite support, an estimate
    from draws. Sufficient, not necessary.

    Source: Zhang, Frei & Bartlett (2023), equation (4.11).

    Example:
        >>> import torch
        >>> initial_scale_limit_random(torch.tensor([[1., 2.]]), torch.eye(2) / 2**.25, n=4)
        tensor(0.5547, dtype=torch.float64)
    """
    diagonals = as_float64(diagonals)
    theta = as_float64(theta)
    check_count(n, "n")
    root_d = diagonals.shape[1] ** 0.5
    # |Gamma|_op of each draw, and then E[|Gamma|_op |Lambda|_F^2] and |E[Lambda] Theta|_F^2
    largest = (1 + 1 / n) * diagonals.amax(1) + diagonals.sum(1) / n
    squares = diagonals.square().sum(1)
    spread = (largest * squares).mean()
    mean = diagonals.mean(0)
    lambda_theta = mean[:, None] * theta
    pull = lambda_theta.square().sum()
    square = 2 * pull / (root_d * spread)
    return square.sqrt()


def check_initial_scale(sigma: float, covariance: Square, n: int) -> None:
    """Say by how much sigma misses the condition sigma^2 |Gamma|_op sqrt(d) < 2 of Theorem 4.1.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.1.

    Raises:
        ValueError: sigma is not positive, or too large: then PL constant and rate are not defined.
            The flow may converge all the same.

    Example:
        >>> import torch
        >>> check_initial_scale(.4, torch.eye(2), n=4)
    """
    limit = float(initial_scale_limit(covariance, n))
    if not 0 < sigma < limit:
        excess = f"{sigma / limit:.3g} times too large" if sigma > 0 else "not positive"
        raise ValueError(
            f"sigma={sigma:g} is {excess}: Theorem 4.1 asks for sigma^2 |Gamma|_op sqrt(d) < 2, "
            f"that is sigma below {limit:.6g}; the condition is sufficient, so gradient_flow may "
            "converge all the same"
        )


def pl_constant(covariance: Square, n: int, sigma: float, theta: Square) -> Float[Tensor, ""]:
    """The constant mu with |grad l|^2 >= mu (l - min l) along the flow.

    So l - min l falls at least like e^(-mu t).

    mu = sigma^2 |Lambda Theta|_F^2 [2 - sqrt(d) sigma^2 |Gamma|_op]
         / (sqrt(d) |Lambda|_op^2 tr(Gamma^-1 Lambda^-1) tr(Lambda^-1)).

    A true bound and a loose one: measured ratios are 50 to 1,500 times mu.

    sqrt(d) comes from tr(U^T V) <= sum_i s_i(U) s_i(V) <= sqrt(d) |U|_op |V|_F for singular values
    s_i (Lemma D.3), and the traces from tr(A B) >= 0 for positive A and B (Lemma D.4).

    Source: Zhang, Frei & Bartlett (2023), Lemma 5.4, equation (5.7), with Lemmas D.3 and D.4.

    Raises:
        ValueError: sigma does not meet the condition of `check_initial_scale`.

    Example:
        >>> import torch
        >>> pl_constant(torch.diag(torch.tensor([1., 2.])), 4, .4, torch.eye(2) / 2**.25)
        tensor(0.1289, dtype=torch.float64)
        >>> U, V = torch.diag(torch.tensor([3., 1.])), torch.ones(2, 2)
        >>> float((U.T @ V).trace()) <= 2**.5 * 3 * float(V.norm())  # Lemma D.3
        True
    """
    covariance = as_covariance(covariance)
    floor = read_out_floor(covariance, n, sigma, theta)
    shrinkage = gamma(covariance, n)
    inverse = torch.linalg.inv(covariance)
    inverses = torch.linalg.inv(shrinkage) @ inverse
    traces = inverses.trace() * inverse.trace()
    return 2 * floor**2 / traces


def read_out_floor(covariance: Square, n: int, sigma: float, theta: Square) -> Float[Tensor, ""]:
    """A lower bound on u along the flow.

    u stays above sqrt(sigma^2 |Lambda Theta|_F^2 [2 - sqrt(d) sigma^2 |Gamma|_op] / (2 sqrt(d)
    |Lambda|_op^2)).

    Source: Zhang, Frei & Bartlett (2023), Lemma A.5, equation (A.14).

    Raises:
        ValueError: sigma does not meet the condition of `check_initial_scale`.

    Example:
        >>> import torch
        >>> floor = read_out_floor(torch.eye(2), 4, .4, torch.eye(2) / 2**.25)
        >>> bool(floor < .4)
        True
    """
    check_initial_scale(sigma, covariance, n)
    covariance = as_covariance(covariance)
    root_d = len(covariance) ** 0.5
    shrinkage = gamma(covariance, n)
    largest = torch.linalg.matrix_norm(shrinkage, 2)
    room = 2 - root_d * sigma**2 * largest
    lambda_theta = covariance @ as_float64(theta)
    pull = lambda_theta.square().sum()
    size = torch.linalg.matrix_norm(covariance, 2)
    square = sigma**2 * pull * room / (2 * root_d * size**2)
    return square.sqrt()


def excess_bound(
    covariance: Square, n: int, sigma: float, theta: Square, times: Float[Tensor, " time"]
) -> Float[Tensor, " time"]:
    """The exponential bound e^(-mu t) (l(0) - min l) on the excess loss along the flow.

    The flow starts at `initial_point`.

    Source: Zhang, Frei & Bartlett (2023), Lemma 5.4.

    Raises:
        ValueError: sigma does not meet the condition of `check_initial_scale`.

    Example:
        >>> import torch
        >>> Lambda, theta = torch.diag(torch.tensor([1., 2.])), torch.eye(2) / 2**.25
        >>> start = landscape(Lambda, 4).excess(*initial_point(.4, theta))
        >>> torch.allclose(excess_bound(Lambda, 4, .4, theta, torch.zeros(1))[0], start)
        True
    """
    matrix, scalar = initial_point(sigma, theta)
    where = landscape(covariance, n)
    start = where.excess(matrix, scalar)
    rate = pl_constant(covariance, n, sigma, theta)
    times = as_float64(times)
    decay = torch.exp(-rate * times)
    return start * decay
