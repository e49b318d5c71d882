"""What LayerNorm does far out: closed forms after Naim & Asher (2025).

The paper is *Analyzing limits for in-context learning*.

Here are the output certificate, the plateau (the paper's boundary values), its first correction,
its onset and the profile of saturation. The rest of the study is re-exported, so that `limits`
finds all of it: one attention layer on scalar tokens (`scalar_attention` as the paper has it,
`scalar_layer` with biases and positions), and `softmax`.

Everything is computed and returned in float64. LayerNorm is torch's, with the biased variance and
eps inside the root: gamma * center(h) / sqrt(mean(center(h)^2) + eps) + beta. The paper's
Proposition 6 has no eps in its root; its rho is gamma, and its epsilon, added last, beta. x is in
the units of the prompt.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.scalar_attention import (
    AttentionSums,
    AttentionTerms,
    Heads,
    Line,
    attention_asymptote,
    attention_sums,
    attention_terms,
    context_mixture,
    hardmax_onset,
    paper_attention_asymptote,
    paper_attention_sums,
    scalar_heads,
)
from icl_interp.theory.scalar_layer import LayerTerms, ScalarLayer
from icl_interp.theory.softmax import (
    Scalar,
    Vector,
    as_float64,
    check_direction,
    entropy_deficit_bound,
    hardmax_margin,
    max_weight_bound,
    necessary_margin,
)

__all__ = [
    "AttentionSums",
    "AttentionTerms",
    "FarNorm",
    "Heads",
    "LayerTerms",
    "Line",
    "SaturationProfile",
    "ScalarLayer",
    "attention_asymptote",
    "attention_sums",
    "attention_terms",
    "context_mixture",
    "entropy_deficit_bound",
    "hardmax_margin",
    "hardmax_onset",
    "layernorm_correction",
    "layernorm_far",
    "layernorm_onset",
    "layernorm_plateau",
    "max_weight_bound",
    "necessary_margin",
    "output_certificate",
    "paper_attention_asymptote",
    "paper_attention_sums",
    "plateau",
    "saturation_onset",
    "saturation_profile",
    "scalar_heads",
]


def output_certificate(
    unembed: Vector, gamma: Vector, beta: Vector, bias: Scalar
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Centre c and half-width r of the output of a model that ends LayerNorm -> linear.

    |y - c| < r for every output y, whatever the prompt.

    c = w.beta + b and r = sqrt(d_model) |center(w * gamma)|, since a normalised vector has mean 0
    and norm below sqrt(d_model). It cannot be improved: y tends to c + r for a residual stream k
    center(w * gamma), k to infinity.

    Source: makes quantitative Naim & Asher (2025), Proposition 3. unembed is w, bias b, gamma their
    rho.

    Args:
        unembed: read-out weights of one output channel.
        gamma: scale of the last LayerNorm.
        beta: shift of the last LayerNorm.
        bias: of the read-out.

    Returns:
        (c, r), in the units of the output.

    Example:
        >>> import torch
        >>> w, gamma = torch.arange(6.).cos().double(), torch.arange(6.).exp().double()
        >>> beta = torch.arange(6.).double()
        >>> c, r = output_certificate(w, gamma, beta, bias=.5)
        >>> largest = torch.nn.functional.layer_norm(1e6 * w * gamma, (6,), gamma, beta) @ w + .5
        >>> torch.allclose(largest, c + r)
        True
    """
    unembed = as_float64(unembed)
    gamma = as_float64(gamma)
    c = unembed @ as_float64(beta) + as_float64(bias)
    direction = _center(unembed * gamma)
    r = math.sqrt(unembed.numel()) * direction.norm()
    return c, r


def plateau(
    embed: Vector, unembed: Vector, gamma: Vector, beta: Vector, bias: Scalar
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Boundary values f(+infinity) and f(-infinity) of a pre-LN model on scalar prompts.

    The query alone goes far.

    f(+-infinity) = w . (+-gamma * center(W) / std(W) + beta) + b. The blocks read normalised, hence
    bounded, vectors, so the residual stream is x W + O(1) at any depth and in any context, and f
    approaches its limit like 1/|x|. Not for post-LN models of two or more layers, nor when the
    whole context or the functions are scaled.

    Source: Naim & Asher (2025), Propositions 3 and 6, carried over from one post-LN layer to pre-LN
    of any depth. embed is W, unembed w, bias b, gamma their rho.

    Args:
        embed: read-in of the scalar token.
        unembed: read-out weights of one output channel.
        gamma: scale of the final LayerNorm.
        beta: shift of the final LayerNorm.
        bias: of the read-out.

    Returns:
        (limit at +infinity, limit at -infinity), in the units of the output. Their mean is c of
        `output_certificate`.

    Raises:
        ValueError: embed is constant over d_model, so that centring removes x.

    Example:
        >>> import torch
        >>> W, w = torch.arange(6.).cos().double(), torch.arange(6.).sin().double()
        >>> one = torch.ones(6).double()
        >>> f = lambda x: torch.nn.functional.layer_norm(x * W + w.exp(), (6,), one, w) @ w + .5
        >>> torch.allclose(torch.stack(plateau(W, w, one, w, .5)), torch.stack([f(1e9), f(-1e9)]))
        True
    """
    centered, rms = _centered_slope(embed, "embed")
    unembed = as_float64(unembed)
    c = unembed @ as_float64(beta) + as_float64(bias)
    normalised = as_float64(gamma) * centered / rms
    swing = unembed @ normalised
    return c + swing, c - swing


def layernorm_plateau(slope: Vector, gamma: Vector, beta: Vector, direction: int = 1) -> Vector:
    """The limit of LayerNorm(x slope + intercept) as x goes to +infinity or to -infinity.

    It is direction gamma * v / sqrt(mean v^2) + beta, v = center(slope).

    It depends neither on the intercept nor on eps, and is odd about beta. It exists because
    numerator and standard deviation both grow like |x|. The paper prints Var -> c |x|, with which
    LayerNorm would still grow like sqrt(|x|) and have no boundary value: correct is Var ~ c x^2.

    Source: Naim & Asher (2025), Appendix G.1, Proposition 6, for one post-LN layer; slope is
    W + sum of zeta_h as `attention_asymptote` returns it, gamma their rho.

    Args:
        slope: of the LayerNorm's input in x.
        gamma: scale of the LayerNorm.
        beta: shift of the LayerNorm.
        direction: +1 or -1, the sign of x.

    Raises:
        ValueError: slope is constant over d_model, or direction is not +1 or -1.

    Example:
        >>> import torch
        >>> slope, beta = torch.arange(5.).cos().double(), torch.arange(5.).double()
        >>> far = torch.nn.functional.layer_norm(-1e9 * slope + beta.exp(), (5,), beta + 1, beta)
        >>> torch.allclose(layernorm_plateau(slope, beta + 1, beta, direction=-1), far)
        True
    """
    check_direction(direction)
    centered, rms = _centered_slope(slope, "slope")
    return direction * as_float64(gamma) * centered / rms + as_float64(beta)


def layernorm_correction(slope: Vector, intercept: Vector, gamma: Vector) -> Vector:
    """The k in LayerNorm(x slope + intercept) = plateau + k / |x| + O(1 / x^2).

    The intercept is the one of the direction in which x grows.

    k = gamma * (B - v (v.B) / |v|^2) / sqrt(mean v^2), v = center(slope), B = center(intercept). In
    one layer the context enters only here, through B, so the spread of outputs over contexts dies
    like 1/|x|; eps enters at 1 / x^2.

    Source: refines Naim & Asher (2025), Appendix G.1, Proposition 6. slope and intercept are as
    `attention_asymptote` returns them (their A, plus W, and B), gamma their rho.

    Args:
        slope: of the LayerNorm's input in x.
        intercept: of the LayerNorm's input; attention may give it another value in each direction.
        gamma: scale of the LayerNorm.

    Returns:
        k, in the units of x times those of gamma.

    Raises:
        ValueError: slope is constant over d_model.

    Example:
        >>> import torch
        >>> slope, intercept, one = torch.arange(5.).cos(), torch.arange(5.).exp(), torch.ones(5)
        >>> direct = torch.nn.functional.layer_norm(1e6 * slope.double() + intercept, (5,))
        >>> first_order = layernorm_plateau(slope, one, 0 * one)
        >>> first_order += layernorm_correction(slope, intercept, one) / 1e6
        >>> torch.allclose(direct, first_order, rtol=0, atol=1e-8)
        True
    """
    centered, rms = _centered_slope(slope, "slope")
    centered_intercept = _center(as_float64(intercept))
    across = _perpendicular(centered_intercept, centered)
    return as_float64(gamma) * across / rms


class FarNorm(NamedTuple):
    """What `layernorm_far` returns: LayerNorm is limit + correction / |x| + O(1 / x^2)."""

    limit: Vector
    correction: Vector


def layernorm_far(
    slope: Vector,
    intercept: Vector,
    gamma: Vector,
    beta: Vector,
    eps: float = 1e-5,
    direction: int = 1,
) -> FarNorm:
    """LayerNorm(x slope + intercept) far out, whatever the slope.

    What is returned is its limit, and what is left of the intercept.

    Where the centred slope is not 0, these are `layernorm_plateau`, the same for every intercept
    and so in every context, and `layernorm_correction`. Where it is 0 centring removes x, the
    output is LayerNorm(intercept) at every x, and the context, which an intercept knows, stays in
    full.

    Source: completes Naim & Asher (2025), Appendix G.1, Proposition 6, which is silent on a slope
    that is constant over the width. slope and intercept are as `attention_asymptote` returns them,
    gamma their rho, beta their epsilon.

    Args:
        slope: of the LayerNorm's input in x.
        intercept: of the LayerNorm's input; attention may give it another value in each direction.
        gamma: scale of the LayerNorm.
        beta: shift of the LayerNorm.
        eps: of the LayerNorm; it matters only where the slope is constant.
        direction: +1 or -1, the sign of x.

    Returns:
        (limit, correction).

    Raises:
        ValueError: direction is not +1 or -1.

    Example:
        >>> import torch
        >>> gamma, beta, intercept = torch.arange(15.).reshape(3, 5).sin().double()
        >>> far = torch.nn.functional.layer_norm(3. + intercept, (5,), gamma, beta)
        >>> torch.allclose(layernorm_far(torch.ones(5), intercept, gamma, beta).limit, far)
        True
    """
    check_direction(direction)
    if _is_constant(slope):
        gamma = as_float64(gamma)
        centered = _center(as_float64(intercept))
        variance = centered.square().mean()
        limit = gamma * centered / (variance + eps).sqrt() + as_float64(beta)
        return FarNorm(limit, 0 * gamma)
    limit = layernorm_plateau(slope, gamma, beta, direction)
    correction = layernorm_correction(slope, intercept, gamma)
    return FarNorm(limit, correction)


def layernorm_onset(
    slope: Vector, eps: float, intercept: Vector | None = None
) -> Float[Tensor, ""]:
    """The scale x0 at which LayerNorm(x slope + intercept) turns from growing like x to saturating.

    x0 = sqrt((mean b^2 + eps) / mean v^2), v = center(slope), b the part of center(intercept)
    perpendicular to v. Without an intercept, eps alone delays saturation. The parallel part t v
    only shifts x: the profile holds in x + t.

    Source: derived here from the LayerNorm of Naim & Asher (2025), Appendix G.1, Proposition 6, eps
    in the root.

    Args:
        slope: of the LayerNorm's input in x.
        eps: of the LayerNorm; torch's default is 1e-5.
        intercept: of the LayerNorm's input; None is zero.

    Returns:
        x0, in the units of x; see `saturation_profile` and `saturation_onset`.

    Raises:
        ValueError: slope is constant over d_model: nothing grows, nothing saturates.

    Example:
        >>> import torch
        >>> slope = torch.arange(5.).cos().double()
        >>> far = layernorm_onset(slope, eps=.1) * slope
        >>> at_onset = torch.nn.functional.layer_norm(far, (5,), eps=.1)
        >>> plateau_ = layernorm_plateau(slope, torch.ones(5), torch.zeros(5))
        >>> torch.allclose(at_onset, plateau_ / 2 ** .5)
        True
    """
    centered, rms = _centered_slope(slope, "slope")
    if intercept is None:
        return math.sqrt(eps) / rms
    centered_intercept = _center(as_float64(intercept))
    across = _perpendicular(centered_intercept, centered)
    variance = across.square().mean()
    return (variance + eps).sqrt() / rms


class SaturationProfile(NamedTuple):
    """What `saturation_profile` returns, each with the shape of its x."""

    level: Float[Tensor, "*query"]
    output_growth: Float[Tensor, "*query"]
    scale_growth: Float[Tensor, "*query"]


def saturation_profile(x: Float[Tensor, "*query"] | float | int, x0: Scalar) -> SaturationProfile:
    """How far LayerNorm(x v + b), v.b = 0, has saturated at x.

    What is returned is the level reached, and how fast output and scale grow.

    With r = x / x0: level = r / sqrt(1 + r^2) is the output along v, without beta's share, over its
    limit. With growth exponents E_g = d log|g| / d log|x|, that output f = N / sigma has
    E_f = 1 / (1 + r^2), the LayerNorm's scale sigma has E_sigma = r^2 / (1 + r^2); always
    E_f = E_N - E_sigma, and here E_N = 1. A plateau with E_f ~ 0 and E_sigma ~ 1 is LayerNorm's
    doing; one where E_sigma ~ 0 at every LayerNorm is not.

    Source: derived here from the LayerNorm of Naim & Asher (2025), Appendix G.1, Proposition 6.

    Args:
        x: where to evaluate, any shape.
        x0: from `layernorm_onset`.

    Returns:
        level (with the sign of x), output_growth E_f, scale_growth E_sigma: pure numbers.

    Example:
        >>> import torch
        >>> v, b = torch.tensor([[1., -1., 1., -1.], [2., 2., -2., -2.]]).double()
        >>> x = torch.tensor([.1, 3., 50., -9.]).double()
        >>> along_v = torch.nn.functional.layer_norm(x[:, None] * v + b, (4,)) @ v / 4
        >>> torch.allclose(saturation_profile(x, layernorm_onset(v, 1e-5, b)).level, along_v)
        True
    """
    x = as_float64(x)
    x0 = as_float64(x0)
    scale = torch.hypot(x, x0)
    level = x / scale
    missing = x0 / scale
    return SaturationProfile(level, output_growth=missing.square(), scale_growth=level.square())


def saturation_onset(x0: Scalar, tolerance: float = 0.05) -> Float[Tensor, ""]:
    """The |x| beyond which the level of `saturation_profile` stays within the tolerance of 1.

    It is x0 l / sqrt(1 - l^2), l = 1 - tolerance: 3.04 x0 at the default.

    Source: derived here; the inverse of `saturation_profile`.

    Args:
        x0: from `layernorm_onset`.
        tolerance: the fraction of the plateau that may be missing.

    Returns:
        |x|, in the units of x0.

    Raises:
        ValueError: tolerance is not between 0 and 1.

    Example:
        >>> import torch
        >>> at_onset = saturation_profile(saturation_onset(7.), 7.)
        >>> torch.allclose(at_onset.level, torch.tensor(.95).double())
        True
    """
    if not 0 < tolerance < 1:
        raise ValueError(
            f"tolerance is a fraction of the plateau and must lie between 0 and 1, got {tolerance}"
        )
    level = 1 - tolerance
    return as_float64(x0) * level / math.sqrt(1 - level**2)


def _center(vector: Tensor) -> Tensor:
    return vector - vector.mean()


def _perpendicular(vector: Tensor, direction: Tensor) -> Tensor:
    along = direction @ vector
    square = direction.square().sum()
    return vector - direction * along / square


def _centered_slope(slope: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The centred slope and its root mean square: what LayerNorm keeps of `x * slope` far out."""
    slope = as_float64(slope)
    if _is_constant(slope):
        raise ValueError(
            f"{name} is constant over its {slope.numel()} coordinates: LayerNorm's centring "
            "removes x, so the limit depends on the context and has no closed form. Expected a "
            f"{name} that varies over d_model; measure the limit instead."
        )
    centered = _center(slope)
    rms = centered.square().mean().sqrt()
    return centered, rms


def _is_constant(vector: Tensor) -> bool:
    vector = as_float64(vector)
    # Relative to the vector's own size: subtracting the mean of a constant one may leave rounding
    # errors, not zeros.
    varying = _center(vector)
    return bool(varying.norm() <= 1e-12 * vector.norm())
