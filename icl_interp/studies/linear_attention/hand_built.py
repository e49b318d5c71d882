"""Layers of linear self-attention with weights set by hand.

It is known what claims should say of them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.blank import LINEAR, blank
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.transformer import HookedTransformer


def by_inputs(product: Float[Tensor, "dim dim"]) -> LinearSelfAttention:
    """The unit that reads the best product of rank one through w21, with w22 = 0.

    W_PV has it in the columns of x, and W_KQ in the row of y.

    With the product of `theory.linear_attention`'s `Landscape.rank_one` it is the stationary point
    away from W*.
    """
    left, sizes, right = torch.linalg.svd(product)
    root = sizes[0].sqrt()
    width = len(product) + 1
    w_pv, w_kq = product.new_zeros(2, width, width)
    w_pv[-1, :-1] = root * left[:, 0]
    w_kq[-1, :-1] = root * right[0]
    return LinearSelfAttention(w_pv, w_kq)


def descent(dim: int, steps: int, rate: float, n_ctx: int) -> HookedTransformer:
    """A transformer of linear attention whose layers are steps of gradient descent.

    Descent is on the examples of its prompt.

    Layer by layer each column's last entry goes from y to y - <w, x>, its residual; minus the
    query's is the prediction. Attention looks both ways, so from the second step on the query
    counts as one more example, of label 0: it is exact for one step and off by order 1/n for more.

    Source: von Oswald et al. (2023), "Transformers learn in-context by gradient descent",
    proposition 1.

    Args:
        dim: d.
        steps: of descent, a layer each.
        rate: eta, on |X w - y|^2 / (2 n).
        n_ctx: longest prompt, in tokens.
    """
    if dim < 1 or steps < 1:
        raise InputError(
            f"descent needs at least one coordinate and one step, but got dim={dim} and "
            f"steps={steps}"
        )
    width = dim + 1
    model = blank(width, n_layers=steps, d_head=width, n_ctx=n_ctx, d_in=width, **LINEAR)
    identity = torch.eye(width, dtype=torch.float64)
    # Projections on the coordinates of x, and on that of y.
    inputs = identity.clone()
    inputs[-1, -1] = 0
    label = identity - inputs
    with torch.no_grad():
        model.embed.W_E.copy_(identity)
        model.unembed.W_U[-1] = -1
        for block in model.blocks:
            attention = block.attn
            attention.W_Q[0] = inputs
            attention.W_K[0] = inputs
            attention.W_V[0] = label
            attention.W_O[0] = -rate * label
    return model.eval()
