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
    for i, (name, curve) in enumerate(curves.items()):
        marks = [*model_marks(curve), truth_line(curve)]
        panels.append(Panel(name, Axis("query x"), Axis("" if i else "f(x)"), marks))
    below = (
        f"{plain(next(iter(curves.values())).attrs['note'])}.<br>Line: mean over contexts; band: 5 "
        "to 95 % of contexts."
    )
    title = "Functions that the model was not trained on"
    return {"predictions": Drawing(title, below, panels, height=360)}


def curves_of(results: Mapping[str, Result]) -> dict[str, DataArray]:
    """The stored curves, by function."""
    return {name: found for name, found in results.items() if isinstance(found, DataArray)}


def model_marks(curve: DataArray) -> list[Mark]:
    """The mean prediction, and the band that holds most contexts."""
    xs = curve["x"].values
    low, mean, high = (curve.sel(statistic=name).values for name in ("low", "mean", "high"))
    line = Line(xs, mean, name="model", width=2.2, hover=HOVER)
    return [Band(xs, low, high, opacity=0.2), line]


def truth_line(curve: DataArray) -> Line:
    """The function itself."""
    truth = curve.sel(statistic="truth").values
    look = {"colour": INK, "dash": "dot", "width": 1.6}
    return Line(curve["x"].values, truth, name="the function", hover=HOVER, **look)
