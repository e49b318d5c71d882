"""Heads of a layer beside each other: which differ, and how alike random ones would be."""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.probes import one_pattern
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements.unit import Heads

N_RANDOM = 2000  # sets of random heads
NULL = 1e-6  # of the largest head: what writes less writes nothing


def cosines(found: Heads) -> Float[Tensor, "head head"]:
    """|a_h . b_h'| / (|a_h| |b_h'|), row h; 0 where one of them is 0.

    The product is sum_i a_hi b_h'i, without a conjugate, as it stands in A B^T = I / p_T. Its
    absolute value does not change where a_h is multiplied by a number c, and b_h by 1 / c.
    """
    units = []
    for rows in found:
        squares = rows.abs().square().sum(1, keepdim=True)
        lengths = squares.sqrt().clamp(min=1e-300)
        units.append(rows / lengths)
    keys, values = units
    products = keys @ values.mT
    return products.abs()


def distinct(real: Heads) -> Heads:
    """Real heads that differ in what they weigh by and write anything.

    Those that weigh alike are one head, which writes the sum.
    """
    rows = torch.view_as_real(real.keys).flatten(1)
    alike, values = one_pattern.summed(rows, real.values, scaled=True)
    firsts = [group[0] for group in alike]
    keys = real.keys[firsts]
    # What is left of a sum that takes itself off is rounding of its parts.
    largest_part = _sizes(real.keys, real.values).max()
    least = NULL * largest_part
    writes = _sizes(keys, values) > least
    return Heads(keys[writes], values[writes])


def _sizes(keys: Tensor, values: Tensor) -> Float[Tensor, " head"]:
    """|a_h| |b_h| of each head."""
    of_keys = keys.norm(dim=1)
    of_values = values.norm(dim=1)
    return of_keys * of_values


def largest(matrix: Float[Tensor, "*batch head head"]) -> Float[Tensor, "*batch"]:
    """The largest entry off the diagonal."""
    n = matrix.shape[-1]
    diagonal = torch.eye(n, dtype=torch.bool)
    others = matrix.masked_fill(diagonal, 0.0)
    return others.amax((-2, -1))


def random_largest(n_heads: int, dim: int) -> Float[Tensor, " draw"]:
    """`largest` of random heads.

    Directions of a_h and b_h are independent and uniform, and lengths do not matter.

    Directions are real: for as many coordinates complex ones have small products more rarely.
    """
    draw = generator(0, "autoregression/random heads")
    a, b = torch.randn(2, N_RANDOM, n_heads, dim, generator=draw, dtype=torch.float64)
    a = torch.nn.functional.normalize(a, dim=-1)
    b = torch.nn.functional.normalize(b, dim=-1)
    products = a @ b.mT
    return largest(products.abs())
