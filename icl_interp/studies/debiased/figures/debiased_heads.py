"""Heads by w and their weight of labels, and distances to a debiased step."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.studies.debiased.claims import head_patterns, step
from icl_interp.studies.debiased.measurements.heads import heads
from icl_interp.studies.debiased.measurements.predictions import predictions

LEAST = 1e-5  # of the variance of predictions: smaller distances are drawn there
DISTANCE = Axis("distance / variance", log=True, least=LEAST, holds=(LEAST, 1.0))
ZONES: tuple[Mark, ...] = (
    Zone(x=(0.0, step.NEAR), colour=VERDICTS["supported"].pale),
    Zone(x=(step.FAR, np.inf), colour=VERDICTS["contradicted"].pale),
)


def debiased_heads(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """On the left a point a head, on the right a row a comparison."""
    found = results.get(heads)
    apart = results.get(predictions)
    if found is None or apart is None:
        return None
    # A point a head, and a row a comparison.
    table = DataFrame(head_patterns.by_head(found))
    points = Points(table["w"].to_numpy(), table["weight of labels"].to_numpy(), colour=INK, size=9)
    by_head = Panel("Heads", Axis("w"), Axis("weight of labels"), [points])
    compared = DataFrame(step.rows(apart))
    places = np.arange(len(compared))
    value, low, high = compared[["D", "low", "high"]].to_numpy().T
    row = Points(value, places, low, high, colour=INK, size=9)
    names = compared["comparison"].tolist()
    marks = [*ZONES, row]
    distances = Panel("Predictions", DISTANCE, rows(names), marks)
    below = tested_by("debiased_heads", findings)
    return Drawing("Softmax heads and a debiased step", below, [by_head, distances])


FIGURE = ReportFigure(
    debiased_heads,
    "On the left, a point a head: its w, where its scores are w times <x_i, x_q>, and the weight "
    "with which it reads labels. Two points opposite each other take a debiased step. On the "
    "right: squared distances between predictions and steps, over the variance of predictions, "
    "with 95 % intervals. The first three rows decide; the others show that a plain step is told "
    "from a debiased one by a constant added to labels, and how much of the prediction heads read "
    "off the examples.",
)
