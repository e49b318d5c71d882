"""Figures of experiments with errors by sigma: lines with intervals, the paper's as marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, COLOURS, GREEN, GREY, INK, ORANGE, PURPLE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Matrix, Panel, Points, Rule
from icl_interp.figures.text import markup, number
from icl_interp.results import Result

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
class Curve:
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


def table1(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """With and without LayerNorm: means over seeds, single seeds thin; and the ratio of the two."""
    rows = _rows(results, "errors")
    groups = (("with LN", ORANGE), ("without LN", BLUE))
    lines = [
        Curve(name, _of(rows, name), c, _paper(comparison, quantity=name)) for name, c in groups
    ]
    for name in sorted(name for name in _names(rows) if name.startswith("affine")):
        group, colour = groups["no_ln" in name]
        lines.append(Curve(f"{group}, single runs", _of(rows, name), colour, {}, "dot", 1.0))
    lines.append(Curve(ZERO, _of(rows, ZERO), INK, {}, "dot", 1.2))
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


def _ratio(comparison: DataFrame) -> Drawing:
    """The ratio without / with by sigma; below 1 no LayerNorm is better."""
    rows = [row for row in comparison.to_dict("records") if row["quantity"] == "without / with"]
    # Too few runs decide nothing: their intervals have no ends that could be drawn.
    drawn = [
        {"low": row["ours"], "high": row["ours"]} if np.isinf(row["high"]) else {} for row in rows
    ]
    line = Curve(
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
    one = Rule(y=1, colour=GREY, dash="dash")
    return sigma_panels([("", [line])], title, below, "error without / error with", one)


def by_degree(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a degree, squared error."""
    figure = _degrees(results, comparison, "error", "mean squared error", "Squared error by degree")
    return {"errors": figure} if figure else {}


def rates_by_degree(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """A panel a degree, error rate."""
    figure = _degrees(results, comparison, "error_rate", "error rate", "Error rate by degree")
    return {"rates": figure} if figure else {}


def _degrees(
    results: Mapping[str, Result], comparison: DataFrame | None, column: str, axis: str, title: str
) -> Drawing | None:
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
            lines.append(Curve(shown, _of(here, name), colour, paper, *look, column))
        panels.append((f"degree {degree}", lines))
    below = "Bands: 95 % over functions. Crosses: the paper's numbers."
    return sigma_panels(panels, title, below, axis) if panels else None


def table3(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """By training interval: means over runs, single runs thin."""
    rows = _rows(results, "errors")
    runs = _rows(results, "own range")
    lines = []
    for interval, colour in zip(
        dict.fromkeys(row["trained on"] for row in runs), COLOURS, strict=False
    ):
        paper = _paper(comparison, **{"trained on": interval})
        lines.append(Curve(f"trained on {interval}", _of(rows, interval), colour, paper))
        own = [row["model"] for row in runs if row["trained on"] == interval]
        if len(own) > 1:
            lines += [
                Curve(f"{interval}, single runs", _of(rows, name), colour, {}, "dot", 1.0)
                for name in own
            ]
    lines.append(Curve(ZERO, _of(rows, ZERO), INK, {}, "dot", 1.2))
    below = (
        "Inputs on U(-1, 1) for all. Thick: means over runs. Bands: 95 % over functions. Crosses: "
        "the paper's numbers."
    )
    return {
        "errors": sigma_panels(
            [("", lines)], "Squared error by training interval", below, "mean squared error"
        )
    }


def rates(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Error rates, a model for each degree on that degree."""
    rows = [row for row in _rows(results, "errors") if row["predictor"] not in (BEST, ZERO)]
    if not rows:
        return {}
    lines = []
    for i, name in enumerate(_names(rows)):
        mine = _of(rows, name)
        paper = _paper(comparison, model=f"M{mine[0]['degree']}") if comparison is not None else {}
        lines.append(
            Curve(
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
    title = "Error rate as functions leave the training range"
    zero = Rule(y=1, colour=INK)
    return {"rates": sigma_panels([("", lines)], title, below, "error rate", zero)}


def maps(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """log10 of the error over both sigmas, a panel a training interval, one colour scale."""
    shown = {name: r for name, r in results.items() if isinstance(r, DataArray)}
    if not shown:
        return {}
    logs = {}
    for name, result in shown.items():
        logs[name] = np.log10(result.sel(statistic="error").values)
    low = min(values.min() for values in logs.values())
    high = max(values.max() for values in logs.values())
    panels = []
    for i, (name, values) in enumerate(logs.items()):
        sigmas = list(shown[name].indexes["inputs"])
        last = i == len(logs) - 1
        matrix = Matrix(
            values,
            sigmas,
            sigmas,
            low,
            high,
            "Viridis",
            bar=markup("log<sub>10</sub> error") if last else None,
            hover="inputs {row}, functions {column}<br>log10 error {z:.3g}",
            upwards=True,
        )
        x, y = Axis("sigma of the functions"), Axis("sigma of the inputs")
        panels.append(Panel(f"trained on {name}", x, y, [matrix]))
    below = (
        "Polynomials of degree 3 with inputs on U(-s, s) and coefficients on U(-t, t); one colour "
        "scale for all."
    )
    return {"map": Drawing("Squared error over both sigmas", below, panels, height=420)}


def sigma_panels(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    title: str,
    below: str,
    axis: str,
    rule: Rule | None = None,
) -> Drawing:
    """Lines by sigma on a logarithmic axis that all panels share."""
    drawn = []
    for heading, curves in panels:
        marks: list[Mark] = [rule] if rule else []
        for curve in curves:
            marks += _marks(curve)
        x = Axis("sigma", 0.7, 10.3, whole=True)
        y = Axis(axis, log=True, least=FLOOR)
        drawn.append(Panel(heading, x, y, marks))
    return Drawing(title, below, drawn, height=400, same_y=True)


def _marks(curve: Curve) -> list[Mark]:
    """Band, line, and the paper's marks."""
    if not curve.rows:
        return []
    sigma, value, low, high = np.array(curve.shown, dtype=float).T
    thick = curve.width > 1.5
    marks: list[Mark] = []
    if thick:
        marks.append(Band(sigma, low, high, curve.colour, opacity=0.16))
    texts = []
    for s, v, a, b in curve.shown:
        texts.append(f"sigma {s:g}: {number(v)} [{number(a)}, {number(b)}]")
    line = Line(
        sigma,
        value,
        name=NAMES.get(curve.name, curve.name),
        colour=curve.colour,
        width=curve.width,
        dash=curve.dash,
        symbol="circle" if thick else "",
        size=5,
        texts=texts,
    )
    marks.append(line)
    printed = {s: v for s, v in curve.paper.items() if v > 0}
    if printed:
        points = Points(
            list(printed),
            list(printed.values()),
            name=curve.name,
            listed=False,
            colour=curve.colour,
            symbol="x-thin",
            edge=1.6,
            hover="sigma {x}: the paper's {y}",
        )
        marks.append(points)
    return marks


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
