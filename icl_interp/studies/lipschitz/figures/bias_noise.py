"""The figures of `lipschitz.bias_noise`.

They show bias, noise and their sum against w, what the slides print of them, and predictions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, Rule
from icl_interp.figures.text import markup, number, plain
from icl_interp.results import Result

LOOKS = {"bias": (BLUE, "circle"), "noise": (ORANGE, "diamond"), "total": (GREEN, "square")}
NAMES = {"bias": "bias", "noise": "noise", "total": "error"}
PRINTED = (  # lines of the slides, in their order: name, colour
    ("order as printed", ORANGE),
    ("bounds on the bias as printed", BLUE),
    ("bounds on the bias as printed", BLUE),
)
ANGLES = {-np.pi: "−π", -np.pi / 2: "−π/2", 0.0: "0", np.pi / 2: "π/2", np.pi: "π"}
OF_WINDOWS = (
    "A wide window (small M) averages over far examples: bias. A narrow one (large M) follows the "
    "noise of the nearest."
)
LOWEST, LEAST_W = 1e-6, 1e-2  # ends of logarithmic axes
UNITS_D = 3  # of trained units
W = markup("w<sub>KQ</sub>")


def bias_noise(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each d; trained units beside theory, and predictions, in their own figures."""
    measured = results.get("measured")
    exact = results.get("theory")
    printed = results.get("printed")
    figures: dict[str, Drawing] = {}
    known = isinstance(exact, DataArray)

    # Each figure is drawn where its results are there.
    if known and isinstance(measured, DataArray) and isinstance(printed, DataArray):
        figures["bias_noise"] = _windows(measured, exact, printed)
    rows = rows_of(results, "trained")
    if rows:
        figures["trained"] = _trained(rows, exact if known else None)
    lines = results.get("predictions")
    examples = results.get("examples")
    if isinstance(lines, DataArray) and isinstance(examples, DataFrame):
        windows = rows_of(results, "windows")
        figures["predictions"] = _predictions(lines, windows, examples)
    return figures


def _windows(measured: DataArray, exact: DataArray, printed: DataArray) -> Drawing:
    # The axis holds what was measured: printed bounds reach far beyond, and leave the panel.
    held = measured.sel(statistic="value").values
    low = max(float(held.min()) / 4, LOWEST)
    high = float(held.max()) * 4
    y = Axis("mean squared", low, high, log=True)
    panels = []
    for d in measured.indexes["d"]:
        marks = _bounds(printed.sel(d=d))
        marks += _theory(_lines(exact, d), exact)
        for part, (colour, symbol) in LOOKS.items():
            shown = measured.sel(d=d, part=part)
            value = shown.sel(statistic="value").values
            se = shown.sel(statistic="se").values
            points = Points(
                measured["w"].values,
                value,
                value - 2 * se,
                value + 2 * se,
                name=NAMES[part],
                colour=colour,
                symbol=symbol,
                size=7,
            )
            marks.append(points)
        x = Axis(W, log=True)
        panels.append(Panel(f"d = {d}", x, y, marks))
    below = (
        f"{plain(measured.attrs['note'])}. Marks: measured on softmax units, with two standard "
        "errors. Lines: theory."
        "<br>Dotted: what the slides print, with constants 1: noise (w<sup>d/2</sup> + 1)/n; bias "
        "between 1/w² and 1/w + 1/n."
    )
    title = "Bias and noise against the width of the window"
    return Drawing(title, below, panels, height=400, same_y=True)


def _predictions(
    lines: DataArray, windows: Sequence[Mapping[str, Any]], examples: DataFrame
) -> Drawing:
    """A function, its noisy examples, and what a wide, the best and a narrow window predict."""
    # The examples, the function that they come from, and a line for each window.
    angles = lines.indexes["angle"]
    seen = examples["angle"]
    labels = examples["label"]
    marks: list[Mark] = [Points(seen, labels, name="examples", colour=PALE, size=5, edge=0)]
    function = lines.sel(line="f").values
    marks.append(Line(angles, function, name="f", colour=INK, dash="dot"))
    for row, colour in zip(windows, (BLUE, GREEN, ORANGE), strict=True):
        values = lines.sel(line=row["line"]).values
        w = number(row["w"])
        name = f"{row['line']}: M = {w} I"
        marks.append(Line(angles, values, name=name, colour=colour))

    x = Axis("angle of the query", -np.pi, np.pi, ticks=ANGLES)
    panel = Panel(x=x, y=Axis("label"), marks=marks)
    note = plain(lines.attrs["note"])
    below = f"{note}. {OF_WINDOWS}"
    return Drawing("What windows predict from one context", below, [panel], height=340)


def _bounds(printed: DataArray) -> list[Mark]:
    """What the slides print at one d."""
    marks: list[Mark] = []
    for line, (name, colour) in zip(printed.indexes["line"], PRINTED, strict=True):
        values = printed.sel(line=line).values
        w = printed["w"].values
        marks.append(Line(w, values, name=name, colour=colour, dash="dot", width=1.3))
    return marks


def _lines(exact: DataArray, d: int, lipschitz: float = 1.0) -> dict[str, np.ndarray]:
    """Theory's bias, noise and their sum at one d, for any L: the bias has the factor L^2."""
    at = exact.sel(d=d, statistic="value")
    bias = lipschitz**2 * at.sel(part="bias").values
    noise = at.sel(part="noise").values
    return {"bias": bias, "noise": noise, "total": bias + noise}


def _theory(lines: Mapping[str, np.ndarray], exact: DataArray) -> list[Mark]:
    marks: list[Mark] = []
    for part, values in lines.items():
        name = f"{NAMES[part]}, theory"
        colour, _ = LOOKS[part]
        w = exact["w"].values
        marks.append(Line(w, values, name=name, colour=colour, listed=False))
    return marks


def _trained(rows: Sequence[Mapping[str, Any]], exact: DataArray | None) -> Drawing:
    """Bias, noise and error of each unit on its own task.

    They lie on theory's lines where there are some for its d.
    """
    panels = []
    for row in rows:
        marks: list[Mark] = []
        if exact is not None and UNITS_D in exact.indexes["d"]:
            lines = _lines(exact, UNITS_D, row["L"])
            marks += _theory(lines, exact)

        # The unit itself, and the best window as a line.
        for part, (colour, symbol) in LOOKS.items():
            key = NAMES[part]
            point = Points(
                [row["w"]],
                [row[key]],
                [row[f"{key}, low"]],
                [row[f"{key}, high"]],
                name=f"{key} of the unit",
                colour=colour,
                symbol=symbol,
                size=10,
                edge=1,
                edge_colour=INK,
            )
            marks.append(point)
        best = row["best w"]
        marks.append(Rule(x=best, name="best window", colour=GREY, dash="dash", width=1.3))
        x = Axis(W, log=True, least=LEAST_W)
        y = Axis("mean squared", log=True, least=LOWEST)
        panels.append(Panel(f"trained at L = {row['L']:g}", x, y, marks))
    below = (
        "Units trained on F<sub>L</sub><sup>+</sup>, each measured on its own task. Lines: theory "
        "for M = w I."
    )
    return Drawing("Where training ends between bias and noise", below, panels, height=360)
