"""Kinds of training side by side: errors on scaled functions, in the domain, and by interval."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, COLOURS, GREEN, ORANGE, PURPLE, SKY, YELLOW
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Zone
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.results import rows_in
from icl_interp.studies.limits.claims.error_near_boundary import EDGE, INNER
from icl_interp.studies.limits.claims.kinds import Row
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.seeds import OWN, TRAINED

# The colour and symbol of each arm.
LOOKS = {
    OWN: (BLUE, "circle"),
    "no norm": (ORANGE, "square"),
    "with norm": (PURPLE, "diamond"),
    "attention only": (GREEN, "triangle-up"),
    "with MLP": (SKY, "triangle-down"),
    "wider": (YELLOW, "cross"),
    "narrower": (YELLOW, "x"),
}
Columns = dict[float, str]  # names of columns by the number in them


def shift(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """As many panels as there are numbers for: errors over sigma, over |x|, over test intervals.

    |x| lies within the domain.
    """
    panels = []
    for draw, measurement, prefix in (
        (_functions, seeds.functions, "functions"),
        (_inside, seeds.inside, "inside"),
        (_intervals, seeds.intervals, "both"),
    ):
        rows = measured(results.get(measurement), prefix)
        if rows is not None:
            panels.append(draw(rows, _columns(rows, prefix)))
    if not panels:
        return None
    title = (
        "Errors of models trained in different ways: points are seeds, lines their geometric mean"
    )
    return Drawing(title, tested_by("shift", findings), panels, height=310)


FIGURE = ReportFigure(
    shift,
    "Models trained like this one, and kinds of models that differ from it in one respect, on the "
    "same functions and points. A point is a seed, a line the geometric mean of its kind. The "
    "panels show errors as functions are scaled beyond their training range; errors from the "
    "centre of the inputs' interval to its edge (shaded: what the claim compares); and, if there "
    "are models trained on other intervals, errors of each kind on each interval. Training on a "
    "larger interval widens the range in which errors are small, but the range still ends.",
)


def measured(table: DataFrame | None, prefix: str) -> list[Row] | None:
    """The trained runs whose numbers of this family are there; None where no second arm has any.

    Arms of too few seeds to compare have their error rate alone.
    """
    if table is None:
        return None
    found = []
    arms = set()
    for row in rows_in(table):
        if row["weights are"] == TRAINED and row["numbers"] != seeds.NOWHERE:
            found.append(row)
            arms.add(row["arm"])
    if not _columns(found, prefix) or len(arms) < 2:
        return None
    return found


def _columns(rows: list[Row], prefix: str) -> Columns:
    """Columns of a family by the number in their name, ascending."""
    found = {}
    for row in rows:
        for name in row:
            words = name.split()
            if words[0] == prefix:
                found[float(words[1])] = name
    return dict(sorted(found.items()))


def _with(rows: list[Row], columns: Columns, **key: Any) -> list[Row]:
    """The rows with these values that have all of these numbers."""
    found = []
    for row in rows:
        if any(row[name] != value for name, value in key.items()):
            continue
        if all(np.isfinite(row[name]) for name in columns.values()):
            found.append(row)
    return found


def _arm(
    columns: Columns, rows: list[Row], name: str, colour: str, symbol: str = "circle"
) -> list[Mark]:
    """Each seed as points and the arm's geometric mean as a line."""
    xs = np.array(list(columns))
    numbers = []
    runs = []
    for row in rows:
        numbers.append([float(row[key]) for key in columns.values()])
        runs += [plain(row["run"])] * len(xs)
    ys = np.array(numbers)
    means = np.exp(np.log(ys).mean(0))
    n = len(rows)
    name = f"{name}, {n} seed{'s' * (n > 1)}"
    hover = "{x:.3g}: {y:.4g}"
    mean = Line(xs, means, name=name, colour=colour, width=1.8, hover=hover)
    points = Points(
        np.tile(xs, n),
        ys.ravel(),
        name=name,
        listed=False,
        colour=colour,
        symbol=f"{symbol}-open",
        size=6,
        texts=runs,
        hover="{text}<br>" + hover,
    )
    return [mean, points]


def _arms(columns: Columns, table: list[Row]) -> list[Mark]:
    """All kinds of training."""
    marks: list[Mark] = []
    for name, (colour, symbol) in LOOKS.items():
        rows = _with(table, columns, arm=name)
        if rows:
            words = "like this model" if name == OWN else name
            marks += _arm(columns, rows, words, colour, symbol)
    return marks


def _error(words: str) -> Axis:
    """The axis of errors."""
    return Axis(words, log=True, labels=7)


def _sigma(words: str, columns: Columns) -> Axis:
    """The axis of the factor, with some room at both ends."""
    sigmas = list(columns)
    low = sigmas[0] / 1.15
    high = sigmas[-1] * 1.15
    return Axis(words, low, high, log=True)


def _functions(table: list[Row], columns: Columns) -> Panel:
    """Error against sigma, of coefficients from sigma times their law."""
    x = _sigma("factor on the functions", columns)
    y = _error("squared error")
    marks = _arms(columns, table)
    return Panel("Functions scaled", x, y, marks)


def _inside(table: list[Row], columns: Columns) -> Panel:
    """Error against |x| as a share of the half-width.

    It marks what counts as inside and as near the boundary.
    """
    inner = Zone(x=(0.0, INNER))
    edge = Zone(x=(EDGE, 1.0))
    x = Axis("|x| / half-width of the inputs' interval", 0.0, 1.04)
    y = _error("squared error")
    marks = [inner, edge, *_arms(columns, table)]
    return Panel("Within the inputs' interval", x, y, marks)


def _intervals(table: list[Row], columns: Columns) -> Panel:
    """Error over sigma^2 against sigma, inputs and functions from U(-sigma, sigma)."""
    marks: list[Mark] = []
    half_widths = sorted({row["a"] for row in table})
    for a, colour in zip(half_widths, COLOURS, strict=False):
        rows = [dict(row) for row in _with(table, columns, a=a)]
        for row in rows:
            for sigma, name in columns.items():
                row[name] /= sigma**2
        if rows:
            marks += _arm(columns, rows, f"a = {number(a)}", colour)
    x = _sigma("sigma: tested on U(−sigma, sigma)", columns)
    y = _error("squared error / sigma²")
    return Panel("By training interval U(−a, a)", x, y, marks)
