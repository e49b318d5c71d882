"""The claim of `limits` that far from the data LayerNorm makes f level off as the weights say."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.claim import Claim, Remarks
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
from icl_interp.analyses.places import DRAWN
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.far_words import (
    EDGE,
    SD,
    SPREAD,
    asked,
    like,
    of,
    onset_within,
    predicted,
)
from icl_interp.studies.limits.measurements import between, boundary, certificates, far
from icl_interp.studies.limits.measurements.far import power

TINY = float(np.finfo(float).tiny)
ROUNDING = 1e-11  # spread of f in distribution, over its mean, up to which it is rounding
STILL = 1e-9  # change of f over a decade, in u, up to which f stands still
SCALE_GROWS = 0.9  # growth exponent from which a norm's scale grows as fast as the query
# Change of f over a decade over that of the decade before, below which f may level off further out.
FADES = 0.5
LAST = (1e5, 1e6)  # the last decade of the grid, and the one before it, in units of x
BEFORE = (1e4, 1e5)
BEYOND = (1e6, 1e10)  # where f still has to be what it was


def needs_norm(facts: Facts) -> str | None:
    """Why a claim about LayerNorm cannot apply."""
    kind = facts.config.normalization_type
    if kind is None:
        return "The claim is about LayerNorm; this model has no norm."
    if kind == "RMS":
        return (
            "The claim is about LayerNorm; this model's norm divides by the root mean square and "
            "does not centre."
        )
    if kind == "Tanh":
        return (
            "The claim is about LayerNorm; this model's norm is a tanh, which divides by no scale."
        )
    if not facts.config.output_is_normed:
        acts = "write" if facts.config.norm_position == "output" else "read"
        return (
            "The claim is about LayerNorm that the stream passes; this model's norms stand on what "
            f"its sublayers {acts}, and the stream goes past them."
        )
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first; from outside nothing tells."""
    if facts.outside:
        return None
    if facts.config.embed_bound is None:
        return needs_norm(facts)
    return (
        needs_norm(facts)
        or "tokens are read in as bounded vectors (embed_bound): no LayerNorm sees the query grow"
    )


def spread(results: Results) -> float:
    """u over the size of f in distribution: whether the output is more than a constant.

    Without an interval: it asks whether u is rounding (1e-11), which does not turn on which prompts
    were drawn. Nor does u itself have one as a unit: over samples it varies by 4 %, and the zones
    below span a factor of five.
    """
    u = output_unit.u(results)
    mean = float(results[output_unit.own].sel(statistic="mean"))
    return u / max(abs(mean), u) if u > 0 else 0.0


# ---- saturation ----------------------------------------------------------------------------------

# Change over the last decade, in u, up to which f levels off and from which it does not.
LEVELS, KEEPS_ON = 0.01, 0.05
CLOSE = 0.01  # distance from the closed form, in u, up to which f ends there
LEVEL_OFF = Condition(
    "change",
    "change of the prediction over the last tenfold increase of |x|",
    at_most(LEVELS),
    at_least(KEEPS_ON),
    unit=SD,
    scale="log",
)
Y = "in units of y"


def _changes(ends: DataArray) -> np.ndarray:
    """Squared change of f over each of the last two decades, mean over prompts.

    The axes are (unit, direction, decade).
    """
    steps = ends.diff("x")
    squares = far.squares_of(steps).mean(-1)  # (direction, decade, unit)
    return np.moveaxis(squares, -1, 0)


def _at(drawn: DataArray, statistic: str, ends: tuple[float, float]) -> np.ndarray:
    """A statistic of `far/drawn` at places between two sizes: (unit, place), both directions."""
    return drawn.sel(statistic=statistic).values[:, between.stratum(*ends)]


def last_change(ends: DataArray, u: float, drawn: DataArray | None = None) -> Interval:
    """Root mean square change of f over the last decade in u: the largest at all places asked.

    From 1e5 to 1e6 in either direction, and to 1e6 from the drawn places between, by half decades.

    Args:
        ends: `far/ends`.
        u: the unit of outputs.
        drawn: `far/drawn`; without it known places alone, which a control is shown at.
    """
    parts = [_changes(ends)[..., -1]]
    if drawn is not None:
        parts = [between.pairs(part) for part in (*parts, _at(drawn, "gap", LAST))]
    return bootstrap(lambda *means: np.sqrt(np.concatenate(means, -1)).max(-1) / u, *parts)


def largest_change(ends: DataArray, u: float, drawn: DataArray) -> float:
    """The largest change over the last decade of a single context, in u.

    It is a number of the sample, so it has no error.
    """
    last = ends.diff("x")[:, -1]
    known = np.sqrt(far.squares_of(last).max())
    between = _at(drawn, "largest gap", LAST).max()
    return float(max(known, between) / u)


def change_beyond(drawn: DataArray, u: float) -> Interval:
    """Root mean square distance of f beyond the grid from its end, in u.

    It is the largest of all decades.
    """
    return bootstrap(
        lambda mean: np.sqrt(mean).max(-1) / u, between.pairs(_at(drawn, "gap", BEYOND))
    )


def fading(ends: DataArray, drawn: DataArray) -> Interval:
    """Change of f over the last decade over that of the decade before.

    The direction of the larger last change counts. Squared changes between known places and those
    between drawn ones are added up: the larger kind counts.
    """
    known = _changes(ends)  # (unit, direction, decade)
    steps = [
        # The last of two strata: the step to it from the first one stays within the decade.
        [drawn.sel(statistic="step").values[:, _outer(decade, sign)] for decade in (BEFORE, LAST)]
        for sign in boundary.SIGNS.values()
    ]
    both = known + np.moveaxis(np.array(steps), 2, 0)

    def ratio(mean: np.ndarray) -> np.ndarray:
        larger = mean[..., -1].argmax(-1)
        changes = np.sqrt(mean[np.arange(len(mean)), larger])  # (draw, decade)
        before = changes[:, 0]
        last = changes[:, 1]
        return last / np.maximum(before, STILL * last + TINY)

    return bootstrap(ratio, between.pairs(both))


def _outer(decade: tuple[float, float], sign: int) -> int:
    """The outermost stratum of a decade in one direction."""
    places = between.stratum(*decade, sign)
    return int(places[np.argmax(np.abs(DRAWN[places]))])


def _distance(ends: DataArray, closed: np.ndarray, rays: DataArray, u: float) -> Interval:
    """Root mean square distance of f at the end from the closed form in u.

    It is the largest of all directions: of numbers those of the axis and of the rays, of vectors
    those of the rays alone.
    """
    squares = rays.values
    if "target" not in ends.dims:
        off = ends.values[:, -1] - closed[:, None, None]
        known = np.square(off).mean(-1).T
        squares = np.concatenate([known, squares], -1)
    return bootstrap(lambda mean: np.sqrt(mean.max(-1)) / u, between.pairs(squares))


def _measured_onset(approach: DataArray, u: float) -> float:
    """|x| from which f stays within `boundary.LEVEL` u of its end, in the slower direction.

    It is infinite where f never does.
    """
    level = boundary.LEVEL * u
    slower = max(boundary.onset(approach, sign, level).value for sign in boundary.SIGNS.values())
    xs, _ = boundary.direction(approach, 1)
    return slower if slower < boundary.last(xs) else math.inf


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Changes of f far out, its distance from the plateau of the weights, and norms' scales."""
    certificate = results[certificates.certificate]
    drawn = results[between.drawn]
    ends = results[far.ends]
    u = output_unit.u(results)
    size = spread(results)
    found: dict[str, Found] = {"spread": size}
    if not size >= ROUNDING:
        return found
    # How f changes over the last decade, and beyond it.
    change = last_change(ends, u, drawn)
    found["change"] = change
    found["largest"] = largest_change(ends, u, drawn)
    found["beyond"] = change_beyond(drawn, u)
    if change.high > LEVELS:
        found["fading"] = fading(ends, drawn)
    onset = predicted(certificate, facts.x_unit)
    if onset is not None:
        found["onset"] = onset
    # Where it ends: only of pre-norm models do the weights say it.
    if facts.config.norm_position == "pre":
        closed = certificate[["plateau +", "plateau -"]].to_numpy()[0]
        rays = results[certificates.plateaus]
        grows = bool(rays.sizes["unit"])
        found["read-in grows"] = grows
        if grows:
            found["distance"] = _distance(ends, closed, rays, u)
    found["scale"] = scale_grows(results[between.scale_growth])
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The last change of an untrained control, at known places; none where it is constant."""
    if not spread(results.control) > ROUNDING:
        return {}
    return {"change": last_change(results.control[far.ends], output_unit.u(results.control))}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The plateau itself, and what makes it: the closed form, or a norm whose scale grows."""
    ends = results[far.ends]
    near, end = (power(x * facts.x_unit) for x in LAST)
    where = (
        f"|x| = {near}, {end} and places drawn between these and up to "
        f"{power(BEYOND[1] * facts.x_unit)}"
    )
    told = Remarks(scope=asked(facts, where, far.n_contexts(ends)))
    if facts.n_targets == 1:
        upwards = ends.values[0, -1].mean(-1)
        level = bootstrap(lambda m: m, upwards)
        plateau = Estimate.of("level that the prediction tends to for x > 0", level, Y)
        told = replace(told, estimate=plateau)
    if "change" not in found:
        return told
    growth = results[between.scale_growth]
    # Of each norm, in the direction where its scale grows slower.
    slower = growth.values.mean(1).min(-1).tolist()
    scales = dict(zip(growth.indexes["norm"], slower, strict=True))
    rows = _rows(results, f"{near} .. {end}", found["change"].value, scales)
    # Every pre-norm model ends where its weights say, trained or not.
    levels_off = SATURATION.decide(found).verdict == SUPPORTED
    ends_there = levels_off and "distance" in found
    return replace(
        told,
        caveat=_caveat(facts, found, scales),
        by_algebra="it ends at values that the weights alone predict" if ends_there else "",
        details=tuple(rows),
    )


def _caveat(facts: Facts, found: Mapping[str, Estimate], scales: Mapping[str, float]) -> str:
    if "distance" in found:
        return (
            f"Its end values are {of(found['distance'].value)} its standard deviation in "
            "distribution away from those that the weights predict."
        )
    largest = max(scales, key=lambda name: scales[name], default="")
    grows = f"The scale of {largest} grows like {like(scales.get(largest, 0.0))}"
    if facts.config.norm_position == "pre":
        return f"{grows}."
    return f"{grows}; with norms in the stream there is no closed form for the end values."


def _rows(
    results: Results, where: str, change: float, scales: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """End values of both directions, where the plateau begins, scales, and changes by place."""
    weights = results[certificates.certificate].iloc[0]
    ends = results[far.ends]
    drawn = results[between.drawn]
    u = output_unit.u(results)
    if "target" not in ends.dims:  # a vector tends to a vector, which is no number to show
        for direction, level in zip("+-", ends.values[:, -1], strict=True):
            yield {
                "direction": direction,
                "measured": float(level.mean()),
                "closed form": float(weights[f"plateau {direction}"]),
                SPREAD: float(level.std()),
            }
    yield {
        "c": weights["c"],
        "r": weights["r"],
        "measured onset": _measured_onset(results[boundary.approach], u),
        "predicted onset": weights["onset"],
        "standard deviation of the prediction in distribution": u,
        f"its change, {where}": change * u,
    }
    for name, exponent in scales.items():
        yield {"norm": name, "E_sigma": exponent}
    yield {
        f"change, {where}, known places": last_change(ends, u).value,
        "drawn places": float(np.sqrt(_at(drawn, "gap", LAST).mean(0).max())) / u,
        "largest of a single context": largest_change(ends, u, drawn),
    }


def scale_grows(growth: DataArray) -> Interval:
    """The largest growth exponent of the scales of all norms.

    Each norm's exponent is that of the direction where it grows slower.

    Args:
        growth: `far/scale growth`.
    """
    if not growth.sizes["norm"]:
        return Interval(0.0, 0.0, 0.0, se=0.0)
    per_unit = np.moveaxis(growth.values, 0, 1)  # (unit, norm, direction)
    return bootstrap(lambda mean: mean.min(-1).max(-1), between.pairs(per_unit))


NOT_CONSTANT = Precondition(
    "spread",
    at_least(ROUNDING),
    "The prediction is constant whatever the norms do, so nothing can be decided.",
)
SATURATION = Criterion(
    (
        LEVEL_OFF,
        # A root mean square over n contexts hides one that changes by sqrt(n) times as much.
        Condition(
            "largest",
            "largest change of the prediction in a single context",
            at_most(KEEPS_ON),
            unit=SD,
            scale="log",
        ),
        Condition(
            "beyond",
            f"change of the prediction from 1e6 to 1e10 {EDGE}",
            LEVEL_OFF.supports,
            unit=SD,
            scale="log",
        ),
        Condition(
            "distance",
            "distance of the end values from those that the weights predict",
            at_most(CLOSE),
            unit=SD,
            scale="log",
            optional=True,
        ),
        Condition("scale", "largest growth exponent of a norm's scale", at_least(SCALE_GROWS)),
    ),
    (
        NOT_CONSTANT,
        Precondition(
            "read-in grows",
            (1, 1),
            "Centring removes the vector that x is read in by, so the size of the query never "
            "reaches a LayerNorm.",
            optional=True,
        ),
        onset_within(far.LINE[0]),
        Precondition(
            "fading",
            at_least(FADES),
            "The last tenfold increase of |x| is not shown to change the prediction at least "
            f"{FADES} times as much as the one before (found: {{value:.2g}} times), so it may "
            "level off further out.",
            optional=True,
        ),
    ),
    terms="The change is taken from 1e5 to 1e6 times the largest |x| of training and from places "
    "drawn between to 1e6; the largest one in either direction counts. Its unit is the standard "
    "deviation of the prediction in distribution. A norm's scale is what it divides by; an "
    "exponent of 1 means that it grows like |x|. Only pre-norm models have end values that the "
    "weights predict.",
)

LAYERNORM_SATURATION_CLAIM = Claim(
    id="limits.layernorm_saturation",
    question="far from the data",
    statement="Far from the data the prediction levels off as a LayerNorm's scale grows.",
    denied="The prediction does not level off far from the data: it keeps changing as |x| grows.",
    quote=Quote(
        "as the nominator tends asymptotically towards a linear function at infinity it means that "
        "the ratio tends towards a constant that we have called boundary values",
        "Naim & Asher (2025), appendix G.1, proof of Proposition 6 (observed in section 5 and "
        "Figure 4)",
        "The paper proves this for one attention layer that is followed by a LayerNorm. On the "
        "whole model we measure how much the prediction still changes as the query goes from 1e5 "
        f"to 1e6 {EDGE}, at fixed and at drawn places. We compare the end value with the one that "
        "the weights predict, and ask that a LayerNorm's scale grow with the query.",
    ),
    kind="architecture",
    reads="its norms, and the read-out's certificate",
    criterion=SATURATION,
    measurements=(
        output_unit.own,
        certificates.certificate,
        certificates.plateaus,
        far.ends,
        between.drawn,
        between.drawn_places,
        far.intact,
        far.contexts,
        far.norm_scales,
        between.scale_growth,
        boundary.approach,
    ),
    control=(output_unit.own, far.ends),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_growth,
    figures=("far_query",),
)
