"""Largest weights by the number of keys, and their slopes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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


class Curve(NamedTuple):
    """Largest weights over n, and how their line looks; `shown` puts the name into the legend."""

    name: str
    n: np.ndarray
    weight: np.ndarray
    colour: str
    shown: bool = False


def weights_panel(title: str, curves: Sequence[Curve]) -> Panel:
    """Largest weights over n on logarithmic axes, beside 1 / n."""
    marks: list[Mark] = []
    for one in curves:
        hover = f"{plain(one.name)}<br>n = {{x}}<br>largest weight {{y:.3g}}"
        name = one.name if one.shown else ""
        line = Line(one.n, one.weight, name=name, colour=one.colour, symbol="circle", hover=hover)
        marks.append(line)
    n = curves[0].n
    marks.append(Line(n, 1 / n, name="uniform: 1/n", colour=GREY, dash="dot", hover=""))
    return Panel(title, Axis("keys n", log=True), Axis("largest weight", log=True), marks)


def largest_weights(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A line a head, and a row a head with its slope."""
    result = results.get(largest)
    if result is None or relevance not in results:
        return None
    every = disperses.rows(results, facts)
    names = [row["head"] for row in every]
    counted = set(relevant(results, facts))
    # Pale lines first, so that those of heads that count lie above them.
    n = result["n"].values.astype(float)
    curves = []
    for name in sorted(names, key=lambda name: name in counted):
        log = result.sel(head=name).mean("unit").values
        colour = BLUE if name in counted else PALE
        curves.append(Curve(name, n, np.exp(log), colour))
    left = weights_panel("Largest weight", curves)
    right = Panel("Slope", SLOPE, rows(names), _slopes(every, counted))
    note = plain(result.attrs["note"])
    below = tested_by("largest_weights", findings) + f"<br>{note}."
    title = "Does attention disperse on prompts longer than in training?"
    return Drawing(title, below, [left, right], height=320)


def _slopes(every: Sequence[Mapping[str, Any]], counted: set[str]) -> list[Mark]:
    """The slope of each head with its interval; those that do not count are pale."""
    marks: list[Mark] = list(ZONES)
    for place, row in enumerate(every):
        value, low, high = np.array([[row["slope"]], [row["low"]], [row["high"]]])
        colour = INK if row["head"] in counted else PALE
        at = np.array([place])
        marks.append(Points(value, at, low, high, colour=colour, size=9))
    return marks


FIGURE = ReportFigure(
    largest_weights,
    "On the left the largest attention weight at a query (geometric mean over functions) as "
    "prompts grow from the trained length to eight times as many points; the dotted line is 1 / "
    "n. On the right the slope of its logarithm in log n, one row for each head: -1 is "
    "dispersion, 0 is none. In the shaded zones a head disperses, or does not. Pale: it is not "
    "certain that the head matters.",
)
