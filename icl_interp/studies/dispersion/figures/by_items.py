"""Largest weights by the number of items, a panel a model."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.dispersion.figures.largest_weights import Curve, weights_panel


def by_items(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Lines as trained and with sharper scores, beside 1 / n."""
    found = results.get("weights")
    if not isinstance(found, DataFrame):
        return {}
    panels = []
    for model, rows in found.groupby("model", sort=False):
        curves = []
        for place, (scores, part) in enumerate(rows.groupby("scores", sort=False)):
            n = part["n"].to_numpy(float)
            weight = part["largest weight"].to_numpy(float)
            curves.append(Curve(str(scores), n, weight, COLOURS[place], shown=True))
        panels.append(weights_panel(str(model), curves))
    below = f"{plain(found.attrs['note'])}."
    title = "Largest attention weight by the number of keys"
    return {"largest_weight": Drawing(title, below, panels)}
