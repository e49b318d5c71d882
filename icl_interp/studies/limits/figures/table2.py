"""Table 2: errors by degree, a panel a degree."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.colours import BLUE, GREEN, INK, ORANGE, PURPLE
from icl_interp.figures.drawing import Drawing
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

GENERAL = {
    "degrees_135": "M135: degrees 1, 3, 5",
    "degrees_135_attn_only": "M135AL: attention only",
    "degrees_123_curriculum": "curriculum 1, 2, 3",
}


def by_degree(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a degree, squared error."""
    figure = degrees(results, comparison, "error", "mean squared error", "Squared error by degree")
    return {"errors": figure} if figure else {}


def degrees(
    results: Mapping[str, Result], comparison: DataFrame | None, column: str, axis: str, title: str
) -> Drawing | None:
    """A panel a degree; None where nothing is stored."""
    rows = rows_of(results, "errors")
    panels = []
    general = [
        name
        for name in names_of(rows)
        if len({r["degree"] for r in rows if r["predictor"] == name}) > 1
    ]
    colours = dict(
        zip([n for n in general if n not in (ZERO, BEST)], (ORANGE, GREEN, PURPLE), strict=False)
    )
    labels = {"degrees_135": "M135", "degrees_135_attn_only": "M135AL"}
    for degree in sorted({row["degree"] for row in rows}):
        here = [row for row in rows if row["degree"] == degree]
        lines = []
        for name in names_of(here):
            if name == BEST:
                continue
            own = name not in general
            paper = (
                {}
                if comparison is None
                else printed_by_sigma(
                    comparison, degree=degree, model=labels.get(name, f"M{degree}" if own else name)
                )
            )
            colour = INK if name == ZERO else BLUE if own else colours[name]
            shown = "that degree only" if own else GENERAL.get(name, name)
            look = ("dot", 1.2) if name == ZERO else ("solid", 2.0)
            lines.append(Curve(shown, rows_with(here, name), colour, paper, *look, column))
        panels.append((f"degree {degree}", lines))
    below = "Bands: 95 % over functions. Crosses: the paper's numbers."
    return sigma_panels(panels, title, below, axis) if panels else None
