"""The claim of `limits` that far from the data the context is erased."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Remarks
from icl_interp.analyses.criterion import (
    SUPPORTED,
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
from icl_interp.resampling import Interval, bootstrap, r_squared, slope
from icl_interp.studies.limits.claims.far_words import EDGE, asked, onset_within, predicted
from icl_interp.studies.limits.measurements import between, certificates, context, far
from icl_interp.studies.limits.measurements.context import ERASED_AT, ROUNDING
from icl_interp.studies.limits.measurements.far import power

USED = 0.5  # of the truth's spread: from there on f differs between contexts as it should
TINY = float(np.finfo(float).tiny)
# Far spread over that nearby: erased up to the first, not erased above the second.
ERASED = 0.05
KEPT = 0.2
FALLS = -0.9  # log-log slope of the spread from which on it falls like 1/|x|
AMPLITUDE = Condition(
    "amplitude",
    "spread of the prediction over contexts far from the data, over that in distribution",
    at_most(ERASED),
    at_least(KEPT),
    unit="times",
    scale="log",
)
# Drawn places.
_FAR = between.stratum(1e4, 1e6)
_BEYOND = between.stratum(1e6, 1e10)


def parts(curve: DataArray) -> np.ndarray:
    """What the spread is made of, for each unit: (unit, x, part).

    Parts: the unit's mean less the mean of all, its square, and the variance over the unit's
    prompts.
    """
    mean = curve.sel(statistic="mean").values
    within = curve.sel(statistic="variance").values
    centred = mean - mean.mean(0)
    return np.stack([centred, centred**2, within], -1)


def _variance(mean: np.ndarray) -> np.ndarray:
    """Variance over all prompts from `parts` averaged over units."""
    between_units = mean[..., 1] - mean[..., 0] ** 2
    within = np.maximum(mean[..., 2], 0.0)
    return np.maximum(between_units, 0.0) + within


def _mean_variance(mean: np.ndarray) -> np.ndarray:
    """`_variance`, the mean over queries."""
    return _variance(mean).mean(-1)


def standard_deviation(mean: np.ndarray) -> np.ndarray:
    """Standard deviation over all prompts from `parts` averaged over units."""
    return np.sqrt(_variance(mean))


def spread(curve: DataArray) -> np.ndarray:
    """Standard deviation of f over all prompts, at each x."""
    mean = parts(curve).mean(0)
    return standard_deviation(mean)


def _of_ends(beyond: DataArray) -> np.ndarray:
    """`parts` of f at 1e9 units, both directions."""
    f = beyond.values[:, 2]  # (direction, unit, context)
    of_all = f.mean((1, 2))
    mean = f.mean(-1) - of_all[:, None]
    found = np.stack([mean, mean**2, f.var(-1)], -1)
    return np.moveaxis(found, 0, 1)


def amplitude(far_out: np.ndarray, near: DataArray, drawn: np.ndarray | None = None) -> Interval:
    """Spread of f over prompts far out, over that at the inner queries of the distribution.

    Args:
        far_out: `parts` at the far queries, `(unit, x, part)`: one spread over all of them.
        near: `far/in distribution`.
        drawn: variances at drawn places, `(unit, place)`; the largest spread of all counts.
    """
    arrays = [far_out, parts(near)]
    if drawn is not None:
        arrays = list(map(between.pairs, (*arrays, drawn)))

    def ratio(out: np.ndarray, inside: np.ndarray, *at_drawn: np.ndarray) -> np.ndarray:
        variances = [_mean_variance(out)]
        for variance in at_drawn:
            variances.append(variance.max(-1))
        largest = np.max(variances, axis=0)
        nearby = np.maximum(_mean_variance(inside), TINY)
        return np.sqrt(largest / nearby)

    return bootstrap(ratio, *arrays, positive=True)


def lasting(near: DataArray, drawn: np.ndarray) -> Interval:
    """The smallest spread of f over prompts in any decade beyond the grid, over that nearby.

    "Nearby" is at inner queries. Only drawn places count: what comes and goes may be gone at a
    known one.

    Args:
        near: `far/in distribution`.
        drawn: variances at drawn places beyond the grid, `(unit, place)`.
    """
    arrays = [between.pairs(parts(near)), between.pairs(drawn)]

    def ratio(inside: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        nearby = np.maximum(_mean_variance(inside), TINY)
        return np.sqrt(beyond.min(-1) / nearby)

    return bootstrap(ratio, *arrays, positive=True)


def largest_deviation(ends: DataArray, drawn: DataArray, near: DataArray) -> float:
    """How far a single context's f is from the mean over contexts, over the spread nearby.

    The queries lie from 1e4 to 1e6. The number is the largest of the sample, so it has no error.
    """
    f = ends.values[:, 0]  # (direction, unit, context), at 1e4
    deviations = f - f.mean((1, 2), keepdims=True)
    known = np.abs(deviations).max()
    at_drawn = drawn.sel(statistic="largest deviation").values[:, _FAR]
    squares = np.square(spread(near))
    nearby = np.sqrt(squares.mean())
    return float(max(known, at_drawn.max()) / nearby)


def decay(curve: DataArray, x_unit: float = 1.0) -> Interval | None:
    """Log-log slope of the spread over 1e3 .. 1e5 units, the slower direction.

    None where the spread has sunk into rounding.
    """
    sd = spread(curve)
    size = np.abs(curve.values[0]).mean(0)
    xs = curve["x"].values / x_unit
    of_units = parts(curve)
    logs_of_xs = []
    arrays = []
    for sign in (1, -1):
        outwards = sign * xs
        at = np.flatnonzero((outwards > 0.9e3) & (outwards < 1.1e5))
        if (sd[at] > ROUNDING * size[at]).all():
            logs_of_xs.append(np.log(np.abs(xs[at])))
            arrays.append(of_units[:, at])
    if not arrays:
        return None

    def slower(*means: np.ndarray) -> np.ndarray:
        slopes = []
        for log_xs, mean in zip(logs_of_xs, means, strict=True):
            variance = np.maximum(_variance(mean), TINY)
            slopes.append(slope(log_xs, 0.5 * np.log(variance)))
        return np.max(slopes, axis=0)

    return bootstrap(slower, *arrays)


def told_by(info: DataArray, inputs: str) -> Interval:
    """R2: the share of the spread of f far out that inputs tell, cross-validated over units.

    Both directions count together. Where f does not vary it tells nothing.
    """
    told = info.sel(inputs=inputs)
    residual = told.sel(statistic="residual").values.mean(0)
    total = told.sel(statistic="total").values.mean(0)
    return bootstrap(partial(r_squared, empty=0.0), residual, total)


def share_of_truth(used: DataArray) -> Interval:
    """Spread of f over prompts at inner queries, over that of the truth.

    It is 0 where all functions are one.
    """
    names = ("f", "f squared", "truth", "truth squared")
    arrays = [used.sel(statistic=name).values[:, context.INNER] for name in names]
    size = used.sel(statistic="size").values[:, context.INNER].mean()

    def ratio(f: np.ndarray, ff: np.ndarray, t: np.ndarray, tt: np.ndarray) -> np.ndarray:
        own = np.maximum(ff - f**2, 0.0).mean(-1)
        true = np.maximum(tt - t**2, 0.0).mean(-1)
        known = true > ROUNDING**2 * size
        share = own / np.where(known, true, 1.0)
        return np.where(known, np.sqrt(share), 0.0)

    return bootstrap(ratio, *arrays)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How much f, which differs between contexts nearby, still differs far out."""
    near = results[far.in_distribution]
    found: dict[str, Found] = {"R2": facts.learned}
    found["used"] = share_of_truth(results[context.use])
    rounding = ROUNDING * np.abs(near.values[0]).max()
    if not spread(near).max() > rounding:
        found["used"] = 0.0
        return found
    x_unit = facts.x_unit
    drawn = results[between.drawn]
    found |= _far_spread(results[far.intact], near, results[context.beyond], x_unit, drawn)
    found["largest"] = largest_deviation(results[far.ends], drawn, near)
    onset = predicted(results[certificates.certificate], x_unit)
    if onset is not None:
        found["onset"] = onset
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The far spread of an untrained control, at known places."""
    near = results.control[far.in_distribution]
    curve = results.control[far.decades]
    beyond = results.control[context.beyond]
    return _far_spread(curve, near, beyond, facts.x_unit)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Whether the weights decide it, whether f still tells the function, and a swapped context."""
    if "amplitude" not in found:
        return Remarks()
    x_unit = facts.x_unit
    first = power(ERASED_AT * x_unit)
    last = power(1e10 * x_unit)
    where = f"|x| = {first} and places drawn from there to {last}"
    n_contexts = results[far.ends][0, 0].size
    info = told_by(results[context.information], "coefficients")
    null = told_by(results[context.information], "permuted")
    told = "decay" in found and info.low > max(null.high, 0.0)
    tells = "still tells" if told else "does not tell"
    # The plateau follows from the weights and holds no context (`theory.limits.plateau`): what
    # nears it must forget the context, whatever training made of the weights.
    supported = CRITERION.decide(found).verdict == SUPPORTED
    ends_there = supported and _at_plateaus(
        results[certificates.plateaus], results[far.in_distribution]
    )
    falls = found["decay"].value if "decay" in found else -math.inf
    return Remarks(
        scope=asked(facts, where, n_contexts),
        by_algebra="it ends at values that the weights alone predict" if ends_there else "",
        caveat=f"It {tells} the function: coefficients "
        f"explain {_percent(info)} ({_percent(null)} shuffled).",
        causal=_swapped(results[context.use], x_unit),
        details=(
            {"statistic": "slope of the spread", "value": falls},
            {"statistic": "information R2", **_ends(info)},
            {"statistic": "R2 with permuted coefficients", **_ends(null)},
        ),
    )


def _ends(found: Interval) -> dict[str, float]:
    """An interval as columns of a row."""
    return {"value": found.value, "low": found.low, "high": found.high}


def _swapped(used: DataArray, x_unit: float) -> dict[str, Any]:
    """What the context of another function changes, in distribution and far out."""
    moved = np.sqrt(used.sel(statistic="change").values.mean(0))
    nearest_far = context.far_out(used, x_unit)[0]
    inner = moved[context.INNER].mean()
    far_out = moved[nearest_far].mean()
    return {
        "intervention": "put the context of another function before the same query",
        "effect": float(far_out / inner) if inner > 0 else math.nan,
        "change of f in distribution": float(inner),
        "change of f far out": float(far_out),
    }


def _at_plateaus(plateaus: DataArray, near: DataArray) -> bool:
    """Whether f ends where the weights predict along every ray, up to a share of its spread.

    The share is `ERASED`; the spread is that over contexts nearby.
    """
    if not plateaus.sizes["unit"]:
        return False
    distance = np.sqrt(plateaus.values.mean(0).max())
    return bool(distance <= ERASED * spread(near).mean())


def _percent(share: Interval) -> str:
    """A share in words, without a minus before 0."""
    return f"{round(100 * share.value) + 0:.0f} %"


def _far_spread(
    curve: DataArray,
    near: DataArray,
    beyond: DataArray,
    x_unit: float,
    drawn: DataArray | None = None,
) -> dict[str, Interval]:
    """The spread over that nearby, at 1e4 and 1e9 units and drawn places about them, and its slope.

    There is no slope where the spread has sunk into rounding. A spread that is large at 1e4 may
    sink beyond, so "lasting" is asked of such a spread only. Without drawn places (of a control)
    the known ones count alone.
    """
    sizes = np.abs(curve["x"].values)
    out = np.isclose(sizes, ERASED_AT * x_unit)
    known = parts(curve)[:, out]
    ends = _of_ends(beyond)
    # What comes and goes may be gone at the known places, so drawn ones count where there are any.
    found = {}
    if drawn is None:
        found["amplitude"] = amplitude(known, near)
        found["amplitude beyond"] = amplitude(ends, near)
    else:
        places = drawn.sel(statistic="spread").values
        further = places[:, _BEYOND]
        found["amplitude"] = amplitude(known, near, places[:, _FAR])
        found["amplitude beyond"] = amplitude(ends, near, further)
        if Estimate.of("amplitude", found["amplitude"]).within(AMPLITUDE.contradicts):
            found["lasting"] = lasting(near, further)
    falls = decay(curve, x_unit)
    if falls is not None:
        found["decay"] = falls
    return found


CRITERION = Criterion(
    (
        AMPLITUDE,
        Condition(
            "amplitude beyond",
            f"the same spread from 1e6 to 1e10 {EDGE}",
            AMPLITUDE.supports,
            unit="times",
            scale="log",
        ),
        # A spread that has sunk into rounding has no slope.
        Condition(
            "decay",
            "power of |x| with which the spread over contexts changes",
            at_most(FALLS),
            optional=True,
        ),
        Condition(
            "largest",
            "largest distance of one context from the mean, over the spread in distribution",
            at_most(KEPT),
            unit="times",
            scale="log",
        ),
    ),
    (
        Precondition(
            "R2",
            at_least(LEARNED_R2),
            f"{EXPLAINS}, so it may have had no dependence on the context to lose.",
        ),
        Precondition(
            "used",
            at_least(USED),
            "In distribution predictions spread over contexts by {value:.2g} times the spread of "
            f"the truth ({USED} needed), so there may be no dependence to lose.",
        ),
        onset_within(ERASED_AT),
        Precondition(
            "lasting",
            at_least(KEPT),
            "The spread falls to {value:.2g} times that in distribution from 1e6 to 1e10 "
            f"{EDGE}, beyond the range measured.",
            optional=True,
        ),
    ),
    terms="The spread is the standard deviation of the prediction over contexts (prompts with the "
    f"same query). Far from the data means queries at 1e4 {EDGE} and at places drawn from 1e4 to "
    "1e6; the largest spread counts.",
)

CONTEXT_ERASED_CLAIM = Claim(
    id="limits.context_erased",
    question="far from the data",
    statement="Far from the data the prediction hardly depends on the examples in the prompt.",
    denied="Far from the data the prediction still depends on the examples in the prompt.",
    quote=Quote(
        "This behavior indicates that, in the absence of layer normalization, the model’s "
        "predictions become insensitive to the prompt content as ||x|| increases, thus precluding "
        "ICL.",
        "Naim & Asher (2025), section 6, between Propositions 3 and 4",
        "This is the nearest sentence: it is about models without LayerNorm, and appendix G.2 "
        "says the same of softmax. We ask it of every model that uses its context near the data. "
        "We measure how much predictions still differ between contexts (prompts with the same "
        f"query) where the query lies at 1e4 {EDGE} or farther.",
    ),
    kind="architecture",
    reads="outputs",
    criterion=CRITERION,
    measurements=(
        far.intact,
        far.contexts,
        far.ends,
        between.drawn,
        far.in_distribution,
        certificates.certificate,
        certificates.plateaus,
        context.use,
        context.information,
        context.beyond,
    ),
    control=(far.decades, far.in_distribution, context.beyond),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    of_numbers=True,
    figures=("context", "far_prompts"),
)
