"""Figure 2: error rates by degree, a panel a degree."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.drawing import Drawing
from icl_interp.results import Result
from icl_interp.studies.limits.figures.table2 import degrees


def rates_by_degree(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """A panel a degree, error rate."""
    figure = degrees(results, comparison, "error_rate", "error rate", "Error rate by degree")
    return {"rates": figure} if figure else {}
