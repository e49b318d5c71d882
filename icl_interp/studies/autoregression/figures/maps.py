"""Figures of reports on maps.

They show distances to known maps, gradient steps, the first layer's tokens, likeness of heads.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.style import BLUE, INK, finish, log_axis, rows_axis
from icl_interp.figures.text import number, tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.autoregression.claims import map as map_claim
from icl_interp.studies.autoregression.measurements import (
    augmented_tokens,
    descent_steps,
    head_likeness,
    maps,
)

LOWEST = 1e-6  # shares below are drawn there
MOST_NUMBERS = 8  # heads up to which cells hold their numbers
MODEL, STEPS, SQUARES = "the model", "gradient descent", "least squares"


def distances(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """How far the model's predictions are from those of each known map."""
    stored = results.get(maps.in_context_map)
    if stored is None:
        return None
    found = {form: map_claim.interval(stored, form) for form in stored.indexes["form"]}
    found = {form: interval for form, interval in found.items() if np.isfinite(interval.value)}
    if not found:
        return None
    figure = go.Figure()
    _points(figure, found, "distance, of the mean square of predictions")
    finish(
        figure,
        "Distance to known maps",
        tested_by("autoregression_map", findings),
        40 * len(found) + 40,
        l=180,
    )
    return figure.update_layout(hovermode="closest")


def first_layer(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """How much predictions move with other patterns in the first layer."""
    stored = results.get(augmented_tokens.first_layer)
    if stored is None:
        return None
    moved = stored.sel(number="moved").transpose("unit", "point", "arm")
    found = {
        arm: bootstrap(lambda mean: mean.mean(-1), moved.sel(arm=arm).values)
        for arm in augmented_tokens.ARMS
    }
    figure = go.Figure()
    _points(
        figure,
        {name.replace(", own", ",\nown"): one for name, one in found.items()},
        "change of the prediction, of the next state's variance",
    )
    finish(
        figure, "The first layer's tokens", tested_by("autoregression_tokens", findings), 170, l=210
    )
    return figure.update_layout(hovermode="closest")


def descent(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Errors at late points: the model's beside those of gradient descent."""
    stored = results.get(descent_steps.descent)
    if stored is None:
        return None
    steps = list(descent_steps.STEPS)
    means = {who: float(stored.sel(who=who).mean()) for who in stored.indexes["who"]}
    curve = [means[str(k)] for k in steps]
    lines = {MODEL: (means[maps.MODEL], INK, "solid"), SQUARES: (means[maps.SQUARES], BLUE, "dot")}
    floor = LOWEST * max(curve)
    figure = go.Figure(
        go.Scatter(
            x=steps,
            y=np.maximum(curve, floor),
            mode="lines+markers",
            name=STEPS,
            line={"color": BLUE},
        )
    )
    for name, (value, colour, dash) in lines.items():
        ends = [steps[0], steps[-1]]
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[max(value, floor)] * 2,
                mode="lines",
                name=name,
                line={"color": colour, "dash": dash},
                hovertemplate=f"{number(value)}<extra></extra>",
            )
        )
    top = 2 * max([*curve, means[maps.MODEL]])
    title = f"mean squared error ({number(floor, 1)} and less at the bottom)"
    figure.update_layout(
        xaxis={"title": {"text": "steps"}}, yaxis=log_axis(title, floor / 2, top, 7)
    )
    return finish(
        figure,
        "Steps of gradient descent",
        tested_by("autoregression_descent", findings),
        300,
        l=76,
    )


def likeness(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """|cos| between the tensors of every two heads."""
    stored = results.get(head_likeness.likeness)
    if stored is None:
        return None
    n = facts.config.n_heads
    values, pairs = np.full((n, n), np.nan), np.triu_indices(n, 1)
    values[pairs] = values.T[pairs] = stored.sel(when=head_likeness.NOW).values
    few, names = n <= MOST_NUMBERS, [f"0.{head}" for head in range(n)]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=names,
            y=names,
            zmin=0.0,
            zmax=1.0,
            colorscale="Blues",
            showscale=False,
            text=[["" if np.isnan(v) else number(v, 2) for v in row] for row in values]
            if few
            else None,
            texttemplate="%{text}" if few else None,
            hovertemplate="heads %{y} and %{x}: %{z:.3g}<extra></extra>",
        )
    )
    figure.update_layout(
        xaxis={"title": {"text": "head"}, "type": "category"},
        yaxis={"title": {"text": "head"}, "type": "category", "autorange": "reversed"},
    )
    return finish(
        figure, "How alike heads are", tested_by("autoregression_likeness", findings), 300, l=60
    )


def _points(figure: Figure, found: Mapping[str, Interval], title: str) -> None:
    """A row a name, on a logarithmic axis."""
    value, low, high = (
        np.array([max(getattr(one, end), LOWEST) for one in found.values()])
        for end in ("value", "low", "high")
    )
    figure.add_trace(
        go.Scatter(
            x=value,
            y=list(range(len(found))),
            mode="markers",
            showlegend=False,
            marker={"color": INK, "size": 9},
            error_x={
                "array": high - value,
                "arrayminus": value - low,
                "thickness": 1,
                "width": 3,
                "color": BLUE,
            },
            hovertemplate="%{x:.3g}<extra></extra>",
        )
    )
    labelled = f"{title} ({number(LOWEST, 1)} and less at the left)"
    figure.update_layout(
        xaxis=log_axis(labelled, LOWEST / 2, 4 * max(1.0, float(high.max())), 5),
        yaxis=rows_axis(list(found)),
    )


FIGURES = {
    "autoregression_map": ReportFigure(
        distances,
        "The mean squared distance between the predictions of the model and those of a known map, "
        "over the larger of their mean squares, on prompts whose last state is that of another "
        "prompt. 0 is the same map. The size of the gradient step is the one that comes nearest.",
    ),
    "autoregression_tokens": ReportFigure(
        first_layer,
        "The mean squared change of the prediction, over the variance of the next state, where the "
        "first layer's patterns are replaced by their means over prompts, and where these are cut "
        "to some tokens; what the layer writes keeps its mean at each position.",
    ),
    "autoregression_descent": ReportFigure(
        descent,
        "The mean squared error at the last quarter of the points. Gradient descent starts at W = "
        "0; its step size is the best constant one for each number of steps.",
    ),
    "autoregression_likeness": ReportFigure(
        likeness,
        "The size of the cosine between two heads: that of what they weigh by (W_Q W_K^T) times "
        "that of what they write (W_V W_O), in what tokens and targets hold. Heads that are copies "
        "of others, or write nothing, are left out.",
    ),
}
