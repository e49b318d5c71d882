"""The weight of an example by its cosine to the query."""

from collections.abc import Sequence

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, FAINT, GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.text import tested_by
from icl_interp.studies.lipschitz.measurements import example_weights

KERNELS = {
    example_weights.MODEL: (INK, "solid"),
    example_weights.PLAIN: (GREY, "dash"),
    example_weights.WINDOW: (BLUE, "dot"),
}


def linear(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """The weight of an example by its cosine to the query.

    Drawn are the model's, that of x_i . x_q, and that of the best window.
    """
    curve = results.get(example_weights.by_cosine)
    if curve is None:
        return None
    marks: list[Mark] = [Rule(y=0.0, colour=FAINT, dash="solid")]
    for name, (colour, dash) in KERNELS.items():
        line = Line(
            curve["cosine"].values,
            curve.sel(kernel=name).values,
            name=name,
            colour=colour,
            dash=dash,
            width=1.8,
            hover="cosine {x:.2f}: {y:.3g}",
        )
        marks.append(line)
    x = Axis("cosine between example and query")
    panel = Panel("", x, Axis("mean weight / mean size"), marks)
    below = tested_by("lipschitz_linear", findings)
    return Drawing("The weight of an example by its distance from the query", below, [panel])


FIGURE = ReportFigure(
    linear,
    "How much the label of an example moves the prediction, over the mean size of this, by the "
    "cosine between the example and the query. A window is high near 1 and flat elsewhere. The "
    "product x_i · x_q is a straight line at every L.",
)
