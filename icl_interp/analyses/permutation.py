"""Two groups of few numbers: the exact permutation interval of the difference of their means.

Claims about a kind of training compare runs that differ by their seed, and there are few of them: a
bootstrap of five numbers covers too little, and pairs of seeds are not independent. The permutation
test asks how many of the ways to split all numbers into groups of these sizes give a difference at
least as large, and the interval holds every shift that the test does not reject. No shape is
assumed.
"""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
from jaxtyping import Float

from icl_interp.errors import InputError
from icl_interp.resampling import EXTREMES, LEVEL, N_TAILS, Interval

MOST = 200_000  # splits that are listed: 10 against 10, say


def difference(
    first: Float[np.ndarray, " a"], second: Float[np.ndarray, " b"], level: float = LEVEL
) -> Interval:
    """Mean of the first group less that of the second, with its exact permutation interval.

    Both groups are taken to be draws of one law but for a shift d. Of all N splits into groups of
    these sizes the one that exchanges x_I and y_J, as many of each, makes the difference of (x - d,
    y) larger if and only if d > mean(x_I) - mean(y_J). So the test of d with equal tails rejects
    below the c-th smallest and above the c-th largest of these numbers, with c = floor(N
    (1 - level) / 2): these are the ends. Where c is 0 no split is rare enough and the ends are
    infinite: 3 against 3 have 20 splits, so two sides have p >= 0.10 whatever the numbers are. 5
    against 5 (252 splits, c = 6) cover 1 - 12 / 252 = 95.2 % for laws without ties, 4 against 4
    (70, c = 1) 97.1 %. Groups that differ in spread, too, are covered about as often, not exactly.

    Source: Tritchler (1984), On inverting permutation tests; Fisher (1935), The design of
    experiments, section 21.

    Args:
        first: finite numbers, one a run.
        second: the same of the other group.
        level: of confidence, below 1.

    Returns:
        The interval with its standard error (Welch's) and its tails.

    Raises:
        InputError: an empty group, a number that is not finite, or too many splits.

    >>> x, y = np.array([3.0, 4.0, 5.0, 6.0]), np.array([0.0, 0.5, 1.0, 2.0])
    >>> found = difference(x, y)
    >>> found.value, found.low, found.high  # 4 against 4: the extreme single exchanges
    (3.625, 1.0, 6.0)
    >>> difference(x[:3], y[:3]).low
    -inf
    """
    exchanged = _exchanged(first, second)
    n_splits = len(exchanged) + 1
    tails = tuple(_ends(exchanged, n_splits, 1 - (1 - level) / k) for k in range(1, N_TAILS + 1))
    extremes = tuple(_ends(exchanged, n_splits, 1 - 2 * chance) for chance in EXTREMES)
    value, se = float(first.mean() - second.mean()), _standard_error(first, second)
    return Interval(value, *tails[0], se, tails, extremes=extremes)


def ratio(
    first: Float[np.ndarray, " a"], second: Float[np.ndarray, " b"], level: float = LEVEL
) -> Interval:
    """Geometric mean of the first group over that of the second: `difference` of logarithms, as a factor.

    Raises:
        InputError: a number that is not positive, or as for `difference`.

    >>> found = ratio(np.array([1.0, 1.1, 1.2, 1.3]), np.array([2.0, 2.2, 2.4, 2.6]))
    >>> round(found.value, 9), round(found.low, 3), round(found.high, 3)
    (0.5, 0.385, 0.65)
    """
    if not (np.asarray(first) > 0).all() or not (np.asarray(second) > 0).all():
        raise InputError("a ratio of groups needs positive numbers")
    one = difference(np.log(first), np.log(second), level)
    return replace(one.through(math.exp, math.exp(one.value) * one.se), positive=True)


def p_value(
    first: Float[np.ndarray, " a"], second: Float[np.ndarray, " b"], shift: float = 0.0
) -> float:
    """Two-sided p of the exact permutation test that the groups differ by a shift: twice the smaller tail, at most 1.

    `difference` at level 1 - p holds exactly the shifts whose p is larger.

    >>> p_value(np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))  # the smallest that 3 against 3 can have
    0.1
    """
    exchanged = _exchanged(first, second)
    tails = [
        1 + int(np.count_nonzero(exchanged <= shift)),
        1 + int(np.count_nonzero(exchanged >= shift)),
    ]
    return min(1.0, 2 * min(tails) / (len(exchanged) + 1))


def _exchanged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """mean(x_I) - mean(y_J) of all exchanges of as many of each, in ascending order.

    The identity is none.
    """
    n, m = len(first), len(second)
    if not n or not m or not np.isfinite([*first, *second]).all():
        raise InputError(
            "a permutation interval needs two groups of finite numbers, neither of them empty"
        )
    if math.comb(n + m, n) > MOST:
        raise InputError(
            f"{n} against {m} numbers have more than {MOST} splits: compare at most 10 against 10"
        )
    found = []
    for k in range(1, min(n, m) + 1):
        x, y = (np.array([np.mean(c) for c in combinations(group, k)]) for group in (first, second))
        found.append(np.subtract.outer(x, y).ravel())
    return np.sort(np.concatenate(found))


def _ends(exchanged: np.ndarray, n_splits: int, level: float) -> tuple[float, float]:
    # A whole number that rounding made a little smaller counts as reached.
    c = math.floor(n_splits * (1 - level) / 2 + 1e-9)
    return (float(exchanged[c - 1]), float(exchanged[-c])) if c else (-math.inf, math.inf)


def _standard_error(first: np.ndarray, second: np.ndarray) -> float:
    """Welch's: the groups' own spreads. NaN where a group has one number, which has no spread."""
    if min(len(first), len(second)) < 2:
        return math.nan
    return math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
