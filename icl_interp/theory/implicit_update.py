"""A context as an update of the matrix behind it, after Dherin et al. (2025).

A contextual layer A reads a query with a context C, or alone. Behind it stands M_W(a) = f(W a + b).
For each query there is a matrix of rank one that, added to W, makes up for a part of the context.
This is an identity: it needs nothing of A, of f or of the weights, but that A is not 0 without that
part. It says nothing about whether a context teaches anything.

Source: Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), Learning without training: the implicit
dynamics of in-context learning (arXiv 2507.16003), Theorem 2.2, the theorem of its appendix on skip
connections, and Proposition 3.1, by accounts of others (`docs/implicit_update.md`).
"""

from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import as_float64

__all__ = ["rank_one", "trajectory"]

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

    Returns:
        A matrix like W.

    Example:
        >>> import torch
        >>> draw = torch.Generator().manual_seed(0)
        >>> numbers = torch.randn(8, 5, generator=draw, dtype=torch.float64)
        >>> weight, whole, part = numbers[:6], numbers[6], numbers[7]
        >>> change = rank_one(weight, whole, part)
        >>> torch.allclose((weight + change) @ part, weight @ whole)
        True
        >>> int(torch.linalg.matrix_rank(change))
        1
    """
    weight = as_float64(weight)
    whole = as_float64(whole)
    part = as_float64(part)
    return (weight @ (whole - part)).outer(part) / part.square().sum()


def trajectory(
    weight: Matrix, reads: Float[Tensor, "length d_model"]
) -> Float[Tensor, "length hidden d_model"]:
    """W_0, W_1, ...: W with the update of the first i examples, of what W reads after each number.

    W_{i+1} = W_i - h D_i with h = 1 / |a_0|^2 and D_i = W_0 (a_i - a_{i+1}) a_0', which is the
    gradient of trace(D_i' W). This loss is made from the step itself, so any sequence of matrices
    descends in this sense: that the steps lower a loss of the task does not follow.

    Args:
        weight: W_0.
        reads: a_0 of the query alone, then with 1, 2, ... examples.

    Example:
        >>> import torch
        >>> draw = torch.Generator().manual_seed(0)
        >>> numbers = torch.randn(9, 5, generator=draw, dtype=torch.float64)
        >>> weight, reads = numbers[:6], numbers[6:]
        >>> first, second, third = trajectory(weight, reads)
        >>> gradient = (weight @ (reads[1] - reads[2])).outer(reads[0])
        >>> torch.allclose(third, second - gradient / reads[0].square().sum())
        True
    """
    weight = as_float64(weight)
    reads = as_float64(reads)
    start = reads[0]
    moved = (reads - start) @ weight.T
    updates = moved[:, :, None] * start / start.square().sum()
    return weight + updates
