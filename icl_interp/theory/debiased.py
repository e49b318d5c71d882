"""One step of gradient descent from examples whose inputs have their mean taken off.

Source: He, Pan, Chen & Yang (2025), In-context linear regression demystified: training dynamics and
mechanistic interpretability of multi-head softmax attention (arXiv 2503.12734): the "debiased
gradient descent predictor".
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import as_float64

__all__ = ["debiased_step", "opposite_heads"]

Inputs = Float[Tensor, "*batch example dim"]
Labels = Float[Tensor, "*batch example"]
Query = Float[Tensor, "*batch dim"]
Said = Float[Tensor, "*batch"]


def debiased_step(xs: Inputs, ys: Labels, query: Query) -> Said:
    """The mean over examples of y_i <x_i - mean of x, query>: a step of size 1 from w = 0.

    A constant that is added to all labels changes nothing, and a constant that is added to all
    inputs does not either. A plain step, the mean of y_i <x_i, query>, does not have this.

    Source: He, Pan, Chen & Yang (2025), the predictor of their abstract.

    Args:
        xs: inputs of the examples.
        ys: their labels.
        query: the input that is asked.

    >>> xs, ys = torch.eye(2), torch.tensor([3.0, 1.0])
    >>> debiased_step(xs, ys, torch.tensor([1.0, 0.0]))
    tensor(0.5000, dtype=torch.float64)
    >>> debiased_step(xs + 7, ys - 5, torch.tensor([1.0, 0.0]))
    tensor(0.5000, dtype=torch.float64)
    """
    xs = as_float64(xs)
    ys = as_float64(ys)
    query = as_float64(query)
    centred = xs - xs.mean(-2, keepdim=True)
    products = torch.einsum("...id,...d->...i", centred, query)
    return (ys * products).mean(-1)


def opposite_heads(xs: Inputs, ys: Labels, query: Query, strength: float) -> Said:
    """Labels averaged by softmax of w <x_i, query>, less those by softmax of -w <x_i, query>.

    The difference is divided by 2 w. It tends to `debiased_step` as w tends to 0.

    Source: He, Pan, Chen & Yang (2025): two heads whose query-key maps are w I and -w I, and whose
    value-output maps add up to 0.

    Args:
        xs: inputs of the examples.
        ys: their labels.
        query: the input that is asked.
        strength: w, not 0.

    >>> draw = torch.Generator().manual_seed(0)
    >>> xs, query = torch.randn(9, 3, generator=draw), torch.randn(3, generator=draw)
    >>> ys = torch.randn(9, generator=draw)
    >>> step = debiased_step(xs, ys, query)
    >>> [f"{float(abs(opposite_heads(xs, ys, query, w) / step - 1)):.0e}" for w in (0.1, 0.01)]
    ['4e-02', '4e-04']
    """
    xs = as_float64(xs)
    ys = as_float64(ys)
    scores = torch.einsum("...id,...d->...i", xs, as_float64(query)) * strength
    towards = (scores.softmax(-1) * ys).sum(-1)
    away = ((-scores).softmax(-1) * ys).sum(-1)
    return (towards - away) / (2 * strength)
