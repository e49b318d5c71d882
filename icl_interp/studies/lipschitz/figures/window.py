"""The figure of `lipschitz.window`, with a column for each L.

It shows functions, attention against distance and error against n.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.colours import GREY, INK, PALE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.text import markup, number
from icl_interp.results import Result
from icl_interp.studies.lipschitz.figures.colours import colour_of

SHADE = "#9A9A9A"  # of the noise of labels
SHOWN = 100  # decades of attention that are drawn, as a factor below the largest
TRAINED_N = 100  # examples in the prompts of training


def window(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Three rows, as in the slides; a column for each Lipschitz constant."""
    functions = results.get("functions")
    attention = results.get("attention")
    curves = results.get("errors")
    if not isinstance(functions, DataArray) or not isinstance(attention, DataArray):
        return {}
    if not isinstance(curves, DataArray):
        return {}

    # A column for each L.
    sizes = functions.indexes["L"]
    top = []
    middle = []
    bottom = []
    for lipschitz in sizes:
        rows = rows_of(results, "windows", L=lipschitz)
        top.append(_functions(functions, lipschitz, rows))
        middle.append(_attention(attention, lipschitz, rows))
        bottom.append(_errors(curves, lipschitz))
    panels = [*top, *middle, *bottom]
    below = (
        "Top: functions of the class along a great circle through the query, the noise of labels "
        "shaded (± σ); between the dotted lines a key has at least half the weight of one at the "
        "query.<br>Middle: the attention to a key of the unit trained at this L, in units of 1/n, "
        "80 % of keys shaded; dashed, the window of least loss.<br>Bottom: each unit on this "
        f"task, trained at n = {TRAINED_N} (dotted line); dashed, the window that is best at each "
        "n."
    )
    title = "Attention windows for three Lipschitz constants L"
    return {"window": Drawing(title, below, panels, height=205, columns=len(sizes))}


def _functions(
    functions: DataArray, lipschitz: float, known: Sequence[Mapping[str, float]]
) -> Panel:
    marks: list[Mark] = [Band([-180, 180], [-1, -1], [1, 1], SHADE, 0.25, "± σ")]
    angles = np.degrees(functions["angle"].values)
    shown = functions.sel(L=lipschitz).values
    colour = colour_of(lipschitz)
    marks.append(Line(angles, shown, name="functions", colour=colour, width=1.4, listed=False))
    for row in known:
        half = row["half-weight angle"]
        marks.append(Rule(x=half, colour=INK, width=1.2))
        marks.append(Rule(x=-half, colour=INK, width=1.2))
    ticks = {angle: number(angle) for angle in (-180.0, -90.0, 0.0, 90.0, 180.0)}
    x = Axis("angle to the query (°)", -180, 180, ticks=ticks)
    y = Axis(markup("f(x) − f(x<sub>q</sub>)"), holds=(-1.2, 1.2))
    return Panel(f"L = {lipschitz:g}", x, y, marks)


def _attention(
    attention: DataArray, lipschitz: float, known: Sequence[Mapping[str, float]]
) -> Panel:
    at = attention.sel(L=lipschitz)
    apart = attention["distance"].values
    mean = at.sel(statistic="mean").values
    low = at.sel(statistic="low").values
    high = at.sel(statistic="high").values
    colour = colour_of(lipschitz)

    # What the unit pays, and the window of least loss beside it.
    line = Line(apart, mean, name="attention", colour=colour, symbol="circle", size=6, listed=False)
    marks: list[Mark] = [Band(apart, low, high, colour), line]
    for row in known:
        ideal = _ideal(row["best w"], apart)
        marks.append(Line(apart, ideal, name="least loss", colour=INK, dash="dash", width=1.4))
    top = float(np.nanmax(attention.values)) * 1.5
    decades = np.ceil(np.log10(top * SHOWN))
    x = Axis("distance of the key from the query", 0, 2)
    y = Axis("n × attention", top / 10**decades, top, log=True)
    return Panel(f"L = {lipschitz:g}", x, y, marks)


def _ideal(w: float, apart: np.ndarray) -> np.ndarray:
    """e^(w t) / Z(w) at the cosine t that belongs to a distance.

    It is n times the attention in long prompts, for d = 3.
    """
    size = np.exp(w * (1 - apart**2 / 2) - w)  # over e^w, so that it does not overflow
    return size * 2 * w / (1 - np.exp(-2 * w))


def _errors(curves: DataArray, lipschitz: float) -> Panel:
    at = curves.sel(L=lipschitz)
    lengths = curves["n"].values
    *units, best = curves.indexes["unit"]
    marks: list[Mark] = [Rule(x=TRAINED_N, colour=PALE)]

    # Each unit on this task, and then the window that is best at each n.
    for unit, size in zip(units, curves.indexes["L"], strict=True):
        of_unit = at.sel(unit=unit)
        mean = of_unit.sel(statistic="mean").values
        low = of_unit.sel(statistic="low").values
        high = of_unit.sel(statistic="high").values
        colour = colour_of(size)
        marks.append(Band(lengths, low, high, colour))
        marks.append(Line(lengths, mean, name=unit, colour=colour, symbol="circle", size=6))
    least = at.sel(unit=best, statistic="mean").values
    marks.append(Line(lengths, least, name=best, colour=GREY, dash="dash"))
    x = Axis("labelled examples n", log=True)
    y = Axis("squared error", log=True)
    return Panel(f"L = {lipschitz:g}", x, y, marks)
