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
    tails = []
    for k in range(1, N_TAILS + 1):
        tails.append(_ends(exchanged, 1 - (1 - level) / k))
    extremes = []
    for chance in EXTREMES:
        extremes.append(_ends(exchanged, 1 - 2 * chance))
    low, high = tails[0]
    value = float(first.mean() - second.mean())
    se = _standard_error(first, second)
    return Interval(value, low, high, se, tuple(tails), extremes=tuple(extremes))


def ratio(
    first: Float[np.ndarray, " a"], second: Float[np.ndarray, " b"], level: float = LEVEL
) -> Interval:
    """Geometric mean of the first group over that of the second: a factor, by `difference` of logs.

    Raises:
        InputError: a number that is not positive, or as for `difference`.

    >>> found = ratio(np.array([1.0, 1.1, 1.2, 1.3]), np.array([2.0, 2.2, 2.4, 2.6]))
    >>> round(found.value, 9), round(found.low, 3), round(found.high, 3)
    (0.5, 0.385, 0.65)
    """
    for group in (first, second):
        if not (np.asarray(group) > 0).all():
            raise InputError("a ratio of groups needs positive numbers")
    of_logs = difference(np.log(first), np.log(second), level)
    se = math.exp(of_logs.value) * of_logs.se
    found = of_logs.through(math.exp, se)
    return replace(found, positive=True)


def p_value(
    first: Float[np.ndarray, " a"], second: Float[np.ndarray, " b"], shift: float = 0.0
) -> float:
    """Two-sided p of the exact permutation test that the groups differ by a shift.

    It is twice the smaller tail, at most 1. `difference` at level 1 - p holds exactly the shifts
    whose p is larger.

    >>> # The smallest p that 3 against 3 can have.
    >>> p_value(np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    0.1
    """
    exchanged = _exchanged(first, second)
    # The split as it is counts in both tails.
    n_below = 1 + int(np.count_nonzero(exchanged <= shift))
    n_above = 1 + int(np.count_nonzero(exchanged >= shift))
    n_splits = len(exchanged) + 1
    return min(1.0, 2 * min(n_below, n_above) / n_splits)


def _exchanged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """mean(x_I) - mean(y_J) of all exchanges of as many of each, in ascending order.

    The identity is none.
    """
    n = len(first)
    m = len(second)
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
        of_first = _means(first, k)
        of_second = _means(second, k)
        differences = np.subtract.outer(of_first, of_second)
        found.append(differences.ravel())
    return np.sort(np.concatenate(found))


def _means(group: np.ndarray, k: int) -> np.ndarray:
    """The means of all choices of k numbers."""
    return np.array([np.mean(chosen) for chosen in combinations(group, k)])


def _ends(exchanged: np.ndarray, level: float) -> tuple[float, float]:
    n_splits = len(exchanged) + 1
    # A whole number that rounding made a little smaller counts as reached.
    c = math.floor(n_splits * (1 - level) / 2 + 1e-9)
    if not c:
        return -math.inf, math.inf
    return float(exchanged[c - 1]), float(exchanged[-c])


def _standard_error(first: np.ndarray, second: np.ndarray) -> float:
    """Welch's: the groups' own spreads. NaN where a group has one number, which has no spread."""
    n = len(first)
    m = len(second)
    if min(n, m) < 2:
        return math.nan
    return math.sqrt(first.var(ddof=1) / n + second.var(ddof=1) / m)
