"""Linear regression on every prefix of many prompts at once, by updating one QR factor.

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

Factors = Float[Tensor, "batch point c c"]
Features = Float[Tensor, "batch point feature"]
Labels = Float[Tensor, "batch point target"]
Coefficients = Float[Tensor, "batch point feature target"]


def prior_rows(
    mean: Float[Tensor, "feature target"], weight: float
) -> Float[Tensor, "column column"]:
    """The QR factor of the prior knowledge w = mean, which weighs `weight`^2 times a point."""
    n, n_targets = mean.shape
    n_columns = n + n_targets
    rows = torch.zeros(n_columns, n_columns, dtype=mean.dtype)
    of_features = rows[:n]
    of_features[:, :n] = weight * torch.eye(n, dtype=mean.dtype)
    of_features[:, n:] = weight * mean
    return rows


def factors(features: Features, ys: Labels, first: Float[Tensor, "c c"]) -> Factors:
    """The triangle R of [Phi y] = Q R for the points before each point, below the rows `first`."""
    rows = torch.cat([features, ys], -1)
    n_points = rows.shape[1]
    factor = first.expand(len(rows), -1, -1)
    factors = [factor]
    for k in range(n_points - 1):
        # The triangle with one more row below it is made a triangle again.
        longer = torch.cat([factor, rows[:, k, None]], 1)
        factor = torch.linalg.qr(longer, mode="r").R
        factors.append(factor)
    return torch.stack(factors, 1)


def is_deficient(factors: Factors, n_features: int) -> Bool[Tensor, "batch point"]:
    """Where a feature is a combination of those before it, whatever their scales."""
    triangle = factors[..., :n_features, :n_features]
    diagonal = triangle.diagonal(dim1=-2, dim2=-1).abs()
    lengths = triangle.norm(dim=-2)
    dependent = diagonal <= DEPENDENT * lengths
    return dependent.any(-1)


def solve(factors: Factors, n_features: int) -> Coefficients:
    """The least-squares solution of each factor; not finite where it is not unique."""
    of_features = factors[..., :n_features, :]
    triangle = of_features[..., :n_features]
    right = of_features[..., n_features:]
    return torch.linalg.solve_triangular(triangle, right, upper=True)


def at_next_point(features: Features, w: Coefficients) -> Labels:
    """The value at each point with the coefficients fitted to the points before it."""
    return (features[..., None] * w).sum(-2)
