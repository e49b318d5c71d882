"""The figure of `autoregression.figure7`.

It shows error against the number of heads, and by point of the prompt.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure7 import MODELS, TILES

COLOURS = {"plain": BLUE, "states twice": ORANGE}
BELOW = (
    "One layer of linear attention on orthogonal matrices, which do not commute. A mark is a "
    "trained model, with the 95 % interval of its test error; lines join the means over seeds. At "
    "the first point nothing can be predicted, and d states have to be seen before W is determined."
)


def figure7(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, errors by heads; right, errors by point for the fewest and the most heads."""
    rows = rows_of(results, "errors")
    points = results.get("points")
    if not rows or not isinstance(points, DataArray):
        return {}
    heads = sorted({row["heads"] for row in rows})
    panels = [_by_heads(rows, heads), _by_point(points, heads)]
    return {"figure7": Drawing("Error against the number of heads", BELOW, panels, height=360)}


def _by_heads(rows: list[dict], heads: list[int]) -> Panel:
    marks: list[Mark] = []
    for name, colour in COLOURS.items():
        own = [row for row in rows if row["states"] == name]
        count, error, low, high = columns_of(own, "heads", "error", "low", "high")
        counts = np.unique(count)
        means = [error[count == one].mean() for one in counts]
        marks.append(Line(counts, means, name=name, colour=colour))
        marks.append(Points(count, error, low, high, name, colour, listed=False))
    ticks = {float(count): str(count) for count in heads}
    x = Axis("heads", heads[0] / 1.3, heads[-1] * 1.3, log=True, ticks=ticks)
    y = Axis("error over that of predicting 0", 0, holds=(1.04,))
    return Panel("All points but the first", x, y, marks)


def _by_point(points: DataArray, heads: list[int]) -> Panel:
    places = points["point"].values
    marks: list[Mark] = []
    for tiles, name in TILES.items():
        for count, dash in ((heads[-1], "solid"), (heads[0], "dot")):
            model = MODELS[tiles, count, 0].name
            if model not in points.indexes["model"]:
                continue
            words = f"{name}, {count} head{'s' * (count > 1)}"
            values = points.sel(model=model).values
            marks.append(Line(places, values, name=words, colour=COLOURS[name], dash=dash))
    # At the second point a layer may do worse than predicting 0.
    y = Axis("", 0, holds=(1.04,))
    return Panel("By point: fewest and most heads", Axis("point of the prompt"), y, marks)
