"""Quantiles so far out that few draws lie beyond them, or none."""

import math

import numpy as np
from jaxtyping import Float

# Share of the draws from which the law of the others is told, for ends that few draws or none lie
# beyond.
TAIL = 0.05
FEW = 25  # draws: an end with fewer beyond it comes from that law
# Shapes of that law, at least and at most: others are an accident of the draws.
SHAPES = (-0.5, 0.5)
ALIKE = 1e-13  # of their size: excesses below are rounding


def far_quantile(draws: Float[np.ndarray, " draw"], q: float) -> float:
    """A quantile that few draws, or none, lie beyond.

    It comes from a generalised Pareto law that is fitted to the outermost 5 % of the draws.

    Where at least `FEW` draws lie beyond it, it is one of the draws.

    Source: Pickands (1975), Statistical inference using extreme order statistics (the law of
    excesses over a high threshold); Hosking and Wallis (1987), Parameter and quantile estimation
    for the generalized Pareto distribution (its probability-weighted moments: shape 2 - a / (a - 2
    b), scale 2 a b / (a - 2 b), with a the mean excess and b the mean of the excesses weighted by
    the share of larger ones).

    >>> # An exponential law, whose quantile at 1 - e is -log(e).
    >>> draws = -np.log((np.arange(2000) + 0.5) / 2000)
    >>> round(far_quantile(draws, 1 - 1e-4) / -math.log(1e-4), 1)
    1.0
    """
    if q < 0.5:
        return -far_quantile(-draws, 1 - q)
    n_draws = len(draws)
    n_tail = int(TAIL * n_draws)
    beyond = 1 - q
    if beyond * n_draws >= FEW or not np.isfinite(draws).all():
        return float(np.quantile(draws, q, method="nearest"))
    outermost = np.sort(draws)[-n_tail - 1 :]
    threshold = float(outermost[0])
    excesses = outermost[1:] - outermost[0]
    mean = float(excesses.mean())
    if mean <= ALIKE * abs(threshold):  # the outermost draws are all alike
        return threshold
    # The law of the excesses: its shape and scale are those that give two of its means.
    share_of_larger = np.arange(n_tail - 1, -1, -1) / (n_tail - 1)
    weighted = float((excesses * share_of_larger).mean())
    unlike = mean - 2 * weighted  # from 0, where all excesses are one number
    if unlike <= ALIKE * mean:
        return threshold + mean
    shape = float(np.clip(2 - mean / unlike, *SHAPES))
    scale = mean * (1 - shape)  # the mean of the law is scale / (1 - shape)
    ratio = TAIL / beyond
    if abs(shape) < 1e-9:
        grown = math.log(ratio)
    else:
        grown = (ratio**shape - 1) / shape
    return threshold + scale * grown
