"""One attention layer on scalar tokens, and its limits for a far query.

The layer is that of Naim & Asher (2025), Appendix G.1.

Tokens x_1 .. x_p and the query x are read in as x_i W, without biases, positions or a norm before
attention. A head is then two things: alpha_h, the coefficient of x x_j in its scores, and zeta_h,
what it writes for a token of value 1. The layer is Attn(x) = sum_h (sum_j mu_j^h(x) + beta^h(x))
zeta_h, and far out one line in each direction. The sums S1, S2, S3 that the line is made of stand
beside those that the paper prints. Layers with biases and positions: `scalar_layer`.

Everything is computed and returned in float64, x is in the units of the prompt.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum
from icl_interp.theory.softmax import (
    NAIM,
    Scalar,
    Vector,
    as_float64,
    check_direction,
    hardmax_margin,
)

__all__ = [
    "AttentionSums",
    "AttentionTerms",
    "Heads",
    "Line",
    "attention_asymptote",
    "attention_sums",
    "attention_terms",
    "context_mixture",
    "hardmax_onset",
    "paper_attention_asymptote",
    "paper_attention_sums",
    "scalar_heads",
]

# A bilinear form smaller than this part of the sizes of its two vectors is the rounding of a zero.
ROUNDING = 1e-13
ReadMap = Float[Tensor, "head d_model d_head"]
WriteMap = Float[Tensor, "head d_head d_model"]


class Heads(NamedTuple):
    """What `scalar_heads` returns: all that Appendix G.1 needs to know of the heads of a layer."""

    alphas: Float[Tensor, " head"]
    zetas: Float[Tensor, "head d_model"]


class AttentionTerms(NamedTuple):
    """What `attention_terms` returns: a head's share of each context token and of the query."""

    mu: Float[Tensor, "*query token"]
    beta: Float[Tensor, "*query"]


class Line(NamedTuple):
    """x slope + intercept, a vector for each x."""

    slope: Vector
    intercept: Vector


class AttentionSums(NamedTuple):
    """What all heads of one sign of alpha write together, far out.

    S1 is of alpha > 0, S2 of alpha < 0 and S3 of alpha = 0.
    """

    positive: Line
    negative: Line
    zero: Line


def scalar_heads(
    embed: Vector,
    queries: ReadMap,
    keys: ReadMap,
    values: ReadMap,
    outputs: WriteMap,
    scale: float = 1.0,
) -> Heads:
    """alpha_h = scale W Q_h K_h^T W^T and zeta_h = W V_h gamma_h of every head of a layer.

    The layer sees its weights through these only: heads that share them cannot be told apart on
    scalar tokens.

    Source: Naim & Asher (2025), Appendix G.1, before equation 6. embed is W, queries Q_h, keys K_h,
    values V_h; outputs is gamma_h, the block of the output matrix that belongs to the head. The
    paper divides scores by nothing.

    Args:
        embed: read-in of the scalar token.
        queries: W_Q.
        keys: W_K.
        values: W_V.
        outputs: W_O.
        scale: what scores are multiplied by, 1 / sqrt(d_head) for most models.

    Returns:
        (alphas, zetas). An alpha that is the rounding of 0 is 0: only then is the head in the sum
        S3.

    Example:
        >>> import torch
        >>> embed = torch.arange(4.).cos().double()
        >>> maps = torch.arange(96.).sin().double().reshape(4, 2, 4, 3)
        >>> alphas, zetas = scalar_heads(embed, *maps[:3], maps[3].mT)
        >>> tokens = torch.tensor([[.5], [-1.], [2.]]).double() * embed
        >>> q, k, v = tokens @ maps[0], tokens @ maps[1], tokens @ maps[2]
        >>> attend = torch.nn.functional.scaled_dot_product_attention
        >>> attention = attend(q, k, v, scale=1.) @ maps[3].mT
        >>> context = tokens[:2] @ embed / embed.dot(embed)
        >>> mixtures = torch.stack([context_mixture(2., context, alpha) for alpha in alphas])
        >>> torch.allclose(attention[:, -1].sum(0), mixtures @ zetas)
        True
    """
    embed = as_float64(embed)
    outputs = as_float64(outputs)
    # What a token of value 1 is read as, in each head
    query_of_one = embed @ as_float64(queries)
    key_of_one = embed @ as_float64(keys)
    value_of_one = embed @ as_float64(values)
    alphas = scale * product(query_of_one, key_of_one)
    zetas = torch.einsum("he,hed->hd", value_of_one, outputs)
    return Heads(alphas, zetas)


def product(a: Float[Tensor, "*#batch d_head"], b: Float[Tensor, "*#batch d_head"]) -> Tensor:
    """The scalar product over the last axis, 0 where it is no more than the rounding of one."""
    exact = (a * b).sum(-1)
    size_a = a.norm(dim=-1)
    size_b = b.norm(dim=-1)
    rounding = ROUNDING * size_a * size_b
    is_zero = exact.abs() <= rounding
    return torch.where(is_zero, 0.0, exact)


def attention_terms(
    x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"], alpha: Scalar
) -> AttentionTerms:
    """Weights times values of one head: mu_j(x) for token j, and beta(x) for the query.

    mu_j(x) = x_j e^(alpha x x_j) / Z and beta(x) = x e^(alpha x^2) / Z, with
    Z = e^(alpha x^2) + sum_k e^(alpha x x_k).

    Source: Naim & Asher (2025), Appendix G.1, equations 6 and 7 (where the exponent of one sum
    lacks its end). Symbols as `context_mixture`.

    Args:
        x: queries, any shape.
        context: the tokens before the query.
        alpha: score coefficient of the head.

    Returns:
        (mu, beta), in the units of the tokens.

    Example:
        >>> import torch
        >>> context = torch.tensor([.5, -1., 2.]).double()
        >>> mu, beta = attention_terms(3., context, alpha=-.7)
        >>> weights = torch.softmax(-.7 * 3. * torch.tensor([.5, -1., 2., 3.]).double(), dim=0)
        >>> torch.allclose(mu, weights[:3] * context), torch.allclose(beta, weights[3] * 3)
        (True, True)
    """
    x = as_float64(x)
    context = as_float64(context)
    alpha = as_float64(alpha)
    query = x[..., None]
    earlier = context.expand(*x.shape, -1)
    tokens = torch.cat([earlier, query], dim=-1)
    scores = alpha * query * tokens
    weights = torch.softmax(scores, dim=-1)
    shares = weights * tokens
    return AttentionTerms(shares[..., :-1], shares[..., -1])


def context_mixture(
    x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"], alpha: Scalar
) -> Float[Tensor, "*query"]:
    """What one head reads on scalar tokens: the mixture m(x) of x_1 .. x_p and x.

    The weights are the softmax of alpha x x_j and alpha x^2.

    An attention layer without biases or normalisation is sum_h m_h(x) zeta_h.

    Source: Naim & Asher (2025), Appendix G.1, equations 6 and 7. m is their sum_j mu_j + beta,
    context their x_1 .. x_p, alpha their alpha_h = W Q_h K_h^T W^T; divide it by sqrt(d_head) for a
    model that does.

    Args:
        x: queries, any shape.
        context: the tokens before the query.
        alpha: score coefficient of the head.

    Returns:
        m, in the units of the tokens.

    Example:
        >>> import torch
        >>> context, x = torch.tensor([.5, -1., 2.]).double(), torch.tensor([[3.], [-.2]]).double()
        >>> tokens = torch.cat([context.expand(2, 3), x], dim=1)[..., None]
        >>> attend = torch.nn.functional.scaled_dot_product_attention
        >>> attention = attend(x[..., None], tokens, tokens, scale=-.7)
        >>> torch.allclose(context_mixture(x, context, alpha=-.7), attention[..., 0])
        True
    """
    mu, beta = attention_terms(x, context, alpha)
    return mu.sum(-1) + beta


def attention_sums(
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> AttentionSums:
    """The lines that the heads of alpha > 0, < 0 and = 0 tend to.

    x goes to +infinity or to -infinity.

    Per head: m = x for alpha > 0 (attends to itself), m = (x + sum_j x_j) / (p + 1) for alpha = 0
    (uniform), and for alpha < 0 the extreme token (hardmax): m = min_j x_j at +infinity, max_j x_j
    at -infinity. Exact for alpha = 0, exponentially close otherwise. The slope ignores the context,
    the intercept knows its extreme token and sum only.

    Source: Naim & Asher (2025), Appendix G.1, S1 to S3 in the proof of Proposition 5, S2 and S3
    corrected; see `paper_attention_sums`. alphas is alpha_h, zetas zeta_h = W V_h gamma_h, context
    x_1 .. x_p.

    Args:
        alphas: score coefficients of the heads.
        zetas: what each head writes for a token of value 1.
        context: the tokens before the query.
        direction: +1 or -1, the sign of x.

    Returns:
        (S1, S2, S3), each (slope, intercept).

    Raises:
        ValueError: context is empty, or direction is not +1 or -1.

    Example:
        >>> import torch
        >>> alphas, one = torch.tensor([.5, -.5, 0.]), torch.ones(3, 1)
        >>> sums = attention_sums(alphas, one, torch.tensor([.5, -1., 2.]))
        >>> [(float(line.slope), float(line.intercept)) for line in sums]
        [(1.0, 0.0), (0.0, -1.0), (0.25, 0.375)]
    """
    context = _check_context(context, direction)
    n_tokens = context.numel() + 1
    total = context.sum()
    extreme = context.min() if direction > 0 else context.max()
    # The line (slope, intercept) that a head of each sign reads
    positive = (1.0, 0.0)
    negative = (0.0, extreme)
    zero = (1 / n_tokens, total / n_tokens)
    return _sums(alphas, zetas, positive, negative, zero)


def paper_attention_sums(
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> AttentionSums:
    """The lines of `attention_sums` as the paper prints them, kept for comparison.

    They are wrong for alpha < 0 and alpha = 0.

    As printed, per head at +infinity: m = x for alpha > 0 (S1, correct); m = sum_{x_j<0}
    x_j / p + x #{j: x_j = 0} for alpha < 0 (S2; its second sum has no summand, read as 1);
    m = (sum_j x_j + p x) / (p + 1) for alpha = 0 (S3). Correct for S2 is the extreme token, without
    x: softmax picks the largest score, it does not average the negative tokens. Correct in S3 is
    x / (p + 1): the printed term counts the query's weight once for every context token.

    Source: Naim & Asher (2025), Appendix G.1, S1 to S3 in the proof of Proposition 5. For -infinity
    they say "the same reasoning", taken here as the mirror image x -> -x, x_j -> -x_j. Symbols as
    `attention_sums`.

    Args:
        alphas: score coefficients of the heads.
        zetas: what each head writes for a token of value 1.
        context: the tokens before the query.
        direction: +1 or -1, the sign of x.

    Returns:
        (S1, S2, S3), each (slope, intercept).

    Raises:
        ValueError: context is empty, or direction is not +1 or -1.

    Example:
        >>> import torch
        >>> alphas, one = torch.tensor([.5, -.5, 0.]), torch.ones(3, 1)
        >>> sums = paper_attention_sums(alphas, one, torch.tensor([.5, -1.5, 2.]))
        >>> [(float(line.slope), float(line.intercept)) for line in sums]
        [(1.0, 0.0), (0.0, -0.5), (0.75, 0.25)]
    """
    context = _check_context(context, direction)
    p = context.numel()
    total = context.sum()
    n_at_zero = (context == 0).double().sum()
    below_zero = context[direction * context < 0]
    positive = (1.0, 0.0)
    negative = (n_at_zero, below_zero.sum() / p)
    zero = (p / (p + 1), total / (p + 1))
    return _sums(alphas, zetas, positive, negative, zero)


def attention_asymptote(
    embed: Vector,
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> Line:
    """The line x slope + intercept that x W + sum_h m_h(x) zeta_h tends to.

    It is the sum of x W and the three `attention_sums`.

    Source: Naim & Asher (2025), Appendix G.1, Proposition 5: the asymptote is linear as they say,
    but their sums S2 (alpha < 0) and S3 (alpha = 0) are corrected here, see
    `paper_attention_asymptote`. embed is W, alphas alpha_h, zetas zeta_h = W V_h gamma_h, context
    x_1 .. x_p.

    Args:
        embed: read-in of the scalar token, for the skip connection; zeros give the attention alone.
        alphas: score coefficients of the heads.
        zetas: what each head writes for a token of value 1.
        context: the tokens before the query.
        direction: +1 or -1, the sign of x.

    Returns:
        (slope, intercept).

    Raises:
        ValueError: context is empty, or direction is not +1 or -1.

    Example:
        >>> import torch
        >>> embed, context = torch.tensor([1., -2.]).double(), torch.tensor([.5, -1., 2.]).double()
        >>> alphas = torch.tensor([.5, -.5, 0.])
        >>> zetas = torch.tensor([[.2, .1], [1., 0.], [3., 5.]])
        >>> slope, intercept = attention_asymptote(embed, alphas, zetas, context, direction=-1)
        >>> heads = [
        ...     context_mixture(-100., context, alpha) * zeta for alpha, zeta in zip(alphas, zetas)
        ... ]
        >>> torch.allclose(-100 * slope + intercept, -100 * embed + sum(heads))
        True
    """
    sums = attention_sums(alphas, zetas, context, direction)
    return _with_skip(embed, sums)


def paper_attention_asymptote(
    embed: Vector,
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> Line:
    """The line of `attention_asymptote` with the sums as the paper prints them.

    The sums are `paper_attention_sums`.

    Source: Naim & Asher (2025), Appendix G.1, proof of Proposition 5, plus x W. Symbols as
    `attention_asymptote`.

    Args:
        embed: read-in of the scalar token, for the skip connection; zeros give the attention alone.
        alphas: score coefficients of the heads.
        zetas: what each head writes for a token of value 1.
        context: the tokens before the query.
        direction: +1 or -1, the sign of x.

    Returns:
        (slope, intercept).

    Raises:
        ValueError: context is empty, or direction is not +1 or -1.

    Example:
        >>> import torch
        >>> one, context = torch.ones(1), torch.tensor([.9, -.4, 0., 1.7])
        >>> printed, _ = paper_attention_asymptote(0 * one, 0 * one, one[None], context)
        >>> correct, _ = attention_asymptote(0 * one, 0 * one, one[None], context)
        >>> torch.allclose(printed, len(context) * correct)
        True
    """
    sums = paper_attention_sums(alphas, zetas, context, direction)
    return _with_skip(embed, sums)


def hardmax_onset(
    context: Float[Tensor, " token"], alpha: Scalar, direction: int = 1, delta: float = 0.05
) -> Float[Tensor, ""]:
    """An |x| from which a head on scalar tokens attends almost only to its arg-max set.

    From there it keeps at least 1 - delta of its attention on that set.

    Let M = `hardmax_margin(p + 1, delta)` and t_j = direction x_j. For alpha > 0 the target is the
    query itself, and alpha |x| (|x| - max t_j) >= M suffices. For alpha < 0 it is the extreme
    token, min t_j, and it takes both |alpha| |x| gap >= M, gap from it to the next distinct token,
    and |alpha| |x| (|x| - min t_j) >= M, as the query is a rival too. For p = 1 it is the smallest
    such |x|.

    Source: makes quantitative Naim & Asher (2025), Appendix G.1, Proposition 5, and G.2. Symbols as
    `context_mixture`.

    Args:
        context: the tokens before the query.
        alpha: score coefficient of the head.
        direction: +1 or -1, the sign of x.
        delta: the attention mass that may be off the arg-max set.

    Returns:
        |x|, in the units of the tokens; infinity for alpha = 0, which attends uniformly.

    Raises:
        ValueError: context is empty, direction is not +1 or -1, or delta is not between 0 and 1.

    Example:
        >>> import torch
        >>> token = torch.tensor([.8]).double()
        >>> x = hardmax_onset(token, alpha=2.)
        >>> torch.allclose(context_mixture(x, token, alpha=2.), .95 * x + .05 * token[0])
        True
    """
    context = _check_context(context, direction)
    alpha = as_float64(alpha)
    n_keys = context.numel() + 1
    # What |x| times a gap between tokens must reach; infinite for alpha = 0
    needed = hardmax_margin(n_keys, delta) / alpha.abs()
    if alpha == 0:
        return needed
    signed = direction * context
    token = signed.max() if alpha > 0 else signed.min()
    # The larger root of |x| (|x| - token) = needed
    root = (token.square() + 4 * needed).sqrt()
    against_query = (token + root) / 2
    # Equal tokens share the arg-max set, and above the largest token there is none: then the query
    # is the only rival.
    rivals = signed[signed > token]
    if not rivals.numel():
        return against_query
    gaps = rivals - token
    against_tokens = needed / gaps.min()
    return torch.maximum(against_query, against_tokens)


def _sums(
    alphas: Tensor,
    zetas: Tensor,
    positive: tuple[Scalar, Scalar],
    negative: tuple[Scalar, Scalar],
    zero: tuple[Scalar, Scalar],
) -> AttentionSums:
    """What all heads of each sign write, from the line that one such head reads.

    A line is (slope, intercept).
    """
    alphas = as_float64(alphas)
    zetas = as_float64(zetas)

    def written(of_sign: Tensor, read: tuple[Scalar, Scalar]) -> Line:
        slope, intercept = read
        zeta = of_sign.double() @ zetas
        return Line(slope * zeta, intercept * zeta)

    s1 = written(alphas > 0, positive)
    s2 = written(alphas < 0, negative)
    s3 = written(alphas == 0, zero)
    return AttentionSums(s1, s2, s3)


def _with_skip(embed: Tensor, sums: AttentionSums) -> Line:
    """The three lines and x W together."""
    slope = as_float64(embed) + sum(line.slope for line in sums)
    none = torch.zeros_like(sums.zero.intercept)
    intercept = sum((line.intercept for line in sums), none)
    return Line(slope, intercept)


def _check_context(context: Tensor, direction: int) -> Tensor:
    """The context in float64."""
    check_direction(direction)
    if context.numel() == 0:
        raise ValueError(
            "context is empty: expected at least one token before the query (a query alone reads "
            "itself)"
        )
    return as_float64(context)


def _far_value(sums: Callable[..., AttentionSums], alpha: float) -> float:
    """What one head makes of the query 1000 after the tokens .5, -1.5, 2, by its sums."""
    one = torch.ones(1, dtype=torch.float64)
    context = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    lines = sums(alpha * one, one[None], context)
    return float(sum(1000 * line.slope + line.intercept for line in lines))


def _variance_growth() -> float:
    """The factor by which the variance before a norm grows from the query 10^4 to 10^5."""
    embed = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    alphas = torch.tensor([0.5, -0.5], dtype=torch.float64)
    zetas = torch.tensor([[0.2, 0.1, -0.3, 0.4], [1.0, 0.0, -1.0, 2.0]], dtype=torch.float64)
    context = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    line = attention_asymptote(embed, alphas, zetas, context)
    near = 1e4 * line.slope + line.intercept
    far = 1e5 * line.slope + line.intercept
    growth = far.var(correction=0) / near.var(correction=0)
    return float(growth)


ERRATA = (
    Erratum(
        NAIM,
        "Appendix G.1, sum S2 in the proof of Proposition 5",
        "For alpha < 0 a head tends to the mean of the negative tokens, plus x for tokens at 0.",
        "It tends to the extreme token, the least one for x to +infinity: softmax picks the "
        "largest score.",
        (paper_attention_sums, attention_sums),
        "head with alpha = -.5 after .5, -1.5, 2, at x = 1000",
        lambda: Compared(_far_value(paper_attention_sums, -0.5), _far_value(attention_sums, -0.5)),
    ),
    Erratum(
        NAIM,
        "Appendix G.1, sum S3 in the proof of Proposition 5",
        "For alpha = 0 a head tends to (sum of the tokens + p x) / (p + 1).",
        "It is (sum of the tokens + x) / (p + 1): the printed term counts the query's weight once "
        "for every context token.",
        (paper_attention_asymptote, attention_asymptote),
        "head with alpha = 0 after .5, -1.5, 2, at x = 1000",
        lambda: Compared(_far_value(paper_attention_sums, 0.0), _far_value(attention_sums, 0.0)),
    ),
    Erratum(
        NAIM,
        "Appendix G.1, proof of Proposition 6",
        "The variance before the norm grows like c |x|.",
        "It grows like c x^2; the standard deviation grows like c |x|, and the boundary value "
        "stands.",
        (attention_asymptote,),
        "variance at x = 10^5 over that at x = 10^4",
        lambda: Compared(10.0, _variance_growth()),
    ),
)
