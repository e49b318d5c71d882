"""The figure of `linear_attention.shifts`: error at the query by shift, for three predictors."""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, rows
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.linear_attention.figures.curves import LEAST_ERROR, ends_of

LOOKS = {  # predictor: (colour, symbol, size)
    "softmax": (BLUE, "circle", 8),
    "least squares": (GREY, "line-ns-open", 11),
    "LSA limit": (ORANGE, "diamond-open", 8),
}
BELOW = (
    "Trained on Λ = I without noise, tested at the query after N examples. Bars: 95 % over blocks "
    "of prompts. Where least squares is exact (all but noisy labels) it is drawn at the left edge."
)


def shifts(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each N."""
    found = results.get("errors")
    if not isinstance(found, DataArray):
        return {}
    # The axis, one for all panels, ends left of the model's errors.
    means = found.sel(statistic="mean")
    least = float(means.sel(predictor="softmax").min())
    low = max(least, LEAST_ERROR) / 2
    high = float(means.max()) * 2
    x = Axis("error / E[y²]", low, high, log=True, least=1.2 * low)
    names = list(found.indexes["shift"])
    panels = []
    for n in found.indexes["N"]:
        marks = _by_shift(found.sel(N=n))
        panels.append(Panel(f"M = N = {n}", x, rows(names), marks, row=46))
    drawing = Drawing("Under distribution shift", BELOW, panels, same_y=True)
    return {"shifts": drawing}


def _by_shift(found: DataArray) -> list[Mark]:
    names = found.indexes["shift"]
    marks: list[Mark] = []
    for predictor, (colour, symbol, size) in LOOKS.items():
        mean, low, high = ends_of(found.sel(predictor=predictor))
        points = Points(
            mean,
            range(len(names)),
            low,
            high,
            name=predictor,
            colour=colour,
            symbol=symbol,
            size=size,
            edge=2,
            texts=list(map(plain, names)),
            hover="{text}: {x:.3g}",
        )
        marks.append(points)
    return marks
