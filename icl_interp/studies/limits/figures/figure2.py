"""Figure 2: error rates by degree, a row of panels for each training on several degrees."""

from collections.abc import Mapping

from pandas import DataFrame

from icl_interp.figures.drawing import Drawing
from icl_interp.results import Result
from icl_interp.studies.limits.figures.by_sigma import sigma_panels
from icl_interp.studies.limits.figures.table2 import BELOW, CURRICULA, WITH_GAPS, degrees


def rates_by_degree(
    results: Mapping[str, Result], comparison: DataFrame | None
) -> dict[str, Drawing]:
    """A panel a degree, error rate: degrees 1, 3 and 5 above, the curriculum 1, 2, 3 below."""
    above = degrees(results, comparison, "error_rate", CURRICULA)
    below = degrees(results, comparison, "error_rate", WITH_GAPS)
    if not above:
        return {}
    panels = [(f"{title}, gaps", curves) for title, curves in above]
    panels += [(f"{title}, curriculum", curves) for title, curves in below]
    words = f"First row: trained on degrees 1, 3, 5. Second row: curriculum 1, 2, 3. {BELOW}"
    title = "Error rate by degree"
    drawing = sigma_panels(panels, title, words, "error rate", columns=len(above))
    return {"rates": drawing}
