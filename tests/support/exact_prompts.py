"""Shared by tests of `theory`: float64, random covariances, and exact quadrature over prompts.

Gauss-Hermite quadrature over everything random in a prompt is a route of its own. Predictions are
polynomials, so a few nodes a variable give their moments without any error, and closed forms must
agree to rounding.
"""

import numpy as np
import torch


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted_slope(x, y):
    """Slope of log|y| against log|x|: the power of a power law."""
    x, y = torch.as_tensor(x).abs().log(), torch.as_tensor(y).abs().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def covariance(d, seed=0):
    """A random covariance whose eigenvectors are not the axes."""
    root = normal(d, d, seed=seed)
    return root @ root.T / d + 0.3 * torch.eye(d, dtype=torch.float64)


def root(matrix):
    return torch.linalg.cholesky(matrix)


def grid(*sizes):
    """Nodes (point, variable) and weights for independent N(0, 1) variables.

    They are exact to degree 2 size - 1 in each variable.
    """
    rules = [np.polynomial.hermite_e.hermegauss(size) for size in sizes]
    nodes = np.stack(
        [axis.ravel() for axis in np.meshgrid(*[r[0] for r in rules], indexing="ij")], -1
    )
    weights = np.prod(
        np.stack([a.ravel() for a in np.meshgrid(*[r[1] for r in rules], indexing="ij")], -1), -1
    )
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())
