"""The figure of `linear_attention.convergence`.

It shows the excess loss along flow and SGD with the bound, and the drift of the balance by step.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import COLOURS, GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.figures.text import markup, plain
from icl_interp.results import Result

BOUND = markup("bound e<sup>−μt</sup>")
LOWEST = 1e-12  # of the axis of excess: what is below is rounding


def convergence(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, the excess by time; right, the drift of the balance by step."""
    flow = results.get("flow")
    sgd = results.get("sgd")
    drift = rows_of(results, "drift")
    if not isinstance(flow, DataArray) or not isinstance(sgd, DataArray) or not drift:
        return {}
    note = plain(flow.attrs["note"])
    below = (
        f"{note}. First: exact flow, its exponential bound, and SGD. Then: the balance, which the "
        "flow conserves."
    )
    panels = [_excess(flow, sgd), _drift(drift)]
    title = "Training a layer of linear self-attention"
    drawing = Drawing(title, below, panels, height=380)
    return {"convergence": drawing}


def _excess(flow: DataArray, sgd: DataArray) -> Panel:
    # The axis of time is logarithmic, so that the start has no place on it.
    flow = flow.sel(t=flow["t"] > 0)
    sgd = sgd.sel(t=sgd["t"] > 0)
    times = flow["t"].values
    marks: list[Mark] = []
    for start, colour in zip(flow.indexes["start"], COLOURS, strict=False):
        name = markup("flow from {} σ<sub>max</sub>", f"{start:g}")
        own = flow.sel(start=start)
        excess = own.sel(line="flow").values
        bound = own.sel(line="bound").values
        marks.append(Line(times, excess, name=name, colour=colour))
        if not np.isnan(bound).all():
            marks.append(Line(times, bound, name=BOUND, colour=colour, dash="dash"))
    name = "SGD on sampled prompts, from the first start"
    places = sgd["t"].values
    marks.append(Points(places, sgd.values, name=name, colour=INK, size=5))
    x = Axis("time t", times[0], times[-1], log=True)
    y = Axis("l − min l", LOWEST, 10, log=True)
    return Panel("Excess loss", x, y, marks, width=2.2)


def _drift(rows: list[dict]) -> Panel:
    steps, worst = columns_of(rows, "step", "largest imbalance")
    guide = worst[-1] * steps / steps[-1]
    marks = [
        Line(steps, worst, name="u² − |U|²", colour=INK, symbol="circle", size=6),
        Line(steps, guide, name="proportional to the step", colour=GREY, dash="dot"),
    ]
    x = Axis("step of gradient descent", log=True)
    y = Axis(log=True)
    return Panel("Largest |u² − |U|²|", x, y, marks)
