"""Distances to steps of descent, of the whole model and without each block."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.studies.gradient_descent.claims import steps
from icl_interp.studies.gradient_descent.measurements.distances import WITHOUT, distances

LEAST = 1e-5  # of the variance of predictions: smaller distances are drawn there
DISTANCE = Axis("distance / variance", log=True, least=LEAST, holds=(LEAST, 1.0))
NEAR = Zone(x=(0.0, steps.NEAR), colour=VERDICTS["supported"].pale)
FAR = Zone(x=(steps.FAR, np.inf), colour=VERDICTS["contradicted"].pale)


def descent_distances(
    results: Results, findings: Sequence[Finding], facts: Facts
) -> Drawing | None:
    """A row a comparison, with its interval and the zones of the criterion."""
    result = results.get(distances)
    if result is None:
        return None
    whole = steps.rows(result)
    panels = [_panel("The whole model", result, whole, [NEAR, FAR])]
    edited = steps.rows(result, WITHOUT)
    if edited:
        panels.append(_panel("Without a block", result, edited, [NEAR]))
    below = tested_by("descent_distances", findings)
    return Drawing("Beside steps of gradient descent", below, panels)


def _panel(title: str, result: DataArray, names: list[str], zones: list[Zone]) -> Panel:
    """D of some comparisons."""
    ends = np.zeros((3, len(names)))
    labels = []
    for place, name in enumerate(names):
        found = steps.distance(result, [name])
        ends[:, place] = found.value, found.low, found.high
        labels.append(name.removeprefix("without "))
    places = np.arange(len(names))
    points = Points(ends[0], places, *ends[1:], colour=INK, size=9)
    return Panel(title, DISTANCE, rows(labels), [*zones, points])


FIGURE = ReportFigure(
    descent_distances,
    "Each row is a comparison: the mean squared distance between the predictions of the model and "
    "of a family of descent, over the variance of the model's. On the left: the whole model, and "
    "as many steps as it has layers. On the right: the model with one block (its number) at its "
    "mean outputs, and one step less of the nearest family. Families are tuned to the model on "
    "other functions. Zones are shaded; the nearest row on the left and all rows on the right "
    "decide.",
)
