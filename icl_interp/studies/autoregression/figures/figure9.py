"""The figure of `autoregression.figure9`: error by model, and by point of the prompt."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, rows
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure9 import (
    CHANGES,
    LINEAR,
    LINEAR_MLP,
    MODELS,
)

ERROR = "error over that of predicting 0"
BELOW = (
    "One layer of attention on rotations, with the previous state as query and learned weights of "
    "positions. A mark is a trained model, with the 95 % interval of its test error. Linear "
    "scores can reach 0 here (Proposition 6). At the first point nothing can be predicted."
)


def figure9(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """On the left the error of each model; on the right by point, for the first seed."""
    found = rows_of(results, "errors")
    points = results.get("points")
    if not found or not isinstance(points, DataArray):
        return {}
    names = []
    for kind in CHANGES:
        if rows_of(results, "errors", model=kind):
            names.append(kind)
    left = _by_model(found, names)
    right = _by_point(points, names)
    title = "With and without softmax and MLP"
    drawing = Drawing(title, BELOW, [left, right], height=320)
    return {"figure9": drawing}


def _by_model(found: list[dict], names: list[str]) -> Panel:
    marks: list[Mark] = []
    for i, name in enumerate(names):
        own = [row for row in found if row["model"] == name]
        error, low, high = columns_of(own, "error", "low", "high")
        colour, dash = _look(name)
        symbol = "circle" if dash == "solid" else "diamond"
        places = np.full(len(own), i)
        points = Points(
            error, places, low, high, name=name, colour=colour, symbol=symbol, size=9, listed=False
        )
        marks.append(points)
    x = Axis(ERROR, log=True, least=1e-12, holds=(1.0,))
    return Panel("All points but the first", x, rows(names), marks)


def _by_point(points: DataArray, names: list[str]) -> Panel:
    places = points["point"].values
    marks: list[Mark] = []
    for name in names:
        model = MODELS[name, 0].name
        if model in points.indexes["model"]:
            colour, dash = _look(name)
            values = points.sel(model=model).values
            line = Line(places, values, name=name, colour=colour, dash=dash)
            marks.append(line)
    x = Axis("point of the prompt")
    y = Axis(ERROR, log=True, least=1e-12)
    return Panel("By point", x, y, marks)


def _look(name: str) -> tuple[str, str]:
    """Colour by score function, dash by MLP."""
    colour = BLUE if name in (LINEAR, LINEAR_MLP) else ORANGE
    dash = "dash" if "MLP" in name else "solid"
    return colour, dash
