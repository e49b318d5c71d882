"""Figures of reports on one window: the loss against its width, and M.

M is drawn whitened, and direction by direction.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    finish,
    log_axis,
    panel_title,
    place,
    rows_axis,
)
from icl_interp.figures.text import number, tested_by
from icl_interp.resampling import bootstrap
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.claims.window import width
from icl_interp.studies.lipschitz.measurements import relevant_directions, unit, window_losses

PARTS = {  # (name, colour, dash)
    "loss": ("loss", BLUE, "solid"),
    "bias": ("bias", GREY, "dash"),
    "noise": ("noise", GREY, "dot"),
}
LOWEST = 1e-12  # of logarithmic axes
HEIGHT = 300
KINDS = {"relevant": BLUE, "irrelevant": ORANGE}


def window(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """The loss of windows w I with the model's w and the best, and the model's whitened M."""
    curve, matrix = results.get(window_losses.window_loss), results.get(unit.kernel)
    if matrix is None or window_losses.optimum not in results:
        return None
    figure = go.Figure()
    left, right = (
        (0.0, 0.56 if curve is not None else 0.0),
        (0.72 if curve is not None else 0.3, 1.0),
    )
    place(figure, *([left] if curve is not None else []), right)
    if curve is not None:
        _loss(figure, curve, results, facts)
        panel_title(figure, "Error against the width of the window", left)
    _matrix(figure, matrix, "2" if curve is not None else "")
    panel_title(figure, "M, whitened", right)
    finish(figure, "The attention window", tested_by("lipschitz_window", findings), HEIGHT, l=76)
    return figure.update_layout(hovermode="closest")


def _loss(figure: Figure, curve: DataArray, results: Results, facts: Facts) -> None:
    """Loss, bias and noise; the windows that are no worse than the best as a band; w and w*."""
    found, own = numbers_in(results[window_losses.optimum]), width(results, facts)
    ws = curve["w"].values
    for part, (name, colour, dash) in PARTS.items():
        figure.add_trace(
            go.Scatter(
                x=ws,
                y=np.maximum(curve.sel(part=part).values, LOWEST),
                mode="lines",
                name=name,
                line={"color": colour, "width": 1.8 if part == "loss" else 1.2, "dash": dash},
                hovertemplate=f"{name}<br>w = %{{x:.3g}}: %{{y:.4g}}<extra></extra>",
            )
        )
    low, high = max(found["flat low"], float(ws[0])), min(found["flat high"], float(ws[-1]))
    figure.add_vrect(x0=low, x1=high, fillcolor=PALE, opacity=0.5, line_width=0, layer="below")
    error = float(
        results[window_losses.matrix_losses].sel(matrix=window_losses.MODEL).values.mean()
    )
    ratio = error / float(
        results[window_losses.matrix_losses].sel(matrix=window_losses.BEST).values.mean()
    )
    marks = {"best window, w*": (found["w*"], found["loss"], GREEN, "diamond")}
    if own > 0:  # else it lies on no logarithmic axis
        marks["the model's M"] = (own, ratio * found["loss"], INK, "circle-open")
    for name, (x, y, colour, symbol) in marks.items():
        figure.add_trace(
            go.Scatter(
                x=[x],
                y=[y],
                mode="markers",
                name=name,
                marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2}},
                hovertemplate=f"{name}<br>w = %{{x:.4g}}: %{{y:.4g}}<extra></extra>",
            )
        )
    loss = curve.sel(part="loss").values
    first, last = (
        min(float(ws[0]), *(m[0] for m in marks.values())),
        max(float(ws[-1]), *(m[0] for m in marks.values())),
    )
    figure.update_layout(
        xaxis=log_axis("w, wide windows to narrow ones", first, last, 5),
        yaxis=log_axis(
            "squared error",
            float(loss.min()) / 4,
            2 * max(float(loss.max()), *(m[1] for m in marks.values())),
        ),
    )


def _matrix(figure: Figure, result: DataArray, axis: str) -> None:
    """Whitened M as a table of colours with its numbers.

    w I has one number on its diagonal and 0 elsewhere.
    """
    m = result.sel(matrix="whitened").values
    size = float(np.abs(m).max()) or 1.0
    names = [str(i) for i in result["row"].values]
    figure.add_trace(
        go.Heatmap(
            z=m,
            x=names,
            y=names,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            zmin=-size,
            zmax=size,
            colorscale="RdBu",
            showscale=False,
            text=[[number(v, 2) for v in row] for row in m] if len(m) <= 8 else None,
            texttemplate="%{text}" if len(m) <= 8 else None,
            hovertemplate="row %{y}, column %{x}: %{z:.4g}<extra></extra>",
        )
    )
    figure.update_layout(
        {
            f"xaxis{axis}": {"title": {"text": "coordinate of the query"}, "type": "category"},
            f"yaxis{axis}": {
                "title": {"text": "of the example"},
                "type": "category",
                "autorange": "reversed",
            },
        }
    )


def directions(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """How much of M acts in each direction, and the error without some directions.

    Attention is not shown these directions.
    """
    table, arms = (
        results.get(relevant_directions.directions),
        results.get(relevant_directions.projected),
    )
    if table is None or arms is None:
        return None
    figure = go.Figure()
    left, right = (0.0, 0.4), (0.68, 1.0)
    place(figure, left, right)
    for kind, colour in KINDS.items():
        part = table[table["kind"] == kind]
        figure.add_trace(
            go.Bar(
                x=part["direction"],
                y=part["share"],
                name=f"{kind} directions",
                marker={"color": colour},
                hovertemplate="direction %{x}: %{y:.3g}<extra></extra>",
            )
        )
    names = [str(name) for name in arms.indexes["arm"]]
    found = [bootstrap(lambda e: e, arms.sel(arm=name).values, positive=True) for name in names]
    values = np.array([i.value for i in found])
    figure.add_trace(
        go.Scatter(
            x=values,
            y=list(range(len(names))),
            mode="markers",
            showlegend=False,
            xaxis="x2",
            yaxis="y2",
            marker={"color": INK, "size": 9},
            error_x={
                "array": np.array([i.high for i in found]) - values,
                "arrayminus": values - np.array([i.low for i in found]),
                "thickness": 1,
                "width": 3,
            },
            hovertemplate="squared error %{x:.4g}<extra></extra>",
        )
    )
    figure.update_layout(
        xaxis={"title": {"text": "direction of u"}, "type": "category"},
        yaxis={"title": {"text": "share of |M|²"}, "rangemode": "tozero"},
        xaxis2={"title": {"text": "squared error at the query"}, "rangemode": "tozero"},
        yaxis2=rows_axis(
            [name.replace(" directions taken out", "\ndirections taken out") for name in names]
        ),
    )
    panel_title(figure, "M, direction by direction", left)
    panel_title(figure, "What attention is shown", right)
    finish(
        figure,
        "Directions of the window",
        tested_by("lipschitz_directions", findings),
        HEIGHT,
        l=76,
    )
    return figure.update_layout(hovermode="closest")
