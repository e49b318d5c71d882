"""The loss of a linear self-attention layer in the weights that gradient flow moves.

Its minimum is given in closed form.

This is one part of the study `linear_attention`, which re-exports it. From the start of Assumption
3.3 the flow keeps w21^PV = w21^KQ = 0; what is left is U = W11^KQ, (d, d), and the scalar
u = w22^PV.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.linear_attention.unit import (
    Square,
    Vector,
    as_covariance,
    check_count,
    gamma,
)
from icl_interp.theory.softmax import Scalar, as_float64

__all__ = ["Landscape", "landscape", "optimum", "random_landscape"]


@dataclass(frozen=True)
class Landscape:
    """The loss l(U, u) of a layer: its loss L less E[y^2] / 2.

    l(U, u) = u^2 sum_ij C_ij V_ij^2 / 2 - u sum_i b_i V_ii, V = basis^T U basis.

    Both theorems have this form. Fixed Lambda (4.1): C_ij = gamma_i lambda_i lambda_j and
    b_i = lambda_i^2 in Lambda's eigenbasis, that is l = tr[u^2 Gamma Lambda U Lambda U^T / 2 - u
    Lambda^2 U^T]. Random diagonal Lambda (4.5): the expectations of the same. `landscape` and
    `random_landscape` make them.

    Source: Zhang, Frei & Bartlett (2023), Lemmas 5.2 and A.1, Corollary A.2; section 4.3 for random
    Lambda.

    Attributes:
        curvature: C, (d, d), positive.
        slope: b, (d,), positive.
        basis: eigenvectors of Lambda as columns.
        label_moment: E[y^2] = E[tr Lambda] + tau^2; half of it is the loss of predicting 0.

    Example:
        >>> import torch
        >>> where = landscape(torch.diag(torch.tensor([1., 2.])), n=4)
        >>> U, u = where.minimiser
        >>> torch.allclose(where.loss(U, u), where.minimum)
        True
    """

    curvature: Square
    slope: Vector
    basis: Square
    label_moment: Float[Tensor, ""]

    def loss(self, matrix: Square, scalar: Scalar) -> Float[Tensor, ""]:
        """l(U, u). The population loss is this plus label_moment / 2."""
        v = self._rotated(matrix)
        u = as_float64(scalar)
        square = (self.curvature * v.square()).sum()
        linear = self.slope @ v.diagonal()
        return square * u**2 / 2 - u * linear

    def velocity(self, matrix: Square, scalar: Scalar) -> tuple[Square, Float[Tensor, ""]]:
        """(dU/dt, du/dt) of gradient flow, minus the gradient of `loss`: equation (5.4).

        The gradients are d tr(A X B X^T C) / dX = A^T C^T X B^T + C A X B and d tr(A X^T) / dX = A
        of Lemma D.1.
        """
        v = self._rotated(matrix)
        u = as_float64(scalar)
        dv = -(u**2) * self.curvature * v + u * torch.diag(self.slope)
        square = (self.curvature * v.square()).sum()
        linear = self.slope @ v.diagonal()
        du = -u * square + linear
        return self.basis @ dv @ self.basis.T, du

    @property
    def product(self) -> Square:
        """u U at every minimum: Gamma^-1 for a fixed Lambda.

        Where Lambda is random it is [E Gamma Lambda^2]^-1 E[Lambda^2].
        """
        best = self._best_diagonal()
        return self.basis @ torch.diag(best) @ self.basis.T

    @property
    def minimum(self) -> Float[Tensor, ""]:
        """The least value of `loss`; for a fixed Lambda -tr[Lambda^2 Gamma^-1] / 2.

        Source: Zhang, Frei & Bartlett (2023), Corollary A.2.
        """
        gains = self._gains()
        return -gains.sum() / 2

    @property
    def minimiser(self) -> tuple[Square, Float[Tensor, ""]]:
        """(U, u), the balanced minimum, u = |U|_F, u > 0.

        It is the limit of the flow (Theorems 4.1 and 4.5).
        """
        product = self.product
        size = product.norm().sqrt()
        return product / size, size

    @property
    def rank_one(self) -> tuple[Square, Float[Tensor, ""]]:
        """(P, excess) of another stationary point, where u = 0 and U = 0.

        P = w21^PV w21^KQ^T is the best product of rank one.

        The product keeps the direction with the largest slope^2 / curvature of the optimum and none
        of the others. The paper starts at w21 = 0, from where the flow cannot go there; fresh
        random weights can. For short prompts (d = 2 and 3, n = 4) it is a local minimum of the loss
        of all weights, for longer ones a saddle with a weak way down: a layer that seems not to
        have converged may be there. d = 1 has it as a second global minimum.
        """
        gains = self._gains()
        kept = int(gains.argmax())
        size = self._best_diagonal()[kept]
        eigenvector = self.basis[:, kept]
        product = size * torch.outer(eigenvector, eigenvector)
        lost = gains.sum() - gains[kept]
        return product, lost / 2

    def excess(self, matrix: Square, scalar: Scalar) -> Float[Tensor, ""]:
        """loss - minimum as a sum of squares, exact also where the difference is lost to rounding.

        |Gamma^(1/2) (u Lambda^(1/2) U Lambda^(1/2) - Lambda Gamma^-1)|_F^2 / 2 for a fixed Lambda
        (Corollary A.2).
        """
        v = self._rotated(matrix)
        u = as_float64(scalar)
        gap = u * v - torch.diag(self._best_diagonal())
        squares = self.curvature * gap.square()
        return squares.sum() / 2

    def _rotated(self, matrix: Tensor) -> Tensor:
        """V, the matrix in Lambda's eigenbasis."""
        matrix = as_float64(matrix)
        return self.basis.T @ matrix @ self.basis

    def _best_diagonal(self) -> Tensor:
        """u V_ii at every minimum; the other entries of V are 0 there."""
        curvature = self.curvature.diagonal()
        return self.slope / curvature

    def _gains(self) -> Tensor:
        """Twice what each direction takes off the loss at a minimum."""
        curvature = self.curvature.diagonal()
        return self.slope.square() / curvature


def landscape(covariance: Square, n: int, noise_variance: Scalar = 0.0) -> Landscape:
    """The landscape of a fixed Lambda.

    Source: Zhang, Frei & Bartlett (2023), Lemmas 5.2 and A.1.

    Args:
        covariance: Lambda.
        n: N.
        noise_variance: tau^2 of the training labels (an extension: it enters Gamma).

    Raises:
        ValueError: n is below 1, or the covariance is not symmetric positive definite.

    Example:
        >>> import torch
        >>> Lambda = torch.diag(torch.tensor([1., 2.]))
        >>> product = landscape(Lambda, n=4).product
        >>> torch.allclose(product @ gamma(Lambda, n=4), torch.eye(2).double())
        True
    """
    covariance = as_covariance(covariance)
    eigenvalues, basis = torch.linalg.eigh(covariance)
    shrunk = basis.T @ gamma(covariance, n, noise_variance) @ basis
    curvature = torch.outer(shrunk.diagonal() * eigenvalues, eigenvalues)
    slope = eigenvalues.square()
    label_moment = eigenvalues.sum() + as_float64(noise_variance)
    return Landscape(curvature, slope, basis, label_moment)


def random_landscape(
    moments: Float[Tensor, "3 dim"], n: int, noise_variance: Scalar = 0.0
) -> Landscape:
    """The landscape of a random diagonal Lambda that is drawn anew for every prompt.

    The entries of Lambda are independent.

    C_ij = E[gamma_i lambda_i lambda_j] and b_i = E[lambda_i^2], gamma_i = (1 + 1/n) lambda_i + (tr
    Lambda + tau^2) / n.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.5.

    Args:
        moments: E[lambda_i], E[lambda_i^2], E[lambda_i^3] as rows.
        n: N.
        noise_variance: tau^2 of the training labels.

    Raises:
        ValueError: n is below 1, or the moments belong to no positive law.

    Example:
        >>> import torch
        >>> fixed = torch.tensor([1., 2.]).double()
        >>> same = random_landscape(torch.stack([fixed, fixed**2, fixed**3]), n=4)
        >>> torch.allclose(same.curvature, landscape(torch.diag(fixed), n=4).curvature)
        True
    """
    check_count(n, "n")
    moments = as_float64(moments)
    first, second, third = moments
    # By Jensen and by Cauchy and Schwarz; a fixed Lambda has equality, up to rounding.
    spreads = second >= first**2 * (1 - 1e-12)
    skews = first * third >= second**2 * (1 - 1e-12)
    possible = spreads & skews
    if not ((moments > 0).all() and possible.all()):
        raise ValueError(
            f"no positive law has the first three moments {moments.tolist()}: row k holds "
            "E[lambda^k]"
        )
    tau2 = as_float64(noise_variance)
    label_moment = first.sum() + tau2
    # tr Lambda + tau^2 without entry i
    others = label_moment - first

    # C_ij for i other than j. tr Lambda lambda_i lambda_j: entries i and j meet themselves in the
    # trace.
    own = torch.outer(second, first)
    pairs = own + torch.outer(first, second)
    pairs = pairs + torch.outer(first, first) * (others[:, None] - first)
    curvature = (1 + 1 / n) * own + pairs / n
    # C_ii
    with_trace = third + second * others
    same = (1 + 1 / n) * third + with_trace / n
    curvature = curvature - torch.diag(curvature.diagonal())
    curvature = curvature + torch.diag(same)
    basis = torch.eye(len(first), dtype=torch.float64)
    return Landscape(curvature, second, basis, label_moment)


def optimum(where: Landscape) -> tuple[Float[Tensor, "wide wide"], Float[Tensor, "wide wide"]]:
    """(W_PV, W_KQ) that gradient flow converges to.

    Both are zero but for w22^PV = u and W11^KQ = U of `minimiser`.

    Source: Zhang, Frei & Bartlett (2023), Theorem 4.1 (u = tr(Gamma^-2)^(1/4)) and (4.12) of
    Theorem 4.5.

    Example:
        >>> import torch
        >>> w_pv, w_kq = optimum(landscape(torch.diag(torch.tensor([1., 2.])), n=4))
        >>> inverse = torch.diag(torch.tensor([1 / 2, 1 / 3.25])).double()
        >>> torch.allclose(w_pv[-1, -1] * w_kq[:-1, :-1], inverse)
        True
    """
    matrix, scalar = where.minimiser
    wide = len(matrix) + 1
    w_pv, w_kq = torch.zeros(2, wide, wide, dtype=torch.float64)
    w_pv[-1, -1] = scalar
    w_kq[:-1, :-1] = matrix
    return w_pv, w_kq
