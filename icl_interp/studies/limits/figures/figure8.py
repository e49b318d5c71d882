"""Figure 8: predictions over layers, by the logit lens."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel
from icl_interp.figures.text import number, plain
from icl_interp.results import Result
from icl_interp.studies.limits.figures.figure1 import HOVER, truth_line

RAMP = ("#C6DBEF", "#9ECAE1", "#6BAED6", "#4292C6", "#2171B5", "#08519C", "#08306B")


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, what the lens reads after each block along x; right, its R² over many functions."""
    lens = results.get("lens")
    table = results.get("r2")
    if not isinstance(lens, DataArray) or not isinstance(table, DataFrame):
        return {}
    # Later blocks are darker.
    names = list(lens.indexes["layer"])
    darkest = len(RAMP) - 1
    shades = np.linspace(0, darkest, len(names))
    xs = lens["x"].values
    marks: list[Mark] = []
    for name, shade in zip(names, shades, strict=True):
        mean = lens.sel(layer=name, statistic="mean").values
        colour = RAMP[round(shade)]
        line = Line(xs, mean, name=name, colour=colour, width=2.2, hover=HOVER)
        marks.append(line)
    last = lens.sel(layer=names[-1])
    marks.append(truth_line(last))
    title, _, _ = lens.attrs["note"].partition(";")
    one = Panel(title, Axis("query x"), Axis("lens"), marks, 1.55)
    many = _r2(table)
    below = f"{plain(table.attrs['note'])}.<br>R² below −1 is drawn at −1."
    drawing = Drawing("Predictions over layers, by the logit lens", below, [one, many], 360)
    return {"layers": drawing}


def _r2(table: DataFrame) -> Panel:
    """R² of the lens by depth.

    A lens that is far off has R² far below 0; the axis stops at -1 and the hover tells the number.
    """
    places = np.arange(len(table))
    texts = []
    for row in table.to_dict("records"):
        r2 = number(row["r2"])
        low = number(row["low"])
        high = number(row["high"])
        texts.append(f"{r2} [{low}, {high}]")
    own = Line(places, table["r2"], name="R² of the lens", symbol="circle", size=6, texts=texts)
    squared = Line(
        places,
        table["correlation squared"],
        name="scale and shift set right",
        colour=GREY,
        symbol="circle",
        size=6,
        hover="{y:.3g}",
    )
    x = Axis(ticks=dict(enumerate(table["layer"])))
    y = Axis("R²", -1.1, 1.1, least=-1.0)
    return Panel("many functions", x, y, [own, squared])
