"""Figures of experiments that measure errors against sigma: lines with intervals, the paper's numbers as marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from plotly.graph_objects import Figure
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
    panel_title,
    place,
)
from icl_interp.figures.text import number, plain
from icl_interp.results import Result

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
ZERO, BEST = "zero", "least squares"
FLOOR = 1e-7  # least squares is at rounding: it would stretch every axis by twenty decades
Rows = Sequence[Mapping[str, Any]]


NAMES = {ZERO: "predicting 0"}
GENERAL = {
    "degrees_135": "M135: degrees 1, 3, 5",
    "degrees_135_attn_only": "M135AL: attention only",
    "degrees_123_curriculum": "curriculum 1, 2, 3",
}


@dataclass(frozen=True)
class Line:
    """One predictor's errors by sigma, and the paper's where it prints them."""

    name: str
    rows: Rows
    colour: str
    paper: Mapping[float, float] = field(default_factory=dict)
    dash: str = "solid"
    width: float = 2.0
    column: str = "error"

    @property
    def shown(self) -> list[tuple[float, float, float, float]]:
        """(sigma, value, low, high)."""
        low, high = ("rate_low", "rate_high") if self.column == "error_rate" else ("low", "high")
        return [(row["sigma"], row[self.column], row[low], row[high]) for row in self.rows]


def table1(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """With and without LayerNorm: means over seeds, single seeds thin; and the ratio of the two."""
    rows = _rows(results, "errors")
    groups = (("with LN", ORANGE), ("without LN", BLUE))
    lines = [
        Line(name, _of(rows, name), c, _paper(comparison, quantity=name)) for name, c in groups
    ]
    for name in sorted(name for name in _names(rows) if name.startswith("affine")):
        group, colour = groups["no_ln" in name]
        lines.append(Line(f"{group}, single runs", _of(rows, name), colour, {}, "dot", 1.0))
    lines.append(Line(ZERO, _of(rows, ZERO), INK, {}, "dot", 1.2))
    panels = [("", lines)]
    below = "Thick: means over runs. Bands: 95 % over functions. Crosses: the paper's numbers."
    figures = {
        "errors": sigma_panels(
            panels, "Squared error with and without LayerNorm", below, "mean squared error"
        )
    }
    if comparison is not None and "without / with" in set(comparison["quantity"]):
        figures["ratio"] = _ratio(comparison)
    return figures


def _ratio(comparison: DataFrame) -> Figure:
    """The ratio without / with by sigma; below 1 no LayerNorm is better."""
    rows = [row for row in comparison.to_dict("records") if row["quantity"] == "without / with"]
    # Too few runs decide nothing: their intervals have no ends that could be drawn.
    drawn = [
        {"low": row["ours"], "high": row["ours"]} if np.isinf(row["high"]) else {} for row in rows
    ]
    line = Line(
        "ours, over runs",
        [{**row, "error": row["ours"], **ends} for row, ends in zip(rows, drawn, strict=True)],
        BLUE,
        {row["sigma"]: row["paper"] for row in rows},
    )
    title = "Error without LayerNorm in units of the error with it"
    below = (
        "Geometric means over runs; band: exact 95 % intervals over runs. Crosses: the paper's "
        "numbers. Below 1, no LayerNorm is better."
    )
    figure = sigma_panels([("", [line])], title, below, "error without / error with")
    return figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "dash"})


def by_degree(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """A panel a degree, squared error."""
    figure = _degrees(results, comparison, "error", "mean squared error", "Squared error by degree")
    return {"errors": figure} if figure else {}


def rates_by_degree(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Figure]:
    """A panel a degree, error rate."""
    figure = _degrees(results, comparison, "error_rate", "error rate", "Error rate by degree")
    return {"rates": figure} if figure else {}


def _degrees(
    results: Mapping[str, Result], comparison: DataFrame | None, column: str, axis: str, title: str
) -> Figure | None:
    rows = _rows(results, "errors")
    panels = []
    general = [
        name
        for name in _names(rows)
        if len({r["degree"] for r in rows if r["predictor"] == name}) > 1
    ]
    colours = dict(
        zip([n for n in general if n not in (ZERO, BEST)], (ORANGE, GREEN, PURPLE), strict=False)
    )
    labels = {"degrees_135": "M135", "degrees_135_attn_only": "M135AL"}
    for degree in sorted({row["degree"] for row in rows}):
        here = [row for row in rows if row["degree"] == degree]
        lines = []
        for name in _names(here):
            if name == BEST:
                continue
            own = name not in general
            paper = (
                {}
                if comparison is None
                else _paper(
                    comparison, degree=degree, model=labels.get(name, f"M{degree}" if own else name)
                )
            )
            colour = INK if name == ZERO else BLUE if own else colours[name]
            shown = "that degree only" if own else GENERAL.get(name, name)
            look = ("dot", 1.2) if name == ZERO else ("solid", 2.0)
            lines.append(Line(shown, _of(here, name), colour, paper, *look, column))
        panels.append((f"degree {degree}", lines))
    below = "Bands: 95 % over functions. Crosses: the paper's numbers."
    return sigma_panels(panels, title, below, axis) if panels else None


def table3(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """By training interval: means over runs, single runs thin."""
    rows = _rows(results, "errors")
    runs = _rows(results, "own range")
    lines = []
    for interval, colour in zip(
        dict.fromkeys(row["trained on"] for row in runs), COLOURS, strict=False
    ):
        paper = _paper(comparison, **{"trained on": interval})
        lines.append(Line(f"trained on {interval}", _of(rows, interval), colour, paper))
        own = [row["model"] for row in runs if row["trained on"] == interval]
        if len(own) > 1:
            lines += [
                Line(f"{interval}, single runs", _of(rows, name), colour, {}, "dot", 1.0)
                for name in own
            ]
    lines.append(Line(ZERO, _of(rows, ZERO), INK, {}, "dot", 1.2))
    below = (
        "Inputs on U(-1, 1) for all. Thick: means over runs. Bands: 95 % over functions. Crosses: "
        "the paper's numbers."
    )
    return {
        "errors": sigma_panels(
            [("", lines)], "Squared error by training interval", below, "mean squared error"
        )
    }


def rates(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """Error rates, a model for each degree on that degree."""
    rows = [row for row in _rows(results, "errors") if row["predictor"] not in (BEST, ZERO)]
    if not rows:
        return {}
    lines = []
    for i, name in enumerate(_names(rows)):
        mine = _of(rows, name)
        paper = _paper(comparison, model=f"M{mine[0]['degree']}") if comparison is not None else {}
        lines.append(
            Line(
                f"degree {mine[0]['degree']}",
                mine,
                COLOURS[i % len(COLOURS)],
                paper,
                column="error_rate",
            )
        )
    below = (
        "0 is as good as least squares, 1 as bad as predicting 0. Bands: 95 % over functions."
        + (
            " Crosses: the paper's numbers."
            if comparison is not None and "paper" in comparison.columns
            else ""
        )
    )
    figure = sigma_panels(
        [("", lines)], "Error rate as functions leave the training range", below, "error rate"
    )
    return {"rates": figure.add_hline(y=1, line={"color": INK, "width": 1, "dash": "dot"})}


def maps(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Figure]:
    """log10 of the error over both sigmas, a panel a training interval, one colour scale."""
    shown = {name: r for name, r in results.items() if isinstance(r, DataArray)}
    if not shown:
        return {}
    logs = {name: np.log10(result.sel(statistic="error").values) for name, result in shown.items()}
    low, high = min(v.min() for v in logs.values()), max(v.max() for v in logs.values())
    width = 1 / len(logs)
    domains = [(i * width + 0.02 * (i > 0), (i + 1) * width - 0.04) for i in range(len(logs))]
    figure = go.Figure()
    for i, (name, values) in enumerate(logs.items()):
        axis = "" if i == 0 else str(i + 1)
        sigmas = list(shown[name].indexes["inputs"])
        figure.add_trace(
            go.Heatmap(
                z=values,
                x=sigmas,
                y=sigmas,
                zmin=low,
                zmax=high,
                colorscale="Viridis",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                showscale=i == len(logs) - 1,
                colorbar={"title": {"text": "log<sub>10</sub> error"}, "thickness": 14},
                hovertemplate="inputs %{y}, functions %{x}<br>log10 error %{z:.3g}<extra>"
                + plain(name)
                + "</extra>",
            )
        )
        panel_title(figure, f"trained on {plain(name)}", domains[i])
    place(figure, *domains)
    figure.update_xaxes(title="sigma of the functions", dtick=1)
    figure.update_yaxes(title="sigma of the inputs", dtick=1)
    below = (
        "Polynomials of degree 3 with inputs on U(-s, s) and coefficients on U(-t, t); one colour "
        "scale for all."
    )
    return {"map": finish(figure, "Squared error over both sigmas", below, 420)}


def sigma_panels(
    panels: Sequence[tuple[str, Sequence[Line]]], title: str, below: str, axis: str
) -> Figure:
    """Lines by sigma on a logarithmic axis that all panels share.

    A name stands in the legend once.
    """
    figure = go.Figure()
    n = len(panels)
    gap = 0.025 if n > 1 else 0
    domains = [(i / n + gap * (i > 0), (i + 1) / n) for i in range(n)]
    seen: set[str] = set()
    values = []
    for i, (heading, lines) in enumerate(panels):
        number_of = "" if i == 0 else str(i + 1)
        for line in lines:
            values += [v for _, *vs in line.shown for v in vs if v > 0] + [
                p for p in line.paper.values() if p > 0
            ]
            _draw(figure, line, f"x{number_of}", f"y{number_of}", line.name not in seen)
            seen.add(line.name)
        if heading:
            panel_title(figure, heading, domains[i])
    if n > 1:
        place(figure, *domains)
    figure.update_xaxes(title="sigma", dtick=1 if n == 1 else 3, range=[0.7, 10.3])
    figure.update_yaxes(**log_axis("", max(FLOOR, min(values)) / 1.3, max(values) * 1.3))
    figure.update_layout(yaxis_title=axis)
    for i in range(1, n):
        figure.update_layout({f"yaxis{i + 1}": {"showticklabels": False, "title": {"text": ""}}})
    finish(figure, title, below, 400)
    return figure.update_layout(hovermode="closest")


def _draw(figure: Figure, line: Line, x: str, y: str, legend: bool) -> None:
    """Band, line, and the paper's marks."""
    if not line.rows:
        return
    sigma, value, low, high = (
        np.array(column, dtype=float) for column in zip(*line.shown, strict=True)
    )
    if line.width > 1.5:
        figure.add_trace(
            go.Scatter(
                x=np.concatenate([sigma, sigma[::-1]]),
                y=np.maximum(np.concatenate([high, low[::-1]]), FLOOR),
                fill="toself",
                fillcolor=line.colour,
                opacity=0.16,
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
                xaxis=x,
                yaxis=y,
            )
        )
    text = [
        f"{number(v)} [{number(a)}, {number(b)}]" for v, a, b in zip(value, low, high, strict=True)
    ]
    figure.add_trace(
        go.Scatter(
            x=sigma,
            y=value,
            text=text,
            mode="lines+markers" if line.width > 1.5 else "lines",
            name=plain(NAMES.get(line.name, line.name)),
            legendgroup=line.name,
            showlegend=legend,
            line={"color": line.colour, "width": line.width, "dash": line.dash},
            marker={"size": 5},
            hovertemplate="sigma %{x}: %{text}<extra>" + plain(line.name) + "</extra>",
            xaxis=x,
            yaxis=y,
        )
    )
    marks = {s: v for s, v in line.paper.items() if v > 0}
    if marks:
        figure.add_trace(
            go.Scatter(
                x=list(marks),
                y=list(marks.values()),
                mode="markers",
                showlegend=False,
                legendgroup=line.name,
                xaxis=x,
                yaxis=y,
                marker={
                    "symbol": "x-thin",
                    "size": 8,
                    "line": {"width": 1.6, "color": line.colour},
                },
                hovertemplate="sigma %{x}: the paper's %{y}<extra>" + plain(line.name) + "</extra>",
            )
        )


def _rows(results: Mapping[str, Result], name: str) -> list[dict]:
    table = results.get(name)
    return table.to_dict("records") if isinstance(table, DataFrame) else []


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["predictor"] for row in rows))


def _of(rows: Rows, name: str) -> list:
    return [row for row in rows if row["predictor"] == name]


def _paper(comparison: DataFrame | None, **key: object) -> dict[float, float]:
    rows = (
        comparison.to_dict("records")
        if comparison is not None and "paper" in comparison.columns
        else []
    )
    return {
        row["sigma"]: row["paper"]
        for row in rows
        if all(row[k] == value for k, value in key.items())
    }
