"""The claim of this study, all in one file: what is measured, what decides, and how it is drawn."""

from dataclasses import replace

import numpy as np

from icl_interp.analyses import Claim, Condition, Criterion, Quote, Remarks, measurement
from icl_interp.analyses.criterion import at_least, at_most
from icl_interp.figures import ReportFigure
from icl_interp.figures.drawing import Axis, Bars, Drawing, Panel
from icl_interp.prompts import as_numbers
from icl_interp.resampling import bootstrap
from icl_interp.results import make_array

STEP = 1.0  # how far the last label is moved


@measurement("copying/last label")
def response(lab):
    """Change of the query's prediction over the change of the last label: (unit,)."""
    ys = lab.prompts.ys.clone()
    ys[:, -2] += STEP  # the last point is the query, whose own label is never shown
    moved = replace(lab.prompts, ys=ys)
    change = as_numbers(lab.predict(moved) - lab.predict(lab.prompts))[:, -1]
    return make_array(lab.by_unit(change.double() / STEP), {"unit": tuple(range(lab.n_units))})


def evidence(results, facts):
    """Distance of the response from 1, that of a copy: a mean over functions, and its interval."""
    values = results[response].values
    return {"departure": bootstrap(lambda mean: mean, abs(values - 1))}


LAST_LABEL_CLAIM = Claim(
    id="copying.last_label",
    kind="architecture",
    statement="The prediction is the last label that was shown.",
    denied="The prediction is not the last label that was shown.",
    question="algorithm",
    quote=Quote("The prediction is the last label that was shown.", "CONTRIBUTING.md"),
    criterion=Criterion(
        (
            Condition(
                "departure",
                "departure of the response to the last label from 1",
                at_most(0.1, least=0),
                at_least(0.5),
            ),
        )
    ),
    measurements=(response,),
    control=(response,),
    evidence=evidence,
    remarks=lambda results, facts, found: Remarks(
        scope=f"prompts of {facts.n_points} points in distribution"
    ),
    figures=("last_label",),
)


def draw(results, findings, facts):
    """The response of each function, as a histogram."""
    if response not in results:
        return None
    counts, edges = np.histogram(results[response].values, bins=30)
    bars = Bars((edges[1:] + edges[:-1]) / 2, counts)
    panel = Panel(x=Axis("response to the last label"), y=Axis("functions"), marks=[bars])
    title = "Does the prediction follow the last label?"
    return Drawing(title, "1 is a copy, 0 takes no notice.", [panel])


FIGURE = ReportFigure(
    draw, "How far the prediction moves when the last label moves by 1, for each function."
)
