"""The figures of `autoregression.figure5` and `autoregression.figure10`: late errors by layers and by steps."""

from collections.abc import Mapping
from functools import partial

import plotly.graph_objects as go
from pandas import DataFrame

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, whiskers
from icl_interp.figures.style import BLUE, GREY, ORANGE, finish, log_axis
from icl_interp.results import Result

LOOKS = {"gradient descent": (GREY, "circle-open"), "layers": (BLUE, "circle")}


def _layers(
    results: Mapping[str, Result], comparison: DataFrame | None, name: str, title: str, colour: str
) -> Drawn:
    """One panel: error against the number of layers, or of steps."""
    rows = rows_of(results, "errors")
    if not rows:
        return {}
    figure, numbers = go.Figure(), sorted({row["number"] for row in rows})
    x = log_axis("layers, or steps of gradient descent", numbers[0] / 1.15, numbers[-1] * 1.15)
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    y = log_axis("error over that of predicting 0", max(low, 1e-12) / 1.5, high * 1.5)
    add_panel(figure, 0, (0, 1), (0, 1), "", {**x, "tickvals": numbers, "ticktext": numbers}, y)
    for what, (own, symbol) in LOOKS.items():
        shown = sorted((row for row in rows if row["what"] == what), key=lambda row: row["number"])
        drawn = own if what == "gradient descent" else colour
        add_line(
            figure,
            0,
            f"{what}, best constant size of steps" if what == "gradient descent" else title,
            [row["number"] for row in shown],
            [row["error"] for row in shown],
            drawn,
            "dash" if what == "gradient descent" else "solid",
            mode="lines+markers",
            marker={"color": drawn, "size": 8, "symbol": symbol},
            error_y=whiskers(*([row[key] for row in shown] for key in ("error", "low", "high"))),
        )
    below = (
        "Squared error at the last quarter of the prompt, with 95 % intervals: before d "
        "transitions no method can know W. One trained model for each number<br>of layers, on "
        "orthogonal matrices and augmented tokens; the same matrices for all."
    )
    return {name: finish(figure, f"{title} against steps of gradient descent", below, 340)}


figure5 = partial(_layers, name="figure5", title="Layers of linear attention", colour=BLUE)
figure10 = partial(
    _layers, name="figure10", title="Layers of softmax attention and MLP", colour=ORANGE
)
