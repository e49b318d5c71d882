"""What the panels of this study's figures share: their places and axes, lines and bands."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW
from icl_interp.figures.text import plain

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)
# Least squares is exact from d examples on: it would stretch every axis by twenty decades.
FLOOR = 1e-5
Drawn = dict[str, Figure]


def law(test: str) -> str:
    """A test law as readers see it."""
    return "Λ = I" if test == "fixed" else f"random Λ, {test.partition(', ')[2]}"


def spans(n: int, gap: float) -> list[tuple[float, float]]:
    """n equal parts of 0 .. 1 with gaps between them."""
    width = (1 - gap * (n - 1)) / n
    return [(i * (width + gap), i * (width + gap) + width) for i in range(n)]


def axes_of(i: int) -> str:
    """Plotly's name of the x axis of a panel."""
    return "x" if i == 0 else f"x{i + 1}"


def add_band(
    figure: Figure, xs: np.ndarray, low: np.ndarray, high: np.ndarray, axes: str, colour: str
) -> None:
    """An interval over x, shaded."""
    low, high = np.maximum(low, FLOOR), np.maximum(high, FLOOR)
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([xs, xs[::-1]]),
            y=np.concatenate([high, low[::-1]]),
            fill="toself",
            fillcolor=colour,
            opacity=0.18,
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            xaxis=axes,
            yaxis=f"y{axes[1:]}",
        )
    )


def add_line(
    figure: Figure,
    name: str,
    xs: Sequence[float] | np.ndarray,
    ys: Sequence[float] | np.ndarray,
    axes: str,
    colour: str,
    legend: bool,
    dash: str,
    width: float = 2.0,
    mode: str = "lines",
) -> None:
    """A line, or marks, on the axes of a panel."""
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode=mode,
            name=plain(name),
            showlegend=legend,
            legendgroup=name,
            xaxis=axes,
            yaxis=f"y{axes[1:]}",
            line={"color": colour, "dash": dash, "width": width},
            hovertemplate="%{x:.3g}: %{y:.3g}<extra>" + plain(name) + "</extra>",
        )
    )
