"""Errors at another Lipschitz constant than that of training."""

from collections.abc import Sequence

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.experiments.errors import columns_of
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel
from icl_interp.figures.text import tested_by
from icl_interp.studies.lipschitz.claims.transfer import details
from icl_interp.studies.lipschitz.measurements import transfer_errors

HOVER = "L' = {x:g} L: {y:.3g} times the least error"


def transfer(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """The model's error at other L over the least possible there, beside theory's."""
    result, known = results.get(transfer_errors.transfer), results.get(transfer_errors.exact)
    if result is None or known is None:
        return None
    xs, value, low, high, theory = columns_of(
        details(result, known), "L' / L", "model pays", "low", "high", "theory"
    )
    expected = Line(
        xs,
        theory,
        name="best window for L, by theory",
        dash="dash",
        symbol="circle",
        size=6,
        hover=HOVER,
    )
    model = Line(
        xs, value, low, high, name="model", colour=INK, symbol="circle", size=6, hover=HOVER
    )
    x = Axis("L' / L", log=True)
    y = Axis("squared error / least possible at L'", log=True)
    below = tested_by("lipschitz_transfer", findings)
    panel = Panel("", x, y, [expected, model])
    return Drawing("Tested at another Lipschitz constant", below, [panel])


FIGURE = ReportFigure(
    transfer,
    "Squared error on functions with another Lipschitz constant L', over the least that any "
    "window has there. The dashed line is the same for the window that is best for the model's "
    "own L, by theory.",
)
