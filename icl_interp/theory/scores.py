"""What each score function makes of scores that grow, and of ever more keys.

Naim & Asher (2025), section 6, propose to revise the scoring function. Softmax does two things to a
far or a long prompt: hardmax and dispersion. Here are closed forms and limits of both, for softmax
and for what may replace it, over n visible keys of scores s:

* "softmax": exp(s) / sum exp(s).
* "scaled_softmax": softmax of s log n. Chiang & Cholak (2022); Nakanishi (2025) with a learned
  factor, here in s.
* "entmax": of order 1.5, max(s / 2 - tau, 0)^2 adding up to 1. Peters, Niculae & Martins (2019).
* "sigmoid": 1 / (1 + n exp(-s)). Ramapuram et al. (2024).
* "relu": max(s, 0) / n. Wortsman et al. (2023).

The first three depend on differences of scores only and add up to 1; the last two weigh each key by
itself. Everything is computed and returned in float64; scores are what the score function receives.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.softmax import Scalar, as_float64

__all__ = [
    "SCORE_FUNCTIONS",
    "dispersion_exponent",
    "entmax_margin",
    "far_weights",
    "largest_weight",
    "lasting_weight",
    "total_weight",
]

SCORE_FUNCTIONS = ("softmax", "scaled_softmax", "entmax", "sigmoid", "relu")
_SHARED = ("softmax", "scaled_softmax", "entmax")  # a weight of 1 in all, which keys compete for


def far_weights(name: str, scores: Float[Tensor, "*query key"]) -> Float[Tensor, "*query key"]:
    """The limit of the weights of t * scores as t goes to infinity: what attention becomes far out.

    Softmax, scaled softmax and entmax share 1 equally among the keys of the largest score (hardmax;
    entmax from a finite t on, see `entmax_margin`). Sigmoid is a step: 1 for every key that scores
    above 0, none for one below, and 1 / (n + 1) at 0, so that all keys on one side count. ReLU has
    no limit: its weights grow like t where s > 0.

    Source: derived here; for softmax Naim & Asher (2025), Appendix G.2. Definitions: see the
    module.

    Args:
        name: one of `SCORE_FUNCTIONS`.
        scores: of the visible keys. Far out a query's scores are t times these and a bounded part,
            which decides only between keys that tie here.

    Returns:
        Weights of the same shape; infinity where they grow without limit.

    Raises:
        ValueError: no such score function.

    Example:
        >>> import torch
        >>> scores = torch.tensor([1., -2., 1., .5]).double()
        >>> torch.allclose(far_weights("softmax", scores), torch.softmax(1e3 * scores, dim=0))
        True
        >>> sigmoids = torch.sigmoid(1e3 * scores - torch.tensor(4.).log())
        >>> torch.allclose(far_weights("sigmoid", scores), sigmoids)
        True
    """
    _check(name)
    scores = as_float64(scores)
    if name in _SHARED:
        best = (scores == scores.amax(-1, keepdim=True)).double()
        return best / best.sum(-1, keepdim=True)
    positive = (scores > 0).double()
    if name == "relu":
        return positive.masked_fill(scores > 0, math.inf)
    return positive.masked_fill(scores == 0, 1 / (scores.shape[-1] + 1))


def entmax_margin(k: int = 1) -> Float[Tensor, ""]:
    """The score margin 2 / sqrt(k) at which entmax of order 1.5 is exactly hardmax.

    k tied keys share all weight.

    The margin is necessary and sufficient, and does not depend on the number of keys; softmax needs
    a margin that grows like log n and never gets there (`softmax.hardmax_margin`).

    Source: derived here from Peters, Niculae & Martins (2019), the definition of 1.5-entmax: with k
    keys at weight 1/k its threshold tau lies 1 / sqrt(k) below their halved score, and whoever
    scores less than tau weighs nothing.

    Args:
        k: size of the arg-max set.

    Returns:
        The largest score minus the next distinct one.

    Raises:
        ValueError: k is below 1.

    Example:
        >>> import torch
        >>> tau = -entmax_margin(k=3) / 2  # three keys that score 0 have weights (0 - tau)^2, sum 1
        >>> torch.allclose(3 * (0 - tau) ** 2, torch.tensor(1.).double())
        True
    """
    if k < 1:
        raise ValueError(f"k is the size of the arg-max set and must be at least 1, got {k}")
    return as_float64(2 / math.sqrt(k))


def largest_weight(name: str, n: int, top: Scalar, rest: Scalar = 0.0) -> Float[Tensor, ""]:
    """The most that one of n keys can weigh when all scores lie in [rest, top].

    One key at top and n - 1 keys at rest attain it.

    With g = top - rest and h = min(g / 2, 1):

    * softmax: 1 / (1 + (n - 1) e^-g), like e^g / n;
    * scaled_softmax: 1 / (1 + (n - 1) n^-g), like n^(g - 1) for g < 1 and towards 1 for g > 1;
    * entmax: (h + u)^2 with u = (sqrt(n (1 - h^2) + h^2) - h) / n, which falls to h^2 and not to 0;
      it is 1 from g = 2;
    * sigmoid: 1 / (1 + n e^-top), and relu: max(top, 0) / n, whatever the rest.

    Source: derived here; u solves (h + u)^2 + (n - 1) u^2 = 1, the weights of `entmax` whose roots
    differ by h. Definitions: see the module. For softmax it is `softmax.max_weight_bound` with
    score range g.

    Args:
        name: one of `SCORE_FUNCTIONS`.
        n: number of visible keys.
        top: the largest score.
        rest: the smallest score.

    Returns:
        The weight.

    Raises:
        ValueError: no such score function, n below 1, or rest above top.

    Example:
        >>> import torch
        >>> scores = torch.tensor([.8, 0., 0., 0., 0.]).double()
        >>> torch.allclose(largest_weight("softmax", 5, top=.8), torch.softmax(scores, dim=0)[0])
        True
        >>> p = largest_weight("entmax", 5, top=.8)
        >>> torch.allclose(p + 4 * (p.sqrt() - .4) ** 2, torch.tensor(1.).double())
        True
    """
    gap = _gap(name, top, rest)
    if n < 1:
        raise ValueError(f"n counts the visible keys and must be at least 1, got {n}")
    count = float(n)  # of any size: an integer past 2^63 has no place in a tensor
    if name == "relu":
        return as_float64(top).clamp(min=0) / count
    if name == "sigmoid":
        return 1 / (1 + count * (-as_float64(top)).exp())
    if name == "entmax":
        h = (gap / 2).clamp(max=1)
        return (h + ((count * (1 - h.square()) + h.square()).sqrt() - h) / count).square()
    return 1 / (
        1 + (count - 1) * (-gap * (math.log(count) if name == "scaled_softmax" else 1)).exp()
    )


def lasting_weight(name: str, top: Scalar, rest: Scalar = 0.0) -> Float[Tensor, ""]:
    """The limit of `largest_weight` for ever more keys.

    It is what is left of a key's weight when attention has dispersed.

    The limit is 0 for softmax, sigmoid and relu, whatever the (bounded) scores. Scaled softmax: 0,
    1/2 or 1 for a gap top - rest below, at or above 1. Entmax: min(gap / 2, 1)^2.

    Source: limits of `largest_weight`. That softmax disperses: Chiang & Cholak (2022), Nakanishi
    (2025).

    Args:
        name: one of `SCORE_FUNCTIONS`.
        top: the largest score.
        rest: the smallest score.

    Returns:
        The weight.

    Raises:
        ValueError: no such score function, or rest above top.

    Example:
        >>> import torch
        >>> entmax = largest_weight("entmax", 10**12, top=.8)
        >>> torch.allclose(lasting_weight("entmax", top=.8), entmax)
        True
        >>> scaled = largest_weight("scaled_softmax", 10**12, top=1.5)
        >>> torch.allclose(lasting_weight("scaled_softmax", top=1.5), scaled)
        True
    """
    gap = _gap(name, top, rest)
    if name == "entmax":
        return (gap / 2).clamp(max=1).square()
    return gap.sub(1).sign().add(1).div(2) if name == "scaled_softmax" else torch.zeros_like(gap)


def dispersion_exponent(name: str, top: Scalar, rest: Scalar = 0.0) -> Float[Tensor, ""]:
    """The a in `largest_weight` ~ n^-a for many keys: 1 is dispersion like softmax's, 0 is none.

    Softmax and sigmoid 1; relu 1 where a score is positive (else all weights are 0 and there is no
    exponent: NaN); scaled softmax max(1 - gap, 0); entmax 0 for any gap, and 1 where all scores are
    equal.

    Source: from `largest_weight`.

    Args:
        name: one of `SCORE_FUNCTIONS`.
        top: the largest score.
        rest: the smallest score.

    Returns:
        The exponent.

    Raises:
        ValueError: no such score function, or rest above top.

    Example:
        >>> import torch
        >>> few, many = (largest_weight("scaled_softmax", n, top=.3) for n in (10**12, 10**15))
        >>> ratio = few / many
        >>> torch.allclose(ratio.log10() / 3, dispersion_exponent("scaled_softmax", top=.3))
        True
    """
    gap = _gap(name, top, rest)
    if name == "scaled_softmax":
        return (1 - gap).clamp(min=0)
    if name == "entmax":
        return (gap == 0).double()
    one = torch.ones_like(gap)
    return one.masked_fill(as_float64(top) <= 0, math.nan) if name == "relu" else one


def total_weight(name: str, n: int, score: Scalar) -> Float[Tensor, ""]:
    """The sum of the weights of n keys that all have this score.

    It is n / (1 + n e^-s) for sigmoid, max(s, 0) for relu, and 1 for the others.

    Sigmoid's sum tends to e^s as keys grow in number: a head can say "nothing here" (s far below 0,
    or relu's s <= 0), which softmax cannot. It can also exceed 1: what it writes is no mixture of
    values, and not bounded by them.

    Source: Ramapuram et al. (2024) choose the bias -log n so that it stays of order 1; relu's
    division by n likewise, Wortsman et al. (2023).

    Args:
        name: one of `SCORE_FUNCTIONS`.
        n: number of visible keys.
        score: of every key.

    Returns:
        The sum.

    Raises:
        ValueError: no such score function, or n below 1.

    Example:
        >>> import torch
        >>> total = total_weight("sigmoid", 10**12, score=.7)
        >>> torch.allclose(total, torch.tensor(.7).double().exp())
        True
        >>> [float(total_weight(name, 7, score=0.)) for name in SCORE_FUNCTIONS]
        [1.0, 1.0, 1.0, 0.875, 0.0]
    """
    weight = largest_weight(name, n, score, score) * float(n)
    return torch.ones_like(weight) if name in _SHARED else weight


def _gap(name: str, top: Scalar, rest: Scalar) -> Tensor:
    """top - rest, both and the name checked."""
    _check(name)
    gap = as_float64(top) - as_float64(rest)
    if (gap < 0).any():
        raise ValueError(
            f"top is the largest score and rest the smallest, but top - rest = {float(gap):g}"
        )
    return gap


def _check(name: str) -> None:
    if name not in SCORE_FUNCTIONS:
        raise ValueError(
            f"unknown score function {name!r}: expected one of {', '.join(SCORE_FUNCTIONS)}"
        )
