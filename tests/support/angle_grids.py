"""Expectations over independent uniform angles, exactly: sums over grids of roots of unity."""

import torch


def torus(n_angles, n_roots):
    """All points of the grid, (n_roots ** n_angles, n_angles).

    It integrates monomials of degree below n_roots.
    """
    roots = torch.polar(
        torch.ones(n_roots, dtype=torch.float64),
        2 * torch.pi * torch.arange(n_roots).double() / n_roots,
    )
    return torch.cartesian_prod(*[roots] * n_angles).view(-1, n_angles)


def in_pairs(eigenvalues):
    """Each one followed by its conjugate."""
    return torch.stack([eigenvalues, eigenvalues.conj()], -1).flatten(-2)


def eigenvalues(d, n_tokens, *, paired):
    """W on a grid fine enough for squared predictions of s_T from T <= `n_tokens` tokens."""
    free = torus(d // 2 if paired else d, 4 * n_tokens + 3)
    return in_pairs(free) if paired else free


def paths(eigenvalues, n_tokens):
    """s_0 = 1 to s_{n_tokens-1}, one sequence a row of eigenvalues."""
    return eigenvalues[:, None] ** torch.arange(n_tokens).view(-1, 1)


def squared_error(predictions, targets):
    """Mean over the grid of the squared length."""
    return (predictions - targets).abs().square().sum(-1).mean()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
