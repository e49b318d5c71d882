"""The claim of `limits` that far from the data the context is erased."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from xarray import DataArray

from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2, Claim, Evidence
from icl_interp.analyses.criterion import (
    INF,
    Condition,
    Criterion,
    Decision,
    Estimate,
    Precondition,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, r_squared, slope
from icl_interp.studies.limits.claims.far_words import (
    BY_ALGEBRA,
    EDGE,
    NO,
    YES,
    asked,
    in_lower_case,
    like,
    of,
    onset_within,
    percent,
    predicted,
    undecided,
)
from icl_interp.studies.limits.measurements import between, context, far
from icl_interp.studies.limits.measurements.context import ERASED_AT, ROUNDING
from icl_interp.studies.limits.measurements.far import power

NEARBY = "spread of the prediction over contexts / that of the truth, at queries in distribution"
USED = 0.5  # of the truth's spread: from there on f differs between contexts as it should
TINY = float(np.finfo(float).tiny)
ERASED, KEPT = (
    0.05,
    0.2,
)  # far spread over that nearby: erased up to the first, not erased above the second
FALLS = -0.9  # log-log slope of the spread from which on it falls like 1/|x|
AMPLITUDE = Condition("amplitude", "", (-INF, ERASED), (KEPT, INF), scale="log")
_FAR, _BEYOND = between.stratum(1e4, 1e6), between.stratum(1e6, 1e10)  # drawn places


def parts(curve: DataArray) -> np.ndarray:
    """What the spread is made of, for each unit: (unit, x, part).

    Parts: the unit's mean less the mean of all, its square, and the variance over the unit's
    prompts.
    """
    mean, within = curve.sel(statistic="mean").values, curve.sel(statistic="variance").values
    mean = mean - mean.mean(0)
    return np.stack([mean, mean**2, within], -1)


def _variance(mean: np.ndarray) -> np.ndarray:
    """Variance over all prompts from `parts` averaged over units."""
    return np.maximum(mean[..., 1] - mean[..., 0] ** 2, 0.0) + np.maximum(mean[..., 2], 0.0)


def standard_deviation(mean: np.ndarray) -> np.ndarray:
    """Standard deviation over all prompts from `parts` averaged over units."""
    return np.sqrt(_variance(mean))


def spread(curve: DataArray) -> np.ndarray:
    """Standard deviation of f over all prompts, at each x."""
    return standard_deviation(parts(curve).mean(0))


def _of_ends(beyond: DataArray) -> np.ndarray:
    """`parts` of f at 1e9 units, both directions."""
    f = beyond.values[:, 2]  # (direction, unit, context)
    mean = f.mean(-1) - f.mean((1, 2))[:, None]
    return np.moveaxis(np.stack([mean, mean**2, f.var(-1)], -1), 0, 1)


def amplitude(far_out: np.ndarray, near: DataArray, drawn: np.ndarray | None = None) -> Interval:
    """Spread of f over prompts far out, over that at the inner queries of the distribution.

    Args:
        far_out: `parts` at the far queries, `(unit, x, part)`: one spread over all of them.
        near: `far/in distribution`.
        drawn: variances at drawn places, `(unit, place)`; the largest spread of all counts.
    """
    arrays = [far_out, parts(near)]
    if drawn is not None:
        arrays = [between.pairs(array) for array in (*arrays, drawn)]

    def ratio(a: np.ndarray, b: np.ndarray, *between: np.ndarray) -> np.ndarray:
        largest = np.max([_variance(a).mean(-1), *(v.max(-1) for v in between)], axis=0)
        return np.sqrt(largest / np.maximum(_variance(b).mean(-1), TINY))

    return bootstrap(ratio, *arrays, positive=True)


def lasting(near: DataArray, drawn: np.ndarray) -> Interval:
    """The smallest spread of f over prompts in any decade beyond the grid, over that nearby.

    "Nearby" is at inner queries. Only drawn places count: what comes and goes may be gone at a
    known one.

    Args:
        near: `far/in distribution`.
        drawn: variances at drawn places beyond the grid, `(unit, place)`.
    """

    def ratio(inside: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        return np.sqrt(beyond.min(-1) / np.maximum(_variance(inside).mean(-1), TINY))

    return bootstrap(ratio, *map(between.pairs, (parts(near), drawn)), positive=True)


def largest_deviation(ends: DataArray, drawn: DataArray, near: DataArray) -> Estimate:
    """How far a single context's f is from the mean over contexts, over the spread nearby.

    The queries lie from 1e4 to 1e6. The number is the largest of the sample, so it has no error.
    """
    f = ends.values[:, 0]  # (direction, unit, context), at 1e4
    known = np.abs(f - f.mean((1, 2), keepdims=True)).max()
    between = drawn.sel(statistic="largest deviation").values[:, _FAR].max()
    nearby = np.sqrt(np.square(spread(near)).mean())
    name = (
        "largest distance of a single context from the mean, far from the data / spread in "
        "distribution"
    )
    return Estimate.exactly(name, max(known, between) / nearby)


def decay(curve: DataArray, x_unit: float = 1.0) -> Interval | None:
    """Log-log slope of the spread over 1e3 .. 1e5 units, the slower direction.

    None where the spread has sunk into rounding.
    """
    sd, size, xs = spread(curve), np.abs(curve.values[0]).mean(0), curve["x"].values / x_unit
    keep = [np.flatnonzero((sign * xs > 0.9e3) & (sign * xs < 1.1e5)) for sign in (1, -1)]
    keep = [at for at in keep if (sd[at] > ROUNDING * size[at]).all()]
    if not keep:
        return None

    def slower(*means: np.ndarray) -> np.ndarray:
        logs = [0.5 * np.log(np.maximum(_variance(m), TINY)) for m in means]
        return np.max(
            [slope(np.log(np.abs(xs[at])), y) for at, y in zip(keep, logs, strict=True)], axis=0
        )

    return bootstrap(slower, *(parts(curve)[:, at] for at in keep))


def told_by(info: DataArray, inputs: str) -> Interval:
    """R2: the share of the spread of f far out that inputs tell, cross-validated over units.

    Both directions count together. Where f does not vary it tells nothing.
    """
    residual, total = (
        info.sel(inputs=inputs, statistic=s).values.mean(0) for s in ("residual", "total")
    )
    return bootstrap(partial(r_squared, empty=0.0), residual, total)


def share_of_truth(used: DataArray) -> Interval:
    """Spread of f over prompts at inner queries, over that of the truth.

    It is 0 where all functions are one.
    """
    names = ("f", "f squared", "truth", "truth squared")
    arrays = [used.sel(statistic=s).values[:, context.INNER] for s in names]
    size = used.sel(statistic="size").values[:, context.INNER].mean()

    def ratio(f: np.ndarray, ff: np.ndarray, t: np.ndarray, tt: np.ndarray) -> np.ndarray:
        own, true = (np.maximum(b - a**2, 0.0).mean(-1) for a, b in ((f, ff), (t, tt)))
        known = true > ROUNDING**2 * size
        return np.where(known, np.sqrt(own / np.where(known, true, 1.0)), 0.0)

    return bootstrap(ratio, *arrays)


def context_erased(results: Results, facts: Facts) -> Evidence:
    """Does f, which differs between contexts nearby, still differ far out?

    And does it still tell the function?
    """
    curve, near, used = results[far.intact], results[far.in_distribution], results[context.use]
    x_unit = facts.x_unit
    out = power(ERASED_AT * x_unit)
    quantities = {"R2": facts.learned, "used": Estimate.of(NEARBY, share_of_truth(used))}
    if not spread(near).max() > ROUNDING * np.abs(near.values[0]).max():
        quantities["used"] = Estimate.exactly(NEARBY, 0.0)
        return Evidence(quantities, "")
    ends, drawn = results[far.ends], results[between.drawn]
    quantities |= _far_spread(curve, near, results[context.beyond], x_unit, drawn)
    quantities["largest"] = largest_deviation(ends, drawn, near)
    if (onset := predicted(results[far.certificate], x_unit)) is not None:
        quantities["onset"] = onset
    found, falls = quantities["amplitude"], quantities.get("decay")
    info, null = (told_by(results[context.information], i) for i in ("coefficients", "permuted"))
    told = info.low > max(null.high, 0.0)
    decision = CRITERION.decide(quantities)
    threshold = bound(
        CRITERION,
        quantities,
        "amplitude",
        f"at most {percent(ERASED)}",
        f"more than {percent(KEPT)}",
    )
    first = _answer(decision, quantities)
    if decision.verdict == YES and _at_plateaus(results[far.plateaus], near):
        # The plateau follows from the weights and holds no context (`theory.limits.plateau`): what
        # nears it must forget the context, whatever training made of the weights.
        first = BY_ALGEBRA + in_lower_case(first)
    says = (
        f"{first} At |x| = {out} and beyond its spread over contexts is {of(found.value)} that in "
        f"distribution ({threshold})."
    )
    tells = "still tells" if falls and told else "does not tell"
    caveat = (
        f"It {tells} the function, whose coefficients explain {_percent(info)} of the variance of "
        f"these predictions ({_percent(null)} shuffled)."
    )
    if falls and undecided(decision) == "decay":
        caveat = f"The spread goes like {like(falls.value)} (asked: |x|^{FALLS} or steeper)."
    moved = np.sqrt(used.sel(statistic="change").values.mean(0))
    inner, far_out = moved[context.INNER].mean(), moved[context.far_out(used, x_unit)[0]].mean()
    causal = {
        "intervention": "put the context of another function before the same query",
        "effect": float(far_out / inner) if inner > 0 else float("nan"),
        "change of f in distribution": float(inner),
        "change of f far out": float(far_out),
    }
    details = (
        {"statistic": "slope of the spread", "value": falls.value if falls else -INF},
        {"statistic": "information R2", "value": info.value, "low": info.low, "high": info.high},
        {
            "statistic": "R2 with permuted coefficients",
            "value": null.value,
            "low": null.low,
            "high": null.high,
        },
    )
    fresh = results.control
    control = _far_spread(
        fresh[far.decades], fresh[far.in_distribution], fresh[context.beyond], x_unit
    )
    where = f"|x| = {out} and places drawn from there to {power(1e10 * x_unit)}"
    scope = asked(facts, where, ends[0, 0].size)
    return Evidence(quantities, says, found, scope, causal, control, details, caveat)


def _at_plateaus(plateaus: DataArray, near: DataArray) -> bool:
    """Whether f ends where the weights predict along every ray, up to a share of its spread.

    The share is `ERASED`; the spread is that over contexts nearby.
    """
    if not plateaus.sizes["unit"]:
        return False
    distance = np.sqrt(plateaus.values.mean(0).max())
    return bool(distance <= ERASED * spread(near).mean())


def _answer(decision: Decision, quantities: Mapping[str, Estimate]) -> str:
    what = "on the context (the examples in the prompt)"
    if decision.verdict == YES:
        return f"Far from the data the prediction hardly depends {what}."
    if decision.verdict == NO:
        return f"Far from the data the prediction still depends {what}."
    later = of(quantities["amplitude beyond"].value)
    why = {
        "amplitude": ": it is not shown to be nearly independent, or to be clearly dependent",
        "amplitude beyond": f": its spread is small first, but {later} that in distribution beyond "
        f"1e6 {EDGE}",
        "decay": ": its spread over contexts is small, but not shown to fall like 1/|x|",
        "largest": ": its spread is small, but not the distance of every single context from the "
        "mean",
    }
    if decision.failed:
        return (
            "So it cannot be told whether far from the data the prediction still depends on the "
            "context."
        )
    is_open = f"It is not decided whether far from the data the prediction still depends {what}"
    return f"{is_open}{why.get(undecided(decision) or '', '')}."


def _percent(share: Interval) -> str:
    return f"{round(100 * share.value) + 0:.0f} %"


def _far_spread(
    curve: DataArray,
    near: DataArray,
    beyond: DataArray,
    x_unit: float,
    drawn: DataArray | None = None,
) -> dict[str, Estimate]:
    """The spread over that nearby, at 1e4 and 1e9 units and drawn places about them, and its slope.

    No slope where it has sunk into rounding. A spread that is large at 1e4 may sink beyond: that it
    does not is asked of it only. Without drawn places (of a control) the known ones alone.
    """
    out = np.isclose(np.abs(curve["x"].values), ERASED_AT * x_unit)
    places = drawn.sel(statistic="spread").values if drawn is not None else None
    here, there = (
        amplitude(known, near, None if places is None else places[:, at])
        for known, at in ((parts(curve)[:, out], _FAR), (_of_ends(beyond), _BEYOND))
    )
    found = {
        "amplitude": Estimate.of(
            "spread of the prediction over contexts, far from the data / in distribution", here
        ),
        "amplitude beyond": Estimate.of(f"the same from 1e6 to 1e10 {EDGE}", there),
    }
    if places is not None and found["amplitude"].within(AMPLITUDE.contradicts):
        last = lasting(near, places[:, _BEYOND])
        found["lasting"] = Estimate.of(f"the smallest from 1e6 to 1e10 {EDGE}", last)
    if (falls := decay(curve, x_unit)) is not None:
        found["decay"] = Estimate.of("power of |x| that the spread goes like", falls, "exponent")
    return found


CRITERION = Criterion(
    (
        AMPLITUDE,
        Condition("amplitude beyond", "", AMPLITUDE.supports, None, scale="log"),
        # A spread that has sunk into rounding has no slope.
        Condition("decay", "", (-INF, FALLS), None, optional=True),
        Condition("largest", "", (-INF, KEPT), None, scale="log"),
    ),
    (
        Precondition(
            "R2",
            (LEARNED_R2, INF),
            f"{EXPLAINS}, so it may have had no dependence on the context to lose.",
        ),
        Precondition(
            "used",
            (USED, INF),
            "In distribution predictions spread over contexts by {value:.2g} times the spread of "
            f"the truth ({USED} needed), so there may be no dependence to lose.",
        ),
        onset_within(ERASED_AT),
        Precondition(
            "lasting",
            (KEPT, INF),
            "The spread falls to {value:.2g} times that in distribution from 1e6 to 1e10 "
            f"{EDGE}, beyond the range measured.",
            optional=True,
        ),
    ),
    terms=(
        f"Spread of the prediction over contexts for a query at 1e4 {EDGE} and at places drawn from "
        "1e4 to 1e6, the largest of all, over that in distribution. Supported if it is at most "
        f"{ERASED} there and from 1e6 to 1e10, if it falls at least like |x|^{FALLS}, and if no single "
        f"context is further from the mean than {KEPT}. Contradicted if it is more than {KEPT}, and so "
        "at each place from 1e6 to 1e10."
    ),
)

CONTEXT_ERASED_CLAIM = Claim(
    id="limits.context_erased",
    question="far from the data",
    short="Far from the data the prediction no longer depends on the context.",
    quote=Quote(
        "This behavior indicates that, in the absence of layer normalization, the model’s "
        "predictions become insensitive to the prompt content as ||x|| increases, thus precluding "
        "ICL.",
        "Naim & Asher (2025), section 6, between Propositions 3 and 4",
        "This is the nearest sentence: it is about models without LayerNorm, and appendix G.2 says "
        "the same of softmax. We ask it of every model that uses its context near the data, and "
        f"measure how much predictions for a query from 1e4 {EDGE} on still differ between "
        "contexts (prompts that end with the same query).",
    ),
    kind="architecture",
    statement="Far from the data the prediction no longer depends on the context",
    source="Naim & Asher (2025), section 6, after Proposition 3",
    criterion=CRITERION,
    measurements=(
        far.intact,
        far.contexts,
        far.ends,
        between.drawn,
        far.in_distribution,
        far.certificate,
        far.plateaus,
        context.use,
        context.information,
        context.beyond,
    ),
    control=(far.decades, far.in_distribution, context.beyond),
    evidence=context_erased,
    of_numbers=True,
    figures=("context",),
)
