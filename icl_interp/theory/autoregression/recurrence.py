"""A linear recurrent network on s_{t+1} = W s_t: it cannot do better than 0 where angles are uniform (Remark 2).

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
    R, M = as_float64(recurrence), [as_float64(embed)]
    for _ in range(n_tokens - 1):
        M.append(R @ M[-1])
    return as_float64(read_out) @ torch.stack(M[::-1])


def recurrent_loss(kernel: Float[Tensor, "token dim dim"]) -> Float[Tensor, ""]:
    """E |sum_t M_t s_t - s_T|^2 = d + |M_0 1|^2 + sum_{t > 0} |M_t|_F^2, for unitary W and for conjugate pairs.

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
    return M.shape[-1] + M[0].sum(1).square().sum() + M[1:].square().sum()


def recurrent_floor(n_tokens: int, mu: float) -> Float[Tensor, ""]:
    """The least loss per coordinate of any linear map of the T states, for angles theta uniform on [0, 2 pi / mu].

    1 - g^T G^-1 g with the correlations G_tt' = k(t - t') and g_t = k(T - t), k(n) = sin(pi
    n / mu) / (pi n / mu), up to phases, which complex weights take up. It is 1 for mu = 1:
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
    correlations = torch.sinc((t[:, None] - t) / mu)
    values, vectors = torch.linalg.eigh(correlations[:-1, :-1])
    seen = values > 1e-14 * values[-1]  # rounding beyond
    shares = (vectors.mT @ correlations[:-1, -1])[seen].square() / values[seen]
    return (1 - shares.sum()).clamp(min=0)
