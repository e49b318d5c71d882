"""Figures of experiments, by id: functions of stored results and the comparison with the paper."""

from collections.abc import Callable, Mapping

from pandas import DataFrame

from icl_interp.figures.style import Figure, safe
from icl_interp.registers import View
from icl_interp.results import Result

Drawing = Callable[[Mapping[str, Result], DataFrame | None], dict[str, Figure]]

DRAWINGS: View[Drawing] = View(
    "drawing", lambda study: study.drawings
)  # by the id of the experiment


def draw(
    name: str, results: Mapping[str, Result], comparison: DataFrame | None = None
) -> dict[str, Figure]:
    """The figures of an experiment; none where it has no drawing or no results."""
    drawing = DRAWINGS.get(name)
    figures = drawing(results, comparison) if drawing and results else {}
    return {key: safe(figure) for key, figure in figures.items()}
