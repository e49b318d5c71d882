"""A context as an update of the matrix behind it, after Dherin et al. (2025).

A contextual layer A reads a query with a context, or alone. Behind it stands M_W(a) = f(W a + b).
For each query a matrix of rank one, added to W, makes up for a part of the context. This identity
needs nothing of A, f or W, but that A is not 0 without that part. It says nothing about learning.

Source: Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), Learning without training: the implicit
dynamics of in-context learning (arXiv 2507.16003), Theorem 2.2 and the theorem of its appendix on
skip connections, by accounts of others (`docs/implicit_update.md`).
"""

from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import as_float64

__all__ = ["rank_one"]

Matrix = Float[Tensor, "hidden d_model"]
Vector = Float[Tensor, " d_model"]


def rank_one(weight: Matrix, whole: Vector, part: Vector) -> Matrix:
    """Delta W = (W (whole - part)) part' / |part|^2: what makes up for the rest of the context.

    (W + Delta W) part = W whole, so f sees what it would see with the whole context. Any matrix M
    with M part = 0 may be added; this is the smallest one. Where the layer's input is also added
    behind it, z + f(W norm(z) + b) + b', `whole` and `part` are what W reads, and b' grows by the
    change of z.

    Args:
        weight: W.
        whole: what W reads at the query with the whole context.
        part: the same with a part of it, or alone; not 0.

    >>> import torch
    >>> weight, whole, part = torch.ones(2, 3), torch.arange(1.0, 4), torch.tensor([0.0, 0, 2])
    >>> rank_one(weight, whole, part) @ part.double()
    tensor([4., 4.], dtype=torch.float64)
    """
    weight, whole, part = as_float64(weight), as_float64(whole), as_float64(part)
    return (weight @ (whole - part)).outer(part) / part.square().sum()
