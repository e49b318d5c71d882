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
from icl_interp.studies.autoregression.experiments.figure7 import MODELS, NORMED_MODELS, TILES

COLOURS = {"plain": BLUE, "states twice": ORANGE}
BELOW = (
    "One layer of linear attention on orthogonal matrices, which do not commute. A mark is a "
    "trained model, with the 95 % interval of its test error; lines join the means over seeds. At "
    "the first point nothing can be predicted, and d states have to be seen before W is determined."
)


def figure7(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, errors by heads; right, errors by point for the fewest and the most heads.

    A drawing each for the layer without a norm and for that with a norm on its output.
    """
    title = "Error against the number of heads"
    layers = (
        ("figure7", "", title, MODELS),
        ("figure7_norm", "normed ", f"{title}, LayerNorm on the output", NORMED_MODELS),
    )
    drawings = {}
    for name, prefix, heading, its in layers:
        names = {key: model.name for key, model in its.items()}
        drawing = _of_layer(results, prefix, heading, names)
        if drawing is not None:
            drawings[name] = drawing
    return drawings


def _of_layer(
    results: Mapping[str, Result],
    prefix: str,
    title: str,
    names: Mapping[tuple[int, int, int], str],
) -> Drawing | None:
    """The drawing of one layer, None where none of its models was measured.

    Args:
        results: of the experiment.
        prefix: what the names of this layer's results begin with.
        title: of the drawing.
        names: of its models, by tiles, heads and seed.
    """
    rows = rows_of(results, f"{prefix}errors")
    points = results.get(f"{prefix}points")
    if not rows or not isinstance(points, DataArray):
        return None
    heads = sorted({row["heads"] for row in rows})
    left = _by_heads(rows, heads)
    right = _by_point(points, heads, names)
    return Drawing(title, BELOW, [left, right], height=360)


def _by_heads(rows: list[dict], heads: list[int]) -> Panel:
    marks: list[Mark] = []
    for name, colour in COLOURS.items():
        own = [row for row in rows if row["states"] == name]
        count, error, low, high = columns_of(own, "heads", "error", "low", "high")
        counts = np.unique(count)
        # Seeds with as many heads have one mean.
        means = []
        for one in counts:
            here = count == one
            means.append(error[here].mean())
        line = Line(counts, means, name=name, colour=colour)
        points = Points(count, error, low, high, name, colour, listed=False)
        marks += [line, points]
    ticks = {}
    for count in heads:
        ticks[float(count)] = str(count)
    x = Axis("heads", heads[0] / 1.3, heads[-1] * 1.3, log=True, ticks=ticks)
    y = Axis("error over that of predicting 0", 0, holds=(1.04,))
    return Panel("All points but the first", x, y, marks)


def _by_point(
    points: DataArray, heads: list[int], names: Mapping[tuple[int, int, int], str]
) -> Panel:
    places = points["point"].values
    marks: list[Mark] = []
    for tiles, name in TILES.items():
        for count, dash in ((heads[-1], "solid"), (heads[0], "dot")):
            model = names[tiles, count, 0]
            if model not in points.indexes["model"]:
                continue
            words = f"{name}, {count} head{'s' * (count > 1)}"
            values = points.sel(model=model).values
            line = Line(places, values, name=words, colour=COLOURS[name], dash=dash)
            marks.append(line)
    # At the second point a layer may do worse than predicting 0.
    x = Axis("point of the prompt")
    y = Axis("", 0, holds=(1.04,))
    return Panel("By point: fewest and most heads", x, y, marks)
