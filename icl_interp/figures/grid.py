"""What figures of many panels share: their places, lines, bands and matrices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, YELLOW, panel_title
from icl_interp.figures.text import plain

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
# White at 0, so that what is absent is not drawn; both signs are dark at the end.
DIVERGING = [[0.0, ORANGE], [0.5, "#FFFFFF"], [1.0, BLUE]]
FROM_ZERO = [[0.0, "#FFFFFF"], [1.0, BLUE]]
Span = tuple[float, float]
Drawn = dict[str, Figure]


def spans(n: int, gap: float) -> list[Span]:
    """n equal parts of 0 .. 1 with gaps between them.

    >>> spans(3, 0.09)[-1][1]
    1.0
    """
    width = (1 - gap * (n - 1)) / n
    starts = [i * (width + gap) for i in range(n)]
    return [
        (start, min(start + width, 1.0)) for start in starts
    ]  # sums of floats may end a last bit beyond 1


def suffix(panel: int) -> str:
    """What plotly writes behind the axes of a panel, counted from 0."""
    return "" if panel == 0 else str(panel + 1)


def add_panel(
    figure: Figure,
    panel: int,
    across: Span,
    up: Span,
    title: str,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
) -> None:
    """Axes of one panel, and its title above the left end.

    Args:
        figure: is changed.
        panel: its number, from 0.
        across: left and right end, as shares of the figure.
        up: lower and upper end.
        title: marked up already; none where it is empty.
        x: settings of its horizontal axis.
        y: of its vertical one.
    """
    own = suffix(panel)
    figure.update_layout(
        {
            f"xaxis{own}": {**x, "domain": across, "anchor": f"y{own}"},
            f"yaxis{own}": {**y, "domain": up, "anchor": f"x{own}"},
        }
    )
    if title:
        panel_title(figure, title, across, up[1])


def add_matrix(
    figure: Figure,
    panel: int,
    across: Span,
    up: Span,
    title: str,
    matrix: DataArray,
    largest: float | None = None,
    scale: Mapping[str, Any] | None = None,
    labels: tuple[str, str] | None = None,
    signed: bool = True,
) -> None:
    """A matrix as squares, its first row on top.

    Args:
        figure: is changed.
        panel: its number, from 0.
        across: left and right end, as shares of the figure.
        up: lower and upper end.
        title: marked up already.
        matrix: two named axes of numbers.
        largest: where the colours end, on both sides of 0; the largest entry by default.
        scale: where a bar of colours stands; none without.
        labels: names of the rows and columns, instead of those of the axes.
        signed: whether entries may be negative; otherwise colours begin at 0.
    """
    rows, columns = (str(name) for name in matrix.dims)
    values = matrix.values
    end = float(np.abs(values).max()) if largest is None else largest
    down, right = labels or (rows, columns)
    figure.add_trace(
        go.Heatmap(
            z=values,
            x=matrix[columns].values,
            y=matrix[rows].values,
            colorscale=DIVERGING if signed else FROM_ZERO,
            zmin=-(end or 1.0) if signed else 0.0,
            zmax=end or 1.0,
            showscale=scale is not None,
            colorbar={"thickness": 10, "tickfont": {"size": 11}, **(scale or {})},
            xaxis=f"x{suffix(panel)}",
            yaxis=f"y{suffix(panel)}",
            hovertemplate=plain(down) + " %{y}, " + plain(right) + " %{x}: %{z:.3g}<extra></extra>",
        )
    )
    add_panel(
        figure,
        panel,
        across,
        up,
        title,
        {"title": {"text": plain(right)}, "mirror": True, **_ticks(values.shape[1])},
        {
            "title": {"text": plain(down)},
            "mirror": True,
            "autorange": "reversed",
            **_ticks(values.shape[0]),
        },
    )


def _ticks(n: int) -> dict[str, Any]:
    """Few whole numbers."""
    every = max(1, round(n / 5))
    return {"tick0": every if every > 1 else 1, "dtick": every}


def add_line(
    figure: Figure,
    panel: int,
    name: str,
    xs: Sequence[float] | np.ndarray,
    ys: Sequence[float] | np.ndarray,
    colour: str,
    dash: str = "solid",
    legend: bool = True,
    width: float = 2.0,
    **more: Any,
) -> None:
    """A line, or marks where `mode` says so; lines of one name are one entry of the legend."""
    settings: dict[str, Any] = {
        "mode": "lines",
        "line": {"color": colour, "dash": dash, "width": width},
        **more,
    }
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            name=plain(name),
            showlegend=legend,
            legendgroup=name,
            xaxis=f"x{suffix(panel)}",
            yaxis=f"y{suffix(panel)}",
            hovertemplate="%{x:.3g}: %{y:.3g}<extra>" + plain(name) + "</extra>",
            **settings,
        )
    )


def whiskers(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> dict[str, Any]:
    """What plotly draws as intervals [low, high] about values: for `error_x` or `error_y` of a trace.

    >>> whiskers([1.0, 2.0], [0.5, 2.0], [1.5, 4.0])["array"]
    array([0.5, 2. ])
    """
    middle = np.asarray(values, float)
    return {
        "array": np.asarray(high) - middle,
        "arrayminus": middle - np.asarray(low),
        "thickness": 1.2,
        "width": 3,
    }


def add_rule(figure: Figure, panel: int, y: float, ends: Span, name: str) -> None:
    """A horizontal dotted line across a panel."""
    add_line(
        figure,
        panel,
        name,
        list(ends),
        [y, y],
        INK,
        "dot",
        line={"color": INK, "dash": "dot", "width": 1.2},
    )


def add_band(
    figure: Figure,
    panel: int,
    xs: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    colour: str,
    name: str = "",
    opacity: float = 0.18,
) -> None:
    """An interval over x, shaded; in the legend where it has a name.

    Places without numbers are left out.
    """
    held = np.isfinite(low) & np.isfinite(high)
    xs, low, high = xs[held], low[held], high[held]
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([xs, xs[::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=colour,
            opacity=opacity,
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name=plain(name),
            showlegend=bool(name),
            xaxis=f"x{suffix(panel)}",
            yaxis=f"y{suffix(panel)}",
        )
    )
