"""The figure of `linear_attention.covariance`.

It shows the error by M on each test law, beside the limit of linear self-attention.
"""

from collections.abc import Mapping

from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel
from icl_interp.results import Result
from icl_interp.studies.linear_attention.figures.curves import (
    LEAST_ERROR,
    examples,
    law,
    least_squares,
    trained_length,
    with_band,
)

LOWEST = 1e-3  # of the axis of errors
BELOW = (
    "A panel for each law of training and N. Solid: softmax model, with 95 % bands; vertical: "
    "M = N. Dashed in its colour: the LSA layer that training on the same prompts converges to, "
    "exact. Errors below 10<sup>−3</sup> leave the axis, as do limits far above E[y²]."
)


def covariance(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each training law and N."""
    curve = results.get("errors")
    if not isinstance(curve, DataArray):
        return {}
    # One axis of errors, that of the model.
    model = curve.sel(predictor="softmax", statistic="mean")
    top = 1.5 * float(model.max())
    y = Axis("error / E[y²]", LOWEST, top, log=True, least=LEAST_ERROR)
    lengths = curve.indexes["N"]
    panels = []
    for kind in curve.indexes["trained on"]:
        for n in lengths:
            own = curve.sel({"trained on": kind, "N": n})
            marks = _errors(own.sel(M=slice(2 * n)), n)
            panels.append(Panel(f"{kind} Λ, N = {n}", examples(n), y, marks))
    title = "Trained on one covariance or on random ones"
    drawing = Drawing(title, BELOW, panels, height=280, columns=len(lengths), same_y=True)
    return {"covariance": drawing}


def _errors(curve: DataArray, n: int) -> list[Mark]:
    """The softmax model and the limit on each test law; least squares is alike on all."""
    tests = curve.indexes["test"]
    places = curve["M"].values
    best = curve.sel(test=tests[0], predictor="least squares", statistic="mean").values
    marks: list[Mark] = [trained_length(n), least_squares(places, best)]
    for test, colour in zip(tests, COLOURS, strict=False):
        own = curve.sel(test=test)
        name = f"on {law(test)}"
        marks += with_band(own.sel(predictor="softmax"), name, colour)
        limit = own.sel(predictor="LSA limit", statistic="mean").values
        marks.append(Line(places, limit, name="LSA limit", colour=colour, dash="dash", width=1.3))
    return marks
