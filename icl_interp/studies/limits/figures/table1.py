"""Table 1: errors with and without LayerNorm, and their ratio."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame

from icl_interp.figures.colours import BLUE, GREY, INK, ORANGE
from icl_interp.figures.drawing import Drawing, Rule
from icl_interp.results import Result
from icl_interp.studies.limits.figures.by_sigma import (
    ZERO,
    Curve,
    names_of,
    printed_by_sigma,
    rows_of,
    rows_with,
    sigma_panels,
)


def table1(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """With and without LayerNorm: means over seeds, single seeds thin; and the ratio of the two."""
    rows = rows_of(results, "errors")
    groups = (("with LN", ORANGE), ("without LN", BLUE))
    # Thick lines are means over runs, and thin ones single runs.
    lines = []
    for name, colour in groups:
        paper = printed_by_sigma(comparison, quantity=name)
        lines.append(Curve(name, rows_with(rows, name), colour, paper))
    for name in sorted(names_of(rows)):
        if name.startswith("affine"):
            group, colour = groups["no_ln" in name]
            label = f"{group}, single runs"
            lines.append(Curve(label, rows_with(rows, name), colour, {}, "dot", 1.0))
    lines.append(Curve(ZERO, rows_with(rows, ZERO), INK, {}, "dot", 1.2))
    title = "Squared error with and without LayerNorm"
    below = "Thick: means over runs. Bands: 95 % over functions. Crosses: the paper's numbers."
    drawing = sigma_panels([("", lines)], title, below, "mean squared error")
    figures = {"errors": drawing}
    if comparison is not None and "without / with" in set(comparison["quantity"]):
        figures["ratio"] = _ratio(comparison)
    return figures


def _ratio(comparison: DataFrame) -> Drawing:
    """The ratio without / with by sigma; below 1 no LayerNorm is better."""
    rows = []
    paper = {}
    for row in comparison.to_dict("records"):
        if row["quantity"] != "without / with":
            continue
        drawn = {**row, "error": row["ours"]}
        # Too few runs decide nothing: their intervals have no ends that could be drawn.
        if np.isinf(row["high"]):
            drawn["low"] = row["ours"]
            drawn["high"] = row["ours"]
        rows.append(drawn)
        paper[row["sigma"]] = row["paper"]
    line = Curve("ours, over runs", rows, BLUE, paper)
    title = "Error without LayerNorm in units of the error with it"
    below = (
        "Geometric means over runs; band: exact 95 % intervals over runs. Crosses: the paper's "
        "numbers. Below 1, models without LayerNorm are better."
    )
    one = Rule(y=1, colour=GREY, dash="dash")
    return sigma_panels([("", [line])], title, below, "error without / error with", one)
