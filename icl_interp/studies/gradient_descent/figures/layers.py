"""Distances to steps of descent by number of layers, a line a family."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.gradient_descent.claims.steps import NEAR

X = Axis("layers", whole=True)
Y = Axis("distance / variance", log=True, least=1e-5)


def layers(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Lines with intervals, and the zone in which a model counts as doing the steps."""
    found = results.get("distances")
    if not isinstance(found, DataArray):
        return {}
    marks: list[Mark] = [Zone(y=(0.0, NEAR), colour=VERDICTS["supported"].pale)]
    numbers = np.asarray(found.indexes["layers"])
    for place, family in enumerate(found.indexes["family"]):
        value, low, high = found.sel(family=family).transpose("statistic", "layers").values
        name = str(family)
        line = Line(numbers, value, low, high, name, COLOURS[place], symbol="circle")
        marks.append(line)
    below = f"{plain(found.attrs['note'])}. Intervals: 95 % over functions."
    panel = Panel("", X, Y, marks)
    return {"layers": Drawing("L layers against L steps of descent", below, [panel])}
