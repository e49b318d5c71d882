"""The claims of `limits` about LayerNorm and boundary values: it makes f level off, and it is the cause of that."""

from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import scale
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.studies.limits.measurements.far import power

SCOPE = "these weights, this task, the query arm (context in distribution), "
ROUNDING = 1e-11  # spread of f in distribution, over its mean, up to which it is rounding
STILL = 1e-9  # change of f over a decade, in u, up to which f stands still
FALLS = -3.0  # a growth exponent that stands for minus infinity
GROWS, LEVEL = 0.8, 0.2  # growth exponents from which f grows and up to which it levels off
FADES = 0.5  # change of f over a decade over that of the decade before, below which f may level off further out


def needs_norm(facts: Facts) -> str | None:
    """Why a claim about LayerNorm cannot apply."""
    kind = facts.config.normalization_type
    if kind is None:
        return "the model has no normalisation"
    if kind == "RMS":
        return "the model normalises by the root mean square, which does not centre; the claim is about LayerNorm"
    if kind == "Tanh":
        return "the model squashes by tanh and divides by no scale; the claim is about LayerNorm"
    return None


def needs_growth(facts: Facts) -> str | None:
    """Why LayerNorm cannot be what a far query meets first."""
    if facts.config.embed_bound is None:
        return needs_norm(facts)
    return needs_norm(facts) or "tokens are read in as bounded vectors (embed_bound): no LayerNorm sees the query grow"


def spread(results: Results) -> Estimate:
    """u over the size of f in distribution: whether the output is more than a constant."""
    mean, u = (float(results[scale.own].sel(statistic=s)) for s in ("mean", "u"))
    return Estimate.exactly("spread of f in distribution over its mean", u / max(abs(mean), u) if u > 0 else 0.0)


# ---- saturation -----------------------------------------------------------------------------------------------------

LEVEL_OFF = Condition("change", (-INF, 0.01), (0.05, INF), "log")


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
    measured = at_end.mean((1, 2))
    plateau = Estimate.of("plateau at +inf", bootstrap(lambda mean: mean, at_end[0].mean(-1)), "f")
    near, end = (power(x * x_unit) for x in far.LINE[-2:])
    scope = f"{SCOPE}|x| = {near} .. {end}"
    quantities = {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        return Evidence(quantities, f"f is {measured[0]:.6g} in distribution and far out.", plateau, scope)
    change = last_change(ends, u)
    quantities["change"] = Estimate.of("change of f over the last decade", change, "u")
    if change.high > LEVEL_OFF.supports[1]:
        quantities["fading"] = Estimate.of("change of f over the last decade over that before", fading(ends))
    level, found = LEVEL_OFF.supports[1], quantities["change"]
    lasts = found.within(LEVEL_OFF.contradicts) and quantities["fading"].low >= FADES
    keeps = "It keeps changing" if lasts else "Open"
    says = [
        f"{'It levels off' if found.within(LEVEL_OFF.supports) else keeps}: from |x| = {near} to {end} f changes by "
        f"{change.value * u:.2g}, which is {change.value:.2g} of its standard deviation in distribution, u = {u:.3g} "
        f"(interval up to {change.high:.2g} u; level: at most {level:g} u)."
    ]
    if facts.config.norm_position == "pre":
        closed = np.array([weights["plateau +"], weights["plateau -"]])
        grows = bool(np.isfinite(closed).all())
        quantities["read-in grows"] = Estimate.exactly("whether centring leaves the read-in", grows)
        if grows:
            quantities["onset"] = _onset(weights["onset"] / x_unit)
            distance = Estimate.of("distance to the closed form", _distance(ends, closed, u), "u")
            quantities["distance"] = distance
            says.append(
                f"There it is {measured[0]:.4g} and {measured[1]:.4g}, within {distance.value:.2g} u of the values "
                "that the weights alone predict."
            )
    else:
        apart = float(at_end.std((1, 2)).max())
        says.append(
            f"There it is {measured[0]:.4g} and {measured[1]:.4g} on average over contexts, which differ by "
            f"{apart:.2g} (standard deviation; no closed form after post-norm layers)."
        )
    scales = scale_growth(results[far.norm_scales], x_unit)
    largest = max(scales, key=lambda name: scales[name], default="")
    quantities["scale"] = Estimate.exactly("largest growth exponent of a norm's scale", scales.get(largest, 0.0))
    says.append(f"Of the norms' scales that of {largest} grows most, like |x|^{scales.get(largest, 0.0):.2f}.")
    details: list[dict[str, Any]] = [
        {"direction": d, "measured": float(m), "closed form": float(weights[f"plateau {d}"])}
        for d, m in zip("+-", measured, strict=True)
    ]
    onset = _measured_onset(results[boundary.approach], u)
    details.append(
        {"c": weights["c"], "r": weights["r"], "u": u, "measured onset": onset, "predicted onset": weights["onset"]}
    )
    details += [{"norm": name, "E_sigma": value} for name, value in scales.items()]
    twin = {}
    if spread(results.twin).value > ROUNDING:
        name = "change of f over the last decade"
        twin["change"] = Estimate.of(name, last_change(results.twin[far.ends], scale.u(results.twin)), "u")
    return Evidence(quantities, " ".join(says), plateau, scope, twin=twin, details=tuple(details))


def _onset(value: float) -> Estimate:
    return Estimate.exactly("predicted onset of saturation", value, "units of x")


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
    return {
        "frozen": Estimate.of("growth exponent, norms frozen", exponent(arms.sel(arm="frozen"), u, slower=True)),
        "intact": Estimate.of("growth exponent, intact", exponent(arms.sel(arm="intact"), u, slower=False)),
    }


def causes_saturation(results: Results, facts: Facts) -> Evidence:
    """Does f, which levels off, grow again once the norms' scales are frozen at the query?"""
    arms, u, x_unit = results[far.norm_arms], scale.u(results), facts.x_unit
    xs = arms["x"].values
    reached = f"{power(far.GROWTH[far.GROWTH > 0].min() * x_unit)} .. {power(xs.max())}"
    scope, quantities = f"{SCOPE}|x| = {reached}", {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        return Evidence(quantities, "f is the same at every query.", scope=scope)
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
    levels = "f levels off" if intact <= LEVEL else "f does not level off"
    again = "it grows" if frozen >= GROWS else "it does not grow as a line does"
    says = (
        f"With its norms {levels}, and with every norm frozen at the query {again}: from |x| = {reached} its changes "
        f"per decade go like |x|^{_power(intact)} intact and |x|^{_power(frozen)} frozen (a plateau: at most {LEVEL}, "
        f"a line: 1, at least {GROWS} asked; sham, context positions frozen: {_power(sham)}). Alone, "
        + (f"{' or '.join(enough)} is enough." if enough else "no norm is enough.")
        + f" Freezing costs: in distribution the error goes from {errors['intact']:.2g} to {errors['frozen']:.2g}."
    )
    causal = {
        "intervention": "freeze every norm's scale at the query position, at its in-distribution mean",
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
        {"arm": arm, **{f"growth exponent, {d}": float(v) for d, v in zip("+-", value, strict=True)}}
        for arm, value in slopes.items()
    )
    twin = _both(results.twin) if spread(results.twin).value > ROUNDING else {}
    return Evidence(quantities, says, scope=scope, causal=causal, twin=twin, details=details)


def _power(value: float) -> str:
    return "(-inf)" if value <= FALLS else f"{value:.2f}"


NOT_CONSTANT = Precondition(
    "spread", (ROUNDING, INF), "The output is constant whatever the norms do, so nothing is decided."
)
ONSET = "But the predicted onset of saturation, |x| = {value:.3g} units of x, lies beyond the range."

LAYERNORM_SATURATION_CLAIM = Claim(
    id="limits.layernorm_saturation",
    question="far from the data",
    short="LayerNorm makes the output level off far from the data.",
    quote=Quote(
        "as the nominator tends asymptotically towards a linear function at infinity it means that the "
        "ratio tends towards a constant that we have called boundary values",
        "Naim & Asher (2025), appendix G.1, proof of Proposition 6 (observed in section 5 and Figure 4)",
        "The paper proves this for one attention layer that is followed by a LayerNorm. We measure on the whole "
        "model how much the output still changes over the last decade of the query, from 1e5 to 1e6 units, compare "
        "the end value with what the weights predict, and ask that a LayerNorm's scale grow with the query.",
    ),
    kind="architecture",
    statement="Far from the data LayerNorm makes the output level off at boundary values that the weights fix",
    source="Naim & Asher (2025), section 5 and Proposition 6",
    criterion=Criterion(
        "change of f from 1e5 to 1e6 units <= 0.01 u, within 0.01 u of the closed form (pre-LN), and some norm's scale "
        "grows at least like |x|^0.9 / change > 0.05 u that does not halve from one decade to the next; u is the "
        "standard deviation of f in distribution",
        (
            LEVEL_OFF,
            Condition("distance", (-INF, 0.01), None, "log", optional=True),
            Condition("scale", (0.9, INF), None),
        ),
        (
            NOT_CONSTANT,
            Precondition(
                "read-in grows",
                (1, 1),
                "But centring removes the read-in, so the query's size never reaches a LayerNorm.",
                optional=True,
            ),
            Precondition("onset", (-INF, far.LINE[0]), ONSET, optional=True),
            Precondition(
                "fading",
                (FADES, INF),
                "But a decade changes f by {value:.2g} of what the one before did, so it may level off further out.",
                optional=True,
            ),
        ),
    ),
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
    short="LayerNorm causes the output to level off far from the data.",
    quote=Quote(
        "Layer Normalization is responsible for boundary values",
        "Naim & Asher (2025), appendix G.1, Proposition 6 (Proposition 3 in section 6 says the same)",
        "The paper trains another model without LayerNorm and finds larger outputs. We keep the trained "
        "model, freeze the scale of every LayerNorm at the query, and compare how fast the output's changes "
        "grow from 1e3 to 1e6 units.",
    ),
    kind="architecture",
    statement="LayerNorm is what makes the output level off: with its scale frozen the output grows again",
    source="Naim & Asher (2025), Proposition 6; causal test ours",
    criterion=Criterion(
        "growth exponent of f's changes per decade over 1e3 .. 1e6 units, each direction: with norms frozen >= 0.8 and "
        "intact <= 0.2 / frozen < 0.2 or intact > 0.8",
        (Condition("frozen", (GROWS, INF), (-INF, LEVEL)), Condition("intact", (-INF, LEVEL), (GROWS, INF))),
        (NOT_CONSTANT, Precondition("onset", (-INF, far.LINE[1]), ONSET, optional=True)),
    ),
    measurements=(scale.own, far.certificate, far.norm_arms, far.sufficiency, far.cost),
    twin=(scale.own, far.norm_arms),
    evidence=causes_saturation,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
)
