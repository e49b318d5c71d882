"""The whole matrix M: the loss on fixed contexts, its minimum by L-BFGS, and Lemma 1.

Lemma 1 says that the minimum is w Sigma^-1.

This is one part of the study `lipschitz`, which re-exports it. Inputs are x = Sigma^(1/2) u with u
uniform on the unit sphere. The functions' law is invariant under rotations either of u (whitened,
as Lemma 1 needs) or of x.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.lipschitz.classes import FunctionClass
from icl_interp.theory.lipschitz.window import check_dimension, check_examples
from icl_interp.theory.softmax import as_float64

__all__ = [
    "Contexts",
    "Isotropy",
    "MatrixOptimum",
    "draw_contexts",
    "isotropy",
    "lemma_matrix",
    "matrix_loss",
    "optimal_matrix",
    "whitened",
]

Square = Float[Tensor, "dim dim"]
DIRECTIONS = 8  # q's per context


class Contexts(NamedTuple):
    """Fixed prompts, on which losses of matrices are compared with common random numbers."""

    keys: Float[Tensor, "context key dim"]  # x_1 to x_n
    queries: Float[Tensor, "context dim"]  # x_q
    gaps: Float[Tensor, "context key feature"]  # features at the keys less those at the query


class MatrixOptimum(NamedTuple):
    """The M at which L-BFGS ended."""

    matrix: Square
    loss: Float[Tensor, ""]
    gradient: Float[Tensor, ""]  # the largest entry of the gradient there


class Isotropy(NamedTuple):
    """How near a matrix is to w I."""

    window: Float[Tensor, ""]  # w, the mean of its diagonal
    deviation: Float[Tensor, ""]  # |M - w I| / |w|, spectral norms


def draw_contexts(
    n: int,
    functions: FunctionClass,
    contexts: int,
    *,
    covariance: Square | None = None,
    d: int | None = None,
    basis: Float[Tensor, "dim rank"] | None = None,
    rotate_whitened: bool = True,
    seed: int = 0,
) -> Contexts:
    """Contexts with inputs on Sigma^(1/2) times the unit sphere.

    The functions are of all of x or of B^T x.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    "Lemma 1: Inverting the data covariance" and "Results Part II" (B).

    Args:
        n: labelled examples.
        functions: the class; slopes and phases are averaged in closed form, directions q over 8 a
            context.
        contexts: how many.
        covariance: Sigma; None is the identity in d dimensions.
        d: coordinates of x, for Sigma = I.
        basis: B, orthonormal columns; None is all of x.
        rotate_whitened: whether functions read Sigma^(-1/2) x, so that their law is invariant under
            rotations of the whitened inputs; False is the counterexample, with q uniform in the
            coordinates of x.
        seed: of the contexts.

    Raises:
        ValueError: neither or both of covariance and d are given, one is out of range, Sigma is not
            symmetric positive definite, or B's columns are not orthonormal.

    Example:
        >>> import torch
        >>> from icl_interp.theory.lipschitz.classes import function_class
        >>> covariance = torch.diag(torch.tensor([4., 1.]))
        >>> drawn = draw_contexts(5, function_class("affine"), 7, covariance=covariance)
        >>> lengths = (drawn.keys[..., 0] / 2)**2 + drawn.keys[..., 1]**2
        >>> tuple(drawn.keys.shape), torch.allclose(lengths, torch.ones(7, 5).double())
        ((7, 5, 2), True)
    """
    if (covariance is None) == (d is None):
        raise ValueError("give either covariance or d, which is for the identity")
    if covariance is None:
        sigma = torch.eye(d or 0, dtype=torch.float64)
    else:
        sigma = as_float64(covariance)
    dim = len(sigma)
    check_examples(n)
    check_dimension(dim)
    root = covariance_root(sigma)

    # The n examples and, last, the query
    generator = torch.Generator().manual_seed(seed)
    sphere = torch.randn(contexts, n + 1, dim, generator=generator, dtype=torch.float64)
    sphere = torch.nn.functional.normalize(sphere, dim=-1)
    points = sphere @ root

    # What functions read of them: whitened or not, all of it or B^T x
    read = sphere if rotate_whitened else points
    if basis is not None:
        read = read @ as_basis(basis)
    width = read.shape[-1]
    directions = torch.randn(contexts, DIRECTIONS, width, generator=generator, dtype=torch.float64)
    directions = torch.nn.functional.normalize(directions, dim=-1)
    features = functions.features(read, directions)
    gaps = features[:, :-1] - features[:, -1:]
    return Contexts(points[:, :-1], points[:, -1], gaps)


def matrix_loss(matrix: Square, contexts: Contexts, noise: float) -> Float[Tensor, ""]:
    """L(M) on fixed contexts, E (fhat - f)^2 + sigma^2 E sum_i a_i^2; differentiable in M.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    equation (ICL).

    Args:
        matrix: M.
        contexts: from `draw_contexts`.
        noise: sigma, the standard deviation of the label noise.

    Example:
        >>> import torch
        >>> from icl_interp.theory.lipschitz.classes import function_class
        >>> drawn = draw_contexts(5, function_class("quadratic"), 9, d=3)
        >>> M = torch.arange(9.).cos().view(3, 3)
        >>> shift = drawn._replace(gaps=drawn.gaps * 0)  # constant functions have no bias
        >>> bool(matrix_loss(M, shift, 0.) == 0)
        True
    """
    asked = contexts.queries @ as_float64(matrix).T
    scores = torch.einsum("cnd,cd->cn", contexts.keys, asked)
    weights = torch.softmax(scores, -1)
    missed = torch.einsum("cn,cns->cs", weights, contexts.gaps)
    bias = missed.square().sum()
    variance = noise**2 * weights.square().sum()
    return (bias + variance) / len(weights)


def optimal_matrix(
    contexts: Contexts, noise: float, start: Square | None = None, *, steps: int = 500
) -> MatrixOptimum:
    """The M that minimises the loss on fixed contexts, over all d^2 entries, by L-BFGS in float64.

    Source: the minimiser M* of Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides
    by A. Mokhtari, Lemma 1 and Theorem 4.

    Args:
        contexts: from `draw_contexts`.
        noise: sigma.
        start: M at the start; None is the identity. For even classes L(M) = L(-M): the start
            decides the sign.
        steps: at most so many.

    Example:
        >>> from icl_interp.theory.lipschitz.classes import function_class
        >>> best = optimal_matrix(draw_contexts(10, function_class("affine"), 400, d=2), noise=1.)
        >>> bool(best.gradient < 1e-4)
        True
    """
    from scipy.optimize import minimize

    d = contexts.queries.shape[-1]
    if start is None:
        start = torch.eye(d, dtype=torch.float64)
    start = as_float64(start)

    def loss_and_gradient(entries: np.ndarray) -> tuple[float, np.ndarray]:
        matrix = torch.from_numpy(entries).view(d, d).requires_grad_()
        loss = matrix_loss(matrix, contexts, noise)
        (gradient,) = torch.autograd.grad(loss, matrix)
        return float(loss.detach()), gradient.flatten().numpy()

    options = {"maxiter": steps, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(
        loss_and_gradient, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options
    )
    matrix = torch.from_numpy(found.x.copy()).view(d, d)
    gradient = np.abs(found.jac).max()
    return MatrixOptimum(matrix, as_float64(found.fun), as_float64(gradient))


def lemma_matrix(window: float, covariance: Square) -> Square:
    """w Sigma^-1, which Lemma 1 says M* is.

    True where the functions' law is invariant under rotations of the whitened inputs and the class
    is not even. For an even class, such as quadratics, L(M) = L(-M) and -w Sigma^-1 is as good; for
    functions that are isotropic in the original coordinates M* is another matrix.

    Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari,
    Lemma 1.

    Args:
        window: w.
        covariance: Sigma.

    Raises:
        ValueError: Sigma is not symmetric positive definite.

    Example:
        >>> import torch
        >>> lemma_matrix(2., torch.diag(torch.tensor([4., 1.]))).diagonal()
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    covariance_root(covariance)
    return window * torch.linalg.inv(as_float64(covariance))


def whitened(matrix: Square, covariance: Square) -> Square:
    """Sigma^(1/2) M Sigma^(1/2), which gives the same scores for inputs on the unit sphere.

    It is w I for M = w Sigma^-1.

    Source: x_i^T M x_q with x = Sigma^(1/2) u; Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai
    (2024), slides by A. Mokhtari, Lemma 1.

    Args:
        matrix: M.
        covariance: Sigma.

    Raises:
        ValueError: Sigma is not symmetric positive definite.

    Example:
        >>> import torch
        >>> sigma = torch.tensor([[2., 1.], [1., 3.]])
        >>> torch.allclose(whitened(lemma_matrix(5., sigma), sigma), 5 * torch.eye(2).double())
        True
    """
    root = covariance_root(as_float64(covariance))
    return root @ as_float64(matrix) @ root


def isotropy(matrix: Square) -> Isotropy:
    """w = tr M / d, and |M - w I| / |w| in the spectral norm.

    The second number is 0 for w I, and large where eigenvalues differ.

    Source: a measure of how far Lemma 1 holds, applied to `whitened` matrices.

    Args:
        matrix: whitened M.

    Example:
        >>> import torch
        >>> isotropy(torch.diag(torch.tensor([1., 3.])))
        Isotropy(window=tensor(2., dtype=torch.float64),
        deviation=tensor(0.5000, dtype=torch.float64))
    """
    matrix = as_float64(matrix)
    window = matrix.trace() / len(matrix)
    rest = matrix - window * torch.eye(len(matrix), dtype=torch.float64)
    size = torch.linalg.matrix_norm(rest, 2)
    return Isotropy(window, size / window.abs())


def covariance_root(covariance: Tensor) -> Tensor:
    """Sigma^(1/2); ValueError unless Sigma is symmetric and positive definite."""
    covariance = as_float64(covariance)
    square = covariance.ndim == 2 and covariance.shape[0] == covariance.shape[1]
    if square and torch.allclose(covariance, covariance.T, rtol=1e-9, atol=0):
        values, vectors = torch.linalg.eigh(covariance)
        if values[0] > 0:
            return vectors @ torch.diag(values.sqrt()) @ vectors.T
    raise ValueError(
        f"a covariance must be a symmetric positive definite matrix, got {covariance.tolist()}"
    )


def as_basis(basis: Tensor) -> Tensor:
    """B in float64; ValueError unless its columns are orthonormal."""
    basis = as_float64(basis)
    gram = basis.T @ basis
    if not torch.allclose(gram, torch.eye(len(gram), dtype=torch.float64), rtol=0, atol=1e-6):
        raise ValueError(f"the columns of B must be orthonormal, got B^T B = {gram.tolist()}")
    return basis
