"""Figure 4: predictions as the query goes far, and the levels that they reach."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import GREEN, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel, Rule
from icl_interp.figures.style import ranged
from icl_interp.results import Result
from icl_interp.studies.limits.figures.figure1 import HOVER, curves_of, model_marks, truth_line


def boundary(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel for each function, the query on a symmetric-log axis; certificate and plateaus.

    The plateaus are those by the weights.
    """
    curves = curves_of(results)
    if not curves:
        return {}
    facts = {}
    table = results.get("boundary")
    if isinstance(table, DataFrame):
        facts = {row["function"]: row for row in table.to_dict("records")}
    panels = []
    for name, curve in curves.items():
        panels.append(_boundary(name, curve, facts.get(name, {}), not panels))
    below = (
        "The context stays in distribution. Line: mean over contexts; band: 5 to 95 %; the "
        "function leaves the axis."
    )
    title = "Boundary values: what is predicted as the query goes far"
    return {"boundary": Drawing(title, below, panels, height=380)}


def _boundary(name: str, curve: DataArray, fact: Mapping[str, Any], first: bool) -> Panel:
    """One function."""
    xs = curve["x"].values
    marks = model_marks(curve)
    held = curve.sel(statistic=["mean", "low", "high"]).values.ravel().tolist()
    c = fact.get("c", np.nan)
    r = fact.get("r", np.nan)
    if np.isfinite([c, r]).all():
        for edge in (c - r, c + r):
            held.append(edge)
            marks.append(Rule(y=edge, colour=GREEN, dash="dash", name="certificate c ± r"))
    for sign, key in ((-1, "plateau -"), (1, "plateau +")):
        plateau = fact.get(key, np.nan)
        if np.isfinite(plateau):
            ends = [sign * 10.0, sign * np.abs(xs).max()]
            words = "plateau, by the weights"
            line = Line(ends, [plateau] * 2, name=words, colour=ORANGE, dash="dash", hover=HOVER)
            marks.append(line)
    marks.append(truth_line(curve))
    low, high = ranged(held)  # all but the function
    x = Axis("query x (symmetric-log)", symlog=float(np.abs(xs[xs != 0]).min()), labels=4)
    y = Axis("prediction" if first else "", low, high)
    # A panel has no room for both names of a model.
    title = name if "model" in name else f"{name}, {fact.get('model', '')}"
    return Panel(title, x, y, marks)
