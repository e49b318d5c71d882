"""Errors by sigma: lines with intervals, and the paper's numbers as marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Points, Rule
from icl_interp.figures.text import number
from icl_interp.results import Result

ZERO = "zero"

BEST = "least squares"

FLOOR = 1e-7  # least squares is at rounding: it would stretch every axis by twenty decades

Rows = Sequence[Mapping[str, Any]]

NAMES = {ZERO: "predicting 0"}


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
        prefix = "rate_" if self.column == "error_rate" else ""
        found = []
        for row in self.rows:
            value = row[self.column]
            low = row[f"{prefix}low"]
            high = row[f"{prefix}high"]
            found.append((row["sigma"], value, low, high))
        return found


def sigma_panels(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    title: str,
    below: str,
    axis: str,
    rule: Rule | None = None,
    columns: int | None = None,
) -> Drawing:
    """Lines by sigma on a logarithmic axis that all panels share; all in one row by default."""
    drawn = []
    for heading, curves in panels:
        marks: list[Mark] = [rule] if rule else []
        for curve in curves:
            marks += _marks(curve)
        x = Axis("sigma", 0.7, 10.3, whole=True)
        y = Axis(axis, log=True, least=FLOOR)
        drawn.append(Panel(heading, x, y, marks))
    height = 400 if columns is None else 250
    return Drawing(title, below, drawn, height=height, columns=columns, same_y=True)


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
    # Two printed decimals can be 0, which has no place on a logarithmic axis.
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


def rows_of(results: Mapping[str, Result], name: str) -> list[dict]:
    """The rows of a stored table; none where it is missing."""
    table = results.get(name)
    if not isinstance(table, DataFrame):
        return []
    return table.to_dict("records")


def names_of(rows: Rows) -> list[str]:
    """The predictors, each once."""
    return list(dict.fromkeys(row["predictor"] for row in rows))


def rows_with(rows: Rows, name: str) -> list:
    """The rows of a predictor."""
    return [row for row in rows if row["predictor"] == name]


def printed_by_sigma(comparison: DataFrame | None, **key: object) -> dict[float, float]:
    """The numbers that the paper prints, by sigma."""
    if comparison is None or "paper" not in comparison.columns:
        return {}
    found = {}
    for row in comparison.to_dict("records"):
        if all(row[column] == value for column, value in key.items()):
            found[row["sigma"]] = row["paper"]
    return found
