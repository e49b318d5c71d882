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
LOOKS = {RIDGE: ("from ridge", BLUE), POOL: ("from the pool's Bayes predictor", ORANGE)}


def pool_or_ridge(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A row a kind of functions: both distances, and their ratio with the zones of the claim."""
    result = results.get(distances)
    if result is None:
        return None
    side = rows([NEW, SEEN])
    apart = []
    for pair, look in LOOKS.items():
        found = [claim.share(result, pair, functions) for functions in (NEW, SEEN)]
        apart.append(_points(found, *look))
    ratios = [_times(claim.ratio(result, functions)) for functions in (NEW, SEEN)]
    zones = [
        Zone(x=(0.0, 1 / claim.NEARER), colour=VERDICTS["supported"].pale),
        Zone(x=(claim.NEARER, np.inf), colour=VERDICTS["contradicted"].pale),
    ]
    nearer = [*zones, Rule(x=1.0, colour=INK), _points(ratios, "", INK)]
    panels = [
        Panel("Distances", DISTANCE, side, apart),
        Panel("Which is nearer", RATIO, side, nearer),
    ]
    below = tested_by("pool_or_ridge", findings)
    return Drawing("Ridge, or the functions of training", below, panels)


def _times(found: Interval) -> Interval:
    return Interval(10**found.value, 10**found.low, 10**found.high)


def _points(found: Sequence[Interval], name: str, colour: str) -> Points:
    """A point with its interval in each row."""
    ends = np.array([(one.value, one.low, one.high) for one in found]).T
    return Points(ends[0], np.arange(len(found)), *ends[1:], name=name, colour=colour, size=9)


FIGURE = ReportFigure(
    pool_or_ridge,
    "On the left mean squared differences between predictions for the query: of the model and "
    "ridge, and of the model and the Bayes predictor of the pool that it was trained on, over the "
    "mean square of what ridge says. On the right one over the other, on functions that training "
    "never showed and on those of the pool. In the shaded zones the claim is decided, by the row "
    "of new functions.",
)
