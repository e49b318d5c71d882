"""Numbers that are asked after every state of a prompt: where they lie at the worst of these."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from icl_interp.analyses.criterion import Estimate
from icl_interp.resampling import simultaneous

LEAST = 1e-12  # what is smaller is rounding
PerUnit = Float[np.ndarray, "unit point *number"]


def worst(
    statistic: Callable[..., np.ndarray],
    *per_unit: PerUnit,
    smallest: bool = False,
    positive: bool = False,
) -> Estimate:
    """The largest of a statistic over points, or the smallest, with its interval.

    Intervals of all points hold at once (`simultaneous`), so the largest of their ends hold the
    largest value. The estimate has no name yet: a condition gives it one.

    Args:
        statistic: takes means over units, `(draw, point, *number)`, and returns `(draw, point)`.
        per_unit: arrays whose first axis runs over units, and the second over points.
        smallest: whether the worst point is the one with the smallest value.
        positive: makes the intervals on the logarithm.
    """

    def logarithm(*means: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(statistic(*means), LEAST))

    ends = simultaneous(logarithm if positive else statistic, *per_unit)  # at every point
    if positive:
        ends = tuple(np.exp(end) for end in ends)
    extreme = np.min if smallest else np.max
    value, low, high = (float(extreme(_rounded(end))) for end in ends)
    return Estimate("", value, low, high, positive=positive)


def _rounded(numbers: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """What is rounding is 0."""
    return np.where(np.abs(numbers) <= LEAST * (1 + 1e-9), 0.0, numbers)
