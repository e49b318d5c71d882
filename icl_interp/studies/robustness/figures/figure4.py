"""Errors by the number of examples, a panel a shift."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREY, INK
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.text import plain
from icl_interp.results import Result

LEAST = 1e-4  # least squares is exact from d examples on where labels have no noise
X = Axis("examples", whole=True)
Y = Axis("error / error of predicting 0", log=True, least=LEAST)
LOOKS = {"model": (BLUE, "solid"), "least squares": (GREY, "dash")}


def figure4(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Lines of the model and of least squares with their intervals."""
    curves = results.get("curves")
    if not isinstance(curves, DataArray):
        return {}
    panels = []
    for shift in curves.indexes["shift"]:
        marks: list[Mark] = [Rule(y=1.0, colour=INK)]
        for who in curves.indexes["predictor"]:
            found = curves.sel(shift=shift, predictor=who)
            marks += _curve(found, str(who))
        panel = Panel(str(shift), X, Y, marks)
        panels.append(panel)
    below = (
        f"{plain(curves.attrs['note'])}. Bands: 95 % over blocks of prompts. At the dotted line a "
        "predictor is as bad as 0. Where least squares is exact it is drawn at the lower edge."
    )
    title = "Under shifts of the prompts, by the number of examples"
    return {"figure4": Drawing(title, below, panels, height=230, columns=3, same_y=True)}


def _curve(found: DataArray, who: str) -> list[Mark]:
    """Band and line of a predictor."""
    n_examples = np.asarray(found.indexes["examples"])
    mean, low, high = found.transpose("statistic", "examples").values
    colour, dash = LOOKS[who]
    hover = "{x} examples: {y:.3g}"
    line = Line(n_examples, mean, name=who, colour=colour, dash=dash, hover=hover)
    band = Band(n_examples, low, high, colour)
    return [band, line]
