"""Figures of `limits.remedies`: every quantity of every model on its own axis, and dispersion."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots
from xarray import DataArray

from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    finish,
    log_axis,
)
from icl_interp.figures.text import number, plain
from icl_interp.results import Result

COLUMNS = 2
COLOURS = (INK, BLUE, SKY, GREEN, YELLOW, ORANGE, PURPLE, GREY)


def remedies(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """Side by side, with intervals; and the largest share of a head's weight as keys are added.

    The share falls.
    """
    table, curve = results.get("quantities"), results.get("dispersion")
    figures = {}
    if isinstance(table, DataFrame):
        figures["side_by_side"] = _side_by_side(table)
    if isinstance(curve, DataArray):
        figures["dispersion"] = _dispersion(curve)
    return figures


def _side_by_side(table: DataFrame) -> Figure:
    names = list(dict.fromkeys(table["quantity"]))
    n_rows = -(-len(names) // COLUMNS)
    figure = make_subplots(
        n_rows,
        COLUMNS,
        subplot_titles=[plain(n) for n in names],
        shared_yaxes=True,
        vertical_spacing=0.3 / n_rows,
        horizontal_spacing=0.03,
    )
    for k, quantity in enumerate(names):
        panel: dict[str, Any] = {"row": k // COLUMNS + 1, "col": k % COLUMNS + 1}
        rows = [row for row in table.to_dict("records") if row["quantity"] == quantity]
        value, low, high = (
            np.array([row[key] for row in rows]) for key in ("value", "low", "high")
        )
        labels = [row["model"].removeprefix("remedy_") for row in rows]
        figure.add_trace(
            go.Scatter(
                x=value,
                y=labels,
                mode="markers",
                showlegend=False,
                marker={
                    "size": 8,
                    "color": [INK if name == "baseline" else BLUE for name in labels],
                },
                error_x={
                    "array": high - value,
                    "arrayminus": value - low,
                    "thickness": 1.4,
                    "width": 3,
                },
                text=[
                    f"{number(v)} [{number(a)}, {number(b)}]"
                    for v, a, b in zip(value, low, high, strict=True)
                ],
                hovertemplate="%{y}: %{text}<extra></extra>",
            ),
            **panel,
        )
        if "baseline" in labels:
            figure.add_vline(
                x=value[labels.index("baseline")],
                line={"color": GREY, "width": 1, "dash": "dot"},
                **panel,
            )
        if (low > 0).all() and value.max() / value.min() > 3:
            figure.update_xaxes(**log_axis("", low.min() / 1.2, high.max() * 1.2), **panel)
    figure.update_yaxes(autorange="reversed")
    figure.update_annotations(font={"size": 13})
    below = f"{plain(table.attrs['note'])}. Dotted: the baseline (pre-LN, softmax)."
    finish(figure, "Remedies side by side", below, 190 * n_rows, l=110)
    return figure.update_layout(margin_t=90)


def _dispersion(curve: DataArray) -> Figure:
    figure = go.Figure()
    for name, colour in zip(curve.indexes["model"], COLOURS, strict=False):
        figure.add_trace(
            go.Scatter(
                x=curve["n"].values,
                y=curve.sel(model=name, statistic="largest share").values,
                mode="lines+markers",
                name=plain(name.removeprefix("remedy_")),
                line={"color": colour},
                hovertemplate="n = %{x}: %{y:.3g}<extra>" + plain(name) + "</extra>",
            )
        )
    guide = (
        curve["n"].values[0] * curve.sel(statistic="largest share").values.max() / curve["n"].values
    )
    figure.add_trace(
        go.Scatter(
            x=curve["n"].values,
            y=guide,
            mode="lines",
            name="1 / n",
            line={"color": GREY, "dash": "dot", "width": 1},
            hoverinfo="skip",
        )
    )
    values = curve.sel(statistic="largest share").values
    figure.update_xaxes(
        **log_axis("keys n", curve["n"].values.min() / 1.1, curve["n"].values.max() * 1.1)
    )
    figure.update_yaxes(
        **log_axis(
            "largest share of a head's weight", min(values.min(), guide.min()), values.max() * 1.2
        )
    )
    return finish(
        figure, "Does attention disperse as the context grows?", plain(curve.attrs["note"]), 380
    )
