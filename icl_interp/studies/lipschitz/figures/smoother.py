"""Heads and their smoothers: the part of what a head does that its smoother misses."""

import math
from collections.abc import Sequence

import numpy as np

from icl_interp.analyses import relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Mark, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import tested_by
from icl_interp.studies.lipschitz.claims import smoother as claim
from icl_interp.studies.lipschitz.measurements import heads as measured

LOWEST = 1e-4  # shares below are drawn there
ARMS = (  # name, what is averaged, colour, symbol, place in the row
    ("labels averaged", "labels", INK, "circle", -0.12),
    ("own values averaged", "values", GREY, "diamond-open", 0.12),
)


def smoother(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Of what each head does at the query, the part that its smoother misses."""
    result = results.get(measured.smoother)
    if result is None:
        return None
    effects = claim.matters(result, relevance.USUAL)
    heads = []
    labels = []
    for name, effect in effects.items():
        if effect.matters:
            heads.append(name)
            labels.append(f"head {name}")
    if not heads:
        return None

    # Where a head counts as replaced and where it does not, and what is missed in both arms.
    replaced = VERDICTS["supported"].pale
    missed = VERDICTS["contradicted"].pale
    marks: list[Mark] = [Zone(x=(-math.inf, claim.REPLACED), colour=replaced)]
    marks.append(Zone(x=(claim.MISSED, math.inf), colour=missed))
    for title, what, colour, symbol, shift in ARMS:
        found = claim.missed(result, what, relevance.USUAL)
        value, low, high = np.transpose([found[name].shown for name in heads])
        points = Points(
            value,
            np.arange(len(heads)) + shift,
            low,
            high,
            name=title,
            colour=colour,
            symbol=symbol,
            texts=labels,
            hover="{text}: {x:.3g} is missed",
        )
        marks.append(points)
    words = f"share that is missed ({LOWEST:g} or less at the left end)"
    x = Axis(words, LOWEST / 2, log=True, least=LOWEST, holds=(2.0,))
    panel = Panel("", x, rows(labels), marks, row=24)
    below = tested_by("lipschitz_smoother", findings)
    return Drawing("Does a kernel smoother do what each head does?", below, [panel], height=120)


FIGURE = ReportFigure(
    smoother,
    "One row for each head that matters at the last query. Its output there is replaced by an "
    "average whose weights depend on the inputs alone: of the prompt's labels (filled), or of the "
    "head's own values (hollow). The axis shows how much of what the head does to the prediction "
    "is then missed. Blue counts as replaced, orange does not.",
)
