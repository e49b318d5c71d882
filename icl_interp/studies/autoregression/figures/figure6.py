"""The figure of `autoregression.figure6`: trained positions for several mu, and the longest row of each."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.grid import Drawn, add_line, add_matrix, add_panel, spans
from icl_interp.figures.style import BLUE, GREY, ORANGE, finish, ranged
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure6 import MUS, SHARP, TOLERANCE

LINES = {"descent": (BLUE, "solid"), "one cosine": (ORANGE, "dash"), "exact loss": (GREY, "dot")}
NAMES = {
    "descent": "P by gradient descent",
    "one cosine": "best single cosine",
    "exact loss": "exact loss, this row alone",
}


def figure6(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """Matrices on top with cosine encodings beside them; below them the longest row, uniform angles last."""
    positions, longest, encodings = (
        results.get(name) for name in ("positions", "longest row", "encodings")
    )
    if not isinstance(positions, DataArray) or not isinstance(longest, DataArray):
        return {}
    assert isinstance(encodings, DataArray)
    figure, (bottom, top) = go.Figure(), spans(2, 0.24)
    columns = [*((0.77 * a, 0.77 * b) for a, b in spans(len(MUS), 0.07)), (0.86, 1.0)]
    slow = longest.sel(mu=list(MUS)).values
    limits = ranged([*slow.ravel().tolist(), 0.0])
    for i, mu in enumerate((*MUS, SHARP)):
        last = mu == SHARP
        matrix = encodings if last else positions.sel(mu=mu)
        title = "cosine encodings" if last else f"P, μ = {mu:g}"
        largest = 1.0 if last else float(np.abs(positions.sel(mu=list(MUS)).values).max())
        bar = (
            {"x": columns[i][1] + 0.004, "y": sum(top) / 2, "len": top[1] - top[0] + 0.04}
            if i > 2
            else None
        )
        add_matrix(figure, i, columns[i], top, title, matrix, largest, bar)
        own = ranged([*longest.sel(mu=mu).values.ravel().tolist(), 0.0]) if last else limits
        across = {"title": {"text": "token"}, "range": [0, longest.sizes["token"] + 1]}
        up = {"range": own, "title": {"text": "weight of the token" if i == 0 else ""}}
        add_panel(figure, 5 + i, columns[i], bottom, f"longest row, μ = {mu:g}", across, up)
        for line, (colour, dash) in LINES.items():
            values = longest.sel(mu=mu, line=line).values
            add_line(
                figure,
                5 + i,
                NAMES[line],
                longest["token"].values,
                values,
                colour,
                dash,
                legend=i == 0,
            )
    below = (
        "Angles of one coordinate are uniform on [0, 2π / μ]; only P is trained, from 0, until the "
        f"mean loss is below {TOLERANCE:g}. The query is the last token but one.<br>The minimiser, "
        "reached for μ = 1, takes the last token alone. Cosine encodings of Vaswani et al. (2017): "
        "a row is a frequency."
    )
    return {
        "figure6": finish(
            figure, "Attention by position after gradient descent that stops early", below, 470
        )
    }
