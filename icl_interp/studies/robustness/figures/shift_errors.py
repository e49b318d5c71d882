"""Errors under each shift of the prompts, beside least squares."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, Rule, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.robustness.claims.shift import AS_GOOD, WORSE, relative_to_bar
from icl_interp.studies.robustness.measurements.shifts import LEAST_SQUARES, MODEL, ZERO, shifts

LEAST = 1e-4  # of the error of predicting 0: what errs less is drawn there
ERROR = Axis("error / error of predicting 0", log=True, least=LEAST)
OVER_BAR = Axis("error / what is allowed", log=True, least=0.01, holds=(10.0,))
LOOKS = {MODEL: (INK, "circle"), LEAST_SQUARES: (ORANGE, "x-thin-open")}
WORDS = {
    "quadrants": "examples share their signs",
    "half-subspace": "half of the dimensions",
    "skewed": "some directions preferred",
    "noisy": "noisy labels",
}


def shift_errors(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A row a shift: errors over that of predicting 0, and the model's over the bar."""
    result = results.get(shifts)
    if result is None:
        return None
    # A row a shift in both panels.
    labels = []
    for name in result.indexes["shift"]:
        labels.append(WORDS.get(name, name))
    side = rows(labels)
    left = Panel("Errors", ERROR, side, _errors(result))
    right = Panel("Beside the bar", OVER_BAR, side, _bar(result))
    below = tested_by("shift_errors", findings)
    title = "Prompts of another law than in training"
    return Drawing(title, below, [left, right], same_y=True)


FIGURE = ReportFigure(
    shift_errors,
    "Each row is a shift of the prompts: x*3 is inputs times 3, y*3 functions times 3, and drawn "
    "is a factor drawn with the sample. On the left: squared errors at the query of the model and "
    "of least squares (at the edge where it is exact), over that of predicting 0 on the same "
    "prompts. On the right: the model's error over the allowed one, which is that of least "
    "squares plus 5 % of that of predicting 0. In the shaded zones a claim is decided.",
)


def _errors(result: DataArray) -> list[Mark]:
    """The model and least squares, with intervals, over the error of predicting 0."""
    marks: list[Mark] = [Rule(x=1.0, colour=GREY)]
    for who, (colour, symbol) in LOOKS.items():
        found = []
        for name in result.indexes["shift"]:
            here = result.sel(shift=name)
            mine = here.sel(who=who).values
            zero = here.sel(who=ZERO).values
            found.append(_over_zero(mine, zero))
        marks.append(_points(found, who, colour, symbol))
    return marks


def _over_zero(error: np.ndarray, zero: np.ndarray) -> Interval:
    return bootstrap(lambda e, z: np.maximum(e / z, LEAST), error, zero, positive=True)


def _bar(result: DataArray) -> list[Mark]:
    """What decides, with both zones."""
    found = []
    for name in result.indexes["shift"]:
        found.append(relative_to_bar(result, name))
    good = Zone(x=(0.0, AS_GOOD), colour=VERDICTS["supported"].pale)
    worse = Zone(x=(WORSE, np.inf), colour=VERDICTS["contradicted"].pale)
    return [good, worse, _points(found, MODEL, *LOOKS[MODEL])]


def _points(found: Sequence[Interval], name: str, colour: str, symbol: str) -> Points:
    """A point with its interval in each row."""
    ends = np.zeros((3, len(found)))
    for row, one in enumerate(found):
        ends[:, row] = one.value, one.low, one.high
    places = np.arange(len(found))
    return Points(ends[0], places, *ends[1:], name=name, colour=colour, symbol=symbol, size=9)
