"""The figures of `lipschitz.low_rank`: what units recover, their matrices, and Theorem 4 by the prompts' length."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, spans, suffix, whiskers
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    finish,
    log_axis,
    panel_title,
    place,
    rows_axis,
)
from icl_interp.figures.text import plain
from icl_interp.results import Result

SHADES = ((0.0, BLUE), (0.5, "#FFFFFF"), (1.0, ORANGE))


def low_rank(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Recovery and projections; matrices; the exact minima of Theorem 4 with units that were trained without a cap."""
    units, matrices, minima = (results.get(key) for key in ("units", "matrices", "minima"))
    figures: Drawn = {}
    if isinstance(units, DataFrame):
        figures["recovery"] = _recovery(units)
    if isinstance(matrices, DataArray):
        figures["matrices"] = _matrices(matrices)
    if isinstance(minima, DataFrame):
        figures["cap"] = _cap(
            minima, *(rows_of(results, key) for key in ("endless", "theorem units"))
        )
    return figures


def _recovery(units: DataFrame) -> Figure:
    """A row a task: the angle, M's energy outside col(B), and the error without directions."""
    rows = units.to_dict("records")
    tasks = list(dict.fromkeys((row["link"], row["σ"]) for row in rows))
    places = [tasks.index((row["link"], row["σ"])) for row in rows]
    figure, domains = go.Figure(), [(0.0, 0.26), (0.31, 0.57), (0.64, 1.0)]
    place(figure, *domains)
    _dots(figure, "", [row["angle"] for row in rows], places, INK, "sine of the largest angle")
    _dots(figure, "2", [row["outside"] for row in rows], places, INK, "share outside")
    for what, colour, symbol in (("irrelevant", BLUE, "circle"), ("relevant", ORANGE, "diamond")):
        values = [row[f"{what} out"] for row in rows]
        figure.add_trace(
            go.Scatter(
                x=values,
                y=places,
                error_x=whiskers(
                    *([row[f"{what} {end}"] for row in rows] for end in ("out", "low", "high"))
                ),
                mode="markers",
                name=f"blind to the {what} directions",
                marker={"size": 9, "color": colour, "symbol": symbol},
                xaxis="x3",
                yaxis="y3",
                hovertemplate="%{x:.3g}<extra>blind to the " + what + " directions</extra>",
            )
        )
    labels = [f"{link}\nσ = {noise:g}" for link, noise in tasks]
    tops = [
        max(row["relevant high"] for row in rows),
        max(row["irrelevant high"] for row in rows),
        2.0,
    ]
    least = min(
        *(row["irrelevant low"] for row in rows), *(row["relevant low"] for row in rows), 0.9
    )
    figure.update_layout(
        yaxis=rows_axis(labels),
        yaxis2=rows_axis(labels, shown=False),
        yaxis3=rows_axis(labels, shown=False),
        xaxis={"range": [-0.03, 1.03], "title": {"text": "sin of the largest angle to col(B)"}},
        xaxis2={"range": [-0.03, 1.03], "title": {"text": "share of M's squared entries"}},
        xaxis3=log_axis("error / error of the unit", least / 1.15, max(tops) * 1.15),
    )
    figure.add_shape(
        type="line",
        xref="x3",
        yref="y3 domain",
        x0=1,
        x1=1,
        y0=0,
        y1=1,
        line={"color": GREY, "dash": "dot", "width": 1},
    )
    panel_title(figure, "subspace recovered", domains[0])
    panel_title(figure, "M outside col(B)", domains[1])
    panel_title(figure, "directions taken out of the scores", domains[2])
    below = (
        "A mark is a unit; bars: 95 % over blocks of prompts. Right: the error of the unit whose "
        "scores are blind."
    )
    return finish(figure, "Labels that depend on two directions: what units recover", below, 330)


def _dots(
    figure: Figure, end: str, values: Sequence[float], places: Sequence[int], colour: str, what: str
) -> None:
    figure.add_trace(
        go.Scatter(
            x=values,
            y=places,
            mode="markers",
            name=what,
            showlegend=False,
            marker={"size": 9, "color": colour, "symbol": "circle-open", "line": {"width": 2}},
            xaxis=f"x{end}",
            yaxis=f"y{end}",
            hovertemplate="%{x:.3g}<extra>" + what + "</extra>",
        )
    )


def _matrices(matrices: DataArray) -> Figure:
    """M of each unit in a basis that starts with col(B)."""
    links, noises = matrices.indexes["link"], matrices.indexes["σ"]
    figure, domains = go.Figure(), spans(len(links) * len(noises), 0.03)
    place(figure, *domains)
    cells = [(link, noise) for link in links for noise in noises]
    for i, (link, noise) in enumerate(cells):
        end = suffix(i)
        values = matrices.sel(link=link, σ=noise).values
        largest = float(np.nanmax(np.abs(values))) if not np.isnan(values).all() else 1.0
        figure.add_trace(
            go.Heatmap(
                z=values / (largest or 1.0),
                customdata=values,
                x=matrices["query"].values,
                y=matrices["key"].values,
                zmin=-1,
                zmax=1,
                colorscale=SHADES,
                showscale=False,
                xaxis=f"x{end}",
                yaxis=f"y{end}",
                hovertemplate="key %{y}, query %{x}: %{customdata:.3g}<extra>"
                + plain(f"{link}, σ = {noise:g}")
                + "</extra>",
            )
        )
        figure.update_layout(
            {
                f"xaxis{end}": {
                    "ticks": "",
                    "showticklabels": False,
                    "title": {"text": f"largest {largest:.3g}"},
                },
                f"yaxis{end}": {
                    "ticks": "",
                    "showticklabels": False,
                    "autorange": "reversed",
                    "scaleanchor": f"x{end}",
                    "constrain": "domain",
                },
            }
        )
        panel_title(figure, f"{plain(link)}, σ = {noise:g}", domains[i])
    below = (
        f"{plain(matrices.attrs['note'])}. For M = c B Bᵀ only the square of these at the top left "
        "has colour.<br>"
        "Each panel is scaled by its largest entry; orange is positive, blue negative."
    )
    return finish(figure, "M of the units, direction by direction", below, 150, l=20)


def _cap(
    minima: DataFrame, endless: Sequence[Mapping[str, Any]], theorem: Sequence[Mapping[str, Any]]
) -> Figure:
    """Left, the least losses with c' free and c' = 0; right, |c'| / c, free, under the cap, and of trained units."""
    rows, figure, domains = minima.to_dict("records"), go.Figure(), [(0.0, 0.46), (0.58, 1.0)]
    place(figure, *domains)
    ns = [row["n"] for row in rows]
    for name, key, colour, symbol in (
        ("c B Bᵀ, c free", "loss held", ORANGE, "diamond"),
        ("c B Bᵀ + c′ (I − B Bᵀ), both free", "loss free", BLUE, "circle"),
    ):
        _curve(figure, name, ns, [row[key] for row in rows], "", colour, symbol)
    floors = [row["loss held"] for row in endless]
    for floor in floors:
        _curve(figure, "c B Bᵀ, endless prompts", ns, [floor] * len(ns), "", GREY, "", "dot")
    _curve(
        figure,
        "no cap",
        ns,
        [row["outside free"] / row["c free"] for row in rows],
        "2",
        BLUE,
        "circle",
        legend=False,
    )
    capped = [row["outside capped"] / row["c capped"] for row in rows]
    _curve(figure, "under the cap of Theorem 4", ns, capped, "2", GREEN, "square")
    if theorem:
        shares = [abs(row["c outside"] / row["c"]) for row in theorem]
        _curve(
            figure,
            "trained units, no cap",
            [row["n used"] for row in theorem],
            shares,
            "2",
            INK,
            "star",
            mode="markers",
        )
    losses = [row[key] for row in rows for key in ("loss held", "loss free")] + floors
    for end in ("", "2"):
        figure.update_layout({f"xaxis{end}": log_axis("examples n", ns[0] / 1.2, ns[-1] * 1.2)})
    figure.update_layout(
        yaxis=log_axis("loss", min(losses) / 1.5, max(losses) * 1.5),
        yaxis2={"title": {"text": "|c′| / c"}, "range": [-0.05, 1.05]},
    )
    panel_title(figure, "least loss without a cap", domains[0])
    panel_title(figure, "weight on irrelevant directions", domains[1])
    below = (
        "Linear functions of two of four directions without noise. Lines: exact minima; left on "
        "fresh prompts. The cap is |BᵀMB| at most 3."
    )
    return finish(figure, "Theorem 4 with and without its cap", below, 320)


def _curve(
    figure: Figure,
    name: str,
    xs: Sequence[float],
    ys: Sequence[float],
    end: str,
    colour: str,
    symbol: str,
    dash: str = "solid",
    mode: str = "",
    legend: bool = True,
) -> None:
    settings: dict[str, Any] = (
        {"marker": {"symbol": symbol, "size": 8, "color": colour}} if symbol else {}
    )
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode=mode or ("lines+markers" if symbol else "lines"),
            name=name,
            showlegend=legend,
            line={"color": colour, "dash": dash, "width": 2},
            xaxis=f"x{end}",
            yaxis=f"y{end}",
            hovertemplate="n = %{x}: %{y:.3g}<extra>" + name + "</extra>",
            **settings,
        )
    )
