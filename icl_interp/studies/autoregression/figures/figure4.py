"""The figure of `autoregression.figure4`.

It shows residuals of sequences, and errors of one W on unseen text.
"""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.errors import columns_of, rows_of
from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, rows
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure4 import ORDERS

LOOKS = {
    "W, text": (BLUE, "circle"),
    "W, shuffled text": (ORANGE, "diamond"),
    "0": (GREY, "square"),
}
LINES = {"text": ("text", BLUE, "solid"), "shuffled": ("shuffled text", ORANGE, "dash")}


def figure4(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Left, the histogram of residuals, as in the paper; right, errors on unseen text.

    These errors are by embedding.
    """
    residuals = results.get("residuals")
    unseen = rows_of(results, "unseen")
    if not isinstance(residuals, DataArray) or not unseen:
        return {}
    left = _histogram(residuals.isel(embedding=0))
    right = _errors(unseen)
    counts = rows_of(results, "sequences")[0]
    below = (
        f"Left: sequences of 5 tokens that no W fits, {counts['text']:,} of "
        f"{counts['sequences']:,} of the text, and {counts['shuffled']:,} of as many after its "
        "tokens are shuffled; exact fits are left out. Right: one W fitted to half of the tokens "
        "and tested on the other half, with 95 % intervals over chunks."
    )
    title = "Processes fitted to text and to shuffled text"
    drawing = Drawing(title, below, [left, right], height=320)
    return {"figure4": drawing}


def _histogram(counts: DataArray) -> Panel:
    """Steps: each count holds across its bin."""
    places = counts["residual"].values
    width = float(np.diff(places).min())
    half = width / 2
    ends = np.stack([places - half, places + half], -1)
    edges = ends.ravel()
    marks: list[Mark] = []
    for order in ORDERS:
        name, colour, dash = LINES[order]
        own = counts.sel(order=order).values
        steps = np.repeat(own, 2)
        line = Line(edges, steps, name=name, colour=colour, dash=dash)
        marks.append(line)
    x = Axis("mean square residual", 0)
    y = Axis("sequences", 0)
    return Panel("A W for each sequence", x, y, marks, width=1.0)


def _errors(found: list[dict]) -> Panel:
    of_rows = (str(row["embedding"]) for row in found)
    names = list(dict.fromkeys(of_rows))
    marks: list[Mark] = []
    for k, (what, (colour, symbol)) in enumerate(LOOKS.items()):
        own = [row for row in found if row["what"] == what]
        error, low, high = columns_of(own, "error", "low", "high")
        # Marks of one embedding stand beside each other.
        aside = 0.18 * (k - 1)
        places = []
        for row in own:
            place = names.index(str(row["embedding"]))
            places.append(place + aside)
        label = "predicting 0" if what == "0" else f"{what}: error"
        points = Points(error, places, low, high, name=label, colour=colour, symbol=symbol, size=9)
        marks.append(points)
    x = Axis("error over that of predicting the mean", holds=(1.0,))
    return Panel("One W, on unseen text", x, rows(names), marks)
