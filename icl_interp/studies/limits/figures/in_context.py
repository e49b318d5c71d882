"""ICL1 and ICL2: errors under several contexts of one function, and under several laws."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE
from icl_interp.figures.drawing import Axis, Drawing, Panel, Points, Rule, rows
from icl_interp.figures.text import tested_by
from icl_interp.studies.limits.claims.error_rates import LOW
from icl_interp.studies.limits.claims.no_icl2 import FAILS, worst
from icl_interp.studies.limits.measurements import in_context as measured

LEAST = 1e-4  # of a number beside the truth: what is smaller is drawn here


def in_context(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """A dot a unit: how much the error varies over contexts. A row a law: how large it is."""
    panels = []
    contexts = results.get(measured.contexts)
    if contexts is not None:
        panels.append(_by_context(contexts))
    laws = results.get(measured.by_law)
    if laws is not None:
        panels.append(_by_law(laws))
    if not panels:
        return None
    title = "Is the error the same for every context, and small under every law?"
    return Drawing(title, tested_by("in_context", findings), panels, height=330)


FIGURE = ReportFigure(
    in_context,
    "First, one dot for each unit of functions: the mean of the error |f - g| at one query over "
    "several contexts, and its standard deviation over these, in units of the spread of the "
    "truth. If the error were the same for every context, all dots would lie at the bottom. "
    "Second, one row for each law of functions and inputs: the squared error over that of the "
    "best guess without examples, with its interval; 1 is no better than this guess.",
)


def _by_context(result: DataArray) -> Panel:
    """The standard deviation over contexts against the mean error."""
    spread = float(np.sqrt(result.sel(part="law's mean").mean()))
    unit = spread or 1.0
    error = result.sel(part="error").values / unit
    within = np.sqrt(result.sel(part="within").values) / unit
    dots = Points(error, within, colour=BLUE, size=5, opacity=0.6, name="a unit of functions")
    x = Axis("mean error over contexts", log=True, least=LEAST)
    y = Axis("its standard deviation over contexts", log=True, least=LEAST)
    return Panel("One query, several contexts", x, y, [dots])


def _by_law(result: DataArray) -> Panel:
    """The relative error with its interval, a row a law."""
    names = list(result.indexes["law"])
    values = []
    lows = []
    highs = []
    for name in names:
        one = worst(result, [name])
        values.append(one.value)
        lows.append(one.low)
        highs.append(one.high)
    dots = Points(values, list(range(len(names))), low=lows, high=highs, colour=BLUE, name="a law")
    # In the legend: on a narrow panel words beside the two lines would lie on one another.
    learned = Rule(x=LOW, name="learned: left of here")
    fails = Rule(x=FAILS, name="fails: right of here", dash="dash")
    marks = [dots, learned, fails]
    x = Axis("squared error / that of the law's mean", log=True, least=LEAST)
    return Panel("Several laws of functions and inputs", x, rows(names), marks)
