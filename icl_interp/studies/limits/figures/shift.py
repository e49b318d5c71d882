"""The model beside its companions: errors as functions are scaled, within the domain, and by training interval."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    finish,
    log_axis,
    panel_title,
    place,
)
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import bootstrap
from icl_interp.studies.limits.claims.shift import EDGE, INNER
from icl_interp.studies.limits.measurements import shift as measured

LOOKS = {  # predictor: (colour, dash, symbol); other seeds share their colour
    "model": (BLUE, "solid", "circle"),
    "another seed": (BLUE, "dot", "circle-open"),
    "no norm": (ORANGE, "solid", "square"),
    "no norm, another seed": (ORANGE, "dot", "square-open"),
    "with norm": (PURPLE, "solid", "diamond"),
    "with norm, another seed": (PURPLE, "dot", "diamond-open"),
    "wider": (GREEN, "solid", "triangle-up"),
    "narrower": (SKY, "solid", "triangle-down"),
    "zero": (GREY, "dash", "x"),
}
INTERVALS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)


def shift(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """As many panels as companions allow: errors over sigma, over |x| within the domain, and over test intervals."""
    functions, inside = results.get(measured.functions), results.get(measured.inside)
    intervals = results.get(measured.intervals)
    panels: list[tuple[str, Any]] = []
    if functions is not None:
        panels.append(("Functions scaled", lambda f, axis: _functions(f, functions, axis)))
    if inside is not None:
        panels.append(("Within the domain", lambda f, axis: _inside(f, inside, axis)))
    if intervals is not None:
        panels.append(("By training interval U(−a, a)", lambda f, axis: _intervals(f, intervals, axis)))
    if not panels:
        return None
    figure = go.Figure()
    width = (1 - 0.1 * (len(panels) - 1)) / len(panels)
    domains = [(i * (width + 0.1), i * (width + 0.1) + width) for i in range(len(panels))]
    place(figure, *domains)
    for i, ((title, draw), domain) in enumerate(zip(panels, domains, strict=True)):
        draw(figure, "" if i == 0 else str(i + 1))
        panel_title(figure, title, domain)
    finish(
        figure, "Leaving the training range: the model beside its companions", tested_by("shift", findings), 310, l=76
    )
    return figure.update_layout(hovermode="closest")


def _line(
    figure: Figure,
    x: np.ndarray,
    per_function: np.ndarray,
    name: str,
    look: tuple[str, str, str],
    axis: str,
    legend: bool,
) -> list[float]:
    """Mean errors with intervals over functions, `(x, function)`. Returns what the axis has to hold."""
    found = [bootstrap(lambda m: m, row) for row in per_function]
    y, low, high = (np.array([getattr(i, key) for i in found]) for key in ("value", "low", "high"))
    colour, dash, symbol = look
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            name=plain(name),
            legendgroup=name,
            showlegend=legend,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            line={"color": colour, "width": 1.8, "dash": dash},
            marker={"symbol": symbol, "size": 7},
            error_y={"array": high - y, "arrayminus": y - low, "thickness": 1, "width": 3},
            hovertemplate=f"{plain(name)}<br>%{{x:.3g}}: %{{y:.4g}}<extra></extra>",
        )
    )
    return [float(v) for v in (*low, *high) if v > 0]


def _axes(figure: Figure, axis: str, x: dict[str, Any], y: str, held: list[float]) -> None:
    low, high = (min(held) / 1.5, max(held) * 1.5) if held else (0.1, 1.0)
    figure.update_layout({f"xaxis{axis}": x, f"yaxis{axis}": log_axis(y, low, high, 7)})


def _shown(errors: DataArray) -> list[str]:
    return [p for p in errors.indexes["predictor"] if p in LOOKS]


def _functions(figure: Figure, errors: DataArray, axis: str) -> None:
    """Error against sigma, of coefficients from sigma times their law."""
    sigmas, held = errors["sigma"].values, []
    for name in _shown(errors):
        held += _line(figure, sigmas, errors.sel(predictor=name).values, name, LOOKS[name], axis, legend=True)
    x = log_axis("sigma: functions times", float(sigmas[0]) / 1.15, float(sigmas[-1]) * 1.15)
    _axes(figure, axis, x, "squared error", held)


def _inside(figure: Figure, curve: DataArray, axis: str) -> None:
    """Error against |x| as a share of the half-width, and what counts as inside and as near the boundary."""
    held = []
    for name in _shown(curve):
        held += _line(
            figure,
            curve["share"].values,
            curve.sel(arm="trained", predictor=name).values.T,
            name,
            LOOKS[name],
            axis,
            legend=axis == "",
        )
    for low, high in ((0.0, INNER), (EDGE, 1.0)):
        figure.add_shape(
            type="rect",
            xref=f"x{axis}",
            yref=f"y{axis} domain",
            x0=low,
            x1=high,
            y0=0,
            y1=1,
            fillcolor=FAINT,
            line={"width": 0},
            layer="below",
        )
    x = {"title": {"text": "|x| / half-width of the inputs' interval"}, "range": [0.0, 1.04]}
    _axes(figure, axis, x, "squared error", held)


def _intervals(figure: Figure, errors: DataArray, axis: str) -> None:
    """Error in units of the zero predictor's against sigma, inputs and functions from U(-sigma, sigma)."""
    sigmas, held = errors["sigma"].values, [1.0]
    zero = errors.sel(arm="both", predictor="zero").values.mean(-1)
    names = [p for p in errors.indexes["predictor"] if p != "zero"]
    for name, colour in zip(names, INTERVALS, strict=False):
        relative = errors.sel(arm="both", predictor=name).values / np.maximum(zero, 1e-300)[:, None]
        held += _line(figure, sigmas, relative, f"a = {number(float(name))}", (colour, "solid", "circle"), axis, True)
    figure.add_shape(
        type="line",
        xref=f"x{axis} domain",
        yref=f"y{axis}",
        x0=0,
        x1=1,
        y0=1,
        y1=1,
        layer="below",
        line={"color": INK, "width": 0.8, "dash": "dot"},
    )
    figure.add_annotation(
        text="as bad as predicting 0",
        xref=f"x{axis} domain",
        x=0.01,
        xanchor="left",
        yref=f"y{axis}",
        y=0.0,
        yanchor="bottom",
        showarrow=False,
        font={"size": 11, "color": GREY},
    )
    x = log_axis("tested on U(−sigma, sigma)", float(sigmas[0]) / 1.15, float(sigmas[-1]) * 1.15)
    _axes(figure, axis, x, "squared error / zero predictor's", held)
