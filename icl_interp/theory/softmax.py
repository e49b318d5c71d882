"""When softmax is a hardmax and when it is uniform: bounds and margins.

Naim & Asher (2025), G.2, leave them open.

This is one part of the study `limits`, which re-exports it.

Everything is computed and returned in float64. Logarithms are natural, entropies in nats; scores
are what softmax receives, scaling and temperature included.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.theory.errata import Compared, Erratum

__all__ = ["entropy_deficit_bound", "hardmax_margin", "max_weight_bound", "necessary_margin"]

Scalar = float | int | Float[Tensor, ""]
Vector = Float[Tensor, " d_model"]


def as_float64(value: Tensor | float | int) -> Tensor:
    """The value as a float64 tensor where it lies: at |x| = 1e6 float32 has lost the intercept."""
    return torch.as_tensor(value, dtype=torch.float64)


def check_direction(direction: int) -> None:
    """Raise ValueError unless direction is +1 or -1, the sign of x."""
    if direction not in (1, -1):
        raise ValueError(
            f"direction must be +1 (x to +infinity) or -1 (x to -infinity), got {direction!r}"
        )


def max_weight_bound(
    n: int, score_range: Float[Tensor, "*batch"] | float | int
) -> Float[Tensor, "*batch"]:
    """Dispersion: no softmax weight over n scores within a range R exceeds 1 / (1 + (n - 1) e^-R).

    To keep a weight p, e^R >= (n - 1) p / (1 - p): scores must grow like log n. Dispersed is not
    uniform: independent scores give an exponentially tilted average of the context, for any n.

    Source: the true part of Naim & Asher (2025), Appendix G.2 ("when the number of tokens is
    large").

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
    smallest = torch.exp(-as_float64(score_range))
    return 1 / (1 + (n - 1) * smallest)


def entropy_deficit_bound(
    score_range: Float[Tensor, "*batch"] | float | int,
) -> Float[Tensor, "*batch"]:
    """A bound on the entropy deficit log n - H of softmax, for scores within a range R.

    The deficit is at most min(R, R^2 / 8), for every n.

    The total variation to uniform is then at most sqrt(deficit / 2), and a head's output differs
    from the plain average by at most that times the range of its values. H / log n decides nothing:
    it tends to 1 for any bounded scores.

    Source: replaces Naim & Asher (2025), Section 6 and Appendix G.2, where uniform attention is
    said to come with many tokens "similar in magnitude": neither number nor size decides, the gaps
    do (softmax ignores a common shift).

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
    """The score margin that suffices for weight 1 - delta on the arg-max set among n keys.

    It is log((n - 1) (1 - delta) / delta).

    It grows like log n, and is needed in full when the other n - 1 scores tie. See
    `necessary_margin` for the least that can do.

    Source: makes quantitative Naim & Asher (2025), Appendix G.2 ("when there is a significant gap
    between values").

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
    ratio = (n - 1) * (1 - delta) / delta
    return as_float64(math.log(ratio))


def necessary_margin(k: int = 1, delta: float = 0.05) -> Float[Tensor, ""]:
    """The score margin below which k tied keys cannot hold weight 1 - delta in all.

    It is log((1 - delta) / (k delta)).

    This margin is enough against a single other key. Negative, and no condition, when
    k > (1 - delta) / delta.

    Source: makes quantitative Naim & Asher (2025), Appendix G.2 ("when there is a significant gap
    between values").

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
    ratio = (1 - delta) / (k * delta)
    return as_float64(math.log(ratio))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(
            f"delta, the attention mass off the arg-max set, must lie between 0 and 1, got {delta}"
        )


def _largest_of_large_values() -> float:
    """The largest weight of numbers with the gaps of Table 4's first vector and a mean of 1000."""
    values = torch.tensor([1000.0, 1000.02, 1000.03, 1000.05, 1000.1], dtype=torch.float64)
    weights = values.softmax(0)
    return float(weights.max())


NAIM = "Naim & Asher (2025)"
ERRATA = (
    Erratum(
        NAIM,
        "Appendix G.2, caption of Table 4",
        "For large values softmax performs like hardmax.",
        "For large gaps: softmax does not see what is added to all values. The numbers of the "
        "table are right; its vectors with large values are those with large gaps.",
        (hardmax_margin, necessary_margin),
        "largest weight of 1000, 1000.02, 1000.03, 1000.05, 1000.1",
        lambda: Compared(1.0, _largest_of_large_values()),
    ),
    Erratum(
        NAIM,
        "Appendix G.2",
        "For many tokens softmax approaches uniform averaging, which does not depend on the "
        "context.",
        "Only the largest weight goes to 0. Independent scores give an average of the context "
        "that is tilted by the exponential of the scores, for every number of tokens.",
        (max_weight_bound, entropy_deficit_bound),
    ),
)
