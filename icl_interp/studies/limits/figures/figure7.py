"""Figure 7: the error over the sigmas of inputs and of functions."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.drawing import Axis, Drawing, Matrix, Panel
from icl_interp.figures.text import markup
from icl_interp.results import Result


def maps(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """log10 of the error over both sigmas, a panel a training interval, one colour scale."""
    sigmas = {}
    logs = {}
    for name, result in results.items():
        if isinstance(result, DataArray):
            sigmas[name] = list(result.indexes["inputs"])
            logs[name] = np.log10(result.sel(statistic="error").values)
    if not logs:
        return {}
    # One scale for all panels, with one bar beside the last.
    low = min(map(np.min, logs.values()))
    high = max(map(np.max, logs.values()))
    panels = []
    for i, (name, values) in enumerate(logs.items()):
        last = i == len(logs) - 1
        matrix = Matrix(
            values,
            sigmas[name],
            sigmas[name],
            low,
            high,
            "Viridis",
            bar=markup("log<sub>10</sub> error") if last else None,
            hover="inputs {row}, functions {column}<br>log10 error {z:.3g}",
            upwards=True,
        )
        x = Axis("sigma of the functions")
        y = Axis("sigma of the inputs")
        panel = Panel(f"trained on {name}", x, y, [matrix])
        panels.append(panel)
    below = (
        "Polynomials of degree 3 with inputs on U(-s, s) and coefficients on U(-t, t); one colour "
        "scale for all."
    )
    drawing = Drawing("Squared error over both sigmas", below, panels, height=420)
    return {"map": drawing}
