"""Distances from ridge and from the Bayes predictor of the pool, and which is smaller."""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, Rule, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.resampling import Interval
from icl_interp.studies.diversity.claims import new_functions as claim
from icl_interp.studies.diversity.measurements.distances import NEW, POOL, RIDGE, SEEN, distances

LEAST = 1e-4  # of the mean square of ridge's predictions: smaller distances are drawn there
DISTANCE = Axis("distance / mean square", log=True, least=LEAST, holds=(1.0,))
RATIO = Axis("distance from ridge / from the pool", log=True, holds=(0.1, 10.0))
POOLED = "from the pool's Bayes predictor"
LOOKS = {RIDGE: ("from ridge", BLUE), POOL: (POOLED, ORANGE)}
GREEN = VERDICTS["supported"].pale
RED = VERDICTS["contradicted"].pale

RIDGE_ZONE = Zone(x=(0.0, 1 / claim.NEARER), colour=GREEN)
POOL_ZONE = Zone(x=(claim.NEARER, np.inf), colour=RED)
MIDDLE = Rule(x=1.0, colour=INK)


def pool_or_ridge(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A row a kind of functions: both distances, and their ratio with the zones of the claim."""
    result = results.get(distances)
    if result is None:
        return None
    side = rows([NEW, SEEN])
    apart = []
    for pair, (name, colour) in LOOKS.items():
        on_new = claim.share(result, pair, NEW)
        on_seen = claim.share(result, pair, SEEN)
        apart.append(_points([on_new, on_seen], name, colour))
    # One distance over the other, in the zones of the claim.
    on_new = claim.ratio(result, NEW)
    on_seen = claim.ratio(result, SEEN)
    ratios = _points([_times(on_new), _times(on_seen)], "", INK)
    left = Panel("Distances", DISTANCE, side, apart)
    right = Panel("Which is nearer", RATIO, side, [RIDGE_ZONE, POOL_ZONE, MIDDLE, ratios])
    below = tested_by("pool_or_ridge", findings)
    return Drawing("Ridge, or the functions of training", below, [left, right])


def _times(found: Interval) -> Interval:
    low = 10**found.low
    high = 10**found.high
    return Interval(10**found.value, low, high)


def _points(found: Sequence[Interval], name: str, colour: str) -> Points:
    """A point with its interval in each row."""
    ends = np.zeros((3, len(found)))
    for row, one in enumerate(found):
        ends[0, row] = one.value
        ends[1, row] = one.low
        ends[2, row] = one.high
    places = np.arange(len(found))
    return Points(ends[0], places, *ends[1:], name=name, colour=colour, size=9)


FIGURE = ReportFigure(
    pool_or_ridge,
    "On the left: mean squared differences between predictions for the query, over the mean "
    "square of ridge's. They are between the model and ridge, and between the model and the Bayes "
    "predictor of its pool (the functions that it was trained on). On the right: one over the "
    "other, on new functions and on those of the pool. Zones are shaded; the row of new functions "
    "decides.",
)
