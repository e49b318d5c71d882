"""The figure of `autoregression.figure7`: error against the number of heads, and by point of the prompt."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, spans, whiskers
from icl_interp.figures.style import BLUE, ORANGE, finish, log_axis, ranged
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure7 import MODELS, TILES

COLOURS = {"plain": BLUE, "states twice": ORANGE}


def figure7(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """On the left errors by heads; on the right errors by point for the fewest and the most heads."""
    rows, points = rows_of(results, "errors"), results.get("points")
    if not rows or not isinstance(points, DataArray):
        return {}
    figure, (left, right) = go.Figure(), spans(2, 0.1)
    heads = sorted({row["heads"] for row in rows})
    y = {"title": {"text": "error over that of predicting 0"}, "range": [0, 1.08]}
    x = log_axis("heads", heads[0] / 1.3, heads[-1] * 1.3)
    add_panel(
        figure,
        0,
        left,
        (0, 1),
        "All points but the first",
        {**x, "tickvals": heads, "ticktext": heads},
        y,
    )
    for name, colour in COLOURS.items():
        _by_heads(figure, [row for row in rows if row["states"] == name], name, colour)
    top = 1.04 * max(
        1.04, float(points.values.max())
    )  # at the second point a layer may do worse than predicting 0
    axis = {
        "title": {"text": "point of the prompt"},
        "range": ranged(points["point"].values.tolist()),
    }
    add_panel(
        figure, 1, right, (0, 1), "By point: fewest and most heads", axis, {"range": [0, top]}
    )
    for tiles, name in TILES.items():
        for count, dash in ((heads[-1], "solid"), (heads[0], "dot")):
            model = MODELS[tiles, count, 0].name
            if model in points.indexes["model"]:
                words = f"{name}, {count} head{'s' * (count > 1)}"
                values = points.sel(model=model).values
                add_line(figure, 1, words, points["point"].values, values, COLOURS[name], dash)
    below = (
        "One layer of linear attention on orthogonal matrices, which do not commute. A mark is a "
        "trained model, with the 95 % interval of its test error;<br>lines join the means over "
        "seeds. At the first point nothing can be predicted, and d states have to be seen before W "
        "is determined."
    )
    return {"figure7": finish(figure, "Error against the number of heads", below, 360)}


def _by_heads(figure: go.Figure, rows: list[dict], name: str, colour: str) -> None:
    heads = sorted({row["heads"] for row in rows})
    means = [
        float(np.mean([row["error"] for row in rows if row["heads"] == count])) for count in heads
    ]
    add_line(figure, 0, name, heads, means, colour)
    add_line(
        figure,
        0,
        name,
        [row["heads"] for row in rows],
        [row["error"] for row in rows],
        colour,
        legend=False,
        mode="markers",
        marker={"color": colour, "size": 8},
        error_y=whiskers(*([row[key] for row in rows] for key in ("error", "low", "high"))),
    )
