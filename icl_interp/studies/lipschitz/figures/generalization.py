"""The figures of `lipschitz.generalization`: error by the length of the prompt, and the price of another class."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.figures.grid import Drawn, spans, suffix, whiskers
from icl_interp.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    finish,
    log_axis,
    panel_title,
    place,
)
from icl_interp.figures.text import number, plain
from icl_interp.results import Result
from icl_interp.studies.lipschitz.experiments.generalization import KINDS

HEIGHT = 300
SHARED = ("affine", "ReLU", "cosine")
LOOKS = {  # colour, dash, symbol, of the classes that units are trained on
    "affine": (BLUE, "solid", "circle"),
    "ReLU": (ORANGE, "dash", "square"),
    "cosine": (GREEN, "dot", "diamond"),
    "cosine, L = 0.1": (PURPLE, "solid", "triangle-down"),
    "cosine, L = 10": (SKY, "solid", "triangle-up"),
    "affine, L = 10": (INK, "dash", "cross"),
    "cosine, ω = 10": (GREY, "dashdot", "x"),
}
# What each panel shows: its title, the class tested on, the classes trained on.
PANELS = (
    ("tested on affine", "affine", (*SHARED, "cosine, ω = 10")),
    ("on ReLU", "ReLU", (*SHARED, "cosine, ω = 10")),
    ("on cosine", "cosine", (*SHARED, "cosine, ω = 10")),
    (
        "on cosine, other L",
        "cosine",
        ("affine", "cosine, L = 0.1", "cosine", "cosine, L = 10", "affine, L = 10"),
    ),
)
SHADES = ((0.0, "#FFFFFF"), (0.5, "#F9D9B8"), (1.0, "#D55E00"))
DARKEST = 30.0  # ratio from which on a cell has the last shade


def generalization(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Curves over the length, and all classes on all classes with what other values of L would cost."""
    curves, price = results.get("curves"), results.get("price")
    figures: Drawn = {}
    if isinstance(curves, DataArray):
        figures["curves"] = _curves(curves)
    if comparison is not None and isinstance(price, DataArray):
        figures["transfer"] = _transfer(comparison, price)
    return figures


def _curves(curves: DataArray) -> Figure:
    figure, lengths = go.Figure(), curves["n"].values
    shown = [panel for panel in PANELS if panel[1] in curves.indexes["tested on"]]
    domains = spans(len(PANELS), 0.04)[: len(shown)]
    named: set[str] = set()
    held = np.asarray(curves.values)
    low, high = float(np.nanmin(held)) / 1.3, float(np.nanmax(held)) * 1.3
    place(figure, *domains)
    for i, (title, tested, trained) in enumerate(shown):
        end = suffix(i)
        for kind in trained:
            if kind in curves.indexes["trained on"]:
                at = curves.sel({"tested on": tested, "trained on": kind})
                _line(figure, kind, lengths, at, end, kind not in named)
                named.add(kind)
        panel_title(figure, title, domains[i])
        figure.update_layout(
            {
                f"xaxis{end}": log_axis("examples n", lengths[0] / 1.15, lengths[-1] * 1.15),
                f"yaxis{end}": log_axis("error at the query" if i == 0 else "", low, high),
            }
        )
        figure.update_layout({f"yaxis{end}": {"showticklabels": i == 0}})
    below = (
        f"{plain(curves.attrs['note'])}. L = 1 unless said. Lines: the class trained on; bars: 95 "
        "% over blocks of prompts."
    )
    return finish(figure, "Trained on one class of functions, tested on another", below, HEIGHT)


def _line(
    figure: Figure, kind: str, lengths: np.ndarray, at: DataArray, end: str, legend: bool
) -> None:
    colour, dash, symbol = LOOKS[kind]
    mean, low, high = (at.sel(statistic=name).values for name in ("mean", "low", "high"))
    figure.add_trace(
        go.Scatter(
            x=lengths,
            y=mean,
            error_y=whiskers(mean, low, high),
            mode="lines+markers",
            name=plain(kind),
            legendgroup=kind,
            showlegend=legend,
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6},
            xaxis=f"x{end}",
            yaxis=f"y{end}",
            hovertemplate="n = %{x}: %{y:.3g}<extra>trained on " + plain(kind) + "</extra>",
        )
    )


def _transfer(table: DataFrame, price: DataArray) -> Figure:
    figure, domains = go.Figure(), [(0.06, 0.56), (0.68, 1.0)]
    place(figure, *domains)
    rows = table.to_dict("records")
    _cells(figure, rows)
    grid = price["L"].values
    for kind in price.indexes["trained on"]:
        colour, dash, _ = LOOKS[kind]
        figure.add_trace(
            go.Scatter(
                x=grid,
                y=price.sel({"trained on": kind}).values,
                mode="lines",
                name=f"computed, {plain(kind)}",
                line={"color": colour, "dash": dash, "width": 2},
                xaxis="x2",
                yaxis="y2",
                hovertemplate="L = %{x:.3g}: %{y:.3g}<extra>computed, " + plain(kind) + "</extra>",
            )
        )
    sizes = {name: kind.lipschitz for name, kind in KINDS.items() if kind.frequency is None}
    mine = [row for row in rows if row["tested on"] == "cosine" and row["trained on"] in sizes]
    figure.add_trace(
        go.Scatter(
            x=[sizes[row["trained on"]] for row in mine],
            y=[row["error / own"] for row in mine],
            error_y=whiskers(
                *([row[key] for row in mine] for key in ("error / own", "low", "high"))
            ),
            mode="markers",
            name="trained units",
            marker={
                "size": 9,
                "color": [LOOKS[row["trained on"]][0] for row in mine],
                "symbol": [LOOKS[row["trained on"]][2] for row in mine],
                "line": {"width": 1, "color": INK},
            },
            xaxis="x2",
            yaxis="y2",
            text=[plain(row["trained on"]) for row in mine],
            hovertemplate="%{text}: %{y:.3g}<extra>trained units</extra>",
        )
    )
    top = max(float(np.max(price.values)), *(row["high"] for row in mine), 2.0) * 1.3
    panel_title(figure, "error / error of units trained on the tested class", domains[0])
    panel_title(figure, "the same, on cosines of L = 1", domains[1])
    figure.update_layout(
        xaxis2=log_axis("L trained on", grid[0] / 1.1, grid[-1] * 1.1),
        yaxis2=log_axis("", 0.9, top),
    )
    below = (
        f"L = 1 unless said; {plain(price.attrs['note'])} for windows w I. Left, first line: "
        "trained units, mean over seeds; in brackets: the best<br>window of the class trained on, "
        "computed. Right: bars span the intervals of all seeds."
    )
    return finish(figure, "What a unit pays on another class of functions", below, 380)


def _cells(figure: Figure, rows: Sequence[Mapping[str, object]]) -> None:
    """The ratios as shaded cells with numbers: rows are classes trained on, columns classes tested on."""
    tested = list(dict.fromkeys(str(row["tested on"]) for row in rows))
    trained = list(dict.fromkeys(str(row["trained on"]) for row in rows))
    found = {(row["trained on"], row["tested on"]): row for row in rows}
    ratios = np.array([[found[a, b]["error / own"] for b in tested] for a in trained], dtype=float)
    words = [
        [
            f"<b>{_short(found[a, b]['error / own'])}</b><br>({_short(found[a, b]['computed'])})"
            for b in tested
        ]
        for a in trained
    ]
    figure.add_trace(
        go.Heatmap(
            z=np.log(np.clip(ratios, 1, DARKEST)),
            zmin=0,
            zmax=np.log(DARKEST),
            x=[_label(name) for name in tested],
            y=[_label(name) for name in trained],
            text=words,
            texttemplate="%{text}",
            textfont={"size": 11, "color": INK},
            colorscale=SHADES,
            showscale=False,
            xgap=2,
            ygap=2,
            hovertemplate="trained on %{y}, tested on %{x}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(
        xaxis={"title": {"text": "tested on"}, "ticks": "", "showline": False, "tickangle": 0},
        yaxis={
            "title": {"text": "trained on"},
            "autorange": "reversed",
            "ticks": "",
            "showline": False,
        },
    )


def _label(name: str) -> str:
    return plain(name).replace(", ", "<br>")


def _short(value: object) -> str:
    return number(float(str(value)), 3)
