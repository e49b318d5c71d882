"""The claims of `limits` that far from the data f levels off, and that LayerNorm is the cause of that."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import scale
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import (
    EDGE,
    SD,
    SPREAD,
    levels_off,
    like,
    norms_are_the_cause,
    of,
    percent,
    undecided,
)
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.studies.limits.measurements.far import power

SCOPE = "these weights, this task, context in distribution and the query alone moved to "
ROUNDING = 1e-11  # spread of f in distribution, over its mean, up to which it is rounding
STILL = 1e-9  # change of f over a decade, in u, up to which f stands still
FALLS = -3.0  # a growth exponent that stands for minus infinity
GROWS, LEVEL = 0.8, 0.2  # growth exponents from which f grows and up to which it levels off
SCALE_GROWS = 0.9  # growth exponent from which a norm's scale grows as fast as the query
FADES = 0.5  # change of f over a decade over that of the decade before, below which f may level off further out


def needs_norm(facts: Facts) -> str | None:
    """Why a claim about LayerNorm cannot apply."""
    kind = facts.config.normalization_type
    if kind is None:
        return "The claim is about LayerNorm; this model has no norm."
    if kind == "RMS":
        return "The claim is about LayerNorm; this model's norm divides by the root mean square and does not centre."
    if kind == "Tanh":
        return "The claim is about LayerNorm; this model's norm is a tanh, which divides by no scale."
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first."""
    if facts.config.embed_bound is None:
        return needs_norm(facts)
    return needs_norm(facts) or "tokens are read in as bounded vectors (embed_bound): no LayerNorm sees the query grow"


def spread(results: Results) -> Estimate:
    """u over the size of f in distribution: whether the output is more than a constant."""
    mean, u = (float(results[scale.own].sel(statistic=s)) for s in ("mean", "u"))
    name = "standard deviation of the prediction in distribution / its mean"
    return Estimate.exactly(name, u / max(abs(mean), u) if u > 0 else 0.0)


# ---- saturation -----------------------------------------------------------------------------------------------------

LEVELS, KEEPS_ON = 0.01, 0.05  # change over the last decade, in u, up to which f levels off and from which it does not
CLOSE = 0.01  # distance from the closed form, in u, up to which f ends there
LEVEL_OFF = Condition("change", (-INF, LEVELS), (KEEPS_ON, INF), "log")
Y = "in units of y"


def _changes(ends: DataArray) -> np.ndarray:
    """Squared change of f over each of the last two decades, mean over prompts: (unit, direction, decade)."""
    return np.moveaxis(np.square(np.diff(ends.values, axis=1)).mean(-1), -1, 0)


def last_change(ends: DataArray, u: float) -> Interval:
    """Root mean square change of f over the last decade, the larger of both directions, in u."""
    return bootstrap(lambda mean: np.sqrt(mean).max(-1) / u, _changes(ends)[..., -1])


def fading(ends: DataArray) -> Interval:
    """Change of f over the last decade over that of the decade before, in the direction of the larger last change."""

    def ratio(mean: np.ndarray) -> np.ndarray:
        larger = mean[..., -1].argmax(-1)[:, None, None]
        before, last = np.moveaxis(np.take_along_axis(np.sqrt(mean), larger, 1)[:, 0], -1, 0)
        return last / np.maximum(before, STILL * last + np.finfo(float).tiny)

    return bootstrap(ratio, _changes(ends))


def _distance(ends: DataArray, closed: np.ndarray, u: float) -> Interval:
    """Root mean square distance of f at the end from the closed form, the larger of both directions, in u."""
    square = np.square(ends.values[:, -1] - closed[:, None, None]).mean(-1)
    return bootstrap(lambda mean: np.sqrt(mean.max(-1)) / u, square.T)


def _measured_onset(approach: DataArray, u: float) -> float:
    """|x| from which f stays within `boundary.LEVEL` u of its end, the slower direction; inf where it never does."""
    each = [boundary.onset(approach, sign, boundary.LEVEL * u).value for sign in boundary.SIGNS.values()]
    settled = max(each) < boundary.last(boundary.direction(approach, 1)[0])
    return max(each) if settled else float("inf")


def saturation(results: Results, facts: Facts) -> Evidence:
    """Does f stop changing, at the value that the weights alone predict, and does a norm's scale grow meanwhile?"""
    weights, ends = results[far.certificate].iloc[0], results[far.ends]
    x_unit, u, at_end = facts.x_unit, scale.u(results), ends.values[:, -1]
    measured, apart = at_end.mean((1, 2)), at_end.std((1, 2))
    plateau = Estimate.of("level that the prediction tends to for x > 0", bootstrap(lambda m: m, at_end[0].mean(-1)), Y)
    near, end = (power(x * x_unit) for x in far.LINE[-2:])
    scope = f"{SCOPE}|x| = {near} .. {end}"
    quantities = {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        says = f"The prediction is {measured[0]:.6g} in distribution and far from the data."
        return Evidence(quantities, says, plateau, scope)
    change = last_change(ends, u)
    quantities["change"] = Estimate.of("change of the prediction over the last tenfold increase of |x|", change, SD)
    if change.high > LEVEL_OFF.supports[1]:
        name = "change over the last tenfold increase of |x| / over the one before"
        quantities["fading"] = Estimate.of(name, fading(ends))
    pre = facts.config.norm_position == "pre"
    if pre:
        closed = np.array([weights["plateau +"], weights["plateau -"]])
        grows = bool(np.isfinite(closed).all())
        quantities["read-in grows"] = Estimate.exactly("whether centring leaves the vector that x is read in by", grows)
        if grows:
            quantities["onset"] = _onset(weights["onset"] / x_unit)
            name = "distance of the end values from those that the weights predict"
            quantities["distance"] = Estimate.of(name, _distance(ends, closed, u), SD)
    scales = scale_growth(results[far.norm_scales], x_unit)
    largest = max(scales, key=lambda name: scales[name], default="")
    quantities["scale"] = Estimate.exactly("largest growth exponent of a norm's scale", scales.get(largest, 0.0))
    decision = SATURATION.decide(quantities)
    says = (
        f"{levels_off(decision, 'distance' in quantities)} Between |x| = {near} and {end} it changes by "
        f"{of(change.value)} its standard deviation in distribution "
        f"({bound(SATURATION, quantities, 'change', f'at most {percent(LEVELS)}', f'more than {percent(KEEPS_ON)}')})."
    )
    growth = f"The scale of {largest} grows like {like(scales.get(largest, 0.0))} (asked: at least |x|^{SCALE_GROWS})."
    caveat = growth if pre else f"{growth[:-1]}; with post-norm layers there is no closed form for the end values."
    if "distance" in quantities and undecided(decision) != "scale":
        caveat = (
            f"Its end values are {of(quantities['distance'].value)} that standard deviation away from the predicted "
            f"ones (asked: at most {percent(CLOSE)})."
        )
    details: list[dict[str, Any]] = [
        {"direction": d, "measured": float(m), "closed form": float(weights[f"plateau {d}"]), SPREAD: float(sd)}
        for d, m, sd in zip("+-", measured, apart, strict=True)
    ]
    onset = _measured_onset(results[boundary.approach], u)
    details.append(
        {"c": weights["c"], "r": weights["r"], "measured onset": onset, "predicted onset": weights["onset"]}
        | {"standard deviation of the prediction in distribution": u, f"its change, {near} .. {end}": change.value * u}
    )
    details += [{"norm": name, "E_sigma": value} for name, value in scales.items()]
    twin = {}
    if spread(results.twin).value > ROUNDING:
        name = quantities["change"].name
        twin["change"] = Estimate.of(name, last_change(results.twin[far.ends], scale.u(results.twin)), SD)
    return Evidence(quantities, says, plateau, scope, twin=twin, details=tuple(details), caveat=caveat)


def _onset(value: float) -> Estimate:
    return Estimate.exactly("|x| at which the weights predict the plateau to begin", value, EDGE)


def scale_growth(scales: DataArray, x_unit: float = 1.0) -> dict[str, float]:
    """E_sigma = d log sigma / d log |x| of every norm over 1e4 .. 1e6 units, the smaller of both directions.

    It is 1 where the scale grows like |x|. Scales are means of logarithms over prompts, and far out hardly differ.
    """
    values = {}
    for name in scales.indexes["norm"]:
        curve, each = scales.sel(norm=name).values, []
        for sign in (1, -1):
            size = sign * scales["x"].values / x_unit
            keep = (size > 0.99e4) & (size < 1.01e6)
            each.append(float(slope(np.log(np.abs(scales["x"].values[keep])), curve[keep])))
        values[name] = min(each)
    return values


# ---- causes saturation ----------------------------------------------------------------------------------------------


def growth_exponents(squares: np.ndarray, xs: np.ndarray, u: float = 0.0) -> np.ndarray:
    """How fast f grows, by its increments: d log |f(10 x) - f(x)| / d log |x| in each direction, `(..., direction)`.

    Of a line it is 1, of a plateau that is neared like 1/|x| it is -1, and a constant added to f leaves it. `FALLS`
    stands for minus infinity: for increments at the end of at most `STILL` u, and for slopes below.

    Args:
        squares: mean squares of f(10 x) - f(x), `(..., x)`; NaN where 10 x was not measured.
        xs: x, `(x,)`, in both directions.
        u: the unit of outputs.
    """
    each, floor = [], max((STILL * u) ** 2, 1e-300)
    for sign in (1, -1):
        keep = np.flatnonzero((np.sign(xs) == sign) & np.isfinite(squares).reshape(-1, len(xs)).all(0))
        if not len(keep):  # the model overflows
            each.append(np.full(squares.shape[:-1], np.nan))
            continue
        keep = keep[np.argsort(np.abs(xs[keep]))]
        grown = slope(np.log(np.abs(xs[keep])), 0.5 * np.log(np.maximum(squares[..., keep], floor)))
        each.append(np.where(squares[..., keep[-1]] > floor, np.maximum(grown, FALLS), FALLS))
    return np.stack(each, -1)


def exponent(arm: DataArray, u: float, slower: bool) -> Interval:
    """The growth exponent of f in one arm (`far/norm arms`), in the direction where it grows slower, or faster."""
    squares, xs = arm.sel(statistic="squared increment").values, arm["x"].values
    known = np.isfinite(squares).all(0)
    pick = np.min if slower else np.max
    return bootstrap(lambda mean: pick(growth_exponents(mean, xs[known], u), axis=-1), squares[:, known])


def _both(results: Results) -> dict[str, Estimate]:
    arms, u = results[far.norm_arms], scale.u(results)
    names = {"frozen": "every norm frozen", "intact": "unchanged model"}
    return {
        arm: Estimate.of(f"growth exponent of the prediction, {name}", exponent(arms.sel(arm=arm), u, arm == "frozen"))
        for arm, name in names.items()
    }


def causes_saturation(results: Results, facts: Facts) -> Evidence:
    """Does f, which levels off, grow again once the norms' scales are frozen at the query?"""
    arms, u, x_unit = results[far.norm_arms], scale.u(results), facts.x_unit
    xs = arms["x"].values
    reached = f"{power(far.GROWTH[far.GROWTH > 0].min() * x_unit)} .. {power(xs.max())}"
    scope, quantities = f"{SCOPE}|x| = {reached}", {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        return Evidence(quantities, "", scope=scope)
    quantities |= _both(results)
    onset = results[far.certificate].iloc[0]["onset"] / x_unit
    if not np.isnan(onset):
        quantities["onset"] = _onset(onset)
    increments = arms.sel(statistic="squared increment")
    slopes = {
        arm: growth_exponents(increments.sel(arm=arm).values.mean(0), xs, u)
        for arm in arms.indexes["arm"]
        if arm != "law mean"
    }
    built = results[far.sufficiency]
    inserted = {
        arm: float(growth_exponents(built.sel(arm=arm).values.mean(0), built["x"].values).mean())
        for arm in built.indexes["arm"]
    }
    errors = {arm: float(results[far.cost].sel(arm=arm).values.mean()) for arm in ("intact", "frozen")}
    single = {name: float(value.min()) for name, value in slopes.items() if name not in ("intact", "frozen", "sham")}
    enough = [name for name, value in single.items() if value >= GROWS]
    frozen, intact, sham = quantities["frozen"].value, quantities["intact"].value, float(slopes["sham"].max())
    decision = CAUSES.decide(quantities)
    says = (
        f"{norms_are_the_cause(decision)} From |x| = {reached.replace('..', 'to')} the change per tenfold |x| goes "
        "like "
    )
    of_frozen = bound(CAUSES, quantities, "frozen", f"at least |x|^{GROWS}", f"at most |x|^{LEVEL}")
    of_intact = bound(CAUSES, quantities, "intact", f"at most |x|^{LEVEL}", f"at least |x|^{GROWS}")
    if decision.condition and decision.condition.quantity == "intact":
        says += f"{_power(intact)} in the unchanged model ({of_intact}), and {_power(frozen)} with frozen norms."
    else:
        says += f"{_power(frozen)} with frozen norms ({of_frozen}), and {_power(intact)} in the unchanged model."
    if len(enough) > 2:
        alone = f"freezing any of {len(enough)} norms alone is enough"
    else:
        alone = f"freezing {' or '.join(enough)} alone is enough" if enough else "no single norm is enough"
    caveat = f"The control intervention (context positions) gives {_power(sham)}; {alone}."
    causal = {
        "intervention": "freeze the scale of every norm at the query position, at its mean in distribution",
        "effect": frozen - intact,
        "intact": intact,
        "frozen": frozen,
        "sham": sham,
        "sham effect": sham - intact,
        "each norm alone": single,
        "sufficiency": {"untrained without norm": inserted["intact"], "LayerNorm inserted": inserted["norm inserted"]},
        "cost": {"in-distribution error intact": errors["intact"], "frozen": errors["frozen"]},
    }
    details = tuple(
        {CONDITION: _NAMES.get(arm, f"only {arm} frozen")}
        | {f"growth exponent, x {d} 0": float(v) for d, v in zip("><", value, strict=True)}
        for arm, value in slopes.items()
    )
    twin = _both(results.twin) if spread(results.twin).value > ROUNDING else {}
    return Evidence(quantities, says, scope=scope, causal=causal, twin=twin, details=details, caveat=caveat)


def _power(exponent: float) -> str:
    return f"|x|^{FALLS:g} or less" if exponent <= FALLS else like(exponent)


NOT_CONSTANT = Precondition(
    "spread", (ROUNDING, INF), "The prediction is constant whatever the norms do, so nothing can be decided."
)
ONSET = (
    "By the weights the plateau begins only at {value:.3g} times the largest |x| of training, beyond the range "
    "measured."
)
CONDITION = "test condition"
_NAMES = {
    "intact": "unchanged model",
    "frozen": "every norm frozen at the query",
    "sham": "control intervention: every norm frozen at the context positions",
}

SATURATION = Criterion(
    f"Supported if from 1e5 to 1e6 {EDGE} the prediction changes by at most {percent(LEVELS)} of its standard "
    f"deviation in distribution, ends within {percent(CLOSE)} of that from the values that the weights predict (asked "
    f"of pre-norm models), and the scale of some norm grows at least like |x|^{SCALE_GROWS}. Contradicted if it "
    f"changes by more than {percent(KEEPS_ON)}, and by at least {FADES} times as much as over the tenfold increase of "
    "|x| before.",
    (
        LEVEL_OFF,
        Condition("distance", (-INF, CLOSE), None, "log", optional=True),
        Condition("scale", (SCALE_GROWS, INF), None),
    ),
    (
        NOT_CONSTANT,
        Precondition(
            "read-in grows",
            (1, 1),
            "Centring removes the vector that x is read in by, so the size of the query never reaches a LayerNorm.",
            optional=True,
        ),
        Precondition("onset", (-INF, far.LINE[0]), ONSET, optional=True),
        Precondition(
            "fading",
            (FADES, INF),
            "The last tenfold increase of |x| changes the prediction by only {value:.2g} times what the one before "
            "did, so it may level off further out.",
            optional=True,
        ),
    ),
)

CAUSES = Criterion(
    "Growth exponent: the power of |x| by which the change of the prediction per tenfold |x| grows, from 1e3 to 1e6 "
    f"{EDGE}. Supported if in both directions it is at least {GROWS} with every norm frozen at the query and at most "
    f"{LEVEL} in the unchanged model. Contradicted if in one direction it is below {LEVEL} with every norm frozen, or "
    f"above {GROWS} in the unchanged model.",
    (Condition("frozen", (GROWS, INF), (-INF, LEVEL)), Condition("intact", (-INF, LEVEL), (GROWS, INF))),
    (NOT_CONSTANT, Precondition("onset", (-INF, far.LINE[1]), ONSET, optional=True)),
)

LAYERNORM_SATURATION_CLAIM = Claim(
    id="limits.layernorm_saturation",
    question="far from the data",
    short="LayerNorm makes the prediction level off far from the data.",
    quote=Quote(
        "as the nominator tends asymptotically towards a linear function at infinity it means that the "
        "ratio tends towards a constant that we have called boundary values",
        "Naim & Asher (2025), appendix G.1, proof of Proposition 6 (observed in section 5 and Figure 4)",
        "The paper proves this for one attention layer that is followed by a LayerNorm. We measure on the whole "
        f"model how much the prediction still changes as the query goes from 1e5 to 1e6 {EDGE}, compare "
        "the end value with what the weights predict, and ask that a LayerNorm's scale grow with the query.",
    ),
    kind="architecture",
    statement="Far from the data LayerNorm makes the prediction level off at boundary values that the weights fix",
    source="Naim & Asher (2025), section 5 and Proposition 6",
    criterion=SATURATION,
    measurements=(scale.own, far.certificate, far.ends, far.intact, far.contexts, far.norm_scales, boundary.approach),
    twin=(scale.own, far.ends),
    evidence=saturation,
    of_numbers=True,
    excluded=needs_growth,
    figures=("far_query",),
)

LAYERNORM_CAUSES_SATURATION_CLAIM = Claim(
    id="limits.layernorm_causes_saturation",
    question="far from the data",
    short="LayerNorm causes the prediction to level off far from the data.",
    quote=Quote(
        "Layer Normalization is responsible for boundary values",
        "Naim & Asher (2025), appendix G.1, Proposition 6 (Proposition 3 in section 6 says the same)",
        "The paper trains another model without LayerNorm and finds larger outputs. We keep the trained "
        "model, freeze the scale of every LayerNorm at the query, and compare how fast the changes of the prediction "
        f"grow as the query goes from 1e3 to 1e6 {EDGE}.",
    ),
    kind="architecture",
    statement="LayerNorm is what makes the prediction level off: with its scale frozen the prediction grows again",
    source="Naim & Asher (2025), Proposition 6; causal test ours",
    criterion=CAUSES,
    measurements=(scale.own, far.certificate, far.norm_arms, far.sufficiency, far.cost),
    twin=(scale.own, far.norm_arms),
    evidence=causes_saturation,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
)
