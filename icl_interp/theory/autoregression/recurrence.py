"""A linear recurrent network on s_{t+1} = W s_t: where angles are uniform it learns nothing.

It cannot do better there than to predict 0 (Remark 2).

This is one part of the study `autoregression`, which re-exports it. The network x_t = R x_{t-1} + E
s_t with output O x_{T-1} is a fixed linear map of the states: O x_{T-1} = sum_t M_t s_t with
M_t = O R^(T-1-t) E. Attention multiplies states by states; this does not.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import as_float64

__all__ = ["recurrent_floor", "recurrent_kernel", "recurrent_loss"]


def recurrent_kernel(
    recurrence: Float[Tensor, "hidden hidden"],
    embed: Float[Tensor, "hidden dim"],
    read_out: Float[Tensor, "dim hidden"],
    n_tokens: int,
) -> Float[Tensor, "token dim dim"]:
    """M_t = O R^(T-1-t) E for t = 0, ..., T - 1.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Remark 2.

    Args:
        recurrence: R.
        embed: E.
        read_out: O.
        n_tokens: T.

    Raises:
        ValueError: T below 1.

    Example:
        >>> recurrent_kernel(torch.tensor([[.5]]), torch.eye(1), torch.eye(1), n_tokens=3).flatten()
        tensor([0.2500, 0.5000, 1.0000], dtype=torch.float64)
    """
    if n_tokens < 1:
        raise ValueError(f"T counts tokens and must be at least 1, got {n_tokens}")
    recurrence = as_float64(recurrence)
    embed = as_float64(embed)
    read_out = as_float64(read_out)
    # R^k E, the latest token's first
    reached = embed
    powers = [reached]
    for _ in range(n_tokens - 1):
        reached = recurrence @ reached
        powers.append(reached)
    powers.reverse()
    return read_out @ torch.stack(powers)


def recurrent_loss(kernel: Float[Tensor, "token dim dim"]) -> Float[Tensor, ""]:
    """E |sum_t M_t s_t - s_T|^2, for unitary W and for conjugate pairs.

    It is d + |M_0 1|^2 + sum_{t > 0} |M_t|_F^2.

    s_0 = 1. Powers lambda^t with t < T are uncorrelated with lambda^T: the loss is never below d,
    that of predicting 0.

    Source: makes Remark 2 of Sander, Giryes, Suzuki, Blondel & Peyré (2024) quantitative.

    Args:
        kernel: M_t for t = 0, ..., T - 1.

    Example:
        >>> recurrent_loss(torch.zeros(4, 3, 3))
        tensor(3., dtype=torch.float64)
    """
    M = as_float64(kernel)
    d = M.shape[-1]
    from_start = M[0].sum(1).square().sum()
    from_others = M[1:].square().sum()
    return d + from_start + from_others


def recurrent_floor(n_tokens: int, mu: float) -> Float[Tensor, ""]:
    """The least loss per coordinate of any linear map of the T states.

    Angles theta are uniform on [0, 2 pi / mu].

    It is 1 - g^T G^-1 g with the correlations G_tt' = k(t - t') and g_t = k(T - t), k(n) =
    sin(pi n / mu) / (pi n / mu), up to phases, which complex weights take up. It is 1 for mu = 1:
    Remark 2. For mu > 1 it falls like sin(pi / (2 mu))^(2 T): where angles are not spread over the
    whole circle a fixed linear map predicts the next state, and no context is needed. Nor does
    Remark 2 hold exactly for Haar orthogonal W, where E W^2 = I / d: s_{T-2} / d explains a share
    1 / d^2 of s_T.

    Source: limits Remark 2 of Sander, Giryes, Suzuki, Blondel & Peyré (2024); the prediction error
    of a band-limited process (Szegő).

    Args:
        n_tokens: T.
        mu: what angles are divided by, at least 1.

    Raises:
        ValueError: T below 1, or mu below 1.

    Example:
        >>> recurrent_floor(10, mu=1.)
        tensor(1., dtype=torch.float64)
        >>> bool(recurrent_floor(10, mu=50.) < 1e-12)
        True
    """
    if n_tokens < 1 or not 1 <= mu < torch.inf:
        raise ValueError(f"T must be at least 1 and mu at least 1, got T={n_tokens} and mu={mu}")
    t = torch.arange(n_tokens + 1, dtype=torch.float64)
    lags = t[:, None] - t
    correlations = torch.sinc(lags / mu)
    G = correlations[:-1, :-1]
    g = correlations[:-1, -1]
    # g^T G^-1 g in G's eigenbasis. The smallest eigenvalues are rounding, and left out.
    values, vectors = torch.linalg.eigh(G)
    largest = values[-1]
    seen = values > 1e-14 * largest
    rotated = vectors.mT @ g
    shares = rotated[seen].square() / values[seen]
    explained = shares.sum()
    floor = 1 - explained
    return floor.clamp(min=0)
