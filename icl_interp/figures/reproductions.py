"""Figures of experiments, by id: pure functions of stored results."""

from collections.abc import Callable, Mapping

from icl_interp.figures.style import Figure
from icl_interp.results import Result

Drawing = Callable[[Mapping[str, Result]], dict[str, Figure]]
DRAWINGS: dict[str, Drawing] = {}


def draw(name: str, results: Mapping[str, Result]) -> dict[str, Figure]:
    """The figures of an experiment; none where it has no drawing or no results."""
    drawing = DRAWINGS.get(name)
    return drawing(results) if drawing and results else {}
