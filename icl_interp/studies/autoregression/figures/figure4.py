"""The figure of `autoregression.figure4`: residuals of sequences, and errors of one W on unseen text."""

from collections.abc import Mapping

import plotly.graph_objects as go
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import rows_of
from icl_interp.figures.grid import Drawn, add_line, add_panel, whiskers
from icl_interp.figures.style import BLUE, GREY, ORANGE, finish, ranged, rows_axis
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure4 import ORDERS

LOOKS = {
    "W, text": (BLUE, "circle"),
    "W, shuffled text": (ORANGE, "diamond"),
    "0": (GREY, "square"),
}
LINES = {"text": (BLUE, "solid"), "shuffled": (ORANGE, "dash")}


def figure4(results: Mapping[str, Result], comparison: DataFrame | None) -> Drawn:
    """On the left the histogram of residuals, as in the paper; on the right errors on unseen text by embedding."""
    residuals, rows = results.get("residuals"), rows_of(results, "unseen")
    if not isinstance(residuals, DataArray) or not rows:
        return {}
    figure, first = go.Figure(), residuals.isel(embedding=0)
    places = first["residual"].values
    held = first.values.sum(0) > 0
    shown = places[held] if held.any() else places
    x = {
        "title": {"text": "log<sub>10</sub> of the mean square residual"},
        "range": ranged(shown.tolist(), 0.2),
    }
    y = {"title": {"text": "sequences"}, "range": [0, 1.1 * max(float(first.values.max()), 1.0)]}
    add_panel(figure, 0, (0, 0.4), (0, 1), "A W for each sequence", x, y)
    for order in ORDERS:
        colour, dash = LINES[order]
        name = "text" if order == "text" else "shuffled text"
        add_line(
            figure, 0, name, places, first.sel(order=order).values, colour, dash, line_shape="hvh"
        )
    names = list(dict.fromkeys(str(row["embedding"]) for row in rows))
    limits = ranged([1.0, *(row[key] for row in rows for key in ("low", "high"))])
    across = {"title": {"text": "error over that of predicting the mean"}, "range": limits}
    add_panel(figure, 1, (0.58, 1), (0, 1), "One W, on unseen text", across, rows_axis(names))
    for k, (what, (colour, symbol)) in enumerate(LOOKS.items()):
        own = [row for row in rows if row["what"] == what]
        add_line(
            figure,
            1,
            f"{what}: error" if what != "0" else "predicting 0",
            [row["error"] for row in own],
            [names.index(row["embedding"]) + 0.18 * (k - 1) for row in own],
            colour,
            mode="markers",
            marker={"color": colour, "size": 9, "symbol": symbol},
            error_x=whiskers(*([row[key] for row in own] for key in ("error", "low", "high"))),
        )
    numbers = rows_of(results, "sequences")[0]
    below = (
        f"Left: sequences of 5 tokens that no W fits, {numbers['text']:,} of the text and "
        f"{numbers['shuffled']:,} after its tokens are shuffled, of {numbers['sequences']:,} "
        "each;<br>exact fits are left out. Right: one W fitted to half of the tokens and tested on "
        "the other half, with 95 % intervals over chunks."
    )
    return {
        "figure4": finish(figure, "Processes fitted to text and to shuffled text", below, 320, l=70)
    }
