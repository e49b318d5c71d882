"""The claim of `limits` that without a norm f becomes one line far out in every context."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.claim import Claim, Remarks
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
from icl_interp.analyses.places import MIDDLES
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims import context as over_contexts
from icl_interp.studies.limits.claims.far_words import EDGE, SD, asked, of
from icl_interp.studies.limits.measurements import between, boundary, context, far
from icl_interp.studies.limits.measurements.far import power

DEPENDS = 0.05  # of u: spread over contexts from which "whatever the context says" means something
TINY = float(np.finfo(float).tiny)
# Departures up to which f is a line, and above which it is none.
LINE = 0.01
NO_LINE = 0.1
# f at three places of each direction, and their |x|.
Drawn = tuple[np.ndarray, np.ndarray]

DEPARTURE = Condition(
    "departure",
    "departure of the prediction from one line, over its slope",
    at_most(LINE),
    at_least(NO_LINE),
    unit="share",
    scale="log",
)


def departures(
    ends: np.ndarray, xs: np.ndarray = far.LINE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slope, intercept and curvature of every context's line: each (direction, unit, context).

    Curvature is the change of slope from the first step to the second, relative to the larger of
    the two: 0 for a line, near 1 for any other power of x.

    Args:
        ends: f, `(direction, x, unit, context)`.
        xs: three |x|, or three of each direction and unit, `(direction, x, unit)`.
    """
    if xs.ndim == 1:
        x = np.stack([xs, -xs])[:, :, None, None]
    else:
        x = np.stack([xs[0], -xs[1]])[..., None]
    rise = ends[:, 2] - ends[:, 0]
    slopes = rise / (x[:, 2] - x[:, 0])
    intercepts = ends[:, 0] - slopes * x[:, 0]
    # The slope of each of the two steps.
    steps = np.diff(ends, axis=1) / np.diff(x, axis=1)
    first = steps[:, 0]
    second = steps[:, 1]
    change = second - first
    steeper = _steeper(first, second)
    curvature = change / steeper
    return slopes, intercepts, curvature


def _steeper(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The size of the steeper of two slopes, as a denominator."""
    size = np.abs(one)
    other_size = np.abs(other)
    steeper = np.maximum(size, other_size)
    return np.maximum(steeper, TINY)


def departure(ends: np.ndarray, xs: np.ndarray = far.LINE, drawn: Drawn | None = None) -> Interval:
    """The larger of root mean square curvature and sd(slope) / |slope|, over directions and places.

    "Places" are known ones and drawn ones, and both directions count.

    Args:
        ends: f, `(direction, x, unit, context)`.
        xs: three |x|.
        drawn: f at three drawn places, and their |x|, `(direction, x, unit)`. There slopes of
            contexts are compared that share a direction: those of the two units that share a place.
    """
    arrays = [_moments(ends, xs)]
    if drawn is not None:
        arrays = [between.pairs(arrays[0]), _moments_of_pairs(*drawn)]

    def worst(*means: np.ndarray) -> np.ndarray:
        found = [_worst(mean) for mean in means]
        return np.max(found, axis=0)

    return bootstrap(worst, *arrays)


def _sized(ends: np.ndarray) -> np.ndarray:
    """f over its largest size: sizes cancel, and a high power of a far x does not overflow."""
    largest = np.abs(ends).max()
    return ends / max(largest, TINY)


def _moments(ends: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """Of each unit's lines: mean slope, its square, squared curvature.

    The axes are `(unit, direction, moment)`.
    """
    slopes, _, curvature = departures(_sized(ends), xs)
    return _means(slopes * np.max(xs), curvature)


def _means(slopes: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """The three moments of `_moments`, of (direction, unit, context)."""
    slope = slopes.mean(-1)
    square = (slopes**2).mean(-1)
    bend = (curvature**2).mean(-1)
    moments = np.stack([slope, square, bend], -1)
    return np.moveaxis(moments, 1, 0)


def _moments_of_pairs(ends: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """`_moments` of units that share a place, of slopes over their own mean.

    So each direction may have a slope of its own.
    """
    slopes, _, curvature = departures(_sized(ends), xs)
    slopes = _by_pair(slopes)
    curvature = _by_pair(curvature)
    deviation = slopes - slopes.mean(-1, keepdims=True)
    steepness = _steepness(slopes)
    relative = 1 + deviation / steepness
    return _means(relative, curvature)


def _by_pair(values: np.ndarray) -> np.ndarray:
    """(direction, unit, context) as (direction, pair, context): units of a pair share places."""
    n = values.shape[1] // 2
    paired = values[:, : 2 * n]
    return paired.reshape(len(values), n, -1)


def _steepness(slopes: np.ndarray) -> np.ndarray:
    """What a pair's slopes are compared with: their mean.

    It is the mean of all pairs for a ray along which f hardly grows. At least a millionth of the
    slopes themselves, since those of antithetic functions may cancel.
    """
    average = slopes.mean(-1, keepdims=True)
    mean = np.abs(average)
    over_pairs = np.square(mean).mean(1, keepdims=True)
    usual = np.sqrt(over_pairs)
    square = np.square(slopes).mean(-1, keepdims=True)
    least = 1e-6 * np.sqrt(square)
    steeper = np.maximum(mean, usual)
    largest = np.maximum(steeper, least)
    return largest + TINY


def _worst(mean: np.ndarray) -> np.ndarray:
    """Departure from one line, from `_moments`, in the worse direction."""
    slope_mean = mean[..., 0]
    square = mean[..., 1]
    bend = mean[..., 2]
    # Below 1e-14 of the square the difference is rounding, not spread.
    variance = np.maximum(square - slope_mean**2 - 1e-14 * square, 0)
    # Slopes of antithetic functions may cancel: their spread is then a million times their mean.
    least = 1e-6 * np.sqrt(square) + TINY
    size = np.abs(slope_mean)
    spread = np.sqrt(variance)
    varied = spread / np.maximum(size, least)
    larger = np.maximum(varied, np.sqrt(bend))
    return larger.max(-1)


def unsteady(
    ends: np.ndarray, beyond: np.ndarray, x_unit: float = 1.0, drawn: Sequence[Drawn] = ()
) -> Interval:
    """By how much the mean slope beyond the grid differs from that on it; the worse direction.

    The difference is relative to the larger of the two.

    Args:
        ends: f at `far.LINE`, `(direction, x, unit, context)`.
        beyond: the same at `context.BEYOND`.
        x_unit: the unit of x.
        drawn: f at three drawn places and their |x|, on the grid and beyond it; slopes along each
            ray are compared.
    """
    on_grid = _slopes(ends, x_unit * far.LINE)
    further = _slopes(beyond[:, 1:], x_unit * context.BEYOND[1:])
    parts = [on_grid.mean(-1).T, further.mean(-1).T]
    if drawn:
        here, there = (_by_pair(_slopes(*one)) for one in drawn)
        steeper = np.maximum(_steepness(here), _steepness(there))[..., 0]
        step = here.mean(-1) - there.mean(-1)
        relative = step / steeper
        along_rays = np.square(relative)
        parts = [*map(between.pairs, parts), along_rays.T]
    return bootstrap(_change, *parts)


def _slopes(f: np.ndarray, xs: np.ndarray) -> np.ndarray:
    """The slope of every context's line: (direction, unit, context)."""
    slopes, _, _ = departures(f, xs)
    return slopes


def _change(here: np.ndarray, there: np.ndarray, *along_rays: np.ndarray) -> np.ndarray:
    """The largest change of slope, over directions at known places and rays at drawn ones."""
    change = np.abs(here - there)
    steeper = _steeper(here, there)
    relative = change / steeper
    changes = [relative.max(-1)]
    for square in along_rays:
        size = np.sqrt(square)
        changes.append(size.max(-1))
    return np.max(changes, axis=0)


def _drawn_lines(results: Results, x_unit: float) -> list[Drawn]:
    """f at three drawn places and their |x|, on the grid and beyond it: `departure`'s `drawn`."""
    f = results[between.drawn_ends].values
    sizes = np.abs(results[between.drawn_places].values)
    half = len(MIDDLES)
    right = sizes[:, half:]
    left = sizes[:, :half]
    outwards = np.stack([right, left[:, ::-1]])  # (direction, unit, stratum)
    on_grid, beyond = (np.moveaxis(outwards[..., list(at)], -1, 1) for at in between.LINE_AT)
    end = np.full_like(on_grid[:, :1], far.LINE[-1] * x_unit)
    to_end = np.concatenate([on_grid, end], 1)
    return [(f[:, :3], to_end), (f[:, 3:], beyond)]


def depends(near: DataArray, u: float) -> Interval:
    """Spread of f over contexts at inner queries in u, the larger one; 0 where u is."""
    own = over_contexts.parts(near)
    unit = u or np.inf

    def spread(mean: np.ndarray) -> np.ndarray:
        deviations = over_contexts.standard_deviation(mean)
        largest = deviations.max(-1)
        return largest / unit

    return bootstrap(spread, own)


def growth(u: float, *ranges: np.ndarray) -> Interval:
    """How far f moves over three |x| in u: root mean square over contexts.

    It is the least of all directions and ranges.

    Args:
        u: the unit of outputs; f that never varies does not grow.
        ranges: f, `(direction, x, unit, context)` each.
    """
    unit = u or np.inf
    squares = []
    for ends in ranges:
        rise = ends[:, 2] - ends[:, 0]
        in_units = rise / unit
        square = np.square(in_units)
        mean = square.mean(-1)
        squares.append(mean.T)

    def least(*means: np.ndarray) -> np.ndarray:
        smallest = np.concatenate(means, -1).min(-1)
        return np.sqrt(smallest)

    return bootstrap(least, *squares)


def _lines(
    ends: DataArray, beyond: DataArray, x_unit: float, drawn: Sequence[Drawn] = ()
) -> dict[str, Interval]:
    """Departures from one line on the grid and beyond it, and from the one line to the other.

    Without drawn places (of a control) through known ones alone.
    """
    here, there = drawn or (None, None)
    on_grid = departure(ends.values, x_unit * far.LINE, here)
    further = departure(beyond.values[:, 1:], x_unit * context.BEYOND[1:], there)
    change = unsteady(ends.values, beyond.values, x_unit, drawn)
    found = {"departure": on_grid, "departure beyond": further, "change of slope": change}
    # What is no line on the grid may become one beyond: that it does not is asked of it only.
    if Estimate.of("departure", on_grid).within(DEPARTURE.contradicts):
        found["lasting"] = further
    return found


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Departures of f from one line in each direction, the same slope whatever the context says."""
    u = output_unit.u(results)
    ends = results[far.ends]
    beyond = results[context.beyond]
    near = results[far.in_distribution]
    found: dict[str, Found] = {}
    spread = depends(near, u)
    found["depends"] = Estimate.of("depends", spread, SD)
    # What levels off in the end is no line.
    grows = growth(u, ends.values, beyond.values[:, 1:])
    found["growth"] = Estimate.of("growth", grows, SD)
    drawn = _drawn_lines(results, facts.x_unit)
    return found | _lines(ends, beyond, facts.x_unit, drawn)


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The same departures of an untrained control, at known places."""
    ends = results.control[far.ends]
    beyond = results.control[context.beyond]
    return _lines(ends, beyond, facts.x_unit)


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The places, the departure further out, and the lines of both directions."""
    ends = results[far.ends]
    n_contexts = ends[0, 0].size
    x_unit = facts.x_unit
    first = power(far.LINE[0] * x_unit)
    last = power(far.LINE[-1] * x_unit)
    further = power(context.BEYOND[-1] * x_unit)
    where = f"|x| = {first} .. {last} and up to {further}, at fixed and at drawn places"
    departs = of(found["departure beyond"].value)
    return Remarks(
        scope=asked(facts, where, n_contexts),
        caveat=f"Up to |x| = {further} it departs by {departs} its slope.",
        details=tuple(_rows(ends.values, x_unit)),
    )


def _rows(ends: np.ndarray, x_unit: float) -> Iterator[dict[str, Any]]:
    """The line of each direction."""
    of_directions = departures(ends, x_unit * far.LINE)
    for sign, slopes, intercepts, curvature in zip("+-", *of_directions, strict=True):
        bend = np.sqrt((curvature**2).mean())
        yield {
            "direction": sign,
            "slope": float(slopes.mean()),
            "sd of slope over contexts": float(slopes.std()),
            "intercept": float(intercepts.mean()),
            "sd of intercept over contexts": float(intercepts.std()),
            "curvature": float(bend),
        }


def _without_norm(facts: Facts) -> str | None:
    """Why the claim excludes models that normalise, or that bound what they read in."""
    if facts.outside:  # whether it has a line is a question about outputs
        return None
    if facts.config.normalization_type is not None:
        return "The claim is about models without normalisation; this one normalises."
    if facts.config.embed_bound is not None:
        return "tokens are read in as bounded vectors (embed_bound): nothing grows along a line"
    return None


CRITERION = Criterion(
    (
        DEPARTURE,
        Condition(
            "departure beyond",
            f"departure from one line from 1e7 to 1e10 {EDGE}, over its slope",
            DEPARTURE.supports,
            unit="share",
            scale="log",
        ),
        Condition(
            "change of slope",
            f"change of the slope beyond 1e6 {EDGE}, over the larger slope",
            DEPARTURE.supports,
            unit="share",
            scale="log",
        ),
    ),
    (
        Precondition(
            "depends",
            at_least(DEPENDS),
            "In distribution the context moves the prediction by only {value:.2g} times its "
            f"standard deviation ({DEPENDS} needed).",
        ),
        Precondition(
            "growth",
            at_least(boundary.LEVEL),
            "The prediction does not grow: far from the data it moves by only {value:.2g} times "
            f"its standard deviation ({boundary.LEVEL} needed).",
        ),
        Precondition(
            "lasting",
            at_least(NO_LINE),
            f"From 1e7 to 1e10 {EDGE} the departure is only {{value:.2g}} times the slope: the "
            "line lies beyond the range measured.",
            optional=True,
        ),
    ),
    terms="The departure is the curvature of the line, or how much its slope varies over "
    "contexts, whichever is larger. Both directions of the query count, at fixed and at drawn "
    f"places; the first departure is from 1e4 to 1e6 {EDGE}.",
)

LINEAR_ASYMPTOTE_CLAIM = Claim(
    id="limits.linear_asymptote",
    question="far from the data",
    statement="Far from the data the prediction is one line in the query, whatever the context "
    "says.",
    denied="Far from the data the prediction is not one line in the query.",
    quote=Quote(
        "In this regime, the model’s output asymptotically converges to a linear function of the "
        "form ..."
        " ax + b, where a and b are set by the model’s fixed parameters during pretraining and are "
        "minimally affected by the in-context examples.",
        "Naim & Asher (2025), section 6, between Propositions 3 and 4 (Proposition 5 in appendix "
        "G.1 for attention alone)",
        "The paper derives the line for one attention layer. We fit lines to the prediction of "
        f"the whole model from 1e4 to 1e6 {EDGE}, and again from 1e7 to 1e10, one for each "
        "direction, through fixed and drawn places. The slope must be the same in all contexts "
        "that we ask; the constant b may differ between contexts.",
    ),
    kind="architecture",
    reads="outputs",
    criterion=CRITERION,
    measurements=(
        output_unit.own,
        far.ends,
        between.drawn_ends,
        between.drawn_places,
        far.intact,
        far.contexts,
        far.in_distribution,
        context.beyond,
    ),
    control=(far.ends, context.beyond),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    of_numbers=True,
    excluded=_without_norm,
    figures=("far_query",),
)
