"""The exact population loss of one layer of diagonal linear attention on s_{t+1} = W s_t.

The source is Lemma 2 and Proposition 4 of Sander, Giryes, Suzuki, Blondel & Peyré (2024).

This is one part of the study `autoregression`, which re-exports it. Tokens are s_0 = 1 to s_{T-1}
in d coordinates, with s_t = lambda^t, entry by entry: lambda is the diagonal of W. The query is the
last token but one, q = T - 2, and the target is s_T. Head h has diagonals a_h (of A_h) and b_h (of
B_h), row h of the matrices A and B. The vector p holds a number for each token: p_T stands for its
last entry, p_{T-1} for the one before, as in the paper, which counts from 1.

Unitary: the d entries of lambda are independent and uniform on the circle. Orthogonal: entries 0,
2, 4, ... are, and each entry after one of them is its complex conjugate.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.softmax import as_float64

__all__ = [
    "head_product",
    "orthogonal_loss",
    "prediction",
    "row_losses",
    "unitary_loss",
    "unitary_loss_as_coded",
    "with_start",
]

Square = Float[Tensor, "dim dim"]
Heads = Float[Tensor, "head dim"]
Positions = Float[Tensor, " token"]
States = Complex[Tensor, "*batch token dim"] | Float[Tensor, "*batch token dim"]


def prediction(states: States, A: Heads, B: Heads, p: Positions) -> Tensor:
    """What the layer predicts for s_T: sum_t p_t sum_h b_h * s_t <a_h * s_q, s_t>.

    The product * is taken entry by entry, and <x, y> = sum_i conj(x_i) y_i. Only B^T A matters:
    entry j is sum_t p_t s_tj sum_i (B^T A)_ji conj(s_qi) s_ti.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), equation (6) under Assumption 3, and
    Lemma 2.

    Args:
        states: s_0 to s_{T-1}, at least two, complex or real.
        A: a_h as rows.
        B: b_h as rows.
        p: a number for each token.

    Returns:
        One vector a sequence, (*batch, d), complex.

    Raises:
        ValueError: sizes that do not fit, or fewer than two tokens.

    Example:
        >>> states = torch.tensor([1., 2., 4.])[:, None]  # <s_q, s_t> is 2, 4, 8
        >>> prediction(states, torch.ones(1, 1), torch.ones(1, 1), torch.tensor([0., 0., 1.]))
        tensor([32.+0.j], dtype=torch.complex128)
    """
    product = head_product(A, B)
    product, p = check_pair(product, p)
    states = torch.as_tensor(states, dtype=torch.complex128)
    if states.shape[-2:] != (len(p), len(product)):
        raise ValueError(
            f"states must end with {len(p)} tokens (p) of {len(product)} coordinates (A and B), "
            f"got shape {tuple(states.shape)}"
        )
    query = states[..., -2, None, :]
    scores = (query.conj() * states) @ product.mT.to(states)
    weights = p[:, None] * scores
    return (weights * states).sum(-2)


def head_product(A: Heads, B: Heads) -> Square:
    """C = B^T A, all that the prediction and the loss see of the heads.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Lemma 2.

    Args:
        A: a_h as rows.
        B: b_h as rows.

    Raises:
        ValueError: A and B differ in shape.

    Example:
        >>> head_product(torch.tensor([[1., 2.]]), torch.tensor([[1., 10.]]))
        tensor([[ 1.,  2.],
                [10., 20.]], dtype=torch.float64)
    """
    A = as_float64(A)
    B = as_float64(B)
    if A.shape != B.shape:
        raise ValueError(
            f"A and B hold a row for each head and must have one shape, got {[*A.shape]} and "
            f"{[*B.shape]}"
        )
    return B.mT @ A


def unitary_loss(C: Square, p: Positions) -> Float[Tensor, ""]:
    """E |prediction - s_T|^2 over unitary W, in closed form; differentiable.

    (|p|^2 - p_{T-1}^2) |C|_F^2 + p_{T-1}^2 |C 1|^2 - 2 p_T tr C + d, with C = B^T A. The key at the
    query is special: there conj(s_qi) s_qi = 1 for all i, and the d terms of a coordinate add up
    before they are squared.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Proposition 4.

    Args:
        C: B^T A, (d, d).
        p: a number for each of the T tokens, T at least 2.

    Raises:
        ValueError: C is not square, or p has fewer than two entries.

    Example:
        >>> p = torch.tensor([.1, .2, .3, .4])
        >>> unitary_loss(torch.tensor([[1., 2.], [3., 4.]]), p)
        tensor(9.5200, dtype=torch.float64)
    """
    C, p = check_pair(C, p)
    at_query = p[-2]
    last = p[-1]
    return _unitary(C, p, at_query, last)


def unitary_loss_as_coded(C: Square, p: Positions) -> Float[Tensor, ""]:
    """The loss as the authors' code has it: too large by p_{T-1}^2 |C|_F^2.

    The code counts the key at the query twice.

    This loss has the minimum and the minimisers of `unitary_loss`, because p_{T-1} = 0 there, but
    other values and gradients.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), the published code for the unitary case
    of Proposition 4.

    Args:
        C: B^T A, (d, d).
        p: a number for each token.

    Raises:
        ValueError: C is not square, or p has fewer than two entries.

    Example:
        >>> C, p = torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([.1, .2, .3, .4])
        >>> unitary_loss_as_coded(C, p) - unitary_loss(C, p)  # .3^2 times 30
        tensor(2.7000, dtype=torch.float64)
    """
    C, p = check_pair(C, p)
    at_query = p[-2]
    twice = at_query.square() * C.square().sum()
    return unitary_loss(C, p) + twice


def orthogonal_loss(C: Square, p: Positions) -> Float[Tensor, ""]:
    """E |prediction - s_T|^2 over rotations W, differentiable.

    Eigenvalues come in conjugate pairs: coordinates (0, 1), (2, 3), ...

    Sum over coordinates j with partner j' of (|p|^2 - p_{T-1}^2) (|C_j|^2 - C_jj'^2) + (p_{T-1}
    sum_i C_ji + (sum_{t != T-1} p_t) C_jj')^2 - 2 p_T C_jj + 1, with T - 1 counted from 1. A
    coordinate times its partner's conjugate product is s_q for every key: lambda^t
    lambda^(q-t) = lambda^q. These terms add up before they are squared.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), section 5.2, where it is said to be
    quadratic in C.

    Args:
        C: B^T A, (d, d), d even.
        p: a number for each of the T tokens, T at least 2.

    Raises:
        ValueError: C is not square, d is odd, or p has fewer than two entries.

    Example:
        >>> p = torch.tensor([.1, .2, .3, .4])
        >>> orthogonal_loss(torch.tensor([[1., 2.], [3., 4.]]), p)
        tensor(24.5000, dtype=torch.float64)
    """
    C, p = check_pair(C, p)
    at_query = p[-2]
    last = p[-1]
    return _orthogonal(C, p, at_query, last)


def row_losses(
    C: Square, P: Float[Tensor, "row token"], *, paired: bool
) -> Float[Tensor, " length"]:
    """The loss for each length of the prompt.

    Query t = 0, 1, ... has tokens up to t + 1, and the weights of positions P[t, : t + 2].

    All lengths share the heads, and each has its own p. The sum is what the authors minimise. P is
    a matrix of positions by positions; what lies to the right of the superdiagonal, and a last row
    for which no next token is left, is not read.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), loss (3), and their published code.

    Args:
        C: B^T A.
        P: positions by positions, the query's first.
        paired: whether eigenvalues come in conjugate pairs (`orthogonal_loss`) or not
            (`unitary_loss`).

    Raises:
        ValueError: C is not square, or P has no row with two entries.

    Example:
        >>> P = torch.diag(torch.ones(4), 1)  # 5 tokens: each query takes the token after it
        >>> row_losses(torch.eye(2), P, paired=False)
        tensor([0., 0., 0., 0.], dtype=torch.float64)
    """
    P = as_float64(P)
    n_rows = min(len(P), P.shape[1] - 1)
    if n_rows < 1:
        raise ValueError(f"P must have two columns or more, got shape {[*P.shape]}")
    C, _ = check_pair(C, P[0, :2])
    P = P[:n_rows].tril(1)
    at_query = P.diagonal()
    last = P.diagonal(1)
    loss = _orthogonal if paired else _unitary
    return loss(C, P, at_query, last)


def with_start(C: Square, start: Float[Tensor, " dim"]) -> Square:
    """The product C for a start s_0 other than 1 that predicts what C does for s_0 = 1.

    Its entries are C_ji / |s_0i|^2.

    So nothing depends on s_0 as long as it is the same in all sequences: the layer predicts s_0j
    times its prediction for s_0 = 1, whatever the phases of s_0. A random s_0 is no such case.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), remark after the proof of Lemma 2.

    Args:
        C: B^T A for s_0 = 1.
        start: |s_0|, positive.

    Raises:
        ValueError: entries of start that are not positive, or not d of them.

    Example:
        >>> with_start(torch.eye(2), torch.tensor([1., 2.])).diagonal()
        tensor([1.0000, 0.2500], dtype=torch.float64)
    """
    C = as_float64(C)
    start = as_float64(start)
    if start.shape != C.shape[-1:] or not (start > 0).all():
        raise ValueError(f"|s_0| must be {C.shape[-1]} positive numbers, got {start.tolist()}")
    return C / start.square()


def _unitary(C: Tensor, P: Tensor, at_query: Tensor, last: Tensor) -> Tensor:
    """One loss for each p in the last axis of P; `at_query` is p_{T-1}, `last` p_T."""
    query = at_query.square()
    others = P.square().sum(-1) - query
    entries = C.square().sum()
    row_sums = C.sum(1)
    at_others = others * entries
    at_own = query * row_sums.square().sum()
    return at_others + at_own - 2 * last * C.trace() + len(C)


def _orthogonal(C: Tensor, P: Tensor, at_query: Tensor, last: Tensor) -> Tensor:
    """The same for conjugate pairs."""
    d = len(C)
    partner = C[torch.arange(d), partners(d)]
    row_sums = C.sum(1)
    others = P.square().sum(-1) - at_query.square()
    elsewhere = P.sum(-1) - at_query
    same = at_query[..., None] * row_sums + elsewhere[..., None] * partner
    apart = C.square().sum() - partner.square().sum()
    spread = others * apart
    return spread + same.square().sum(-1) - 2 * last * C.trace() + d


def partners(d: int) -> Tensor:
    """The place of each coordinate's conjugate: 1, 0, 3, 2, ...; ValueError for an odd d."""
    if d % 2:
        raise ValueError(f"conjugate pairs need an even number of coordinates, got {d}")
    pairs = torch.arange(d).view(-1, 2)
    return pairs.flip(1).flatten()


def check_pair(C: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """C and p in float64; ValueError unless C is square and p has two entries or more."""
    C = as_float64(C)
    p = as_float64(p)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or not len(C):
        raise ValueError(f"C = B^T A must be a square matrix, got shape {[*C.shape]}")
    if p.ndim != 1 or len(p) < 2:
        raise ValueError(
            f"p must hold a number for each of two tokens or more, got shape {[*p.shape]}"
        )
    return C, p


def _losses() -> Compared:
    """Both losses of C = [[1, 2], [3, 4]] and p = (.1, .2, .3, .4)."""
    C = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    coded = unitary_loss_as_coded(C, p)
    true = unitary_loss(C, p)
    return Compared(float(coded), float(true))


ERRATA = (
    Erratum(
        "Sander, Giryes, Suzuki, Blondel & Peyré (2024)",
        "the authors' code, unitary.py, for Proposition 4",
        "The loss counts the key at the query twice: it is too large by p_{T-1}^2 |C|_F^2.",
        "Proposition 4 counts it once. Minimum and minimisers are the same, other values and "
        "gradients are not.",
        (unitary_loss_as_coded, unitary_loss),
        "loss of C = [[1, 2], [3, 4]], p = (.1, .2, .3, .4)",
        _losses,
    ),
)
