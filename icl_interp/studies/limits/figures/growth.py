"""How f grows far out, intact and with norms frozen: plateau or line; and what freezing removes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, ORANGE, PURPLE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Rule, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval
from icl_interp.studies.limits.claims.failure import CRITERION
from icl_interp.studies.limits.claims.layernorm_cause import LEVEL, at_drawn_places, exponent
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.failure import SCALES

FAILURE = "limits.layernorm_causes_failure"
# Stored name: (label, colour, symbol, dash).
ARMS = {
    "intact": ("unchanged model", BLUE, "circle", "solid"),
    "frozen": ("all norms frozen", ORANGE, "circle", "solid"),
    "sham": ("context frozen (control)", BLUE, "square-open", "dot"),
    "trained without": ("trained without norm", PURPLE, "circle", "solid"),
}
PLATEAUS = ("intact", "sham")  # arms that are judged by the direction in which f grows faster
RANDOM = "randomly initialised"
ALONE = ("", GREY, "circle", "solid")
ONE_NORM = "one norm alone"


def growth(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """|f| against |x|, growth exponents of arms, and the share of the failure freezing removes."""
    curve = results.get(far.norm_arms)
    if curve is None:
        return None
    measured = {arm: curve.sel(arm=arm) for arm in curve.indexes["arm"] if arm != "law mean"}
    other = results.get(far.matched)
    if other is not None and other.sizes["unit"]:
        measured["trained without"] = other
    # The named arms come first, in their order.
    first = [name for name in ARMS if name in measured]
    arms = {name: measured[name] for name in dict.fromkeys([*first, *measured])}
    x = Axis("|x| of the query", log=True)
    y = Axis("root mean square of the prediction", log=True, labels=7)
    size = Panel("Size of the prediction", x, y, _sizes(arms), width=1.45)
    panels = [size, _exponents(results, arms), _removed(findings)]
    title = "Does the norm make the prediction level off, and is that why the model fails?"
    order = [*(ARMS[name][0] for name in first), ONE_NORM]
    below = tested_by("growth", findings)
    return Drawing(title, below, panels, height=290, legend=order)


FIGURE = ReportFigure(
    growth,
    "First, the size of the prediction far from the data. Second, the growth exponent of its "
    "change from x to 10x: 1 is a line, 0 or less levels off (shown in the direction that is "
    "worse for the claim). Norms are frozen at their mean scale in distribution, at the query "
    "only; the control intervention freezes them at the context positions instead and should "
    "change nothing. Third, the share of the failure that freezing all norms at the query "
    "removes, at five freezing scales each: 1 is all of it, 0 none, and below 0 freezing makes "
    "the error larger. Queries are in units of the largest |x| of training.",
)


def _sizes(arms: dict[str, DataArray]) -> list[Mark]:
    """Root mean square of f over functions, contexts and both directions, against |x|."""
    marks: list[Mark] = []
    for name, arm in reversed(arms.items()):  # the named arms last, so that they lie on top
        label, colour, symbol, dash = ARMS.get(name, ALONE)
        distance = np.abs(arm["x"].values)
        square = arm.sel(statistic="mean square").values
        xs = np.unique(distance)
        means = [square[:, distance == x].mean() for x in xs]
        # One norm alone is one of many thin lines, and hovering tells which.
        words = "" if label else f"{plain(name)}<br>"
        line = Line(
            xs,
            np.sqrt(means),
            name=label or ONE_NORM,
            colour=colour,
            symbol=symbol,
            dash=dash,
            width=2 if label else 1,
            size=8 if label else 4,
            opacity=1 if label else 0.7,
            hover=words + "|x| = {x:.4g}<br>its size = {y:.4g}",
        )
        marks.append(line)
    return marks


def _exponents(results: Results, arms: dict[str, DataArray]) -> Panel:
    """A row for each arm, with the references to read it by: a plateau and a line."""
    marks: list[Mark] = []
    for value, words in ((LEVEL, "level"), (1.0, "line")):
        marks.append(Rule(value, None, words, "bottom right", INK, ink=GREY))
    control = results.control.get(far.norm_arms)
    control_u = _u(results.control.get(output_unit.own))
    u = _u(results.get(output_unit.own))
    between = at_drawn_places(results)
    labels = []
    for row, (name, arm) in enumerate(arms.items()):
        named = name in ARMS
        label = ARMS[name][0] if named else f"only {name}"
        labels.append(label)
        squares = [arm.sel(statistic="squared increment")]
        if name in between:
            squares.append(between[name])
        # An arm is shown in the direction that is worse for the claim.
        low = name not in PLATEAUS
        found = exponent(squares, u, low)
        size = 9.0 if named else 7.0
        marks.append(_point(name, label, row, found, size))
        if control is not None and name in control.indexes["arm"]:
            known = control.sel(arm=name, statistic="squared increment")
            of_control = exponent([known], control_u, low)
            marks.append(_untrained(label, row, of_control.value))
    x = Axis("exponent of its change from x to 10x", labels=6)
    y = rows(labels, spare=0.6)
    return Panel("Growth exponent", x, y, marks, row=21)


def _u(own: Any) -> float:
    """The unit of outputs; 0 where it was not measured."""
    return 0.0 if own is None else float(own.sel(statistic="u"))


def _untrained(label: str, row: int, value: float) -> Points:
    """The number of the same arm in a randomly initialised model."""
    text = f"{plain(label)}<br>growth exponent: {number(value, 4)}"
    return Points(
        [value], [row], name=RANDOM, colour=INK, symbol="diamond-open", size=11, texts=[text]
    )


def _removed(findings: Sequence[Finding]) -> Panel:
    """Phi at every place and freezing scale, as the judge found it.

    The zones that support and contradict are shaded.
    """
    details = []
    for finding in findings:
        if finding.id == FAILURE:
            details += finding.details
    marks: list[Mark] = []
    (condition,) = CRITERION.conditions
    if details:
        marks.append(Zone(condition.supports, None, VERDICTS["supported"].pale, 0.5))
    if details and condition.contradicts:
        marks.append(Zone(condition.contradicts, None, VERDICTS["contradicted"].pale, 0.5))
    # The scales of a place stand close together in its row, and the control below them.
    places = []
    for i, row in enumerate(details):
        place = str(row["place"])
        places.append(place.replace(" x ", "\n\N{MULTIPLICATION SIGN} "))
        for k, arm in enumerate(SCALES):
            phi = f"phi, {arm}"
            found = Interval(row[phi], row[f"{phi}, low"], row[f"{phi}, high"])
            if np.isfinite([found.value, found.low, found.high]).all():
                label = f"{place}, frozen at {arm}"
                height = i + 0.16 * (k - 2)
                marks.append(_point("frozen", label, height, found, 5.0))
        at = float(row.get("sham", np.nan))  # functions have none
        if np.isfinite(at):
            known = Interval(at, at, at)
            marks.append(_point("sham", f"{place}, control", i + 0.44, known, 6.0))
    x = Axis("share removed", labels=5, holds=(0.0, 1.0))
    y = rows(places, spare=0.6)
    return Panel("Failure removed", x, y, marks, row=21)


def _point(name: str, label: str, row: float, found: Interval, size: float) -> Points:
    """A number of an arm with its interval."""
    _, colour, symbol, _ = ARMS.get(name, ALONE)
    words = f"{number(found.value, 4)} [{number(found.low, 4)}, {number(found.high, 4)}]"
    return Points(
        [found.value],
        [row],
        [found.low],
        [found.high],
        colour=colour,
        symbol=symbol,
        size=size,
        texts=[f"{plain(label)}<br>{words}"],
    )
