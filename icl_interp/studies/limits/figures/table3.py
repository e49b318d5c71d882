"""Table 3: errors by training interval."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import COLOURS, INK
from icl_interp.figures.drawing import Drawing
from icl_interp.results import Result
from icl_interp.studies.limits.figures.by_sigma import (
    ZERO,
    Curve,
    printed_by_sigma,
    rows_of,
    rows_with,
    sigma_panels,
)


def table3(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """By training interval: means over runs, single runs thin."""
    rows = rows_of(results, "errors")
    runs = rows_of(results, "own range")
    lines = []
    for interval, colour in zip(
        dict.fromkeys(row["trained on"] for row in runs), COLOURS, strict=False
    ):
        paper = printed_by_sigma(comparison, **{"trained on": interval})
        lines.append(Curve(f"trained on {interval}", rows_with(rows, interval), colour, paper))
        own = [row["model"] for row in runs if row["trained on"] == interval]
        if len(own) > 1:
            lines += [
                Curve(f"{interval}, single runs", rows_with(rows, name), colour, {}, "dot", 1.0)
                for name in own
            ]
    lines.append(Curve(ZERO, rows_with(rows, ZERO), INK, {}, "dot", 1.2))
    below = (
        "Inputs on U(-1, 1) for all. Thick: means over runs. Bands: 95 % over functions. Crosses: "
        "the paper's numbers."
    )
    return {
        "errors": sigma_panels(
            [("", lines)], "Squared error by training interval", below, "mean squared error"
        )
    }
