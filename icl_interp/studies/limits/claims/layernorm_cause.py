"""The claim of `limits` that LayerNorm causes plateaus: f grows again once norms are frozen."""

from collections.abc import Mapping, Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.places import DRAWN, MIDDLES
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import (
    EDGE,
    SD,
    asked,
    like,
    norms_are_the_cause,
    onset_within,
    percent,
    predicted,
)
from icl_interp.studies.limits.claims.layernorm import (
    LEVEL_OFF,
    LEVELS,
    NOT_CONSTANT,
    ROUNDING,
    STILL,
    last_change,
    needs_norm,
    spread,
)
from icl_interp.studies.limits.measurements import between, far
from icl_interp.studies.limits.measurements.far import power

FALLS = -3.0  # a growth exponent that stands for minus infinity
GROWS, LEVEL = 0.8, 0.2  # growth exponents from which f grows and up to which it levels off
CONDITION = "test condition"
_NAMES = {
    "intact": "unchanged model",
    "frozen": "every norm frozen at the query",
    "sham": "control intervention: every norm frozen at the context positions",
}


def growth_exponents(squares: np.ndarray, xs: np.ndarray, u: float = 0.0) -> np.ndarray:
    """How fast f grows, by its increments: d log |f(10 x) - f(x)| / d log |x|, by direction.

    The result has the axes `(..., direction)`. Of a line it is 1, of a plateau that is neared like
    1/|x| it is -1, and a constant added to f leaves it. `FALLS` stands for minus infinity: for
    increments at the end of at most `STILL` u, and for slopes below.

    Args:
        squares: mean squares of f(10 x) - f(x), `(..., x)`; NaN where 10 x was not measured.
        xs: x, `(x,)`, in both directions.
        u: the unit of outputs.
    """
    each, floor = [], max((STILL * u) ** 2, 1e-300)
    for sign in (1, -1):
        keep = np.flatnonzero(
            (np.sign(xs) == sign) & np.isfinite(squares).reshape(-1, len(xs)).all(0)
        )
        if not len(keep):  # the model overflows
            each.append(np.full(squares.shape[:-1], np.nan))
            continue
        keep = keep[np.argsort(np.abs(xs[keep]))]
        grown = slope(np.log(np.abs(xs[keep])), 0.5 * np.log(np.maximum(squares[..., keep], floor)))
        each.append(np.where(squares[..., keep[-1]] > floor, np.maximum(grown, FALLS), FALLS))
    return np.stack(each, -1)


def exponent(squares: Sequence[DataArray], u: float, slower: bool) -> Interval:
    """The growth exponent of f, in the direction and kind of places where f grows slower.

    Where `slower` is false, it is that where f grows faster.

    Args:
        squares: of f's increments between places, (unit, x) each: known places, and drawn ones.
        u: the unit of outputs.
        slower: which counts.
    """
    known = [np.isfinite(curve.values).all(0) for curve in squares]
    xs = [curve["x"].values[keep] for curve, keep in zip(squares, known, strict=True)]
    pick = np.min if slower else np.max

    def worst(*means: np.ndarray) -> np.ndarray:
        each = [growth_exponents(mean, x, u) for mean, x in zip(means, xs, strict=True)]
        return pick(np.concatenate(each, -1), axis=-1)

    each = [curve.values[:, keep] for curve, keep in zip(squares, known, strict=True)]
    return bootstrap(worst, *(each if len(each) == 1 else map(between.pairs, each)))


def _both(results: Results, drawn: Mapping[str, DataArray] | None = None) -> dict[str, Estimate]:
    """Growth exponents of both arms; without drawn places (of a control) at known ones alone."""
    arms, u = results[far.norm_arms].sel(statistic="squared increment"), output_unit.u(results)
    names = {"frozen": "every norm frozen", "intact": "unchanged model"}
    found = {}
    for arm, name in names.items():
        squares = [arms.sel(arm=arm), *([drawn[arm]] if drawn else [])]
        interval = exponent(squares, u, arm == "frozen")
        found[arm] = Estimate.of(f"growth exponent of the prediction, {name}", interval)
    return found


def at_drawn_places(results: Results) -> dict[str, DataArray]:
    """Squared steps between drawn places from 1e3 to 1e6 units, in both arms.

    There are none where they were not measured.
    """
    if between.drawn not in results or between.drawn_growth not in results:
        return {}
    frozen = results[between.drawn_growth]
    steps = results[between.drawn].sel(statistic="step")
    inner = np.isin(
        np.abs(DRAWN), MIDDLES[[6]]
    )  # the first stratum from 1e3 on: its step begins before
    return {
        "frozen": frozen,
        "intact": steps.where(~inner)[:, np.isin(steps["x"].values, frozen["x"].values)],
    }


def causes_saturation(results: Results, facts: Facts) -> Evidence:
    """Does f, which levels off, grow again once the norms' scales are frozen at the query?"""
    arms, u, x_unit = results[far.norm_arms], output_unit.u(results), facts.x_unit
    xs = arms["x"].values
    reached = f"{power(far.GROWTH[far.GROWTH > 0].min() * x_unit)} .. {power(xs.max())}"
    scope = asked(facts, f"|x| = {reached}, known and drawn places", results[far.ends][0, 0].size)
    quantities = {"spread": spread(results)}
    if not quantities["spread"].within(NOT_CONSTANT.holds):
        return Evidence(quantities, "", scope=scope)
    quantities |= _both(results, at_drawn_places(results))
    change = last_change(results[far.ends], u, results[between.drawn])
    name = "change of the unchanged model's prediction over the last tenfold increase of |x|"
    quantities["change"] = Estimate.of(name, change, SD)
    if (onset := predicted(results[far.certificate], x_unit)) is not None:
        quantities["onset"] = onset
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
    errors = {
        arm: float(results[far.cost].sel(arm=arm).values.mean()) for arm in ("intact", "frozen")
    }
    single = {
        name: float(value.min())
        for name, value in slopes.items()
        if name not in ("intact", "frozen", "sham")
    }
    enough = [name for name, value in single.items() if value >= GROWS]
    frozen, intact, sham = (
        quantities["frozen"].value,
        quantities["intact"].value,
        float(slopes["sham"].max()),
    )
    decision = CAUSES.decide(quantities)
    says = (
        f"{norms_are_the_cause(decision)} From |x| = {reached.replace('..', 'to')} the change per "
        "tenfold |x| goes like "
    )
    of_frozen = bound(CAUSES, quantities, "frozen", f"at least |x|^{GROWS}", f"at most |x|^{LEVEL}")
    of_intact = bound(CAUSES, quantities, "intact", f"at most |x|^{LEVEL}", f"at least |x|^{GROWS}")
    if decision.condition and decision.condition.quantity == "intact":
        says += (
            f"{_power(intact)} in the unchanged model ({of_intact}), and {_power(frozen)} with "
            "frozen norms."
        )
    else:
        says += (
            f"{_power(frozen)} with frozen norms ({of_frozen}), and {_power(intact)} in the "
            "unchanged model."
        )
    if len(enough) > 2:
        alone = f"freezing any of {len(enough)} norms alone is enough"
    else:
        alone = (
            f"freezing {' or '.join(enough)} alone is enough"
            if enough
            else "no single norm is enough"
        )
    caveat = f"The control intervention (context positions) gives {_power(sham)}; {alone}."
    causal = {
        "intervention": "freeze the scale of every norm at the query position, at its mean in "
        "distribution",
        "effect": frozen - intact,
        "intact": intact,
        "frozen": frozen,
        "sham": sham,
        "sham effect": sham - intact,
        "each norm alone": single,
        "sufficiency": {
            "untrained without norm": inserted["intact"],
            "LayerNorm inserted": inserted["norm inserted"],
        },
        "cost": {"in-distribution error intact": errors["intact"], "frozen": errors["frozen"]},
    }
    details = tuple(
        {CONDITION: _NAMES.get(arm, f"only {arm} frozen")}
        | {f"growth exponent, x {d} 0": float(v) for d, v in zip("><", value, strict=True)}
        for arm, value in slopes.items()
    )
    control = _both(results.control) if spread(results.control).value > ROUNDING else {}
    return Evidence(
        quantities,
        says,
        scope=scope,
        causal=causal,
        control=control,
        details=details,
        caveat=caveat,
    )


def _power(exponent: float) -> str:
    return f"|x|^{FALLS:g} or less" if exponent <= FALLS else like(exponent)


CAUSES = Criterion(
    (
        Condition("frozen", "", (GROWS, INF), (-INF, LEVEL)),
        Condition("intact", "", (-INF, LEVEL), (GROWS, INF)),
        # Changes that stay as large as they are have the exponent 0, but nothing has levelled off.
        Condition("change", "", LEVEL_OFF.supports, None, scale="log"),
    ),
    (NOT_CONSTANT, onset_within(far.LINE[1])),
    terms=(
        "Growth exponent: the power of |x| by which the change of the prediction per tenfold |x| "
        f"grows, from 1e3 to 1e6 {EDGE}, between known places and between drawn ones. Supported if in "
        f"both directions it is at least {GROWS} with every norm frozen at the query and at most "
        f"{LEVEL} in the unchanged model, which changes by at most {percent(LEVELS)} of its standard "
        "deviation in distribution from 1e5 to 1e6. Contradicted if in one direction it is below "
        f"{LEVEL} with every norm frozen, or above {GROWS} in the unchanged model."
    ),
)

LAYERNORM_CAUSES_SATURATION_CLAIM = Claim(
    id="limits.layernorm_causes_saturation",
    question="far from the data",
    short="LayerNorm causes the prediction to level off far from the data.",
    quote=Quote(
        "Layer Normalization is responsible for boundary values",
        "Naim & Asher (2025), appendix G.1, Proposition 6 (Proposition 3 in section 6 says the "
        "same)",
        "The paper trains another model without LayerNorm and finds larger outputs. We keep the "
        "trained model, freeze the scale of every LayerNorm at the query, and compare how fast the "
        f"changes of the prediction grow as the query goes from 1e3 to 1e6 {EDGE}.",
    ),
    kind="architecture",
    statement="LayerNorm is what makes the prediction level off: with its scale frozen the "
    "prediction grows again",
    source="Naim & Asher (2025), Proposition 6; causal test ours",
    criterion=CAUSES,
    measurements=(
        output_unit.own,
        far.certificate,
        far.ends,
        between.drawn,
        between.drawn_growth,
        far.norm_arms,
        far.sufficiency,
        far.cost,
    ),
    control=(output_unit.own, far.norm_arms),
    evidence=causes_saturation,
    of_numbers=True,
    excluded=needs_norm,
    figures=("growth",),
)
