"""What bounds the output where LayerNorm does not: tanh normalisation, or a bounded read-in.

Naim & Asher (2025), section 6, propose to constrain embeddings. Both constraints trade LayerNorm's
plateau for one of their own, which these closed forms give, in float64. Tanh normalisation is
gamma * tanh(alpha h) + beta, Zhu et al. (2025). A bounded read-in is v b / sqrt(b^2 + |v|^2) with
v = x W + bias: a vector shorter than b.
"""

from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import Scalar, Vector, as_float64

__all__ = ["read_in_limit", "tanh_certificate", "tanh_plateau"]


def tanh_certificate(
    unembed: Vector, gamma: Vector, beta: Vector, bias: Scalar
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Centre c and half-width r of the output of a model that ends tanh norm -> linear.

    |y - c| < r for every output y, whatever the prompt.

    c = w.beta + b and r = sum_i |w_i gamma_i|. It cannot be improved: each coordinate saturates by
    itself, so y tends to c + r along h = k w * gamma. LayerNorm's r (`limits.output_certificate`)
    is sqrt(d) |center(w * gamma)|, which is no smaller where w * gamma has mean 0 (Cauchy-Schwarz).

    Source: Naim & Asher (2025), Proposition 3, carried over to the norm of Zhu et al. (2025).

    Args:
        unembed: w, read-out weights of one output channel.
        gamma: gain of the last norm.
        beta: bias of the last norm.
        bias: b of the read-out.

    Returns:
        (c, r), in the units of the output.

    Example:
        >>> import torch
        >>> w, gamma = torch.arange(6.).cos().double(), torch.arange(6.).exp().double()
        >>> beta = torch.arange(6.).double()
        >>> c, r = tanh_certificate(w, gamma, beta, bias=.5)
        >>> largest = (gamma * torch.tanh(1e6 * w * gamma) + beta) @ w + .5
        >>> torch.allclose(largest, c + r)
        True
    """
    unembed = as_float64(unembed)
    return unembed @ as_float64(beta) + as_float64(bias), (unembed * as_float64(gamma)).abs().sum()


def tanh_plateau(
    embed: Vector, unembed: Vector, alpha: Scalar, gamma: Vector, beta: Vector, bias: Scalar
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Boundary values f(+infinity) and f(-infinity) of a pre-norm tanh model.

    The model reads scalar prompts, and the query alone goes far.

    f(+-infinity) = w.(+-gamma * sign(alpha W) + beta) + b. As with LayerNorm (`limits.plateau`) the
    blocks read bounded vectors, so the stream is x W + O(1) in any context. Only the signs of W
    count, and f is exponentially close once |alpha x W_i| is large for every i, where LayerNorm
    approaches like 1/|x|.

    Source: Naim & Asher (2025), Proposition 6, carried over to the norm of Zhu et al. (2025).

    Args:
        embed: W, read-in of the scalar token.
        unembed: w, read-out weights of one output channel.
        alpha: of the last norm.
        gamma: gain of the last norm.
        beta: bias of the last norm.
        bias: b of the read-out.

    Returns:
        (limit at +infinity, limit at -infinity), in the units of the output. Their mean is c of
        `tanh_certificate`.

    Raises:
        ValueError: alpha or a coordinate of embed is 0, so that the rest of the stream decides
            there.

    Example:
        >>> import torch
        >>> W, w = torch.tensor([1., -2., .5]), torch.tensor([.3, .1, -2.])
        >>> gamma = torch.tensor([1., 2., 3.])
        >>> above, below = tanh_plateau(W, w, alpha=.7, gamma=gamma, beta=torch.zeros(3), bias=.25)
        >>> far = (gamma * torch.tanh(.7 * (1e6 * W + torch.tensor([5., -3., 2.])))) @ w + .25
        >>> torch.allclose(far.double(), above)
        True
    """
    side = (as_float64(alpha) * as_float64(embed)).sign()
    if not side.all():
        raise ValueError(
            f"alpha * embed is 0 in {int((side == 0).sum())} of {side.numel()} coordinates: there "
            "the query's size does not reach the norm, and the limit depends on the context"
        )
    unembed = as_float64(unembed)
    centre = unembed @ as_float64(beta) + as_float64(bias)
    reach = unembed @ (as_float64(gamma) * side)
    return centre + reach, centre - reach


def read_in_limit(embed: Vector, bound: Scalar) -> tuple[Vector, Vector]:
    """What a bounded read-in makes of a scalar token at +infinity and at -infinity: +-b W / |W|.

    The stream does not grow, so far out the model computes what it would for one token at the edge
    of what it can be given: f tends to a limit that depends on the context, and LayerNorm has
    nothing to do with it. The read-in's own bias shifts it by O(1/|x|).

    Source: derived here, for the constraint on embeddings that Naim & Asher (2025), section 6,
    propose.

    Args:
        embed: W, read-in of the scalar token.
        bound: b.

    Returns:
        (limit at +infinity, limit at -infinity), vectors of the residual stream.

    Raises:
        ValueError: embed is 0, or bound is not positive.

    Example:
        >>> import torch
        >>> W, bias = torch.tensor([3., -4.]).double(), torch.tensor([.2, .1]).double()
        >>> v = 1e9 * W + bias
        >>> torch.allclose(read_in_limit(W, bound=2.)[0], v * 2 / (4 + v @ v).sqrt())
        True
    """
    embed, bound = as_float64(embed), as_float64(bound)
    if not embed.any() or not bound > 0:
        size = float(embed.norm())
        raise ValueError(
            f"embed must not be 0 and bound must be positive, got |embed| = {size:g}, bound = "
            f"{bound:g}"
        )
    limit = bound * embed / embed.norm()
    return limit, -limit
