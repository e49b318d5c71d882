"""The figure of `autoregression.figure9`: error by model, and by point of the prompt."""

from collections.abc import Mapping

import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, whiskers
from icl_interp.figures.style import BLUE, ORANGE, finish, log_axis, ranged, rows_axis
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure9 import (
    CHANGES,
    LINEAR,
    LINEAR_MLP,
    MODELS,
)


def figure9(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """On the left the error of each model; on the right by point, for the first seed."""
    rows, points = rows_of(results, "errors"), results.get("points")
    if not rows or not isinstance(points, DataArray):
        return {}
    figure, names = (
        go.Figure(),
        [kind for kind in CHANGES if any(row["model"] == kind for row in rows)],
    )
    ends = [row[key] for row in rows for key in ("low", "high")]
    limits = max(min(ends), 1e-12) / 2, 2.0
    x = log_axis("error over that of predicting 0", *limits)
    add_panel(figure, 0, (0.1, 0.46), (0, 1), "All points but the first", x, rows_axis(names))
    for i, name in enumerate(names):
        own = [row for row in rows if row["model"] == name]
        colour, dash = _look(name)
        add_line(
            figure,
            0,
            name,
            [row["error"] for row in own],
            [i] * len(own),
            colour,
            legend=False,
            mode="markers",
            marker={
                "color": colour,
                "size": 9,
                "symbol": "circle" if dash == "solid" else "diamond",
            },
            error_x=whiskers(*([row[key] for row in own] for key in ("error", "low", "high"))),
        )
    values = points.values[:, 1:]
    axis = {
        "title": {"text": "point of the prompt"},
        "range": ranged(points["point"].values.tolist()),
    }
    up = log_axis("error over that of predicting 0", max(float(values.min()), 1e-12) / 2, 3.0)
    add_panel(figure, 1, (0.58, 1.0), (0, 1), "By point", axis, up)
    for name in names:
        model = MODELS[name, 0].name
        if model in points.indexes["model"]:
            colour, dash = _look(name)
            add_line(
                figure,
                1,
                name,
                points["point"].values,
                points.sel(model=model).values,
                colour,
                dash,
            )
    below = (
        "One layer of attention on rotations, with queries of the state before and learned weights "
        "of positions. A mark is a trained model, with the 95 % interval<br>of its test error. "
        "Linear scores can reach 0 here (Proposition 6). At the first point nothing can be "
        "predicted."
    )
    return {"figure9": finish(figure, "With and without softmax and MLP", below, 320)}


def _look(name: str) -> tuple[str, str]:
    """Colour by score function, dash by MLP."""
    return (BLUE if name in (LINEAR, LINEAR_MLP) else ORANGE), (
        "dash" if "MLP" in name else "solid"
    )
