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
    shown = {name: r for name, r in results.items() if isinstance(r, DataArray)}
    if not shown:
        return {}
    logs = {}
    for name, result in shown.items():
        logs[name] = np.log10(result.sel(statistic="error").values)
    low = min(values.min() for values in logs.values())
    high = max(values.max() for values in logs.values())
    panels = []
    for i, (name, values) in enumerate(logs.items()):
        sigmas = list(shown[name].indexes["inputs"])
        last = i == len(logs) - 1
        matrix = Matrix(
            values,
            sigmas,
            sigmas,
            low,
            high,
            "Viridis",
            bar=markup("log<sub>10</sub> error") if last else None,
            hover="inputs {row}, functions {column}<br>log10 error {z:.3g}",
            upwards=True,
        )
        x, y = Axis("sigma of the functions"), Axis("sigma of the inputs")
        panels.append(Panel(f"trained on {name}", x, y, [matrix]))
    below = (
        "Polynomials of degree 3 with inputs on U(-s, s) and coefficients on U(-t, t); one colour "
        "scale for all."
    )
    return {"map": Drawing("Squared error over both sigmas", below, panels, height=420)}
