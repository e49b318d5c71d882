"""Heads: how many a loss of zero takes, weights that reach it, and the orthogonality between them.

This is one part of the study `autoregression`, which re-exports it; symbols are those of `loss` and
`minima`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.autoregression.loss import Heads, Positions, head_product, partners
from icl_interp.theory.autoregression.minima import (
    check_sizes,
    orthogonal_minimiser,
    unitary_minimiser,
)
from icl_interp.theory.softmax import as_float64

__all__ = [
    "HeadProducts",
    "Layer",
    "head_products",
    "needed_heads",
    "orthogonal_heads",
    "unitary_floor",
    "unitary_heads",
]


class Layer(NamedTuple):
    """The layer's weights."""

    queries: Heads  # A, a_h as rows
    values: Heads  # B, b_h as rows
    positions: Positions  # p


class HeadProducts(NamedTuple):
    """Sander's identity between heads."""

    products: Float[Tensor, "head head"]  # a_h . b_h', row h: A B^T
    cosines: Float[Tensor, "head head"]  # the same over |a_h| |b_h'|, 0 where one of them is 0
    largest: Float[Tensor, ""]  # the largest |cosine| of two different heads, 0 for one head


def needed_heads(d: int, *, paired: bool) -> int:
    """The fewest heads with which the loss can be 0: d, or d / 2 for conjugate pairs.

    So many heads can reach 0, but training need not find it. From small random weights gradient
    descent with d / 2 heads ends at 0 in a part of runs only, and at other minima of the loss in
    the rest. With d heads it found 0 in every run tried.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Propositions 3 and 6, Lemmas 2 and 3.

    Args:
        d: coordinates.
        paired: whether eigenvalues come in conjugate pairs.

    Raises:
        ValueError: d below 1, or odd where eigenvalues come in pairs.

    Example:
        >>> needed_heads(10, paired=False), needed_heads(10, paired=True)
        (10, 5)
    """
    check_sizes(d, 2, 1.0)
    if not paired:
        return d
    # `partners` refuses an odd d.
    return len(partners(d)) // 2


def unitary_floor(d: int, heads: int) -> Float[Tensor, ""]:
    """The least unitary loss with H heads: max(d - H, 0), for each length of the prompt.

    C has rank H at most, and |p_T C - I|_F^2 is at least d - H then.

    Source: what Proposition 3 of Sander, Giryes, Suzuki, Blondel & Peyré (2024) leaves open for
    fewer than d heads.

    Args:
        d: coordinates.
        heads: H.

    Raises:
        ValueError: d below 1, or H below 0.

    Example:
        >>> unitary_floor(10, heads=5)
        tensor(5., dtype=torch.float64)
    """
    check_sizes(d, 2, 1.0)
    if heads < 0:
        raise ValueError(f"a number of heads is at least 0, got {heads}")
    return as_float64(max(d - heads, 0))


def unitary_heads(d: int, n_tokens: int) -> Layer:
    """d heads with a loss of 0 for unitary W: a_h = b_h = e_h and p = e_T.

    Head h multiplies coordinate h of the last two tokens.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), after Lemma 2.

    Args:
        d: coordinates, and heads.
        n_tokens: T.

    Raises:
        ValueError: d below 1, or T below 2.

    Example:
        >>> A, B, p = unitary_heads(2, n_tokens=3)
        >>> bool((B.T @ A == torch.eye(2)).all()), p
        (True, tensor([0., 0., 1.], dtype=torch.float64))
    """
    p = unitary_minimiser(d, n_tokens).positions
    units = torch.eye(d, dtype=torch.float64)
    return Layer(units, units.clone(), p)


def orthogonal_heads(d: int, n_tokens: int) -> Layer:
    """d / 2 heads with a loss of 0 for rotations: a_h = b_h = e_2h + e_2h+1.

    The weights of positions are p = e_T - e_{T-1} / 2.

    Head h adds up a pair. The prediction is (lambda + conj(lambda)) s_{T-1} - s_{T-2} (counted from
    0), the formula 2 cos(theta) R - I = R^2.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Lemma 3.

    Args:
        d: coordinates, an even number.
        n_tokens: T.

    Raises:
        ValueError: an odd d, or T below 2.

    Example:
        >>> A, B, p = orthogonal_heads(4, n_tokens=3)
        >>> A, p
        (tensor([[1., 1., 0., 0.],
                        [0., 0., 1., 1.]], dtype=torch.float64),
                tensor([ 0.0000, -0.5000,  1.0000], dtype=torch.float64))
    """
    p = orthogonal_minimiser(d, n_tokens).positions
    units = torch.eye(d // 2, dtype=torch.float64)
    pairs = units.repeat_interleave(2, 1)
    return Layer(pairs, pairs.clone(), p)


def head_products(A: Heads, B: Heads) -> HeadProducts:
    """The products a_h . b_h' of Sander's identity, which says that they are 0 for h' other than h.

    The identity holds where p_T B^T A = I with as many heads as d.

    Then A B^T = I / p_T as well. It is between a and b: a_h . a_h' may be anything. With d / 2
    heads at a minimiser for rotations A B^T = (2 / p_T) I. With more heads than needed the identity
    need not hold at a minimiser, nor for rotations with d heads at rho other than 0: A B^T is then
    similar to C, which is not diagonal.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), "Orthogonality" after Proposition 3.

    Args:
        A: a_h as rows.
        B: b_h as rows.

    Raises:
        ValueError: A and B differ in shape.

    Example:
        >>> A = torch.tensor([[1., 1.], [0., 1.]])
        >>> B = torch.tensor([[1., 0.], [-1., 1.]])  # B = A^-T
        >>> head_products(A, B).products.diagonal(), float(head_products(A, B).largest)
        (tensor([1., 1.], dtype=torch.float64), 0.0)
    """
    # For its check of shapes
    head_product(A, B)
    A = as_float64(A)
    B = as_float64(B)
    products = A @ B.mT
    unit_a = torch.nn.functional.normalize(A, dim=1)
    unit_b = torch.nn.functional.normalize(B, dim=1)
    cosines = unit_a @ unit_b.mT
    between = cosines - torch.diag(cosines.diagonal())
    return HeadProducts(products, cosines, between.abs().amax())
