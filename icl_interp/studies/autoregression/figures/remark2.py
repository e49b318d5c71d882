"""The figure of `autoregression.remark2`: errors by point of a recurrent network, of attention and of the bound."""

from collections.abc import Mapping

import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.grid import Drawn, add_line, add_panel, spans
from icl_interp.figures.style import BLUE, GREY, ORANGE, finish, log_axis, ranged
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.remark2 import (
    ATTENTION,
    BOUND,
    MUS,
    NETWORK,
    UNIFORM,
)

LINES = {NETWORK: (ORANGE, "solid"), BOUND: (GREY, "dot"), ATTENTION: (BLUE, "solid")}
LOWEST = 1e-8  # where the axis of errors ends; less is drawn there


def remark2(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """A panel for each law of angles; the first point, at which W cannot be known, is left out."""
    points = results.get("points")
    if not isinstance(points, DataArray):
        return {}
    figure, later = go.Figure(), points.isel(point=slice(1, None))
    for i, (mu, across) in enumerate(zip(MUS, spans(len(MUS), 0.04), strict=True)):
        title = "uniform angles" if mu == UNIFORM else f"angles to 2π / {mu:g}"
        up = log_axis("error over that of predicting 0" if i == 0 else "", LOWEST / 2, 5.0)
        x = {
            "title": {"text": "point of the prompt"},
            "range": ranged(later["point"].values.tolist()),
        }
        add_panel(figure, i, across, (0, 1), title, x, {**up, "showticklabels": i == 0})
        for name, (colour, dash) in LINES.items():
            values = later.sel(mu=mu, model=name).values.clip(LOWEST)
            add_line(figure, i, name, later["point"].values, values, colour, dash, legend=i == 0)
    below = (
        "Mean over networks; each is trained on the law that it is tested on, attention on uniform "
        "angles only.<br>The best linear map of the states is a closed form; what is below "
        f"{LOWEST:g} is drawn there."
    )
    return {
        "remark2": finish(
            figure, "A linear recurrent network and attention on the same sequences", below, 340
        )
    }
