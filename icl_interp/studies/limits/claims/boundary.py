"""The claim of `limits` that boundary values are reached at once beyond the training data."""

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
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
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.limits.claims.far_words import (
    EDGE,
    NO,
    ONSET,
    SD,
    YES,
    asked,
    of,
    percent,
    predicted,
    undecided,
)
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.measurements import between, boundary, context, far
from icl_interp.studies.limits.measurements.context import ROUNDING
from icl_interp.studies.limits.measurements.far import power

SHOWN = (
    *("trained range", "zone", "peak", "peak at", "onset", "level", "level, spread"),
    *("one decade out", "one decade out, spread", "approach rate", "E_f", "E_N", "E_sigma"),
)


SOON, LATE = (
    1.0,
    2.0,
)  # decades beyond the trained range up to which f is level at once, and from which it is late
AT_ONCE = Condition("onset", "", (-INF, SOON), (LATE, INF))
OWN_SD = "standard deviation of the prediction in distribution"
NAME = "|x| at which the plateau begins / largest |x| of training"


def decades_to_level(curve: DataArray, edge: float, level: float) -> Interval:
    """Decades from the edge of the trained range to the onset of the plateau, the slower direction.

    Args:
        curve: `far/approach`.
        edge: the largest |x| trained on.
        level: the distance of f from its end that counts as level.
    """
    parts = [boundary.direction(curve, sign) for sign in boundary.SIGNS.values()]
    gap = curve.sel(statistic="gap").values

    def slower(*means: np.ndarray) -> np.ndarray:
        each = [
            boundary.settles(xs, np.sqrt(m), level) for m, (xs, _) in zip(means, parts, strict=True)
        ]
        return np.log10(np.max(each, axis=0) / edge)

    return bootstrap(slower, *(gap[:, keep] for _, keep in parts))


def _moves(curve: DataArray, intact: DataArray, edge: float, u: float) -> Interval:
    """The larger of two distances in u: of f from its end in the trained range, of its two ends."""
    inside = np.abs(curve["x"].values) <= edge
    gap = curve.sel(statistic="gap").values[:, inside]
    xs = intact["x"].values
    ends = intact.sel(statistic="mean").values[:, [int(xs.argmax()), int(xs.argmin())]]

    def larger(square: np.ndarray, end: np.ndarray) -> np.ndarray:
        return np.maximum(np.sqrt(square.max(-1)), np.abs(end[..., 0] - end[..., 1])) / u

    return bootstrap(larger, gap, ends)


def _drift(beyond: DataArray, drawn: DataArray, u: float) -> Interval:
    """How much f still changes beyond 1e6 units, in u: root mean square.

    It is the largest of all directions and places.
    """
    known = (
        np.square((beyond.values[:, 2] - beyond.values[:, 0]) / u).mean(-1).T
    )  # (unit, direction), to 1e9
    gap = drawn.sel(statistic="gap").values[:, between.stratum(1e6, 1e10)] / u**2
    return bootstrap(
        lambda a, b: np.sqrt(np.maximum(a.max(-1), b.max(-1))), *map(between.pairs, (known, gap))
    )


def unsettled(drawn: DataArray, u: float) -> Interval:
    """Distance of f from its end at drawn places beyond `SOON`, in u: root mean square.

    It is the largest of all places.
    """
    gap = drawn.sel(statistic="gap").values[:, between.stratum(10**SOON, 1e6)]
    return bootstrap(lambda mean: np.sqrt(mean).max(-1) / u, between.pairs(gap))


def _of_control(control: Results, edge: float) -> Estimate | None:
    """The onset of an untrained control; None where its output is constant."""
    u = output_unit.u(control)
    onset = (
        decades_to_level(control[boundary.approach_decades], edge, boundary.LEVEL * u)
        if u > 0
        else None
    )
    return onset and Estimate.of(NAME, onset, "log10")


def boundary_immediate(results: Results, facts: Facts) -> Evidence:
    """How far beyond the training range does f reach its boundary value?

    And how much do contexts still differ there?
    """
    table, curve, intact = (
        results[boundary.boundary],
        results[boundary.approach],
        results[far.intact],
    )
    u, edge = output_unit.u(results), facts.x_unit
    end_x, last_x = 1e6 * edge, boundary.LAST * edge
    where = (
        f"|x| = {0.1 * edge:g} .. {power(end_x)}, known and drawn places, and drawn ones to "
        f"{power(1e10 * edge)}"
    )
    drawn = results[between.drawn]
    scope = asked(facts, where, results[far.ends][0, 0].size)
    largest = float(np.sqrt(intact.sel(statistic="mean square").values.max()))
    # Without an interval: it asks whether u is rounding, which does not turn on which prompts were
    # drawn.
    quantities = {
        "scale": Estimate.exactly(f"{OWN_SD} / its largest size", u / largest if largest else 0.0)
    }
    if not u > ROUNDING * largest:
        return Evidence(
            quantities, "So it cannot be told how soon the prediction levels off.", scope=scope
        )
    onset = decades_to_level(curve, edge, boundary.LEVEL * u)
    found = Estimate.of(NAME, onset, "log10")
    quantities |= {
        "moves": Estimate.of(
            "change of the prediction along the query", _moves(curve, intact, edge, u), SD
        ),
        "reached": Estimate(
            "|x| at which the plateau begins", 10**onset.value, 10**onset.low, 10**onset.high, EDGE
        ),
        "drift": Estimate.of(
            f"its change from 1e6 to 1e10 {EDGE}", _drift(results[context.beyond], drawn, u), SD
        ),
        "onset": found,
        "unsettled": Estimate.of(
            f"distance from its end at drawn places beyond {10**SOON:.0f} {EDGE}",
            unsettled(drawn, u),
            SD,
        ),
    }
    if (begins := predicted(results[far.certificate], edge)) is not None:
        quantities["predicted onset"] = begins
    rows = {(row["direction"], row["quantity"]): row for row in table.to_dict("records")}
    near, end = (
        max(rows[d, f"{what}, spread"]["value"] for d in boundary.SIGNS)
        for what in ("one decade out", "level")
    )
    threshold = bound(
        IMMEDIATE, quantities, "onset", f"at most {10**SOON:.0f}", f"more than {10**LATE:.0f}"
    )
    level = f"below {percent(boundary.LEVEL)} of its standard deviation"
    reached = 10**onset.value
    if onset.value >= np.log10(boundary.LAST):
        says = (
            f"{_how_soon(IMMEDIATE.decide(quantities))} Its distance from its value at |x| = "
            f"{power(end_x)} does not stay {level} before |x| = {power(last_x)}."
        )
    else:
        says = (
            f"{_how_soon(IMMEDIATE.decide(quantities))} Its distance from its end value stays "
            f"{level} from {f'{reached:,.0f}' if reached >= 100 else f'{reached:.3g}'} {EDGE} on "
            f"({threshold})."
        )
    caveat = f"At 10 times predictions for different contexts still spread by {of(near / u)} it."
    control = _of_control(results.control, edge)
    return Evidence(
        quantities,
        says,
        found,
        scope,
        control={"onset": control} if control else {},
        details=tuple(
            {"direction": d, **{q: rows[d, q]["value"] for q in SHOWN}, OWN_SD: u}
            for d in boundary.SIGNS
        ),
        caveat=caveat,
    )


def _how_soon(decision: Decision) -> str:
    if decision.verdict == YES:
        return "The prediction levels off at once beyond the training data."
    if decision.verdict == NO:
        return "The prediction does not level off at once beyond the training data, but late."
    what = "the prediction levels off at once beyond the training data"
    if decision.failed:
        return f"So it cannot be told whether {what}."
    if undecided(decision) == "unsettled":
        return (
            f"It is not decided whether {what}: at places drawn between those of the grid it is "
            "not level."
        )
    return f"It is not decided whether {what}."


IMMEDIATE = Criterion(
    (AT_ONCE, Condition("unsettled", "", (-INF, boundary.LEVEL), None, scale="log")),
    (
        Precondition(
            "scale",
            (ROUNDING, INF),
            "The prediction is constant in distribution, so it has no standard deviation to "
            "compare with.",
        ),
        Precondition(
            "moves",
            (boundary.LEVEL, INF),
            "Along the query the prediction moves by {value:.2g} times its standard deviation in "
            f"distribution ({boundary.LEVEL} needed), so nothing has to settle.",
        ),
        Precondition("predicted onset", (-INF, boundary.LAST), ONSET, optional=True),
        Precondition(
            "drift",
            (-INF, boundary.LEVEL),
            f"From 1e6 to 1e10 {EDGE} the prediction moves by {{value:.2g}} times its standard "
            f"deviation ({boundary.LEVEL} allowed).",
        ),
        Precondition(
            "reached",
            (-INF, (1 - 1e-9) * boundary.LAST),
            f"A plateau that begins beyond {power(boundary.LAST)} {EDGE} cannot be told, because "
            "the end value is taken at 1e6.",
        ),
    ),
    terms=(
        "The |x| at which the plateau begins: from there on the prediction stays within "
        f"{percent(boundary.LEVEL)} of its standard deviation in distribution of its value at 1e6 "
        f"{EDGE} (in the direction in which that takes longer). Supported if it is at most "
        f"{10**SOON:.0f} {EDGE}, and if the prediction is as near to it at all places drawn beyond. "
        f"Contradicted if it is more than {10**LATE:.0f} times that."
    ),
)

BOUNDARY_IMMEDIATE_CLAIM = Claim(
    id="limits.boundary_immediate",
    question="far from the data",
    short="The prediction levels off just beyond the training inputs.",
    quote=Quote(
        "Although the mathematical reasoning speaks of infinity but this value appears immediately "
        "empirically",
        "Naim & Asher (2025), appendix G.1, last sentence of the proof of Proposition 6",
        "The paper shows plots (Figure 4) and does not say what counts as immediate. We ask that "
        f"the prediction settle at its end value within 10 {EDGE}; it has settled where it stays "
        "within a tenth of its own standard deviation in distribution.",
    ),
    kind="architecture",
    statement="Boundary values appear immediately: the prediction is level just beyond the "
    "training range",
    source="Naim & Asher (2025), Appendix G, after Proposition 6",
    criterion=IMMEDIATE,
    measurements=(
        output_unit.own,
        far.certificate,
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
    evidence=boundary_immediate,
    of_numbers=True,
    excluded=needs_growth,
    figures=("boundary",),
)
