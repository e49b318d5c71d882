"""The claim of `limits` that nothing is learned in context where the query is large."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import EDGE, asked
from icl_interp.studies.limits.measurements import between, boundary, context, far
from icl_interp.studies.limits.measurements.context import HIGH, ROUNDING
from icl_interp.studies.limits.measurements.far import power

# Error over that of the best guess without the prompt, from which its examples are no help.
NO_HELP = 0.9
HELP = 0.5  # the same ratio, below which they help
BOUNDED = 0.1  # growth exponent up to which f counts as bounded
# Strata of drawn far queries.
DRAWN_AT = ((1e4, 10**4.5), (10**4.5, 1e5), (1e5, 10**5.5), (10**5.5, 1e6))


# Below this a denominator is rounding.
LEAST = 1e-300
# Centred r2 from which a far prediction still tells the truth, however small its size.
DECODABLE = 0.5


def relative_error(
    used: DataArray, *groups: np.ndarray, drawn: DataArray | None = None
) -> Interval:
    """Error over that of the best guess without the prompt, where the context helps most.

    That is the group of queries with the smallest ratio. The guesses: the mean of the distribution
    of functions, and one curve for all contexts (f averaged over other units' contexts). At drawn
    places only the first, which no guess without the prompt can beat but by chance.

    Args:
        used: `context/use`.
        groups: which queries are averaged, by place; the smallest ratio of all groups counts, in
            every draw.
        drawn: `far/drawn`, whose strata from 1e4 to 1e6 are further groups.
    """
    error = _values(used, "squared error")
    law = _values(used, "law's mean")
    context_free = _values(used, "context-free")
    size = _values(used, "size")
    parts = [_means_at(at, error, law, context_free, size) for at in groups]
    if drawn is not None:
        error = _values(drawn, "squared error")
        law = _values(drawn, "law's mean")
        # The law's mean is the only guess here, so it also stands for the others.
        for at in _drawn_groups():
            parts.append(_means_at(at, error, law, law, law))
        parts = list(map(between.pairs, parts))
    return bootstrap(_smallest_ratio, *parts, positive=True)


def _values(measured: DataArray, statistic: str) -> np.ndarray:
    """The numbers of one statistic: (unit, place)."""
    return measured.sel(statistic=statistic).values


def _means_at(at: np.ndarray, *values: np.ndarray) -> np.ndarray:
    """Means of several quantities over a group of places: (unit, quantity)."""
    means = [each[:, at].mean(-1) for each in values]
    return np.stack(means, -1)


def _smallest_ratio(*means: np.ndarray) -> np.ndarray:
    """Error over that of the better guess, in the group of `relative_error` where it is least."""
    ratios = []
    for mean in means:
        error = mean[..., 0]
        guess = mean[..., 1:3].min(-1)
        # Where all functions are one the law's mean is exact up to rounding, and the ratio is
        # large, not 0 / 0.
        rounding = 1e-24 * mean[..., 3] + 1e-200
        ratio = error / np.maximum(guess, rounding)
        ratios.append(ratio)
    return np.min(ratios, axis=0)


def follows_from_sizes(used: DataArray, drawn: DataArray, *groups: np.ndarray) -> bool:
    """Whether no prediction of this size could help, whatever f says.

    Then the ratio of errors is at least `NO_HELP`. With r the root mean square of f less the law's
    mean, over that of the truth less it, the error is at least (1 - r)^2 times that of the law's
    mean (the triangle inequality).
    """
    known = used.sel(statistic=["f less law's mean", "law's mean"]).values.mean(1)
    others = drawn.sel(statistic=["size", "law's mean"]).values.mean(1)
    largest_share = (1 - np.sqrt(NO_HELP)) ** 2
    places = [(known, at) for at in groups]
    places += [(others, at) for at in _drawn_groups()]
    for sizes, at in places:
        f, law = sizes[:, at].mean(-1)
        if not f <= largest_share * law:
            return False
    return True


def _drawn_groups() -> list[np.ndarray]:
    """The drawn places of each stratum of `DRAWN_AT`, in both directions."""
    groups = []
    for low, high in DRAWN_AT:
        left = between.stratum(low, high, -1)
        right = between.stratum(low, high, 1)
        groups.append(np.concatenate([left, right]))
    return groups


def decodable(used: DataArray, at: np.ndarray) -> Interval:
    """Squared correlation of f and the truth over prompts, the mean over queries.

    It is 0 where the spread of f is rounding.
    """
    names = ("f", "truth", "f squared", "truth squared", "product")
    parts = [_values(used, name)[:, at] for name in names]
    f_squared = parts[2].mean(0)
    size = _values(used, "f size")[:, at].mean(0)
    told = f_squared > ROUNDING**2 * size

    def squared(
        f: np.ndarray, t: np.ndarray, ff: np.ndarray, tt: np.ndarray, ft: np.ndarray
    ) -> np.ndarray:
        f_variance = ff - f**2
        t_variance = tt - t**2
        variances = np.maximum(f_variance, 0.0) * np.maximum(t_variance, 0.0)
        covariance = ft - f * t
        correlation = covariance**2 / np.maximum(variances, LEAST)
        varies = told & (variances > 0)
        found = np.where(varies, correlation, 0.0)
        return found.mean(-1)

    return bootstrap(squared, *parts)


def swapped(used: DataArray, at: np.ndarray) -> Interval:
    """Error with the contexts of another unit over the error with a prompt's own."""
    own = _values(used, "squared error")[:, at]
    other = _values(used, "swapped")[:, at]
    return bootstrap(_times, own.mean(-1), other.mean(-1), positive=True)


def _times(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How many times the other error is as large as the own."""
    return other / np.maximum(own, 1e-200)


def arm_rows(curve: DataArray, u: float) -> list[dict[str, Any]]:
    """What the three arms of "far out" do: growth of f, spread over contexts, and error.

    The error is given over that of the law's mean. Spread (in units of u) and error are given at
    scale 1, 1e4 and 1e6; growth is the exponent of f's size over the last two decades.
    """
    return [_arm_row(curve.sel(arm=arm), u) for arm in curve.indexes["arm"]]


def _arm_row(curve: DataArray, u: float) -> dict[str, Any]:
    """One row of `arm_rows`."""
    scales = curve["scale"].values
    # (unit, query, scale) each
    f = curve.sel(curve="model").values
    truth = curve.sel(curve="truth").values
    mean = curve.sel(curve="law's mean").values
    size = _mean_square(f)
    deviation = f - f.mean(0)
    spread = np.sqrt(_mean_square(deviation)) / (u or 1.0)
    guessed = _mean_square(mean - truth)
    missed = _mean_square(f - truth)
    error = missed / np.maximum(guessed, LEAST)
    last_sizes = np.maximum(size[-2:], LEAST)
    last_scales = np.log(scales[-2:])
    exponent = float(slope(last_scales, 0.5 * np.log(last_sizes)))
    row = {}
    row["arm"] = str(curve["arm"].item())
    row["growth exponent"] = exponent
    row["bounded"] = exponent <= BOUNDED
    for scale in (1.0, 1e4, 1e6):
        distances = np.abs(scales - scale)
        nearest = int(np.argmin(distances))
        row[f"spread at {scale:.0e}"] = float(spread[nearest])
        row[f"error at {scale:.0e}"] = float(error[nearest])
    return row


def _mean_square(values: np.ndarray) -> np.ndarray:
    """Over units and queries: (scale)."""
    return np.square(values).mean((0, 1))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Errors over those of the best guess without the prompt, in distribution and far from it."""
    used = results[context.use]
    drawn = results[between.drawn]
    far_out = context.far_out(used, facts.x_unit)
    near = relative_error(used, context.INNER)
    far_error = relative_error(used, *far_out, drawn=drawn)
    return {"R2": facts.learned, "near": near, "error": far_error}


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The error of an untrained control, at known places."""
    used = results.control[context.use]
    far_out = context.far_out(used, facts.x_unit)
    return {"error": relative_error(used, *far_out)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Whether it follows from sizes, what can be read from predictions, and swapped contexts."""
    used = results[context.use]
    far_out = context.far_out(used, facts.x_unit)
    everywhere = np.concatenate(far_out)
    # Where queries lie, and what is left of the truth there.
    first, last, further = (power(x * facts.x_unit) for x in (*HIGH, 1e6))
    where = f"|x| = {first}, {last} and places drawn up to {further}"
    n_units = results[far.ends][0, 0].size
    sized = follows_from_sizes(used, results[between.drawn], *far_out)
    r2 = decodable(used, everywhere)
    can = "can" if r2.low > DECODABLE else "cannot clearly"
    swap = swapped(used, everywhere).value
    swap_near = swapped(used, context.INNER).value
    u = output_unit.u(results)
    return Remarks(
        scope=asked(facts, where, n_units),
        by_algebra="it is too small beside a truth that grows" if sized else "",
        caveat=f"The truth {can} be read from these predictions: across prompts the squared "
        f"correlation of the two is {r2.value:.2f}.",
        causal={
            "intervention": "put the context of another function before the same query",
            "effect": swap,
            "error swapped / own, in distribution": swap_near,
            "error swapped / own, far out": swap,
            "centred r2 of f and the truth, far out": [r2.low, r2.value, r2.high],
        },
        details=tuple(arm_rows(results[boundary.arms], u)),
    )


HIGH_NORM = Criterion(
    (
        Condition(
            "error",
            "squared error far from the data, over that of the best guess without the prompt",
            at_least(NO_HELP),
            at_most(HELP),
            unit="times",
            scale="log",
        ),
    ),
    (
        Precondition(
            "R2", at_least(LEARNED_R2), f"{EXPLAINS}, so there is no success near the data to lose."
        ),
        Precondition(
            "near",
            at_most(HELP),
            "The examples do not help in distribution either (ratio of errors {value:.2g}, at most "
            f"{HELP} allowed).",
        ),
    ),
    terms="The best guess without the prompt is the mean of the distribution of functions, or the "
    "mean of the model's own predictions for other functions, whichever errs less. Queries lie at "
    f"1e4 and 1e5 {EDGE}, and at places drawn from 1e4 to 1e6; the smallest ratio counts.",
)

NO_ICL_AT_HIGH_NORM_CLAIM = Claim(
    id="limits.no_icl_at_high_norm",
    question="far from the data",
    statement="Far from the data the examples in the prompt do not help the prediction.",
    denied="Far from the data the examples in the prompt still help the prediction.",
    quote=Quote(
        "Transformer models cannot perform in-context learning over inputs with high embedding "
        "norm.",
        "Naim & Asher (2025), section 6, Proposition 4",
        "The paper argues from what the prediction tends to. We measure the squared error at "
        f"queries of 1e4 and 1e5 {EDGE} and compare it with guesses that do not look at the "
        "prompt; only the query is large, and the examples in the prompt must help at queries "
        "inside the trained range.",
    ),
    kind="architecture",
    reads="outputs",
    criterion=HIGH_NORM,
    measurements=(
        output_unit.own,
        context.use,
        far.ends,
        between.drawn,
        boundary.arms,
        boundary.boundary,
    ),
    control=(context.use,),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    of_numbers=True,
    figures=("boundary",),
)
