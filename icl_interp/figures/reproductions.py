"""Figures of experiments, by id: pure functions of stored results and of the comparison with the paper."""

from collections.abc import Callable, Mapping

from pandas import DataFrame

from icl_interp.figures import reproduced_errors as by_sigma
from icl_interp.figures import reproduced_functions as functions
from icl_interp.figures import reproduced_linear_attention as linear
from icl_interp.figures import reproduced_remedies as remedies
from icl_interp.figures.style import Figure, safe
from icl_interp.results import Result

Drawing = Callable[[Mapping[str, Result], DataFrame | None], dict[str, Figure]]

DRAWINGS: dict[str, Drawing] = {
    "limits.table1": by_sigma.table1,
    "limits.table2": by_sigma.by_degree,
    "limits.table3": by_sigma.table3,
    "limits.table4": functions.softmax_examples,
    "limits.figure1": functions.followed,
    "limits.figure2": by_sigma.rates_by_degree,
    "limits.figure3": by_sigma.rates,
    "limits.figure4": functions.boundary,
    "limits.figure5": by_sigma.rates,
    "limits.figure6": functions.followed,
    "limits.figure7": by_sigma.maps,
    "limits.figure8": functions.layers,
    "limits.appendix_g": functions.appendix_g,
    "limits.remedies": remedies.remedies,
    "linear_attention.convergence": linear.convergence,
    "linear_attention.covariance": linear.covariance,
    "linear_attention.length_spike": linear.length_spike,
    "linear_attention.risk_formula": linear.risk_formula,
    "linear_attention.shifts": linear.shifts,
    "linear_attention.trap": linear.trap,
}


def draw(name: str, results: Mapping[str, Result], comparison: DataFrame | None = None) -> dict[str, Figure]:
    """The figures of an experiment; none where it has no drawing or no results."""
    drawing = DRAWINGS.get(name)
    figures = drawing(results, comparison) if drawing and results else {}
    return {key: safe(figure) for key, figure in figures.items()}
