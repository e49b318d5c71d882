"""Figures 3 and 5: error rates by sigma, a model for each degree."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import COLOURS, INK
from icl_interp.figures.drawing import Drawing, Rule
from icl_interp.results import Result
from icl_interp.studies.limits.figures.by_sigma import (
    BEST,
    ZERO,
    Curve,
    names_of,
    printed_by_sigma,
    rows_of,
    rows_with,
    sigma_panels,
)


def rates(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Error rates, a model for each degree on that degree."""
    rows = [row for row in rows_of(results, "errors") if row["predictor"] not in (BEST, ZERO)]
    if not rows:
        return {}
    lines = []
    for i, name in enumerate(names_of(rows)):
        mine = rows_with(rows, name)
        paper = (
            printed_by_sigma(comparison, model=f"M{mine[0]['degree']}")
            if comparison is not None
            else {}
        )
        lines.append(
            Curve(
                f"degree {mine[0]['degree']}",
                mine,
                COLOURS[i % len(COLOURS)],
                paper,
                column="error_rate",
            )
        )
    below = (
        "0 is as good as least squares, 1 as bad as predicting 0. Bands: 95 % over functions."
        + (
            " Crosses: the paper's numbers."
            if comparison is not None and "paper" in comparison.columns
            else ""
        )
    )
    title = "Error rate as functions leave the training range"
    zero = Rule(y=1, colour=INK)
    return {"rates": sigma_panels([("", lines)], title, below, "error rate", zero)}
