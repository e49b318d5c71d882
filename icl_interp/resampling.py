"""Intervals: the studentised bootstrap over units, and its simultaneous form over heads.

Prompts of one unit are not independent, so what is resampled are units. A statistic is any function
of weighted means, and weights are how often a unit was drawn. Ends come from the draws of
t = (statistic - value) / standard error, with a standard error of its own in every draw: for skewed
quantities such intervals hold the truth as often as they say, where percentiles of the draws do
not.

Source: Efron (1981), Nonparametric standard errors and confidence intervals, section 10
(bootstrap-t); Hall (1988), Theoretical comparison of bootstrap confidence intervals (second-order
accuracy). Standard errors are those of the delta method, also called the infinitesimal jackknife:
Efron and Tibshirani (1993), chapter 21. `scipy.stats.bootstrap` has no studentised form.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from icl_interp.tails import far_quantile

N_DRAWS = 2000
LEVEL = 0.95
# Conditions up to which a criterion finds the interval that it needs among an estimate's tails.
N_TAILS = 6

# For a slope a mean is raised by so many standard deviations of its units: a thousandth of its
# error.
STEP = 1e-4
CONSTANT = 1e-13  # of the size: a spread below is rounding
NEGLIGIBLE = 1e-6  # of the largest: a slope below is rounding
TOO_SMALL = 0.1  # of the sample's standard error: a draw with a smaller one uses the sample's
TOO_MANY = 0.05  # share of such draws from which on t means nothing
ALIKE = 3.0  # largest ratio of the draws' spread and the standard error where a statistic is smooth
# Where a statistic has no kink, the share of draws below the value may differ from a half by this.
CENTRED = 0.07
TINY = float(np.finfo(float).tiny)
# Chances that the truth lies beyond one end, for verdicts that are to hold among many claims.
EXTREMES = (1e-3, 1e-4, 1e-5)
# Far ends allow for so many further units like the one that pulls the value most: what happens in 3
# of n units is missing from a sample of n with a chance of 5 %.
UNSEEN = 3
CHUNK = 2**18  # numbers that a statistic sees in one call
PILOT = 2**20  # numbers spent on finding out which means a statistic uses
# Draws for that, at least and at most.
PILOTS = (4, 64)
# What numpy says nothing of: of a statistic, 0 / 0; of slopes and errors, also what overflows.
DIVIDING: Any = {"divide": "ignore", "invalid": "ignore"}
QUIET = DIVIDING | {"over": "ignore"}

Ends = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval.

    Attributes:
        value: the statistic of the sample.
        low: end of the interval. high: end of the interval.
        se: standard error of the value; NaN where none was computed.
        tails: the ends at level 1 - (1 - level) / k for k = 1, 2, ..., from the same draws.
        positive: whether the interval was made on the logarithm.
        extremes: for each chance in `EXTREMES`, ends beyond which the truth lies with that chance
            on either side; empty where none were computed.
    """

    value: float
    low: float
    high: float
    se: float = math.nan
    tails: tuple[Ends, ...] = ()
    positive: bool = False
    extremes: tuple[Ends, ...] = ()

    def through(self, function: Callable[[float], float], se: float = math.nan) -> "Interval":
        """The interval of a monotone function of the number, such as its reciprocal or its root.

        Args:
            function: increasing or decreasing.
            se: the standard error of what it gives, where one is known.

        >>> half = Interval(2.0, 1.0, 4.0).through(lambda x: 1 / x)
        >>> half.value, half.low, half.high
        (0.5, 0.25, 1.0)
        """

        def ends(pair: Ends) -> Ends:
            low, high = sorted(map(function, pair))
            return low, high

        low, high = ends((self.low, self.high))
        tails = tuple(map(ends, self.tails))
        extremes = tuple(map(ends, self.extremes))
        return Interval(function(self.value), low, high, se, tails, extremes=extremes)


@functools.cache  # every interval of an analysis asks for the same few
def draw_weights(n: int, seed: int = 0, n_draws: int = N_DRAWS) -> Float[np.ndarray, "draw unit"]:
    """How often each of n units comes in each bootstrap draw, divided by n: rows sum to 1."""
    generator = np.random.default_rng([seed, n])
    counts = generator.multinomial(n, np.full(n, 1 / n), size=n_draws)
    weights = counts / n
    weights.flags.writeable = False
    return weights


def half_width(error: float) -> float:
    """Half-width, in standard errors, of a normal interval that misses the truth this often.

    `error` is the probability of missing it.

    >>> from scipy.stats import norm
    >>> round(half_width(0.05), 2), round(float(norm.isf(0.025)), 2)
    (1.96, 1.96)
    """
    return NormalDist().inv_cdf(1 - error / 2)


@functools.cache
def _weights(n: int, seed: int) -> Float[np.ndarray, "row unit"]:
    """The weights of the sample (first) and of all draws."""
    sample = np.full((1, n), 1 / n)
    return np.concatenate([sample, draw_weights(n, seed)])


def bootstrap(
    statistic: Callable[..., np.ndarray],
    *per_unit: np.ndarray,
    seed: int = 0,
    level: float = LEVEL,
    positive: bool = False,
    far: bool = True,
) -> Interval:
    """A function of means over units, with its studentised interval.

    Where t means nothing, because the statistic has no slope (a share of heads, a clipped number)
    or its draws spread otherwise than its slopes say, the ends are percentiles of the draws. The
    larger of two numbers that are nearly alike is biased: most draws lie on one side of the value.
    Such an interval is made for half the error, and reaches at least as far as a normal one; for
    the largest of many that are alike this is too little, and `simultaneous` is right. An end never
    lies beyond what any draw gave, so a share stays within 0 and 1. A statistic that never varies
    has an interval without width; one that is NaN in a draw has NaN for ends.

    Args:
        statistic: takes the mean of each array over its units, with a leading axis of draws, and
            returns one number a draw.
        per_unit: arrays whose first axis runs over the units that are resampled, all of one length.
        seed: of the draws.
        level: of confidence, below 1.
        positive: makes the interval on the logarithm, for errors and ratios. A value of 0 that
            never varies is exact; where single draws are 0 the ends are percentiles.
        far: whether to give `extremes`, which take half of the time.

    Raises:
        ValueError: a statistic that was called positive is negative.

    >>> x = np.arange(100.0)
    >>> i = bootstrap(lambda mean: mean, x)
    >>> round(i.value, 9), i.low < 49.5 < i.high, round(i.se, 3)
    (49.5, True, 2.901)
    >>> bootstrap(lambda a, b: a / b, x + 1, x + 1, positive=True).high
    1.0
    """

    def column(*means: np.ndarray) -> np.ndarray:
        return np.asarray(statistic(*means))[:, None]

    values, errors = _resampled(column, per_unit, seed, positive)
    one = _Studentised.of(values[:, 0], errors[:, 0])
    tails = one.ends([1 - (1 - level) / k for k in range(1, N_TAILS + 1)])
    extremes: list[Ends] = []
    if far:
        more = _with_unseen(column, per_unit, positive)
        reach = _reach(column, per_unit, positive)
        extremes = one.far_ends(EXTREMES, more, reach)
    low, high = tails[0]
    found = Interval(one.value, low, high, one.se, tuple(tails), extremes=tuple(extremes))
    if not positive:
        return found
    value = math.exp(one.value)
    se = value * one.se if value else one.se
    return replace(found.through(math.exp, se), positive=True)


def simultaneous(
    statistic: Callable[..., np.ndarray], *per_unit: np.ndarray, seed: int = 0, level: float = LEVEL
) -> tuple[
    Float[np.ndarray, " member"], Float[np.ndarray, " member"], Float[np.ndarray, " member"]
]:
    """A statistic of many members with intervals that all hold at once (max-T): (value, low, high).

    Every member has its own standard error in every draw; one without slopes has that of its draws
    instead.

    Args:
        statistic: as for `bootstrap`, but returns `(draw, member)`.
        per_unit: arrays whose first axis runs over the units that are resampled, all of one length.
        seed: of the draws.
        level: of confidence, below 1.
    """
    values, errors = _resampled(statistic, per_unit, seed)
    members = list(map(_Studentised.of, values.T, errors.T))
    t = []
    for one in members:
        # A member that never varies, or that is not finite, says nothing about how far the others
        # reach.
        if one.se > 0:
            t.append(np.abs(one.draws - one.value) / one.errors)
    furthest = far_quantile(np.max(t, 0), level) if t else 1.0
    reach = furthest * np.array([one.se for one in members])
    value = values[0]
    return value, value - reach, value + reach


def slope(
    log_x: Float[np.ndarray, " point"], log_y: Float[np.ndarray, "*batch point"]
) -> np.ndarray:
    """Least-squares slope along the last axis: a growth exponent when both axes are logarithms."""
    centred = log_x - log_x.mean()
    return np.asarray((log_y * centred).sum(-1) / (centred**2).sum())


def r_squared(
    residual: float | np.ndarray,
    total: float | np.ndarray,
    empty: float = math.nan,
    least: float = TINY,
) -> np.ndarray:
    """R2 = 1 - residual / total, the share of squares that a fit explains.

    It is below 0 where the fit does worse than predicting nothing.

    Args:
        residual: squares of what the fit leaves, added up or averaged.
        total: squares of what is to be explained, likewise: about their mean, or about 0.
        empty: the value where there is nothing to explain and nothing is missed. 1 says that all of
            it is explained, 0 that none is: a verdict may rest on which.
        least: a total up to this is nothing, and so is a residual: rounding.

    >>> r_squared(np.array([0.0, 1.0, 0.0]), np.array([4.0, 4.0, 0.0]), empty=0.0)
    array([1.  , 0.75, 0.  ])
    """
    residual = np.asarray(residual)
    total = np.asarray(total)
    nothing = (total <= least) & (residual <= least)  # neither is a NaN, which stays in sight
    # What is missed of almost nothing may be too many times it for a float: minus infinity.
    with np.errstate(over="ignore"):
        explained = 1 - residual / np.maximum(total, least)
    return np.where(nothing, empty, explained)


# ---- from draws to ends --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Studentised:
    """A value, its draws, and standard errors of both.

    `smooth` says whether each draw has a standard error of its own.
    """

    value: float
    se: float
    draws: Float[np.ndarray, " draw"]
    errors: Float[np.ndarray, " draw"]
    smooth: bool

    @classmethod
    def of(
        cls, values: Float[np.ndarray, " row"], errors: Float[np.ndarray, " row"]
    ) -> "_Studentised":
        """From values and standard errors of the sample (first) and of all draws."""
        value = float(values[0])
        se = float(errors[0])
        draws = values[1:]
        of_draws = errors[1:]
        finite = np.isfinite(values).all()
        spread = float(draws.std()) if finite else math.nan
        constant = np.full_like(draws, value)
        if np.array_equal(draws, constant) or spread <= CONSTANT * abs(value):
            return cls(value, 0.0, constant, np.zeros_like(draws), False)
        # Slopes serve where nearly all draws have one, and where they say how the draws spread.
        small = ~(of_draws >= TOO_SMALL * se)  # NaN too
        likeness = _middle(draws) / se if finite and se > 0 else math.nan
        if small.mean() <= TOO_MANY and 1 / ALIKE <= likeness <= ALIKE:
            return cls(value, se, draws, np.where(small, se, of_draws), True)
        return cls(value, spread, draws, np.full_like(draws, spread), False)

    def ends(self, levels: Sequence[float]) -> list[Ends]:
        """The intervals at some levels of confidence."""
        errors = np.array([1 - level for level in levels])
        if self.smooth:
            low, high = self._from_t(errors)
        else:
            low, high = _quantile(self.draws, np.stack([errors / 2, 1 - errors / 2]))
        low = np.minimum(low, self.value)
        high = np.maximum(high, self.value)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def _from_t(self, errors: Float[np.ndarray, " level"]) -> tuple[np.ndarray, np.ndarray]:
        """The ends for some probabilities of missing the truth, from the draws of t."""
        kinked = abs(np.mean(self.draws < self.value) - 0.5) > CENTRED
        if kinked:
            errors = errors / 2
        t = (self.draws - self.value) / self.errors
        far = _quantile(t, np.stack([1 - errors / 2, errors / 2]))
        low, high = self.value - self.se * far
        if kinked:
            normal = self.se * np.array(list(map(half_width, errors)))
            low = np.minimum(low, self.value - normal)
            high = np.maximum(high, self.value + normal)
        # An end beyond every draw may be one that no sample can give: a share above 1.
        return np.maximum(low, self.draws.min()), np.minimum(high, self.draws.max())

    def far_ends(self, chances: Sequence[float], more: Sequence[Ends], reach: Ends) -> list[Ends]:
        """Ends beyond which the truth lies with small chances, on either side.

        They reach at least as far as a normal law's, and start also from samples with further units
        like their most extreme ones: of a skewed quantity, most samples lack the units that make
        its mean, so their standard error is too small just where their mean is.

        Args:
            chances: of each side, so small that no draw is expected to lie beyond.
            more: value and standard error with further units that lower the value, and with some
                that raise it.
            reach: the smallest and the largest value of single units. No end lies beyond, where all
                draws lie between: a share is at most 1.
        """
        if self.se == 0:  # it never varies
            return [(self.value, self.value)] * len(chances)
        if not self.se > 0:  # it is not finite
            return [(math.nan, math.nan)] * len(chances)
        errors = np.where(self.errors > 0, self.errors, self.se)
        t = (self.draws - self.value) / errors
        starts = [(self.value, self.se), *more]
        least = reach[0] if reach[0] <= self.draws.min() else -math.inf
        most = reach[1] if reach[1] >= self.draws.max() else math.inf
        found = []
        for chance in chances:
            normal = half_width(2 * chance)
            down = max(normal, far_quantile(t, 1 - chance))
            up = max(normal, -far_quantile(t, chance))
            low = min(value - down * se for value, se in starts)
            high = max(value + up * se for value, se in starts)
            found.append((max(low, least), min(high, most)))
        return found


def _middle(draws: np.ndarray) -> float:
    """The spread of the middle half of the draws, as a standard deviation."""
    low, high = np.quantile(draws, [0.25, 0.75])
    return (high - low) / 1.349


def _quantile(draws: np.ndarray, q: float | np.ndarray) -> np.ndarray:
    # One of the draws, so that infinite ones do no harm: between two of them a line gives NaN.
    return np.asarray(np.quantile(draws, q, method="nearest"))


# ---- standard errors -----------------------------------------------------------------------------


class _Sample:
    """Units as rows of numbers, and statistics of their means.

    Attributes:
        weights: of the sample (first) and of all draws, `(row, unit)`.
        units: every unit's numbers, in standard deviations from their mean; 0 where they never
            vary, `(unit, number)`.
        varying: which numbers vary.
        means: `(row, number)`.
        numbers: 0, 1, ..., a place for each number.
    """

    def __init__(
        self,
        statistic: Callable[..., np.ndarray],
        per_unit: Sequence[np.ndarray],
        weights: Float[np.ndarray, "row unit"],
        positive: bool,
    ) -> None:
        arrays = [np.asarray(array, dtype=float) for array in per_unit]
        n = len(arrays[0])
        flat = np.concatenate([array.reshape(n, -1) for array in arrays], 1)
        self._statistic = statistic
        self._positive = positive
        self._shapes = [array.shape[1:] for array in arrays]
        widths = list(map(math.prod, self._shapes))
        self._cuts = np.cumsum(widths)[:-1]
        self.weights = weights
        centre = flat.mean(0)
        spread = flat.std(0)
        varies = spread > CONSTANT * np.abs(flat).max(0)
        self.varying = np.flatnonzero(varies)
        self._spread = np.where(varies, spread, 1.0)
        self.units = np.where(varies, (flat - centre) / self._spread, 0.0)
        # A mean lies among its numbers, whatever rounding says: a share is at most 1. What never
        # varies, or is not finite, is in every draw what it is in the sample.
        with np.errstate(invalid="ignore"):
            means = np.clip(self.weights @ flat, flat.min(0), flat.max(0))
        self.means = np.where(varies, means, centre)
        self.means[0] = centre
        self.numbers = np.arange(len(centre))

    def values(
        self, means: Float[np.ndarray, "row number"], checked: bool = False
    ) -> Float[np.ndarray, "row member"]:
        arrays = []
        for part, shape in zip(np.split(means, self._cuts, axis=1), self._shapes, strict=True):
            arrays.append(part.reshape(len(means), *shape))
        # A ratio may be 0 / 0 in a draw: that is NaN, which the interval shows.
        with np.errstate(**DIVIDING):
            found = np.asarray(self._statistic(*arrays))
        if not self._positive:
            return found
        if checked and (found < 0).any():
            raise ValueError(
                f"a positive statistic is expected, but it comes to {found.min():g} in a draw"
            )
        with np.errstate(**DIVIDING):
            return np.log(found)

    def slopes(
        self,
        rows: Int[np.ndarray, " row"],
        values: Float[np.ndarray, "all member"],
        groups: Bool[np.ndarray, "group number"],
    ) -> Float[np.ndarray, "row group member"]:
        """Change of the statistic, per standard deviation, when a group's means rise a little."""
        means = self.means[rows]
        rise = STEP * groups * self._spread
        size = max(1, CHUNK // rise.size)
        found = []
        n_rows = len(rows)
        for start in range(0, n_rows, size):
            raised = means[start : start + size, None] + rise
            each = self.values(raised.reshape(-1, raised.shape[2]))
            found.append(each.reshape(*raised.shape[:2], -1))
        before = values[rows, None]
        return (np.concatenate(found) - before) / STEP


def _resampled(
    statistic: Callable[..., np.ndarray],
    per_unit: Sequence[np.ndarray],
    seed: int,
    positive: bool = False,
) -> tuple[Float[np.ndarray, "row member"], Float[np.ndarray, "row member"]]:
    """A statistic and its standard errors, of the sample (first) and of every draw."""
    sample = _Sample(statistic, per_unit, _weights(len(per_unit[0]), seed), positive)
    values = sample.values(sample.means, checked=True)
    with np.errstate(**QUIET):
        columns = _columns(sample, values)
        errors = _errors(sample, values, np.arange(len(values)), columns)
        # A draw may be the only one to use a number. So those without a slope are looked at again,
        # with every number.
        has_slope = errors > TOO_SMALL * errors[0]
        most = PILOT // max(1, sample.varying.size**2)
        small = np.flatnonzero((~has_slope).any(1))[:most]
        if len(columns) and 0 < len(small) < len(errors):
            each = np.repeat(sample.varying[:, None], values.shape[1], 1)
            errors[small] = _errors(sample, values, small, each)
    return values, errors


def _with_unseen(
    statistic: Callable[..., np.ndarray], per_unit: Sequence[np.ndarray], positive: bool
) -> list[Ends]:
    """Value and standard error of a statistic with `UNSEEN` further extreme units.

    They are copies of the unit that lowers, or raises, the statistic most.

    Which unit that is tell influences: a unit's numbers times the statistic's slopes.
    """
    n = len(per_unit[0])
    sample = _Sample(statistic, per_unit, np.full((1, n), 1 / n), positive)
    if not len(sample.varying):
        return []
    columns = sample.varying[:, None]
    with np.errstate(**QUIET):
        values = sample.values(sample.means)
        each = columns == sample.numbers
        slopes = sample.slopes(np.array([0]), values, each)[0, :, 0]
        influence = np.nan_to_num(sample.units[:, sample.varying] @ slopes)
        counts = np.ones((3, n))  # the first row is the sample itself, as everywhere
        counts[1, influence.argmin()] += UNSEEN
        counts[2, influence.argmax()] += UNSEEN
        weights = counts / counts.sum(1, keepdims=True)
        more = _Sample(statistic, per_unit, weights, positive)
        found = more.values(more.means)
        errors = _errors(more, found, np.arange(3), columns)
    pairs = zip(found[1:, 0].tolist(), errors[1:, 0].tolist(), strict=True)
    return [pair for pair in pairs if np.isfinite(pair).all()]


def _reach(
    statistic: Callable[..., np.ndarray], per_unit: Sequence[np.ndarray], positive: bool
) -> Ends:
    """The smallest and largest value of the statistic of single units, which bound those of means.

    This holds for means and their ratios.
    """
    n = len(per_unit[0])
    weights = np.concatenate([np.full((1, n), 1 / n), np.eye(n)])
    sample = _Sample(statistic, per_unit, weights, positive)
    with np.errstate(**QUIET):
        values = sample.values(sample.means)[1:, 0]
    if np.isnan(values).any():
        return -math.inf, math.inf
    return float(values.min()), float(values.max())


def _errors(
    sample: _Sample,
    values: Float[np.ndarray, "all member"],
    rows: Int[np.ndarray, " row"],
    columns: Int[np.ndarray, "group member"],
) -> Float[np.ndarray, "row member"]:
    """Standard errors: of a mean of influences, each unit's numbers times the statistic's slopes.

    Args:
        sample: the units.
        values: of the statistic, in all rows.
        rows: those that are asked for.
        columns: as from `_columns`.
    """
    errors = np.zeros((len(rows), values.shape[1]))
    if not len(columns):  # the statistic never varies, or in steps only
        return errors
    groups = (columns[:, :, None] == sample.numbers).any(1)
    slopes = sample.slopes(rows, values, groups)
    weights = sample.weights[rows]
    n_units = len(sample.units)
    for member, own in enumerate(columns.T):
        used = own >= 0
        if not used.any():
            continue
        slope = slopes[:, used, member]
        units = sample.units[:, own[used]]
        if units.shape[1] == 1:  # one slope for all units: what they add up to comes before it
            numbers = units[:, 0]
            rise = slope[:, 0]
            total = weights @ numbers
            mean = rise * total
            square = rise**2 * (weights @ numbers**2)
        else:
            influence = slope @ units.T
            mean = np.einsum("ru,ru->r", weights, influence)
            influence *= influence
            square = np.einsum("ru,ru->r", weights, influence)
        variance = np.maximum(square - mean**2, 0.0)
        errors[:, member] = np.sqrt(variance / (n_units - 1))
    return errors


def _columns(
    sample: _Sample, values: Float[np.ndarray, "row member"]
) -> Int[np.ndarray, "group member"]:
    """The number of a unit that each member of the statistic uses in each group; -1 where none.

    Numbers of one group are used by different members (heads, say), so their slopes come from one
    call. Which numbers are used is seen in draws over the statistic's whole range: a largest or a
    first one is another one in other draws.

    Source: Curtis, Powell and Reid (1974), On the estimation of sparse Jacobian matrices.
    """
    n_members = values.shape[1]
    if not len(sample.varying):
        return np.zeros((0, n_members), int)
    # Slopes in few draws, spread evenly over the values that the statistic has in all.
    every = sample.varying[:, None] == sample.numbers
    n = int(np.clip(PILOT // every.size, *PILOTS))
    order = np.argsort(values[:, 0], kind="stable")
    places = np.linspace(0, len(order) - 1, n).astype(int)
    rows = np.unique([0, *order[places]])
    size = np.abs(sample.slopes(rows, values, every))
    largest = np.nanmax(size, 1, keepdims=True, initial=0.0)
    uses = (~(size <= NEGLIGIBLE * largest)).any(0)  # NaN too
    # Each number joins the first group in which its members use no other.
    groups: list[np.ndarray] = []
    for number, members in zip(sample.varying, uses, strict=True):
        if not members.any():
            continue
        group = next((group for group in groups if (group[members] < 0).all()), None)
        if group is None:
            group = np.full(len(members), -1)
            groups.append(group)
        group[members] = number
    return np.array(groups, dtype=int).reshape(-1, n_members)
