"""The claim of `limits` that far from the data LayerNorm makes f level off as the weights say."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
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
    levels_off,
    like,
    of,
    onset_within,
    percent,
    predicted,
    undecided,
)
from icl_interp.studies.limits.measurements import between, boundary, far
from icl_interp.studies.limits.measurements.far import power

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
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first."""
    if facts.config.embed_bound is None:
        return needs_norm(facts)
    return (
        needs_norm(facts)
        or "tokens are read in as bounded vectors (embed_bound): no LayerNorm sees the query grow"
    )


def spread(results: Results) -> Estimate:
    """u over the size of f in distribution: whether the output is more than a constant.

    Without an interval: it asks whether u is rounding (1e-11), which does not turn on which prompts
    were drawn. Nor does u itself have one as a unit: over samples it varies by 4 %, and the zones
    below span a factor of five.
    """
    mean, u = (float(results[output_unit.own].sel(statistic=s)) for s in ("mean", "u"))
    name = "standard deviation of the prediction in distribution / its mean"
    return Estimate.exactly(name, u / max(abs(mean), u) if u > 0 else 0.0)


# ---- saturation ----------------------------------------------------------------------------------

LEVELS, KEEPS_ON = (
    0.01,
    0.05,
)  # change over the last decade, in u, up to which f levels off and from which it does not
CLOSE = 0.01  # distance from the closed form, in u, up to which f ends there
LEVEL_OFF = Condition("change", "", (-INF, LEVELS), (KEEPS_ON, INF), scale="log")
Y = "in units of y"


def _changes(ends: DataArray) -> np.ndarray:
    """Squared change of f over each of the last two decades, mean over prompts.

    The axes are (unit, direction, decade).
    """
    return np.moveaxis(np.square(np.diff(ends.values, axis=1)).mean(-1), -1, 0)


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


def largest_change(ends: DataArray, u: float, drawn: DataArray) -> Estimate:
    """The largest change over the last decade of a single context, in u.

    It is a number of the sample, so it has no error.
    """
    known = np.abs(np.diff(ends.values, axis=1)[:, -1]).max()
    between = _at(drawn, "largest gap", LAST).max()
    return Estimate.exactly(
        "largest change of the prediction in a single context", max(known, between) / u, SD
    )


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
        larger = mean[..., -1].argmax(-1)[:, None, None]
        before, last = np.moveaxis(np.take_along_axis(np.sqrt(mean), larger, 1)[:, 0], -1, 0)
        return last / np.maximum(before, STILL * last + np.finfo(float).tiny)

    return bootstrap(ratio, between.pairs(both))


def _outer(decade: tuple[float, float], sign: int) -> int:
    """The outermost stratum of a decade in one direction."""
    places = between.stratum(*decade, sign)
    return int(places[np.argmax(np.abs(DRAWN[places]))])


def _distance(ends: DataArray, closed: np.ndarray, rays: DataArray, u: float) -> Interval:
    """Root mean square distance of f at the end from the closed form in u.

    It is the largest of all directions.
    """
    square = np.square(ends.values[:, -1] - closed[:, None, None]).mean(-1).T
    both = np.concatenate([square, rays.values], -1)
    return bootstrap(lambda mean: np.sqrt(mean.max(-1)) / u, between.pairs(both))


def _measured_onset(approach: DataArray, u: float) -> float:
    """|x| from which f stays within `boundary.LEVEL` u of its end, in the slower direction.

    It is infinite where f never does.
    """
    each = [
        boundary.onset(approach, sign, boundary.LEVEL * u).value for sign in boundary.SIGNS.values()
    ]
    settled = max(each) < boundary.last(boundary.direction(approach, 1)[0])
    return max(each) if settled else float("inf")


def saturation(results: Results, facts: Facts) -> Evidence:
    """Does f stop changing, at the value that the weights alone predict?

    And does a norm's scale grow meanwhile?
    """
    weights, ends = results[far.certificate].iloc[0], results[far.ends]
    x_unit, u, at_end = facts.x_unit, output_unit.u(results), ends.values[:, -1]
    measured, apart = at_end.mean((1, 2)), at_end.std((1, 2))
    plateau = Estimate.of(
        "level that the prediction tends to for x > 0",
        bootstrap(lambda m: m, at_end[0].mean(-1)),
        Y,
    )
    near, end = (power(x * x_unit) for x in far.LINE[-2:])
    last = power(BEYOND[1] * x_unit)
    scope = asked(
        facts, f"|x| = {near}, {end} and drawn places between and up to {last}", at_end[0].size
    )
    quantities = {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        says = f"The prediction is {measured[0]:.6g} in distribution and far from the data."
        return Evidence(quantities, says, plateau, scope)
    drawn = results[between.drawn]
    change = last_change(ends, u, drawn)
    quantities["change"] = Estimate.of(
        "change of the prediction over the last tenfold increase of |x|", change, SD
    )
    quantities["largest"] = largest_change(ends, u, drawn)
    quantities["beyond"] = Estimate.of(
        f"its change from 1e6 to 1e10 {EDGE}", change_beyond(drawn, u), SD
    )
    if change.high > LEVEL_OFF.supports[1]:
        name = "change over the last tenfold increase of |x| / over the one before"
        quantities["fading"] = Estimate.of(name, fading(ends, drawn))
    pre = facts.config.norm_position == "pre"
    if (onset := predicted(results[far.certificate], x_unit)) is not None:
        quantities["onset"] = onset
    if pre:
        closed = np.array([weights["plateau +"], weights["plateau -"]])
        grows = bool(np.isfinite(closed).all())
        quantities["read-in grows"] = Estimate.exactly(
            "whether centring leaves the vector that x is read in by", grows
        )
        if grows:
            name = "distance of the end values from those that the weights predict"
            quantities["distance"] = Estimate.of(
                name, _distance(ends, closed, results[far.plateaus], u), SD
            )
    growth_of, names = (
        results[between.scale_growth].values,
        results[between.scale_growth].indexes["norm"],
    )
    scales = dict(zip(names, growth_of.mean(1).min(-1).tolist(), strict=True))
    largest = max(scales, key=lambda name: scales[name], default="")
    quantities["scale"] = scale_grows(results[between.scale_growth])
    decision = SATURATION.decide(quantities)
    limits = bound(
        SATURATION,
        quantities,
        "change",
        f"at most {percent(LEVELS)}",
        f"more than {percent(KEEPS_ON)}",
    )
    says = (
        f"{levels_off(decision, 'distance' in quantities)} Between |x| = {near} and {end} it "
        f"changes by {of(change.value)} its standard deviation in distribution ({limits})."
    )
    growth = (
        f"The scale of {largest} grows like {like(scales.get(largest, 0.0))} (asked: at least "
        f"|x|^{SCALE_GROWS})."
    )
    caveat = (
        growth
        if pre
        else f"{growth[:-1]}; with post-norm layers there is no closed form for the end values."
    )
    if "distance" in quantities and undecided(decision) != "scale":
        caveat = (
            f"Its end values are {of(quantities['distance'].value)} that standard deviation away "
            f"from the predicted ones (asked: at most {percent(CLOSE)})."
        )
    details: list[dict[str, Any]] = [
        {
            "direction": d,
            "measured": float(m),
            "closed form": float(weights[f"plateau {d}"]),
            SPREAD: float(sd),
        }
        for d, m, sd in zip("+-", measured, apart, strict=True)
    ]
    onset = _measured_onset(results[boundary.approach], u)
    details.append(
        {
            "c": weights["c"],
            "r": weights["r"],
            "measured onset": onset,
            "predicted onset": weights["onset"],
        }
        | {
            "standard deviation of the prediction in distribution": u,
            f"its change, {near} .. {end}": change.value * u,
        }
    )
    details += [{"norm": name, "E_sigma": value} for name, value in scales.items()]
    details.append(
        {f"change, {near} .. {end}, known places": last_change(ends, u).value}
        | {"drawn places": float(np.sqrt(_at(drawn, "gap", LAST).mean(0).max())) / u}
        | {"largest of a single context": quantities["largest"].value}
    )
    control = {}
    if spread(results.control).value > ROUNDING:
        name = quantities["change"].name
        control["change"] = Estimate.of(
            name, last_change(results.control[far.ends], output_unit.u(results.control)), SD
        )
    return Evidence(
        quantities, says, plateau, scope, control=control, details=tuple(details), caveat=caveat
    )


def scale_grows(growth: DataArray) -> Estimate:
    """The largest growth exponent of the scales of all norms.

    Each norm's exponent is that of the direction where it grows slower.

    Args:
        growth: `far/scale growth`.
    """
    name = "largest growth exponent of a norm's scale"
    if not growth.sizes["norm"]:
        return Estimate.exactly(name, 0.0)
    per_unit = np.moveaxis(growth.values, 0, 1)  # (unit, norm, direction)
    return Estimate.of(name, bootstrap(lambda mean: mean.min(-1).max(-1), between.pairs(per_unit)))


NOT_CONSTANT = Precondition(
    "spread",
    (ROUNDING, INF),
    "The prediction is constant whatever the norms do, so nothing can be decided.",
)
SATURATION = Criterion(
    (
        LEVEL_OFF,
        # A root mean square over n contexts hides one that changes by sqrt(n) times as much.
        Condition("largest", "", (-INF, KEEPS_ON), None, scale="log"),
        Condition("beyond", "", LEVEL_OFF.supports, None, scale="log"),
        Condition("distance", "", (-INF, CLOSE), None, scale="log", optional=True),
        Condition("scale", "", (SCALE_GROWS, INF), None),
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
            (FADES, INF),
            "The last tenfold increase of |x| is not shown to change the prediction at least "
            f"{FADES} times as much as the one before (found: {{value:.2g}} times), so it may "
            "level off further out.",
            optional=True,
        ),
    ),
    terms=(
        f"Supported if from 1e5 to 1e6 {EDGE}, and at places drawn between, the prediction changes by "
        f"at most {percent(LEVELS)} of its standard deviation in distribution (in no single context by "
        f"more than {percent(KEEPS_ON)}), and by no more from 1e6 to 1e10, if it ends within "
        f"{percent(CLOSE)} of that from the values that the weights predict (asked of pre-norm "
        f"models), and if the scale of some norm grows at least like |x|^{SCALE_GROWS}. Contradicted "
        f"if it changes by more than {percent(KEEPS_ON)}, and by at least {FADES} times as much as "
        "over the tenfold increase of |x| before."
    ),
)

LAYERNORM_SATURATION_CLAIM = Claim(
    id="limits.layernorm_saturation",
    question="far from the data",
    short="LayerNorm makes the prediction level off far from the data.",
    quote=Quote(
        "as the nominator tends asymptotically towards a linear function at infinity it means that "
        "the ratio tends towards a constant that we have called boundary values",
        "Naim & Asher (2025), appendix G.1, proof of Proposition 6 (observed in section 5 and "
        "Figure 4)",
        "The paper proves this for one attention layer that is followed by a LayerNorm. We measure "
        "on the whole model how much the prediction still changes as the query goes from 1e5 to "
        f"1e6 {EDGE}, at known and at drawn places, compare the end value with what the weights "
        "predict, and ask that a LayerNorm's scale grow with the query.",
    ),
    kind="architecture",
    statement="Far from the data LayerNorm makes the prediction level off at boundary values that "
    "the weights fix",
    source="Naim & Asher (2025), section 5 and Proposition 6",
    criterion=SATURATION,
    measurements=(
        output_unit.own,
        far.certificate,
        far.plateaus,
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
    evidence=saturation,
    of_numbers=True,
    excluded=needs_growth,
    figures=("far_query",),
)
