"""Steps of the implicit weights by the number of examples: their directions and their sizes."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.implicit_update.claims import learning
from icl_interp.studies.implicit_update.measurements.updates import FOREIGN, SIZE, steps

N = Axis("examples before the step", log=True, whole=True)


def panels(result: DataArray) -> list[Panel]:
    """Cosines with descent steps on the left, root mean square sizes on the right."""
    n = result["examples"].values.astype(float)
    cosines: list[Mark] = [
        Zone(y=(learning.ALIGNED, np.inf), colour=VERDICTS["supported"].pale),
        Zone(y=(-np.inf, learning.ASIDE), colour=VERDICTS["contradicted"].pale),
    ]
    for name, own, colour in (("own example", True, BLUE), ("another example", False, GREY)):
        found = [learning.cosine(result.sel(examples=[one]), own) for one in n]
        ends = np.array([(one.value, one.low, one.high) for one in found]).T
        cosines.append(Line(n, *ends, name=name, colour=colour, symbol="circle"))
    sizes: list[Mark] = []
    first = 0.0
    for name, number, colour in (
        ("labels of the function", SIZE, BLUE),
        ("labels of other functions", FOREIGN, GREY),
    ):
        squares = (result.sel(number=number) ** 2).mean("unit").values
        size = np.sqrt(squares)
        first = first or size[0] or 1.0
        sizes.append(Line(n, size / first, name=name, colour=colour, symbol="circle"))
    sizes.append(Line(n, n[0] / n, name="1 / n", colour=GREY, dash="dot", hover=""))
    left = Panel("Direction", N, Axis("cosine / largest", holds=(0.0, 1.0)), cosines)
    return [left, Panel("Size", N, Axis("size / first", log=True), sizes)]


def implicit_steps(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Cosines and sizes of steps over the number of examples."""
    result = results.get(steps)
    if result is None:
        return None
    below = tested_by("implicit_steps", findings) + f"<br>{plain(result.attrs['note'])}."
    return Drawing("Steps of the implicit weights", below, panels(result), height=320)


FIGURE = ReportFigure(
    implicit_steps,
    "Examples act at the query as an update of the last MLP's first matrix; a step is its change "
    "by one more example. On the left the cosine of steps with the descent step of the loss of "
    "the example that they take in, and with that of another example of the prompt, over the "
    "largest cosine that there can be; intervals are over functions. In the shaded zones it is "
    "decided whether steps descend, by the mean. On the right the root mean square size of steps, "
    "with the prompt's labels and with labels of other functions, where nothing can be learned.",
)
