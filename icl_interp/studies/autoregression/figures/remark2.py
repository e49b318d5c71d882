"""The figure of `autoregression.remark2`.

It shows errors by point of a recurrent network, of attention and of the bound.
"""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.remark2 import (
    ATTENTION,
    BOUND,
    MUS,
    NETWORK,
    UNIFORM,
)

LINES = {NETWORK: (ORANGE, "solid"), BOUND: (GREY, "dot"), ATTENTION: (BLUE, "solid")}
LOWEST = 1e-8  # where the axis of errors ends; less is drawn there


def remark2(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each law of angles; the first point, at which W cannot be known, is left out."""
    points = results.get("points")
    if not isinstance(points, DataArray):
        return {}
    later = points.isel(point=slice(1, None))
    places = later["point"].values
    x = Axis("point of the prompt")
    y = Axis("error over that of predicting 0", LOWEST / 2, 5.0, log=True, least=LOWEST)
    panels = []
    # A line for each predictor; an error below the axis stands at its end.
    for mu in MUS:
        marks: list[Mark] = []
        for name, (colour, dash) in LINES.items():
            values = later.sel(mu=mu, model=name).values
            line = Line(places, values, name=name, colour=colour, dash=dash)
            marks.append(line)
        title = "uniform angles" if mu == UNIFORM else f"angles to 2π / {mu:g}"
        panel = Panel(title, x, y, marks)
        panels.append(panel)
    below = (
        "Mean over networks; each is trained on the law that it is tested on, attention on uniform "
        "angles only. The best linear map of the states is a closed form; what is below "
        f"{LOWEST:g} is drawn there."
    )
    title = "A linear recurrent network and attention on the same sequences"
    drawing = Drawing(title, below, panels, height=340, same_y=True)
    return {"remark2": drawing}
