"""Linear transformers whose weights carry out a known algorithm exactly, on stacked prompts.

Tokens are columns (x; y), the query's with y = 0. In every layer each token attends to the labelled
examples with scores that are no softmax, divided by their number. Scores are bilinear and values
linear, so a layer is a step of an algorithm that is linear in the labels. Each model here predicts
what a baseline of the same name predicts, up to rounding.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.blank import blank
from icl_interp.models.transformer import HookedTransformer

Step = float | Float[Tensor, " dim"] | Float[Tensor, "dim dim"]
# Every token reads the labelled examples alone, and divides by their number.
EXAMPLES = {
    "attention_dir": "bidirectional",
    "score_fn": "linear",
    "score_norm": "visible",
    "keys": "labelled",
}


def descent(n_points: int, steps: Sequence[Step], dim: int) -> HookedTransformer:
    """One layer a step w <- w + P (h - S w): preconditioned descent from w = 0.

    S and h are means of x x' and x y over the examples. The label of each token holds its residual,
    y - <w, x>. A layer scores P x_query against x, and takes the mean of the labels with these
    weights off every label. The query's label ends at -<w, x>, and is read out negated.

    Source: von Oswald et al. (2023), Proposition 1 (P a number); Ahn et al. (2023), equation (8)
    (P a matrix).

    Args:
        n_points: of a prompt, the query included.
        steps: P of each layer: a number, a diagonal or a matrix.
        dim: coordinates of x.

    >>> from icl_interp.baselines.base import INPUTS
    >>> from icl_interp.baselines.moments import Descent
    >>> from icl_interp.checkpoints.store import predict
    >>> from icl_interp.models.tokens import Stacked
    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks import LinearRegression
    >>> prompts = LinearRegression(n_dims=3, n_points=9).sample(4, generator(0, "doc")).double()
    >>> by_weights = predict(descent(9, (0.3, 0.5), 3), Stacked(), prompts)[:, -1]
    >>> by_formula = Descent(INPUTS, (0.3, 0.5)).predict(prompts)[:, -1]
    >>> bool((by_weights - by_formula).abs().max() < 1e-10)
    True
    """
    model = _stacked(n_points, steps, dim + 1, dim)
    x = slice(0, dim)
    y = dim
    one = _matrix(1, dim)
    for block, step in zip(model.blocks, steps, strict=True):
        attention = block.attn
        _set(attention.W_Q, x, x, _matrix(step, dim))
        _set(attention.W_K, x, x, one)
        _set(attention.W_V, y, y, -1)
    _set(model.unembed.W_U, y, 0, -1)
    return model


def gd_plus_plus(
    n_points: int, sizes: Sequence[float], shrinks: Sequence[float], dim: int
) -> HookedTransformer:
    """One layer a step of GD++: labels lose what a step explains, inputs become (I - shrink S) x.

    Source: von Oswald et al. (2023), equation (6) and appendix A.10.

    Args:
        n_points: of a prompt, the query included.
        sizes: of the step of each layer.
        shrinks: of the inputs in each layer.
        dim: coordinates of x.

    >>> gd_plus_plus(9, (0.3, 0.2), (0.1, 0.1), 3).cfg.n_layers
    2
    """
    model = _stacked(n_points, sizes, dim + 1, dim)
    x = slice(0, dim)
    y = dim
    one = _matrix(1, dim)
    for block, size, shrink in zip(model.blocks, sizes, shrinks, strict=True):
        attention = block.attn
        _set(attention.W_Q, x, x, one)
        _set(attention.W_K, x, x, one)
        _set(attention.W_V, x, x, _matrix(-shrink, dim))
        _set(attention.W_V, y, y, -size)
    _set(model.unembed.W_U, y, 0, -1)
    return model


def newton(n_points: int, steps: int, start: float, dim: int) -> HookedTransformer:
    """Newton's iteration M <- 2 M - M S M from M = start S, then <x_query, M h>: steps + 2 layers.

    A token holds x, the residual y - <w, x>, and z = M x / 2^t after t iterations. The first layer
    writes start S x into z. The second takes <x, M h> off the residual. Every further layer takes
    <x, M (h - S w)> off it, which is Newton's step for w = M h, and 2^t times the mean of
    z_i <x_i, z> off z, which is the step for M but for a factor of 2. No token needs an MLP. After
    t + 2 layers the query's residual is iterate t, negated.

    Source: after Fu et al. (2023), Theorem 5.1, whose transformer keeps M x_i in its tokens as
    well; the halves, which save the MLP, and the residuals are this package's.

    Args:
        n_points: of a prompt, the query included.
        steps: iterations.
        start: of M. From 2 / (largest eigenvalue of S)^2 on the iteration diverges.
        dim: coordinates of x.

    >>> newton(9, 3, 0.05, 3).cfg.n_layers
    5
    """
    model = _stacked(n_points, range(steps + 2), 2 * dim + 1, dim)
    x = slice(0, dim)
    y = dim
    z = slice(dim + 1, 2 * dim + 1)
    one = _matrix(1, dim)
    # The first layer compares the examples' x with a token's x, and the others with its z.
    first, *others = [block.attn for block in model.blocks]
    _set(first.W_K, x, x, one)
    _set(first.W_Q, x, x, one)
    _set(first.W_V, x, z, start * one)
    for place, attention in enumerate(others):
        _set(attention.W_K, x, x, one)
        _set(attention.W_Q, z, x, one)
        done = max(place - 1, 0)  # iterations that M has behind it
        _set(attention.W_V, y, y, -(2.0**done))
        if place > 0:
            _set(attention.W_V, z, z, -(2.0 ** (done - 1)) * one)
    _set(model.unembed.W_U, y, 0, -1)
    return model


def _stacked(n_points: int, steps: Sequence[object], width: int, dim: int) -> HookedTransformer:
    """A model of so many layers whose stream begins as the token, with zeros behind it."""
    if not len(steps):
        raise InputError("a transformer needs a layer, so name one step at least, but got none")
    model = blank(
        width, n_layers=len(steps), d_head=width, n_ctx=n_points, d_in=dim + 1, **EXAMPLES
    )
    token = slice(0, dim + 1)
    embedding = model.embed.W_E
    one = _matrix(1, dim + 1)
    _set(embedding, token, token, one)
    every = slice(None)
    wide = _matrix(1, width)
    for block in model.blocks:
        attention = block.attn
        _set(attention.W_O, every, every, wide)
    return model


def _set(
    weight: Float[Tensor, "*head row column"],
    rows: slice | int,
    columns: slice | int,
    value: float | Float[Tensor, "..."],
) -> None:
    """Write into a matrix of weights; of attention, into that of the one head."""
    with torch.no_grad():
        weight[..., rows, columns] = value


def _matrix(step: Step, dim: int) -> Float[Tensor, "dim dim"]:
    """A step's number or diagonal as a matrix."""
    step = torch.as_tensor(step, dtype=torch.float64)
    if step.ndim == 2:
        return step
    diagonal = step.expand(dim)
    return torch.diag(diagonal)
