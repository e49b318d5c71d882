"""Figures of reports on maps.

They show distances to known maps, gradient steps, the first layer's tokens, likeness of heads.
"""

from collections.abc import Sequence

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel
from icl_interp.figures.text import number, tested_by
from icl_interp.resampling import bootstrap
from icl_interp.studies.autoregression.claims import map as map_claim
from icl_interp.studies.autoregression.figures.panels import LOWEST, as_map, in_rows
from icl_interp.studies.autoregression.measurements import (
    augmented_tokens,
    descent_steps,
    head_likeness,
    maps,
)

MODEL = "the model"
STEPS = "gradient descent"
SQUARES = "least squares"


def distances(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """How far the model's predictions are from those of each known map."""
    stored = results.get(maps.in_context_map)
    if stored is None:
        return None
    found = {}
    for form in stored.indexes["form"]:
        interval = map_claim.interval(stored, form)
        if np.isfinite(interval.value):
            found[form] = interval
    if not found:
        return None
    panel = in_rows(found, "distance, over the mean square of predictions")
    return Drawing("Distance to known maps", tested_by("autoregression_map", findings), [panel])


def first_layer(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """How much predictions move with other patterns in the first layer."""
    stored = results.get(augmented_tokens.first_layer)
    if stored is None:
        return None
    moved = stored.sel(number="moved").transpose("unit", "point", "arm")
    found = {}
    for arm in augmented_tokens.ARMS:
        name = arm.replace(", own", ",\nown")
        found[name] = bootstrap(lambda mean: mean.mean(-1), moved.sel(arm=arm).values)
    panel = in_rows(found, "change of the prediction, over the next state's variance")
    below = tested_by("autoregression_tokens", findings)
    return Drawing("The first layer's tokens", below, [panel])


def descent(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Errors at late points: the model's beside those of gradient descent."""
    stored = results.get(descent_steps.descent)
    if stored is None:
        return None
    steps = list(descent_steps.STEPS)
    means = {who: float(stored.sel(who=who).mean()) for who in stored.indexes["who"]}
    curve = [means[str(k)] for k in steps]
    lines = [Line(steps, curve, name=STEPS, colour=BLUE, symbol="circle")]
    # Two levels, across all steps.
    looks = ((MODEL, maps.MODEL, INK, "solid"), (SQUARES, maps.SQUARES, BLUE, "dot"))
    for name, who, colour, dash in looks:
        level = [means[who]] * 2
        ends = [steps[0], steps[-1]]
        lines.append(Line(ends, level, name=name, colour=colour, dash=dash, hover="{y:.3g}"))
    floor = LOWEST * max(curve)
    y = Axis("mean squared error", floor / 2, log=True, least=floor, labels=7)
    below = f"Errors of {number(floor, 1)} or less are drawn at the bottom."
    panel = Panel(x=Axis("steps"), y=y, marks=lines, below=below)
    below = tested_by("autoregression_descent", findings)
    return Drawing("Steps of gradient descent", below, [panel])


def likeness(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """|cos| between the tensors of every two heads."""
    stored = results.get(head_likeness.likeness)
    if stored is None:
        return None
    n = facts.config.n_heads
    above = np.triu_indices(n, 1)
    values = np.full((n, n), np.nan)
    values[above] = stored.sel(when=head_likeness.NOW).values
    values.T[above] = values[above]
    names = [f"0.{head}" for head in range(n)]
    panel = as_map(values, names, "heads {row} and {column}: {z:.3g}", "head", "head")
    below = tested_by("autoregression_likeness", findings)
    return Drawing("How alike heads are", below, [panel])


FIGURES = {
    "autoregression_map": ReportFigure(
        distances,
        "The mean squared distance between the predictions of the model and those of a known map, "
        "over the larger of their mean squares, on prompts whose last state is that of another "
        "prompt. 0 is the same map. The size of the gradient step is the one that comes nearest.",
    ),
    "autoregression_tokens": ReportFigure(
        first_layer,
        "The mean squared change of the prediction, over the variance of the next state, when the "
        "first layer's patterns are replaced by their means over prompts, and when these are cut "
        "to some tokens. What the layer writes keeps its mean at each position.",
    ),
    "autoregression_descent": ReportFigure(
        descent,
        "The mean squared error at the last quarter of the points. Gradient descent starts at W = "
        "0; its step size is the best constant one for each number of steps.",
    ),
    "autoregression_likeness": ReportFigure(
        likeness,
        "The size of the cosine between two heads: that of their query-key maps (W_Q W_K^T) times "
        "that of their value-output maps (W_V W_O), in the coordinates of tokens and targets. "
        "Heads that are copies of others, or write nothing, are left out.",
    ),
}
