"""Distances from the Bayes predictor of a mixture, and what is gained on combinations."""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.resampling import Interval
from icl_interp.studies.mixtures.claims import bayes_outside as claims
from icl_interp.studies.mixtures.measurements.distances import MODEL, distances

LEAST = 1e-4  # of the mean square of f(x): smaller distances are drawn there
DISTANCE = Axis("distance / mean square", log=True, least=LEAST, holds=(1.0,))
GAIN = Axis("share of the possible gain", least=-2.0, holds=(0.0, 1.0))
GREEN = VERDICTS["supported"].pale
RED = VERDICTS["contradicted"].pale
LIKE = Zone(x=(0.0, claims.LIKE), colour=GREEN)
UNLIKE = Zone(x=(claims.UNLIKE, np.inf), colour=RED)
NO_GAIN = Zone(x=(-np.inf, claims.NO_GAIN), colour=GREEN)
SOME_GAIN = Zone(x=(claims.GAIN, np.inf), colour=RED)


def mixture_distances(
    results: Results, findings: Sequence[Finding], facts: Facts
) -> Drawing | None:
    """A row a number of examples: D on the mixture, and the share of the gain on combinations."""
    result = results.get(distances)
    if result is None:
        return None
    lengths = list(result.indexes["length"])
    # Both numbers in the row of each length that has them.
    near = {}
    gained = {}
    for row, length in enumerate(lengths):
        here = result.sel(length=length)
        near[row] = claims.apart(here, [MODEL])
        possible = claims.room(here)
        if possible.low >= claims.ROOM:
            gained[row] = claims.gain(here)
    side = rows(lengths)
    inside = [LIKE, UNLIKE, _points(near)]
    outside = [NO_GAIN, SOME_GAIN, _points(gained)]
    left = Panel("From Bayes, on the mixture", DISTANCE, side, inside)
    right = Panel("On combinations", GAIN, side, outside)
    below = tested_by("mixture_distances", findings)
    return Drawing("The mixture of training, and outside of it", below, [left, right], same_y=True)


def _points(found: dict[int, Interval]) -> Points:
    """A point with its interval in each row that has one."""
    ends = np.zeros((3, len(found)))
    for column, one in enumerate(found.values()):
        ends[0, column] = one.value
        ends[1, column] = one.low
        ends[2, column] = one.high
    rows_of = np.array(list(found))
    return Points(ends[0], rows_of, *ends[1:], colour=INK, size=9)


FIGURE = ReportFigure(
    mixture_distances,
    "Each row is a number of examples; d is the dimension of x. On the left: the squared distance "
    "of the model's predictions from those of the Bayes predictor of its mixture, over the mean "
    "square of f(x). On the right: functions are convex combinations of one function of each "
    "family. The share of the possible gain is 0 for the best predictor that knows the mixture "
    "alone, and 1 for the Bayes predictor of the combinations. Rows where little can be gained "
    "have no point. Zones in which a claim is decided are shaded.",
)
