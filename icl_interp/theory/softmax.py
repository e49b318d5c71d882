"""What softmax attention does far out, and when it is hardmax or uniform: closed forms after Naim & Asher (2025).

One attention layer on scalar tokens (its limits, and the limits as the paper prints them), then bounds and margins for
any softmax. This is one half of the study `limits`, which re-exports it.

Everything is computed and returned in float64. Logarithms are natural, entropies in nats, x in the units of the prompt;
scores are what softmax receives, scaling and temperature included.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "attention_asymptote",
    "context_mixture",
    "entropy_deficit_bound",
    "hardmax_margin",
    "hardmax_onset",
    "max_weight_bound",
    "necessary_margin",
    "paper_attention_asymptote",
]

Scalar = float | int | Float[Tensor, ""]
Vector = Float[Tensor, " d_model"]


def as_float64(value: Tensor | float | int) -> Tensor:
    """The value as a float64 tensor where it lies: at |x| = 1e6 float32 has lost the intercept."""
    return torch.as_tensor(value, dtype=torch.float64)


def check_direction(direction: int) -> None:
    """Raise ValueError unless direction is +1 or -1, the sign of x."""
    if direction not in (1, -1):
        raise ValueError(f"direction must be +1 (x to +infinity) or -1 (x to -infinity), got {direction!r}")


def context_mixture(
    x: Float[Tensor, "*query"] | float | int, context: Float[Tensor, " token"], alpha: Scalar
) -> Float[Tensor, "*query"]:
    """What one head reads on scalar tokens: the mixture m(x) of x_1 .. x_p and x by softmax of alpha x x_j, alpha x^2.

    An attention layer without biases or normalisation is sum_h m_h(x) zeta_h.

    Source: Naim & Asher (2025), Appendix G.1, equations 6 and 7. m is their sum_j mu_j + beta, context their x_1 ..
    x_p, alpha their alpha_h = W Q_h K_h^T W^T; divide it by sqrt(d_head) for a model that does.

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
        >>> attention = torch.nn.functional.scaled_dot_product_attention(x[..., None], tokens, tokens, scale=-.7)
        >>> torch.allclose(context_mixture(x, context, alpha=-.7), attention[..., 0])
        True
    """
    x, context = as_float64(x), as_float64(context)
    tokens = torch.cat([context.expand(*x.shape, -1), x[..., None]], dim=-1)
    return (torch.softmax(as_float64(alpha) * x[..., None] * tokens, dim=-1) * tokens).sum(-1)


def attention_asymptote(
    embed: Vector,
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> tuple[Vector, Vector]:
    """The line x slope + intercept that x W + sum_h m_h(x) zeta_h tends to as x goes to +infinity or to -infinity.

    Per head: m = x for alpha > 0 (attends to itself), m = (x + sum_j x_j) / (p + 1) for alpha = 0 (uniform), and for
    alpha < 0 the extreme token (hardmax): m = min_j x_j at +infinity, max_j x_j at -infinity. Exact for alpha = 0,
    exponentially close otherwise. The slope ignores the context, the intercept knows its extreme token and sum only.

    Source: Naim & Asher (2025), Appendix G.1, Proposition 5: the asymptote is linear as they say, but their sums S2
    (alpha < 0) and S3 (alpha = 0) are corrected here, see `paper_attention_asymptote`. embed is W, alphas alpha_h,
    zetas zeta_h = W V_h gamma_h, context x_1 .. x_p.

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
        >>> alphas, zetas = torch.tensor([.5, -.5, 0.]), torch.tensor([[.2, .1], [1., 0.], [3., 5.]])
        >>> slope, intercept = attention_asymptote(embed, alphas, zetas, context, direction=-1)
        >>> heads = [context_mixture(-100., context, alpha) * zeta for alpha, zeta in zip(alphas, zetas)]
        >>> torch.allclose(-100 * slope + intercept, -100 * embed + sum(heads))
        True
    """
    positive, zero, negative, context = _check_attention(alphas, context, direction)
    extreme = context.min() if direction > 0 else context.max()
    n_tokens = context.numel() + 1
    share_of_x = positive + zero / n_tokens
    constant = negative * extreme + zero * context.sum() / n_tokens
    return as_float64(embed) + share_of_x @ as_float64(zetas), constant @ as_float64(zetas)


def paper_attention_asymptote(
    embed: Vector,
    alphas: Float[Tensor, " head"],
    zetas: Float[Tensor, "head d_model"],
    context: Float[Tensor, " token"],
    direction: int = 1,
) -> tuple[Vector, Vector]:
    """The line of `attention_asymptote` as the paper prints it: wrong for alpha < 0 and alpha = 0, kept for comparison.

    As printed, per head at +infinity: m = x for alpha > 0 (S1, correct); m = sum_{x_j<0} x_j / p + x #{j: x_j = 0} for
    alpha < 0 (S2; its second sum has no summand, read as 1); m = (sum_j x_j + p x) / (p + 1) for alpha = 0 (S3).
    Correct for S2 is the extreme token, without x: softmax picks the largest score, it does not average the negative
    tokens. Correct in S3 is x / (p + 1): the printed term counts the query's weight once for every context token.

    Source: Naim & Asher (2025), Appendix G.1, S1 to S3 in the proof of Proposition 5, plus x W. For -infinity they say
    "the same reasoning", taken here as the mirror image x -> -x, x_j -> -x_j. Symbols as `attention_asymptote`.

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
    positive, zero, negative, context = _check_attention(alphas, context, direction)
    p = context.numel()
    share_of_x = positive + zero * p / (p + 1) + negative * (context == 0).sum()
    constant = negative * context[direction * context < 0].sum() / p + zero * context.sum() / (p + 1)
    return as_float64(embed) + share_of_x @ as_float64(zetas), constant @ as_float64(zetas)


def hardmax_onset(
    context: Float[Tensor, " token"], alpha: Scalar, direction: int = 1, delta: float = 0.05
) -> Float[Tensor, ""]:
    """An |x| from which a head on scalar tokens keeps at least 1 - delta of its attention on its arg-max set.

    With M = `hardmax_margin`(p + 1, delta) and t_j = direction x_j. For alpha > 0 the target is the query itself, and
    alpha |x| (|x| - max t_j) >= M suffices. For alpha < 0 it is the extreme token, min t_j, and it takes both
    |alpha| |x| gap >= M, gap from it to the next distinct token, and |alpha| |x| (|x| - min t_j) >= M, as the query is
    a rival too. The smallest such |x| when p = 1.

    Source: makes quantitative Naim & Asher (2025), Appendix G.1, Proposition 5, and G.2. Symbols as `context_mixture`.

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
    positive, zero, _, context = _check_attention(alpha, context, direction)
    needed = hardmax_margin(context.numel() + 1, delta) / as_float64(alpha).abs()
    if zero:
        return needed  # infinite
    signed = direction * context
    token = signed.max() if positive else signed.min()
    against_query = (token + (token.square() + 4 * needed).sqrt()) / 2
    # Equal tokens share the arg-max set, and above the largest token there is none: then the query is the only rival.
    gaps = signed[signed > token] - token
    return torch.maximum(against_query, needed / gaps.min()) if gaps.numel() else against_query


def max_weight_bound(n: int, score_range: Float[Tensor, "*batch"] | float | int) -> Float[Tensor, "*batch"]:
    """Dispersion: no softmax weight over n scores within a range R exceeds 1 / (1 + (n - 1) e^-R).

    To keep a weight p, e^R >= (n - 1) p / (1 - p): scores must grow like log n. Dispersed is not uniform: independent
    scores give an exponentially tilted average of the context, for any n.

    Source: the true part of Naim & Asher (2025), Appendix G.2 ("when the number of tokens is large").

    Args:
        n: number of visible keys.
        score_range: R, the largest score minus the smallest, any shape.

    Returns:
        The bound on the largest weight, with the shape of score_range.

    Raises:
        ValueError: n is below 1.

    Example:
        >>> import torch
        >>> weights = torch.softmax(torch.tensor([3., 0., 0., 0., 0.]).double(), dim=0)
        >>> torch.allclose(max_weight_bound(5, score_range=3.), weights.max())
        True
    """
    if n < 1:
        raise ValueError(f"n counts the visible keys and must be at least 1, got {n}")
    return 1 / (1 + (n - 1) * torch.exp(-as_float64(score_range)))


def entropy_deficit_bound(score_range: Float[Tensor, "*batch"] | float | int) -> Float[Tensor, "*batch"]:
    """Softmax of scores within a range R has an entropy deficit log n - H of at most min(R, R^2 / 8), for every n.

    The total variation to uniform is then at most sqrt(deficit / 2), and a head's output differs from the plain
    average by at most that times the range of its values. H / log n decides nothing: it tends to 1 for any bounded
    scores.

    Source: replaces Naim & Asher (2025), Section 6 and Appendix G.2, where uniform attention is said to come with many
    tokens "similar in magnitude": neither number nor size decides, the gaps do (softmax ignores a common shift).

    Args:
        score_range: R, the largest score minus the smallest, any shape.

    Returns:
        The bound in nats, with the shape of score_range.

    Example:
        >>> import torch
        >>> scores = torch.tensor([.01, 0.]).double()
        >>> deficit = math.log(2) - torch.distributions.Categorical(logits=scores).entropy()
        >>> torch.allclose(entropy_deficit_bound(score_range=.01), deficit, rtol=1e-4)
        True
    """
    score_range = as_float64(score_range)
    return torch.minimum(score_range, score_range.square() / 8)


def hardmax_margin(n: int, delta: float = 0.05) -> Float[Tensor, ""]:
    """The score margin log((n - 1) (1 - delta) / delta) suffices for weight 1 - delta on the arg-max set among n keys.

    It grows like log n, and is needed in full when the other n - 1 scores tie. See `necessary_margin` for the least
    that can do.

    Source: makes quantitative Naim & Asher (2025), Appendix G.2 ("when there is a significant gap between values").

    Args:
        n: number of visible keys.
        delta: the attention mass that may be off the arg-max set.

    Returns:
        The largest score minus the next distinct one.

    Raises:
        ValueError: n is below 2, or delta is not between 0 and 1.

    Example:
        >>> import torch
        >>> scores = torch.cat([hardmax_margin(41)[None], torch.zeros(40).double()])
        >>> torch.allclose(torch.softmax(scores, dim=0)[0], torch.tensor(.95).double())
        True
    """
    _check_delta(delta)
    if n < 2:
        raise ValueError(f"n counts the visible keys and a margin needs at least 2, got {n}")
    return as_float64(math.log((n - 1) * (1 - delta) / delta))


def necessary_margin(k: int = 1, delta: float = 0.05) -> Float[Tensor, ""]:
    """Below the score margin log((1 - delta) / (k delta)), k tied keys cannot hold weight 1 - delta in all.

    It is enough against a single other key. Negative, and no condition, when k > (1 - delta) / delta.

    Source: makes quantitative Naim & Asher (2025), Appendix G.2 ("when there is a significant gap between values").

    Args:
        k: size of the arg-max set.
        delta: the attention mass that may be off the arg-max set.

    Returns:
        The largest score minus the next distinct one.

    Raises:
        ValueError: k is below 1, or delta is not between 0 and 1.

    Example:
        >>> import torch
        >>> scores = torch.cat([necessary_margin(k=3).expand(3), torch.zeros(1).double()])
        >>> torch.allclose(torch.softmax(scores, dim=0)[:3].sum(), torch.tensor(.95).double())
        True
    """
    _check_delta(delta)
    if k < 1:
        raise ValueError(f"k is the size of the arg-max set and must be at least 1, got {k}")
    return as_float64(math.log((1 - delta) / (k * delta)))


def _check_attention(
    alphas: Tensor | float | int, context: Tensor, direction: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which heads have alpha > 0, = 0, < 0 (as 0.0 and 1.0 in float64), and the context in float64."""
    check_direction(direction)
    if context.numel() == 0:
        raise ValueError("context is empty: expected at least one token before the query (a query alone reads itself)")
    alphas = as_float64(alphas)
    return (alphas > 0).double(), (alphas == 0).double(), (alphas < 0).double(), as_float64(context)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta, the attention mass off the arg-max set, must lie between 0 and 1, got {delta}")
