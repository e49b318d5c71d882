"""The figures of `lipschitz.generalization`.

They show error by the length of the prompt, and the price of another class.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel, Points
from icl_interp.figures.text import number, plain
from icl_interp.results import Result
from icl_interp.studies.lipschitz.experiments.generalization import KINDS

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


def generalization(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """Curves over the length, and all classes on all classes.

    What other values of L would cost is drawn beside them.
    """
    curves = results.get("curves")
    price = results.get("price")
    figures: dict[str, Drawing] = {}
    if isinstance(curves, DataArray):
        figures["curves"] = _curves(curves)
    if comparison is not None and isinstance(price, DataArray):
        figures["transfer"] = _transfer(comparison.to_dict("records"), price)
    return figures


def _curves(curves: DataArray) -> Drawing:
    panels = []
    for title, tested, trained in PANELS:
        if tested not in curves.indexes["tested on"]:
            continue
        marks: list[Mark] = []
        for kind in trained:
            if kind in curves.indexes["trained on"]:
                shown = curves.sel({"tested on": tested, "trained on": kind})
                marks.append(_line(kind, shown))
        x = Axis("examples n", log=True)
        y = Axis("error at the query", log=True)
        panels.append(Panel(title, x, y, marks))
    below = (
        f"{plain(curves.attrs['note'])}. L = 1 unless said. Lines: the class trained on; bars: 95 "
        "% over blocks of prompts."
    )
    title = "Trained on one class of functions, tested on another"
    return Drawing(title, below, panels, same_y=True)


def _line(kind: str, at: DataArray) -> Line:
    colour, dash, symbol = LOOKS[kind]
    mean = at.sel(statistic="mean").values
    low = at.sel(statistic="low").values
    high = at.sel(statistic="high").values
    n = at["n"].values
    return Line(
        n,
        mean,
        low,
        high,
        name=kind,
        colour=colour,
        dash=dash,
        symbol=symbol,
        size=6,
        hover="n = {x}: {y:.3g}",
    )


def _transfer(rows: Sequence[Mapping[Hashable, Any]], price: DataArray) -> Drawing:
    # What windows cost by the L that they are best for, and units at the L of their class.
    marks: list[Mark] = []
    for kind in price.indexes["trained on"]:
        colour, dash, _ = LOOKS[kind]
        values = price.sel({"trained on": kind}).values
        name = f"computed, {kind}"
        hover = "L = {x:.3g}: {y:.3g}"
        ls = price["L"].values
        line = Line(ls, values, name=name, colour=colour, dash=dash, hover=hover)
        marks.append(line)
    for row in rows:
        kind = KINDS[row["trained on"]]
        if row["tested on"] == "cosine" and kind.frequency is None:
            marks.append(_unit(row, kind.lipschitz))
    x = Axis("L trained on", log=True)
    y = Axis(log=True)
    by_l = Panel("the same, on cosines of L = 1", x, y, marks)
    note = plain(price.attrs["note"])
    below = (
        f"L = 1 unless said; {note} for windows w I. Left, first line: "
        "trained units, mean over seeds; in brackets: the best window of the class trained on, "
        "computed. Right: bars span the intervals of all seeds."
    )
    title = "The error of a unit on another class of functions"
    return Drawing(title, below, [_cells(rows), by_l], height=380)


def _unit(row: Mapping[Hashable, Any], lipschitz: float) -> Points:
    """What units of one class pay on cosines, at their own L."""
    colour, _, symbol = LOOKS[row["trained on"]]
    return Points(
        [lipschitz],
        [row["error / own"]],
        [row["low"]],
        [row["high"]],
        name="trained units",
        colour=colour,
        symbol=symbol,
        size=9,
        edge=1,
        edge_colour=INK,
        texts=[plain(row["trained on"])],
        hover="{text}: {y:.3g}",
    )


def _cells(rows: Sequence[Mapping[Hashable, Any]]) -> Panel:
    """The ratios as shaded cells with numbers.

    Rows are classes trained on, columns classes tested on.
    """
    # Both numbers of each cell in words, the measured one also as its shade.
    found = {(row["trained on"], row["tested on"]): row for row in rows}
    trained = list(dict.fromkeys(a for a, _ in found))
    tested = list(dict.fromkeys(b for _, b in found))
    ratios = np.ones((len(trained), len(tested)))
    texts = []
    for i, a in enumerate(trained):
        words = []
        for j, b in enumerate(tested):
            row = found[a, b]
            ratios[i, j] = row["error / own"]
            measured = number(row["error / own"], 3)
            computed = number(row["computed"], 3)
            words.append(f"<b>{measured}</b><br>({computed})")
        texts.append(words)
    shades = np.log(np.clip(ratios, 1, DARKEST))
    darkest = float(np.log(DARKEST))
    hover = "trained on {row}, tested on {column}: {text}"
    matrix = Matrix(shades, trained, tested, 0.0, darkest, SHADES, texts=texts, hover=hover)
    title = "error / error of units trained on the tested class"
    return Panel(
        title, _classes("tested on", tested), _classes("trained on", trained), [matrix], 1.6
    )


def _classes(words: str, names: Sequence[str]) -> Axis:
    """An axis of classes, whose names take two lines where they have an L or a frequency."""
    ticks = {}
    for place, name in enumerate(names):
        ticks[float(place)] = name.replace(", ", "\n")
    return Axis(words, ticks=ticks)
