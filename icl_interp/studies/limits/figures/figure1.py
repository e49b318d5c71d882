"""Figures 1 and 6: predictions of single functions beside the truth."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel
from icl_interp.figures.text import plain
from icl_interp.results import Result

HOVER = "x = {x:.4g}: {y:.5g}"


def followed(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a function: the model's mean with its band over contexts, and the function."""
    curves = curves_of(results)
    if not curves:
        return {}
    panels = []
    y = "f(x)"
    for name, curve in curves.items():
        marks = [*model_marks(curve), truth_line(curve)]
        panels.append(Panel(name, Axis("query x"), Axis(y), marks))
        y = ""  # it stands once, at the left
    first = next(iter(curves.values()))
    below = (
        f"{plain(first.attrs['note'])}.<br>Line: mean over contexts; band: 5 to 95 % of contexts."
    )
    title = "Functions that the model was not trained on"
    drawing = Drawing(title, below, panels, height=360)
    return {"predictions": drawing}


def curves_of(results: Mapping[str, Result]) -> dict[str, DataArray]:
    """The stored curves, by function."""
    curves = {}
    for name, found in results.items():
        if isinstance(found, DataArray):
            curves[name] = found
    return curves


def model_marks(curve: DataArray) -> list[Mark]:
    """The mean prediction, and the band that holds most contexts."""
    xs = curve["x"].values
    low = curve.sel(statistic="low").values
    mean = curve.sel(statistic="mean").values
    high = curve.sel(statistic="high").values
    line = Line(xs, mean, name="model", width=2.2, hover=HOVER)
    band = Band(xs, low, high, opacity=0.2)
    return [band, line]


def truth_line(curve: DataArray) -> Line:
    """The function itself."""
    xs = curve["x"].values
    truth = curve.sel(statistic="truth").values
    look = {"colour": INK, "dash": "dot", "width": 1.6}
    return Line(xs, truth, name="the function", hover=HOVER, **look)
