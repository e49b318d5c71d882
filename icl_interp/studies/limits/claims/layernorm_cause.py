"""The claim of `limits` that LayerNorm causes plateaus: f grows again once norms are frozen."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.places import DRAWN, MIDDLES
from icl_interp.resampling import Interval, bootstrap, slope
from icl_interp.studies.limits.claims.far_words import EDGE, SD, asked, onset_within, predicted
from icl_interp.studies.limits.claims.layernorm import (
    LEVEL_OFF,
    NOT_CONSTANT,
    ROUNDING,
    STILL,
    last_change,
    needs_norm,
    spread,
)
from icl_interp.studies.limits.measurements import between, certificates, far
from icl_interp.studies.limits.measurements.far import power

FALLS = -3.0  # a growth exponent that stands for minus infinity
# Growth exponents from which f grows and up to which it levels off.
GROWS = 0.8
LEVEL = 0.2
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
    shape = squares.shape[:-1]
    if not len(xs):  # the model overflows everywhere
        return np.full((*shape, 2), np.nan)
    floor = max((STILL * u) ** 2, 1e-300)
    finite = np.isfinite(squares).reshape(-1, len(xs)).all(0)
    each = []
    for sign in (1, -1):
        keep = np.flatnonzero((np.sign(xs) == sign) & finite)
        if not len(keep):  # the model overflows
            each.append(np.full(shape, np.nan))
            continue
        # From the nearest x to the farthest.
        keep = keep[np.argsort(np.abs(xs[keep]))]
        log_xs = np.log(np.abs(xs[keep]))
        log_sizes = 0.5 * np.log(np.maximum(squares[..., keep], floor))
        grown = np.maximum(slope(log_xs, log_sizes), FALLS)
        last = squares[..., keep[-1]]
        each.append(np.where(last > floor, grown, FALLS))
    return np.stack(each, -1)


def exponent(squares: Sequence[DataArray], u: float, slower: bool) -> Interval:
    """The growth exponent of f, in the direction and kind of places where f grows slower.

    Where `slower` is false, it is that where f grows faster.

    Args:
        squares: of f's increments between places, (unit, x) each: known places, and drawn ones.
        u: the unit of outputs.
        slower: which counts.
    """
    xs = []
    arrays = []
    for curve in squares:
        known = np.isfinite(curve.values).all(0)
        xs.append(curve["x"].values[known])
        arrays.append(curve.values[:, known])
    # With drawn places, pairs of units are what is resampled.
    if len(arrays) > 1:
        arrays = list(map(between.pairs, arrays))
    pick = np.min if slower else np.max

    def worst(*means: np.ndarray) -> np.ndarray:
        each = []
        for mean, x in zip(means, xs, strict=True):
            each.append(growth_exponents(mean, x, u))
        return pick(np.concatenate(each, -1), axis=-1)

    return bootstrap(worst, *arrays)


def _both(results: Results, drawn: Mapping[str, DataArray] | None = None) -> dict[str, Interval]:
    """Growth exponents of both arms; without drawn places (of a control) at known ones alone."""
    arms = results[far.norm_arms].sel(statistic="squared increment")
    u = output_unit.u(results)
    found = {}
    for arm in ("frozen", "intact"):
        squares = [arms.sel(arm=arm)]
        if drawn:
            squares.append(drawn[arm])
        found[arm] = exponent(squares, u, arm == "frozen")
    return found


def at_drawn_places(results: Results) -> dict[str, DataArray]:
    """Squared steps between drawn places from 1e3 to 1e6 units, in both arms.

    There are none where they were not measured.
    """
    if between.drawn not in results or between.drawn_growth not in results:
        return {}
    frozen = results[between.drawn_growth]
    steps = results[between.drawn].sel(statistic="step")
    # The first stratum from 1e3 on: its step begins before.
    inner = np.isin(np.abs(DRAWN), MIDDLES[[6]])
    also_frozen = np.isin(steps["x"].values, frozen["x"].values)
    intact = steps.where(~inner)[:, also_frozen]
    return {"frozen": frozen, "intact": intact}


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How fast f grows in the unchanged model, and once the norms' scales are frozen."""
    size = spread(results)
    found: dict[str, Found] = {"spread": size}
    if not size >= ROUNDING:
        return found
    drawn = at_drawn_places(results)
    found |= _both(results, drawn)
    u = output_unit.u(results)
    found["change"] = last_change(results[far.ends], u, results[between.drawn])
    onset = predicted(results[certificates.certificate], facts.x_unit)
    if onset is not None:
        found["onset"] = onset
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The same exponents of an untrained control, at known places; none where it is constant."""
    control = results.control
    if spread(control) > ROUNDING:
        return _both(control)
    return {}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The control intervention, each norm alone, a norm put into a bare model, and the cost."""
    arms = results[far.norm_arms]
    xs = arms["x"].values
    nearest = far.GROWTH[far.GROWTH > 0].min()
    first = power(nearest * facts.x_unit)
    last = power(xs.max())
    where = f"|x| = {first} .. {last}, at fixed and at drawn places"
    scope = asked(facts, where, far.n_contexts(results[far.ends]))
    if "frozen" not in found:
        return Remarks(scope=scope)
    # Growth exponents of every arm, in both directions, and of each norm frozen alone.
    increments = arms.sel(statistic="squared increment")
    u = output_unit.u(results)
    slopes = {}
    alone = {}
    for arm in arms.indexes["arm"]:
        if arm == "law mean":
            continue
        squares = increments.sel(arm=arm).values.mean(0)
        slopes[arm] = growth_exponents(squares, xs, u)
        if arm not in _NAMES:
            alone[arm] = float(slopes[arm].min())
    intact = found["intact"].value
    frozen = found["frozen"].value
    sham = float(slopes["sham"].max())
    return Remarks(
        scope=scope,
        caveat=f"It is {_power(intact)} in the unchanged model and {_power(sham)} "
        f"under the control intervention; {_enough(alone)}.",
        causal={
            "intervention": "freeze the scale of every norm at the query position, at its mean in "
            "distribution",
            "effect": frozen - intact,
            "intact": intact,
            "frozen": frozen,
            "sham": sham,
            "sham effect": sham - intact,
            "each norm alone": alone,
            "sufficiency": _sufficiency(results[far.sufficiency]),
            "cost": _cost(results[far.cost]),
        },
        details=tuple(_row(arm, value) for arm, value in slopes.items()),
    )


def _sufficiency(built: DataArray) -> dict[str, float]:
    """Growth exponents of an untrained model without a norm, and with one put in."""
    xs = built["x"].values
    names = {"intact": "untrained without norm", "norm inserted": "LayerNorm inserted"}
    found = {}
    for arm, name in names.items():
        squares = built.sel(arm=arm).values.mean(0)
        exponents = growth_exponents(squares, xs)
        found[name] = float(exponents.mean())
    return found


def _cost(errors: DataArray) -> dict[str, float]:
    """Errors in distribution, with norms intact and frozen."""
    intact = errors.sel(arm="intact").values
    frozen = errors.sel(arm="frozen").values
    return {"in-distribution error intact": float(intact.mean()), "frozen": float(frozen.mean())}


def _enough(alone: Mapping[str, float]) -> str:
    """Which norms are enough to freeze, by the growth exponents with each of them frozen alone."""
    enough = [name for name, exponent in alone.items() if exponent >= GROWS]
    if not enough:
        return "no single norm is enough"
    if len(enough) > 2:
        return f"freezing any of {len(enough)} norms alone is enough"
    return f"freezing {' or '.join(enough)} alone is enough"


def _row(arm: str, exponents: np.ndarray) -> dict[str, Any]:
    """Growth exponents of a test condition, in both directions."""
    row: dict[str, Any] = {CONDITION: _NAMES.get(arm, f"only {arm} frozen")}
    for direction, value in zip("><", exponents, strict=True):
        row[f"growth exponent, x {direction} 0"] = float(value)
    return row


def _power(exponent: float) -> str:
    """A growth exponent in words, without a minus before 0."""
    if exponent <= FALLS:
        return f"{FALLS:g} or less"
    return f"{round(exponent, 2) + 0.0:.2f}"


CAUSES = Criterion(
    (
        Condition(
            "frozen",
            "growth exponent of the prediction with every norm frozen",
            at_least(GROWS),
            at_most(LEVEL),
            denied="LayerNorm is not the cause: with every norm frozen the prediction does not "
            "grow either.",
        ),
        Condition(
            "intact",
            "growth exponent of the prediction in the unchanged model",
            at_most(LEVEL),
            at_least(GROWS),
        ),
        # Changes that stay as large as they are have the exponent 0, but nothing has levelled off.
        Condition(
            "change",
            "change of the unchanged model's prediction over the last tenfold increase of |x|",
            LEVEL_OFF.supports,
            unit=SD,
            scale="log",
        ),
    ),
    (NOT_CONSTANT, onset_within(far.LINE[1])),
    terms="The growth exponent is the power of |x| with which the change of the prediction per "
    f"tenfold |x| grows, from 1e3 to 1e6 {EDGE}. It is 1 for a line and negative for a function "
    "that levels off. Both directions count, at fixed and at drawn places. Norms are frozen at "
    "the query.",
)

LAYERNORM_CAUSES_SATURATION_CLAIM = Claim(
    id="limits.layernorm_causes_saturation",
    question="far from the data",
    statement="LayerNorm makes the prediction level off, and with every norm frozen it grows "
    "again.",
    denied="LayerNorm does not make the prediction level off: in the unchanged model it keeps "
    "growing.",
    quote=Quote(
        "Layer Normalization is responsible for boundary values",
        "Naim & Asher (2025), appendix G.1, Proposition 6 (Proposition 3 in section 6 says the "
        "same)",
        "The paper trains another model without LayerNorm and finds larger outputs. We keep the "
        "trained model, freeze the scale of every LayerNorm at the query, and compare how fast the "
        f"changes of the prediction grow as the query goes from 1e3 to 1e6 {EDGE}.",
    ),
    kind="architecture",
    reads="its norms, which are edited",
    criterion=CAUSES,
    measurements=(
        output_unit.own,
        certificates.certificate,
        far.ends,
        between.drawn,
        between.drawn_growth,
        far.norm_arms,
        far.sufficiency,
        far.cost,
    ),
    control=(output_unit.own, far.norm_arms),
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_norm,
    figures=("growth",),
)
