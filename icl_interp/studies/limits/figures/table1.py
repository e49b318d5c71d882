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
    lines = []
    for name, colour in groups:
        paper = printed_by_sigma(comparison, quantity=name)
        lines.append(Curve(name, rows_with(rows, name), colour, paper))
    for name in sorted(name for name in names_of(rows) if name.startswith("affine")):
        group, colour = groups["no_ln" in name]
        lines.append(Curve(f"{group}, single runs", rows_with(rows, name), colour, {}, "dot", 1.0))
    lines.append(Curve(ZERO, rows_with(rows, ZERO), INK, {}, "dot", 1.2))
    panels = [("", lines)]
    below = "Thick: means over runs. Bands: 95 % over functions. Crosses: the paper's numbers."
    figures = {
        "errors": sigma_panels(
            panels, "Squared error with and without LayerNorm", below, "mean squared error"
        )
    }
    if comparison is not None and "without / with" in set(comparison["quantity"]):
        figures["ratio"] = _ratio(comparison)
    return figures


def _ratio(comparison: DataFrame) -> Drawing:
    """The ratio without / with by sigma; below 1 no LayerNorm is better."""
    rows = [row for row in comparison.to_dict("records") if row["quantity"] == "without / with"]
    # Too few runs decide nothing: their intervals have no ends that could be drawn.
    drawn = [
        {"low": row["ours"], "high": row["ours"]} if np.isinf(row["high"]) else {} for row in rows
    ]
    line = Curve(
        "ours, over runs",
        [{**row, "error": row["ours"], **ends} for row, ends in zip(rows, drawn, strict=True)],
        BLUE,
        {row["sigma"]: row["paper"] for row in rows},
    )
    title = "Error without LayerNorm in units of the error with it"
    below = (
        "Geometric means over runs; band: exact 95 % intervals over runs. Crosses: the paper's "
        "numbers. Below 1, models without LayerNorm are better."
    )
    one = Rule(y=1, colour=GREY, dash="dash")
    return sigma_panels([("", [line])], title, below, "error without / error with", one)
