"""Errors under distribution shift by the number of examples, a panel a shift."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREY, INK
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Points, Rule
from icl_interp.figures.text import plain
from icl_interp.results import Result

LEAST = 1e-3  # least squares is exact from d examples on where labels have no noise
COLOURS = {"LSA limit": BLUE, "least squares": GREY}
NAMES = {"LSA limit": "optimal linear self-attention", "least squares": "least squares"}


def shift_curves(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Lines of the layer and of least squares, and crosses where theory gives the risk."""
    curves = results.get("curves")
    table = results.get("by length")
    if not isinstance(curves, DataArray) or not isinstance(table, DataFrame):
        return {}
    # A panel a shift: both predictors, and theory where it covers the shift.
    panels = []
    for shift in curves.indexes["shift"]:
        marks: list[Mark] = [Rule(y=1.0, colour=INK)]
        for predictor in curves.indexes["predictor"]:
            marks += _curve(curves.sel(shift=shift, predictor=predictor), str(predictor))
        marks += _theory(table.loc[table["shift"] == shift])
        heading = "no shift" if shift == "none" else str(shift)
        x = Axis("examples M", log=True)
        panels.append(Panel(heading, x, Axis("error / E[y²]", log=True, least=LEAST), marks))
    below = (
        f"{plain(curves.attrs['note'])}. Bands: 95 % over blocks of prompts. At the dotted line a "
        "predictor is as bad as 0. Where least squares is exact it is drawn at the lower edge."
    )
    title = "Under distribution shift, by the number of examples"
    drawing = Drawing(title, below, panels, height=230, columns=4, same_y=True)
    return {"shift_curves": drawing}


def _curve(found: DataArray, predictor: str) -> list[Mark]:
    """Band and line of a predictor."""
    lengths = np.asarray(found.indexes["M"])
    mean = np.asarray(found.sel(statistic="mean").values)
    low = np.asarray(found.sel(statistic="low").values)
    high = np.asarray(found.sel(statistic="high").values)
    colour = COLOURS[predictor]
    dash = "dash" if predictor == "least squares" else "solid"
    hover = "M = {x}: {y:.3g}"
    line = Line(
        lengths, mean, name=NAMES[predictor], colour=colour, dash=dash, symbol="circle", size=5,
        hover=hover,
    )  # fmt: skip
    return [Band(lengths, low, high, colour), line]


def _theory(rows: DataFrame) -> list[Mark]:
    """The exact risk of the layer, where the theory covers the shift."""
    known = rows.dropna(subset=["theory"])
    if known.empty:
        return []
    values = known["theory"].to_numpy()
    lengths = known["M"].to_numpy()
    return [
        Points(
            lengths, values, name="its exact risk", colour=INK, symbol="x-thin", edge=1.6, size=9,
            hover="M = {x}: {y:.3g}",
        )
    ]  # fmt: skip
