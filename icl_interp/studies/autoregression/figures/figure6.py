"""The figure of `autoregression.figure6`.

It shows trained positions for several mu, and the longest row of each.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure6 import MUS, SHARP, TOLERANCE

LINES = {"descent": (BLUE, "solid"), "one cosine": (ORANGE, "dash"), "exact loss": (GREY, "dot")}
NAMES = {
    "descent": "P by gradient descent",
    "one cosine": "best single cosine",
    "exact loss": "exact loss, this row alone",
}
BELOW = (
    "Angles of one coordinate are uniform on [0, 2π / μ]; only P is trained, from 0, until the "
    f"mean loss is below {TOLERANCE:g}. The query is the last token but one. The minimiser, "
    "reached for μ = 1, takes the last token alone. As in the paper, each row leaves out the "
    "weight of the last token (white), so that the others can be seen; for μ = 1 it is shown. "
    "Cosine encodings of Vaswani et al. (2017): a row is a frequency."
)


def figure6(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Matrices on top with cosine encodings beside them, and below them the longest row.

    Uniform angles come last.
    """
    positions = results.get("positions")
    longest = results.get("longest row")
    encodings = results.get("encodings")
    if not isinstance(positions, DataArray) or not isinstance(longest, DataArray):
        return {}
    assert isinstance(encodings, DataArray)
    # The matrices share a scale.
    of_slow = positions.sel(mu=list(MUS))
    others = masked(of_slow)
    sizes = np.abs(others.values)
    largest = float(np.nanmax(sizes))
    panels = []
    for mu in MUS:
        last = mu == MUS[-1]
        panel = matrix_panel(f"P, μ = {mu:g}", others.sel(mu=mu), largest, bar=last)
        panels.append(panel)
    panel = matrix_panel("cosine encodings", encodings, 1.0, bar=True)
    panels.append(panel)
    # So do the rows of the slow laws; that of uniform angles has its own.
    slow = longest.sel(mu=list(MUS)).isel(token=slice(None, -1))
    holds = (0.0, float(slow.values.min()), float(slow.values.max()))
    for mu in MUS:
        panel = _longest_row(mu, slow.sel(mu=mu), holds)
        panels.append(panel)
    sharp = longest.sel(mu=SHARP)
    panel = _longest_row(SHARP, sharp, (0.0,))
    panels.append(panel)
    title = "Attention by position after gradient descent that stops early"
    columns = len(MUS) + 1
    drawing = Drawing(title, BELOW, panels, height=200, columns=columns)
    return {"figure6": drawing}


def masked(positions: DataArray) -> DataArray:
    """P without the weight of the last token of each query, which is NaN.

    The query of row q is the last token but one, so the last token is q + 1.
    """
    return positions.where(positions["token"] != positions["query"] + 1)


def matrix_panel(title: str, found: DataArray, largest: float, bar: bool) -> Panel:
    """A matrix with named axes, its colours from -largest to largest."""
    down, across = (str(name) for name in found.dims)
    matrix = Matrix(
        found.values,
        found[down].values.tolist(),
        found[across].values.tolist(),
        -largest,
        largest,
        bar="" if bar else None,
        hover=f"{down} {{row}}, {across} {{column}}: {{z:.3g}}",
    )
    x = Axis(across, labels=5)
    y = Axis(down, labels=5)
    return Panel(title, x, y, [matrix])


def _longest_row(mu: float, found: DataArray, holds: tuple[float, ...]) -> Panel:
    tokens = found["token"].values
    marks: list[Mark] = []
    for line, (colour, dash) in LINES.items():
        values = found.sel(line=line).values
        mark = Line(tokens, values, name=NAMES[line], colour=colour, dash=dash)
        marks.append(mark)
    x = Axis("token", 0, found.sizes["token"] + 1)
    y = Axis("weight of the token" if mu == MUS[0] else "", holds=holds)
    return Panel(f"longest row, μ = {mu:g}", x, y, marks)
