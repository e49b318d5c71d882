"""The figures of `lipschitz.low_rank`.

They show what units recover, their matrices, and Theorem 4 by the prompts' length.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel, Points, Rule, rows
from icl_interp.figures.text import plain
from icl_interp.results import Result

Rows = Sequence[Mapping[Any, Any]]
SHARES = (  # column, title, words of the axis
    ("angle", "subspace recovered", "sin of the largest angle to col(B)"),
    ("outside", "M outside col(B)", "share of M's squared entries"),
)
BLIND = (("irrelevant", BLUE, "circle"), ("relevant", ORANGE, "diamond"))
BY_N = "n = {x}: {y:.3g}"


def low_rank(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Recovery and projections; matrices; the exact minima of Theorem 4.

    The minima come with units that were trained without a cap.
    """
    figures: dict[str, Drawing] = {}
    if units := rows_of(results, "units"):
        figures["recovery"] = _recovery(units)
    matrices = results.get("matrices")
    if isinstance(matrices, DataArray):
        figures["matrices"] = _matrices(matrices)
    if minima := rows_of(results, "minima"):
        endless = rows_of(results, "endless")
        theorem = rows_of(results, "theorem units")
        figures["cap"] = _cap(minima, endless, theorem)
    return figures


def _recovery(units: Rows) -> Drawing:
    """A row a task: the angle, M's energy outside col(B), and the error without directions."""
    tasks = []
    places = []
    for row in units:
        task = f"{row['link']}\nσ = {row['σ']:g}"
        if task not in tasks:
            tasks.append(task)
        places.append(tasks.index(task))
    y = rows(tasks)

    # Shares, from 0 to 1.
    shares = []
    for key, title, words in SHARES:
        (values,) = columns_of(units, key)
        points = Points(
            values, places, colour=INK, symbol="circle-open", size=9, edge=2, hover="{x:.3g}"
        )
        x = Axis(words, -0.03, 1.03)
        shares.append(Panel(title, x, y, [points]))

    # Errors of units whose scores are blind to some directions.
    marks: list[Mark] = [Rule(x=1.0)]
    for what, colour, symbol in BLIND:
        value, low, high = columns_of(units, f"{what} out", f"{what} low", f"{what} high")
        name = f"blind to the {what} directions"
        points = Points(value, places, low, high, name, colour, symbol, 9, hover="{x:.3g}")
        marks.append(points)
    x = Axis("error / error of the unit", log=True)
    blind = Panel("directions taken out of the scores", x, y, marks, width=1.4)
    below = (
        "A mark is a unit; bars: 95 % over blocks of prompts. Right: the error of the unit whose "
        "scores are blind."
    )
    title = "Labels that depend on two directions: what units recover"
    return Drawing(title, below, [*shares, blind], height=330, same_y=True)


def _matrices(matrices: DataArray) -> Drawing:
    """M of each unit in a basis that starts with col(B)."""
    keys = matrices["key"].values.tolist()
    queries = matrices["query"].values.tolist()
    panels = []
    for link in matrices.indexes["link"]:
        for noise in matrices.indexes["σ"]:
            values = matrices.sel(link=link, σ=noise).values
            largest = float(np.nan_to_num(np.abs(values)).max())
            hover = "key {row}, query {column}: {z:.3g}"
            matrix = Matrix(values, keys, queries, hover=hover)
            x = Axis(f"largest {largest:.3g}", shown=False)
            y = Axis(shown=False)
            panels.append(Panel(f"{link}, σ = {noise:g}", x, y, [matrix]))
    below = (
        f"{plain(matrices.attrs['note'])}. For M = c B Bᵀ only the square of these at the top left "
        "has colour.<br>"
        "Each panel is scaled by its largest entry; blue is positive, orange negative."
    )
    return Drawing("M of the units, direction by direction", below, panels, height=150)


def _cap(minima: Rows, endless: Rows, theorem: Rows) -> Drawing:
    """Left, the least losses with c' free and c' = 0; right, |c'| / c.

    |c'| / c is drawn free, under the cap, and of trained units.
    """
    n, held, free = columns_of(minima, "n", "loss held", "loss free")
    losses: list[Mark] = []
    losses.append(_curve("c B Bᵀ, c free", n, held, ORANGE, "diamond"))
    losses.append(_curve("c B Bᵀ + c′ (I − B Bᵀ), both free", n, free, BLUE, "circle"))
    for row in endless:
        floor = np.full(len(n), row["loss held"])
        name = "c B Bᵀ, endless prompts"
        losses.append(Line(n, floor, name=name, colour=GREY, dash="dot", hover=BY_N))

    # |c'| / c.
    outside, c, outside_capped, c_capped = columns_of(
        minima, "outside free", "c free", "outside capped", "c capped"
    )
    free = outside / c
    capped = outside_capped / c_capped
    shares: list[Mark] = []
    shares.append(Line(n, free, name="no cap", symbol="circle", hover=BY_N, listed=False))
    shares.append(_curve("under the cap of Theorem 4", n, capped, GREEN, "square"))
    if theorem:
        used, c, outside = columns_of(theorem, "n used", "c", "c outside")
        name = "trained units, no cap"
        found = np.abs(outside / c)
        shares.append(Points(used, found, name=name, colour=INK, symbol="star", hover=BY_N))
    x = Axis("examples n", log=True)
    y = Axis("loss", log=True)
    left = Panel("least loss without a cap", x, y, losses)
    y = Axis("|c′| / c", -0.05, 1.05)
    right = Panel("weight on irrelevant directions", x, y, shares)
    panels = [left, right]
    below = (
        "Linear functions of two of four directions without noise. Lines: exact minima; left on "
        "fresh prompts. The cap is |BᵀMB| at most 3."
    )
    return Drawing("Theorem 4 with and without its cap", below, panels, height=320)


def _curve(name: str, n: np.ndarray, ys: np.ndarray, colour: str, symbol: str) -> Line:
    return Line(n, ys, name=name, colour=colour, symbol=symbol, hover=BY_N)
