"""The direction of steps of the implicit weights by the number of examples."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.implicit_update.claims.rank_one_steps import ALIGNED, ASIDE, cosine
from icl_interp.studies.implicit_update.measurements.updates import OTHER, OWN, steps

N = Axis("examples before the step", log=True, whole=True)
COSINE = Axis("cosine / largest", holds=(0.0, 1.0))
YES = Zone(y=(ALIGNED, np.inf), colour=VERDICTS["supported"].pale)
NO = Zone(y=(-np.inf, ASIDE), colour=VERDICTS["contradicted"].pale)


def line(result: DataArray, names: tuple[str, str], colour: str) -> Line:
    """A cosine at each number of examples, with its interval."""
    n = result["examples"].values.astype(float)
    found = [cosine(result.isel(examples=[place]), names) for place in range(len(n))]
    value, low, high = np.transpose([(one.value, one.low, one.high) for one in found])
    return Line(n, value, low, high, names[0], colour, symbol="circle")


def implicit_steps(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Cosines of steps over the number of examples, beside the zones that decide their mean."""
    result = results.get(steps)
    if result is None:
        return None
    below = f"{tested_by('implicit_steps', findings)}<br>{plain(result.attrs['note'])}."
    marks = [YES, NO, line(result, OWN, BLUE), line(result, OTHER, GREY)]
    panel = Panel("Direction", N, COSINE, marks)
    return Drawing("Steps of the implicit weights", below, [panel], height=320)


FIGURE = ReportFigure(
    implicit_steps,
    "At the query, examples act as an update of the last MLP's first matrix. A step is the change "
    "of this update by one more example. Lines: the cosine of a step with descent on the loss of "
    "this example, and on those of later ones, over the largest possible one. Zones are shaded; "
    "the mean over steps decides.",
)
