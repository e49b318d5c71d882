"""Table 2: errors by degree, a panel a degree."""

from collections.abc import Collection, Mapping

from pandas import DataFrame

from icl_interp.figures.colours import BLUE, GREEN, INK, ORANGE, PURPLE, SKY
from icl_interp.figures.drawing import Drawing
from icl_interp.results import Result
from icl_interp.studies.limits.figures.by_sigma import (
    BEST,
    ZERO,
    Curve,
    Rows,
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
    "degrees_123_curriculum_attn_only": "curriculum, attention only",
}
WITH_GAPS = ("degrees_135", "degrees_135_attn_only")
CURRICULA = ("degrees_123_curriculum", "degrees_123_curriculum_attn_only")
COLOURS = dict(zip(GENERAL, (ORANGE, GREEN, PURPLE, SKY), strict=True))
LABELS = {"degrees_135": "M135", "degrees_135_attn_only": "M135AL"}  # in the paper's tables
BELOW = "Bands: 95 % over functions. Crosses: the paper's numbers."


def by_degree(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A panel a degree, squared error."""
    panels = degrees(results, comparison, "error")
    if not panels:
        return {}
    title = "Squared error by degree"
    return {"errors": sigma_panels(panels, title, BELOW, "mean squared error")}


def degrees(
    results: Mapping[str, Result],
    comparison: DataFrame | None,
    column: str,
    left_out: Collection[str] = (),
) -> list[tuple[str, list[Curve]]]:
    """A panel a degree, with its title; none where nothing is stored.

    Args:
        results: hold the errors.
        comparison: the paper's numbers.
        column: of the errors, that is drawn.
        left_out: models of several degrees that these panels do not show.
    """
    rows = rows_of(results, "errors")
    panels = []
    for degree in sorted({row["degree"] for row in rows}):
        here = [row for row in rows if row["degree"] == degree]
        lines = []
        for name in names_of(here):
            if name == BEST or name in left_out:
                continue
            # Only a model of one degree is named after it in the paper.
            paper = {}
            if comparison is not None:
                own = name != ZERO and name not in GENERAL
                label = f"M{degree}" if own else LABELS.get(name, name)
                paper = printed_by_sigma(comparison, degree=degree, model=label)
            lines.append(_curve(name, rows_with(here, name), paper, column))
        panels.append((f"degree {degree}", lines))
    return panels


def _curve(name: str, rows: Rows, paper: Mapping[float, float], column: str) -> Curve:
    """The curve of predicting 0, of a model of several degrees, or of that degree's own."""
    if name == ZERO:
        return Curve(name, rows, INK, paper, "dot", 1.2, column)
    shown = GENERAL.get(name, "that degree only")
    return Curve(shown, rows, COLOURS.get(name, BLUE), paper, column=column)
