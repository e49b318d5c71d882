"""The figure of `linear_attention.risk_formula`: both formulas over M, and what two layers do."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, GREEN, INK, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points
from icl_interp.figures.text import plain
from icl_interp.results import Result

FORMULAS = ((BLUE, "solid"), (ORANGE, "dash"))
LAYERS = ((INK, "circle"), (GREEN, "diamond-open"))


def risk_formula(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each noise."""
    curve = results.get("formulas")
    if not isinstance(curve, DataArray) or not rows_of(results, "measured"):
        return {}
    # Panels have the same axes, so that they can be compared.
    x = Axis("examples M", log=True)
    y = Axis("mean squared error", log=True)
    panels = []
    for noise in curve.indexes["noise"]:
        marks = _formulas(curve.sel(noise=noise))
        marks += _layers(rows_of(results, "measured", noise=noise))
        title = f"label noise τ² = {noise:g}"
        panels.append(Panel(title, x, y, marks))
    note = plain(curve.attrs["note"])
    below = f"{note}. Bars: two standard errors."
    title = "Theorem 4.2: the risk on prompts of M examples"
    drawing = Drawing(title, below, panels, height=380, same_y=True)
    return {"risk": drawing}


def _formulas(curve: DataArray) -> list[Mark]:
    places = curve["M"].values
    marks: list[Mark] = []
    for formula, (colour, dash) in zip(curve.indexes["formula"], FORMULAS, strict=True):
        errors = curve.sel(formula=formula).values
        marks.append(Line(places, errors, name=formula, colour=colour, dash=dash))
    return marks


def _layers(rows: list[dict]) -> list[Mark]:
    by_layer: dict[str, list[dict]] = {}
    for row in rows:
        own = by_layer.setdefault(row["layer"], [])
        own.append(row)
    marks: list[Mark] = []
    for (layer, own), (colour, symbol) in zip(by_layer.items(), LAYERS, strict=False):
        places, error, se = columns_of(own, "M", "error", "se")
        low = error - 2 * se
        high = error + 2 * se
        name = f"measured: {layer}"
        look = {"colour": colour, "symbol": symbol, "size": 9}
        points = Points(places, error, low, high, name, hover="M = {x}: {y:.4g}", **look)
        marks.append(points)
    return marks
