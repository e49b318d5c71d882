"""The claim of `limits` that boundary values are reached at once beyond the training data."""

from collections.abc import Mapping

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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.far_words import (
    EDGE,
    ONSET,
    SD,
    asked,
    of,
    percent,
    predicted,
)
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.measurements import between, boundary, certificates, context, far
from icl_interp.studies.limits.measurements.context import ROUNDING
from icl_interp.studies.limits.measurements.far import power

SHOWN = (
    *("trained range", "zone", "peak", "peak at", "onset", "level", "level, spread"),
    *("one decade out", "one decade out, spread", "approach rate", "E_f", "E_N", "E_sigma"),
)
# Decades beyond the trained range up to which f is level at once, and from which it is late.
SOON = 1.0
LATE = 2.0
OWN_SD = "standard deviation of the prediction in distribution"


def decades_to_level(curve: DataArray, edge: float, level: float) -> Interval:
    """Decades from the edge of the trained range to the onset of the plateau, the slower direction.

    Args:
        curve: `far/approach`.
        edge: the largest |x| trained on.
        level: the distance of f from its end that counts as level.
    """
    gap = curve.sel(statistic="gap").values
    places = []
    gaps = []
    for sign in boundary.SIGNS.values():
        xs, keep = boundary.direction(curve, sign)
        places.append(xs)
        gaps.append(gap[:, keep])

    def slower(*means: np.ndarray) -> np.ndarray:
        onsets = []
        for xs, square in zip(places, means, strict=True):
            distance = np.sqrt(square)
            onsets.append(boundary.settles(xs, distance, level))
        latest = np.max(onsets, axis=0)
        return np.log10(latest / edge)

    return bootstrap(slower, *gaps)


def _moves(curve: DataArray, intact: DataArray, edge: float, u: float) -> Interval:
    """The larger of two distances in u: of f from its end in the trained range, of its two ends."""
    inside = np.abs(curve["x"].values) <= edge
    gap = curve.sel(statistic="gap").values[:, inside]
    xs = intact["x"].values
    right = int(xs.argmax())
    left = int(xs.argmin())
    ends = intact.sel(statistic="mean").values[:, [right, left]]

    def larger(square: np.ndarray, end: np.ndarray) -> np.ndarray:
        from_end = np.sqrt(square.max(-1))
        between_ends = np.abs(end[..., 0] - end[..., 1])
        distance = np.maximum(from_end, between_ends)
        return distance / u

    return bootstrap(larger, gap, ends)


def _drift(beyond: DataArray, drawn: DataArray, u: float) -> Interval:
    """How much f still changes beyond 1e6 units, in u: root mean square.

    It is the largest of all directions and places.
    """
    change = (beyond[:, 2].drop_vars("x") - beyond[:, 0].drop_vars("x")) / u  # to 1e9
    known = far.squares_of(change).mean(-1).T  # (unit, direction)
    places = between.stratum(1e6, 1e10)
    gap = drawn.sel(statistic="gap").values[:, places]

    def largest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        square = np.maximum(a.max(-1), b.max(-1))
        return np.sqrt(square)

    return bootstrap(largest, between.pairs(known), between.pairs(gap / u**2))


def unsettled(drawn: DataArray, u: float) -> Interval:
    """Distance of f from its end at drawn places beyond `SOON`, in u: root mean square.

    It is the largest of all places.
    """
    places = between.stratum(10**SOON, 1e6)
    gap = drawn.sel(statistic="gap").values[:, places]

    def largest(mean: np.ndarray) -> np.ndarray:
        distance = np.sqrt(mean).max(-1)
        return distance / u

    return bootstrap(largest, between.pairs(gap))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far beyond the training range f reaches its boundary value, and whether it has one."""
    curve = results[boundary.approach]
    intact = results[far.intact]
    drawn = results[between.drawn]
    u = output_unit.u(results)
    edge = facts.x_unit
    # Without an interval: it asks whether u is rounding, which does not turn on which prompts were
    # drawn.
    squares = intact.sel(statistic="mean square").values
    largest = float(np.sqrt(squares.max()))
    found: dict[str, Found] = {"scale": u / largest if largest else 0.0}
    if not u > ROUNDING * largest:
        return found
    onset = decades_to_level(curve, edge, boundary.LEVEL * u)
    reached = Interval(10**onset.value, 10**onset.low, 10**onset.high)
    moves = _moves(curve, intact, edge, u)
    drift = _drift(results[context.beyond], drawn, u)
    found["moves"] = Estimate.of("moves", moves, SD)
    found["reached"] = Estimate.of("reached", reached, EDGE)
    found["drift"] = Estimate.of("drift", drift, SD)
    found["onset"] = onset
    found["unsettled"] = unsettled(drawn, u)
    begins = predicted(results[certificates.certificate], edge)
    if begins is not None:
        found["predicted onset"] = begins
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Interval]:
    """The onset of an untrained control; none where its output is constant."""
    u = output_unit.u(results.control)
    if not u > 0:
        return {}
    curve = results.control[boundary.approach_decades]
    onset = decades_to_level(curve, facts.x_unit, boundary.LEVEL * u)
    return {"onset": onset}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The places, how much contexts still differ further out, and both directions."""
    edge = facts.x_unit
    last = power(1e6 * edge)
    last_drawn = power(1e10 * edge)
    where = (
        f"|x| = {0.1 * edge:g} .. {last}, at fixed and at drawn places, and drawn "
        f"ones to {last_drawn}"
    )
    scope = asked(facts, where, far.n_contexts(results[far.ends]))
    if "onset" not in found:
        return Remarks(scope=scope)
    u = output_unit.u(results)
    values = {}
    for row in results[boundary.boundary].to_dict("records"):
        values[row["direction"], row["quantity"]] = row["value"]
    # A row for each direction, and the direction in which contexts differ more.
    rows = []
    spreads = []
    for sign in boundary.SIGNS:
        shown = {name: values[sign, name] for name in SHOWN}
        rows.append({"direction": sign, **shown, OWN_SD: u})
        spreads.append(shown["one decade out, spread"])
    differ = of(max(spreads) / u)
    return Remarks(
        scope=scope,
        caveat=f"At 10 {EDGE} predictions still differ between contexts by {differ} their "
        "standard deviation in distribution.",
        details=tuple(rows),
    )


IMMEDIATE = Criterion(
    (
        Condition(
            "onset",
            "|x| at which the plateau begins, over the largest |x| of training",
            at_most(SOON),
            at_least(LATE),
            unit="log10",
        ),
        Condition(
            "unsettled",
            f"distance from the end value at places drawn beyond {10**SOON:.0f} {EDGE}",
            at_most(boundary.LEVEL),
            unit=SD,
            scale="log",
        ),
    ),
    (
        Precondition(
            "scale",
            at_least(ROUNDING),
            "The prediction is constant in distribution, so it has no standard deviation to "
            "compare with.",
        ),
        Precondition(
            "moves",
            at_least(boundary.LEVEL),
            "Along the query the prediction moves by {value:.2g} times its standard deviation in "
            f"distribution ({boundary.LEVEL} needed), so nothing has to settle.",
        ),
        Precondition("predicted onset", at_most(boundary.LAST), ONSET, optional=True),
        Precondition(
            "drift",
            at_most(boundary.LEVEL),
            f"From 1e6 to 1e10 {EDGE} the prediction moves by {{value:.2g}} times its standard "
            f"deviation ({boundary.LEVEL} allowed).",
        ),
        Precondition(
            "reached",
            at_most((1 - 1e-9) * boundary.LAST),
            f"A plateau that begins beyond {power(boundary.LAST)} {EDGE} cannot be seen, because "
            "the end value is taken at 1e6.",
        ),
    ),
    terms=f"The end value is the prediction at 1e6 {EDGE}. The plateau begins at the |x| from "
    f"which on the prediction stays near this value: within {percent(boundary.LEVEL)} of its "
    "standard deviation in distribution. Of the two directions of the query the later one counts.",
)

BOUNDARY_IMMEDIATE_CLAIM = Claim(
    id="limits.boundary_immediate",
    question="far from the data",
    statement="The prediction levels off at once beyond the training data.",
    denied="The prediction does not level off at once beyond the training data, but late.",
    quote=Quote(
        "Although the mathematical reasoning speaks of infinity but this value appears immediately "
        "empirically",
        "Naim & Asher (2025), appendix G.1, last sentence of the proof of Proposition 6",
        "The paper shows plots (Figure 4) and does not say what counts as immediate. We ask that "
        f"the prediction settle at its end value within 10 {EDGE}. It has settled where it stays "
        "within a tenth of its standard deviation in distribution of that value.",
    ),
    kind="architecture",
    reads="outputs",
    criterion=IMMEDIATE,
    measurements=(
        output_unit.own,
        certificates.certificate,
        far.intact,
        far.contexts,
        far.ends,
        between.drawn,
        far.norm_scales,
        context.beyond,
        boundary.approach,
        boundary.logs,
        boundary.boundary,
    ),
    control=(boundary.approach_decades, output_unit.own),
    controls_agree=True,
    evidence=evidence,
    untrained=untrained,
    remarks=remarks,
    excluded=needs_growth,
    figures=("boundary",),
)
