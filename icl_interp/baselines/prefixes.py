"""Linear regression on every prefix of many prompts at once: one QR factor, carried from prefix to prefix.

The factor [R d] of the points seen so far takes in the next point by the QR of itself with one more
row. Its error grows with the condition number of the features. Sums of their products (the normal
equations) would square it: with the powers of x up to the sixth on [-1, 1] the first full prefixes
would keep 4 digits of the 11 that they have.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Share of a column that is new below which it counts as a combination of the columns before it.
DEPENDENT = 1e-12


def prior_rows(
    mean: Float[Tensor, "feature target"], weight: float
) -> Float[Tensor, "column column"]:
    """The QR factor that stands for knowing w = mean, counted `weight`^2 times as much as a point, and nothing else."""
    n, n_targets = mean.shape
    rows = torch.zeros(n + n_targets, n + n_targets, dtype=mean.dtype)
    rows[:n, :n] = weight * torch.eye(n, dtype=mean.dtype)
    rows[:n, n:] = weight * mean
    return rows


def factors(
    features: Float[Tensor, "batch point feature"],
    ys: Float[Tensor, "batch point target"],
    first: Float[Tensor, "c c"],
) -> Float[Tensor, "batch point c c"]:
    """The triangle R of [Phi y] = Q R for the points before each point, on top of the rows `first`."""
    rows = torch.cat([features, ys], -1)
    factor = first.expand(len(rows), -1, -1)
    factors = [factor]
    for k in range(rows.shape[1] - 1):
        factor = torch.linalg.qr(torch.cat([factor, rows[:, k, None]], 1), mode="r").R
        factors.append(factor)
    return torch.stack(factors, 1)


def is_deficient(
    factors: Float[Tensor, "batch point c c"], n_features: int
) -> Bool[Tensor, "batch point"]:
    """Where a feature is a combination of those before it, whatever their scales."""
    triangle = factors[..., :n_features, :n_features]
    return (triangle.diagonal(dim1=-2, dim2=-1).abs() <= DEPENDENT * triangle.norm(dim=-2)).any(-1)


def solve(
    factors: Float[Tensor, "batch point c c"], n_features: int
) -> Float[Tensor, "batch point feature target"]:
    """The least-squares solution of each factor; not finite where it is not unique."""
    triangle, right = factors[..., :n_features, :n_features], factors[..., :n_features, n_features:]
    return torch.linalg.solve_triangular(triangle, right, upper=True)


def at_next_point(
    features: Float[Tensor, "batch point feature"], w: Float[Tensor, "batch point feature target"]
) -> Float[Tensor, "batch point target"]:
    """The value at each point with the coefficients fitted to the points before it."""
    return (features[..., None] * w).sum(-2)
