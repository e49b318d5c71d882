"""How much of M acts in each direction, and the error without some directions."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, INK, ORANGE
from icl_interp.figures.drawing import Axis, Bars, Drawing, Mark, Panel, Points, rows
from icl_interp.figures.text import tested_by
from icl_interp.resampling import bootstrap
from icl_interp.studies.lipschitz.measurements import relevant_directions

KINDS = {"relevant": BLUE, "irrelevant": ORANGE}


def directions(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """How much of M acts in each direction, and the error without some directions.

    Attention is not shown these directions.
    """
    table = results.get(relevant_directions.directions)
    arms = results.get(relevant_directions.projected)
    if table is None or arms is None:
        return None
    bars: list[Mark] = []
    for kind, colour in KINDS.items():
        part = table[table["kind"] == kind]
        hover = "direction {x}: {y:.3g}"
        name = f"{kind} directions"
        # Stacked bars stand in the middle of their places, of which each has one bar.
        one = Bars(part["direction"], part["share"], name, colour, hover, stacked=True)
        bars.append(one)
    x = Axis("direction of u", whole=True)
    shares = Panel("M, direction by direction", x, Axis("share of |M|²", low=0.0), bars)
    below = tested_by("lipschitz_directions", findings)
    return Drawing("Directions of the window", below, [shares, _errors(arms)])


FIGURE = ReportFigure(
    directions,
    "On the left: how much of the model's M acts in each direction of the inputs; those that the "
    "functions depend on come first. On the right: the squared error at the query of the "
    "unchanged model, with attention that is not shown the irrelevant or the relevant directions, "
    "and with equal weights for all examples.",
)


def _errors(arms: DataArray) -> Panel:
    """A row for each arm of the projection."""
    labels = []
    shown = []
    for arm in arms.indexes["arm"]:
        error = bootstrap(lambda e: e, arms.sel(arm=arm).values, positive=True)
        shown.append((error.value, error.low, error.high))
        labels.append(str(arm).replace(" directions taken out", "\ndirections taken out"))
    value, low, high = np.transpose(shown)
    places = np.arange(len(labels))
    hover = "squared error {x:.4g}"
    points = Points(value, places, low, high, colour=INK, size=9, hover=hover)
    x = Axis("squared error at the query", low=0.0)
    return Panel("What attention is shown", x, rows(labels), [points])
