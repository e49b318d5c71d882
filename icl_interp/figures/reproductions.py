"""Figures of experiments, by id: functions of stored results and the comparison with the paper."""

from collections.abc import Callable, Mapping

from pandas import DataFrame

from icl_interp.figures.drawing import Drawing
from icl_interp.figures.render import rendered
from icl_interp.figures.style import Figure, safe
from icl_interp.registers import View
from icl_interp.results import Result

Draw = Callable[
    [Mapping[str, Result], DataFrame | None], Mapping[str, Drawing | Figure] | Mapping[str, Figure]
]

# By the id of the experiment.
DRAWINGS: View[Draw] = View("drawing", lambda study: study.drawings)


def draw(
    name: str, results: Mapping[str, Result], comparison: DataFrame | None = None
) -> dict[str, Figure]:
    """The figures of an experiment; none where it has no drawing or no results."""
    drawing = DRAWINGS.get(name)
    figures = drawing(results, comparison) if drawing and results else {}
    return {key: safe(rendered(figure)) for key, figure in figures.items()}
