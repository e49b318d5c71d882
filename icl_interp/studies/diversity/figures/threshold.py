"""Which predictor is nearer by the number of functions of training, a line a seed."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import COLOURS, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.diversity.measurements.distances import NEW, SEEN

X = Axis("functions of training", log=True)
Y = Axis("distance from ridge / from the pool", log=True)


def threshold(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Ratios of distances with intervals, on new functions and on those of the pool."""
    found = results.get("ratios")
    if not isinstance(found, DataArray):
        return {}
    # A panel for each kind of functions that are asked, a line for each seed of training.
    panels = []
    sizes = np.asarray(found.indexes["functions of training"])
    for functions in (NEW, SEEN):
        marks: list[Mark] = [Rule(y=1.0, colour=INK)]
        for place, seed in enumerate(found.indexes["seed"]):
            here = found.sel(asked=functions, seed=seed)
            logs = here.transpose("statistic", "functions of training").values
            value, low, high = 10**logs
            colour = COLOURS[place]
            line = Line(sizes, value, low, high, f"seed {seed}", colour, symbol="circle")
            marks.append(line)
        panel = Panel(functions, X, Y, marks)
        panels.append(panel)
    below = f"{plain(found.attrs['note'])}. Intervals: 95 % over functions."
    return {
        "threshold": Drawing(
            "Below 1 a model is nearer to ridge, above to the pool", below, panels, same_y=True
        )
    }
