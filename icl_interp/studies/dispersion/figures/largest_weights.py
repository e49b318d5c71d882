"""Largest weights by the number of keys, and their slopes."""

from collections.abc import Mapping, Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY, INK, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.dispersion.claims import disperses
from icl_interp.studies.dispersion.measurements.largest import largest

SLOPE = Axis("slope in log n", holds=(-1.2, 0.0))
ZONES = (
    Zone(x=(disperses.STEEPEST, disperses.DISPERSED), colour=VERDICTS["supported"].pale),
    Zone(x=(disperses.KEPT, np.inf), colour=VERDICTS["contradicted"].pale),
)


def weights_panel(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], pale: set[str]) -> Panel:
    """Largest weights over n on logarithmic axes, beside 1 / n.

    Args:
        curves: n and largest weight by name.
        pale: names of those that do not count.
    """
    marks: list[Mark] = []
    for name, (ns, weight) in curves.items():
        colour = PALE if name in pale else BLUE
        hover = f"{plain(name)}<br>n = {{x}}<br>largest weight {{y:.3g}}"
        marks.append(Line(ns, weight, colour=colour, symbol="circle", hover=hover))
    ns = next(iter(curves.values()))[0]
    marks.append(Line(ns, 1 / ns, name="uniform: 1/n", colour=GREY, dash="dot", hover=""))
    x = Axis("keys n", log=True)
    return Panel("Largest weight", x, Axis("largest weight", log=True), marks)


def largest_weights(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A line a head, and a row a head with its slope."""
    result = results.get(largest)
    if result is None or relevance not in results:
        return None
    names = [str(name) for name in result.indexes["head"]]
    curves = {}
    for name in names:
        mean = result.sel(head=name).mean("unit")
        curves[name] = (mean["n"].values.astype(float), np.exp(mean.values))
    idle = set(names) - set(relevant(results, facts))
    left = weights_panel(curves, idle)
    right = Panel("Slope", SLOPE, rows(names), _slopes(result, facts, results, idle))
    below = tested_by("largest_weights", findings) + f"<br>{plain(result.attrs['note'])}."
    title = "Does attention disperse on prompts longer than in training?"
    return Drawing(title, below, [left, right], height=320)


def _slopes(result: DataArray, facts: Facts, results: Results, idle: set[str]) -> list[Mark]:
    """The slope of each head with its interval; those that do not count are grey."""
    marks: list[Mark] = list(ZONES)
    for place, row in enumerate(disperses.rows(results, facts)):
        ends = np.array([[row["slope"]], [row["low"]], [row["high"]]])
        colour = GREY if row["head"] in idle else INK
        marks.append(Points(ends[0], np.array([place]), *ends[1:], colour=colour, size=9))
    return marks


FIGURE = ReportFigure(
    largest_weights,
    "On the left the largest attention weight at a query (geometric mean over functions) as prompts "
    "grow from the trained length to eight times as many points; the dotted line is 1 / n. On the "
    "right the slope of its logarithm in log n, a row a head: -1 is dispersion, 0 is none. In the "
    "shaded zones it is decided whether a head disperses. Pale heads are not sure to matter.",
)
