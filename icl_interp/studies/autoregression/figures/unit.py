"""Figures of reports on one layer.

They show products of heads, weights of positions, and errors without parts of them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.grid import whiskers
from icl_interp.figures.style import BLUE, INK, finish, log_axis, panel_title, place, rows_axis
from icl_interp.figures.text import number, tested_by
from icl_interp.resampling import bootstrap
from icl_interp.studies.autoregression.claims import identity, spare, start
from icl_interp.studies.autoregression.measurements import (
    distinct_heads,
    position_weights,
    pruned_heads,
    start_states,
    unit,
)

LOWEST = 1e-6  # normalised errors below are drawn there
LEFT, RIGHT = (0.0, 0.4), (0.74, 1.0)
MOST_NUMBERS = 8  # rows up to which cells hold their numbers


def heads(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """|cosine| of a_h and b_h' for every two complex heads."""
    stored = results.get(unit.heads)
    if stored is None or identity.needs_as_many_heads(facts):
        return None
    values = distinct_heads.cosines(identity.as_many(results, facts)).numpy()
    names = [str(h + 1) for h in range(len(values))]
    figure = go.Figure(
        _map(values, names, 1.0, "Blues", "a of head %{y}, b of head %{x}: %{z:.3g}")
    )
    place(figure, LEFT)
    figure.update_layout(
        xaxis={"title": {"text": "head h' (value side, b)"}, "type": "category"},
        yaxis={
            "title": {"text": "head h (key side, a)"},
            "type": "category",
            "autorange": "reversed",
        },
    )
    return finish(
        figure,
        "Key and value diagonals of heads",
        tested_by("autoregression_heads", findings),
        300,
        l=76,
    )


def positions(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """P, and errors where some of its weights are changed."""
    p = results.get(unit.positions)
    arms = [
        results.get(one)
        for one in (position_weights.positions_cut, position_weights.positions_averaged)
    ]
    found = {name: error for one in arms if one is not None for name, error in _errors(one).items()}
    if p is None or not found:
        return None
    size = float(np.abs(p.values).max()) or 1.0
    names = [str(i) for i in p["query"].values]
    shown = np.where(np.tri(len(names), dtype=bool), p.values, np.nan)
    figure = go.Figure(_map(shown, names, size, "RdBu", "query %{y}, key %{x}: %{z:.3g}"))
    place(figure, LEFT, RIGHT)
    _points(figure, found)
    figure.update_layout(
        xaxis={"title": {"text": "token that is read"}, "type": "category"},
        yaxis={"title": {"text": "last token"}, "type": "category", "autorange": "reversed"},
    )
    panel_title(figure, "Weights P", LEFT)
    panel_title(figure, "Error with other weights", RIGHT)
    finish(
        figure, "Weights of positions", tested_by("autoregression_positions", findings), 300, l=60
    )
    return figure.update_layout(hovermode="closest")


def pruned(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Errors with all heads, with the needed number of them, and with none."""
    arms = results.get(pruned_heads.pruned)
    if arms is None or spare.needs_spare_heads(facts):
        return None
    return _rows(arms, "Fewer heads", tested_by("autoregression_pruned", findings), 130)


def other_starts(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Errors from the task's own start and from others."""
    arms = results.get(start_states.starts)
    if arms is None or start.needs_fixed_start(facts):
        return None
    return _rows(arms, "Other first states", tested_by("autoregression_starts", findings), 190)


def _rows(arms: DataArray, title: str, claims: str, left: int) -> Figure:
    """The error of every arm, in a row each; `left` is the width of their names in pixels."""
    figure = go.Figure()
    _points(figure, _errors(arms), axis="")
    finish(figure, title, claims, 160, l=left)
    return figure.update_layout(hovermode="closest")


def _errors(arms: DataArray) -> dict[str, tuple[float, float, float]]:
    """Mean normalised error and its interval, by arm."""
    each = {
        str(arm): bootstrap(lambda e: e.mean(-1), arms.sel(arm=arm).values)
        for arm in arms.indexes["arm"]
    }
    return {name: (i.value, i.low, i.high) for name, i in each.items()}


def _points(
    figure: Figure, errors: Mapping[str, tuple[float, float, float]], axis: str = "2"
) -> None:
    """A row an arm, on a logarithmic axis."""
    value, low, high = (
        np.array([max(one[i], LOWEST) for one in errors.values()]) for i in range(3)
    )
    figure.add_trace(
        go.Scatter(
            x=value,
            y=list(range(len(errors))),
            mode="markers",
            showlegend=False,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": INK, "size": 9},
            error_x={**whiskers(value, low, high), "color": BLUE},
            hovertemplate="error / squared length %{x:.3g}<extra></extra>",
        )
    )
    names = [
        name.replace(" weights ", "\nweights ").replace(" by the means", "\nby the means")
        for name in errors
    ]
    title = f"error / squared length ({number(LOWEST, 1)} and less at the left)"
    figure.update_layout(
        {
            f"xaxis{axis}": log_axis(title, LOWEST / 2, 4 * max(1.0, float(high.max())), 5),
            f"yaxis{axis}": rows_axis(names),
        }
    )


def _map(
    values: np.ndarray, names: Sequence[str], size: float, colours: str, hover: str
) -> go.Heatmap:
    """A table of colours, with its numbers where there are few."""
    few = len(names) <= MOST_NUMBERS
    return go.Heatmap(
        z=values,
        x=names,
        y=names,
        zmin=0.0 if colours == "Blues" else -size,
        zmax=size,
        colorscale=colours,
        showscale=False,
        text=[["" if np.isnan(v) else number(v, 2) for v in row] for row in values]
        if few
        else None,
        texttemplate="%{text}" if few else None,
        hovertemplate=hover + "<extra></extra>",
    )


FIGURES = {
    "autoregression_heads": ReportFigure(
        heads,
        "The size of the product of a_h (rows) and b_h' (columns) over their lengths, for complex "
        "heads. Zeros off the diagonal are the identity a_h . b_h' = 0.",
    ),
    "autoregression_positions": ReportFigure(
        positions,
        "On the left P: what the weight of a token (column) is multiplied by, for each last token "
        "(row), both counted from 0. On the right the squared error over the next state's squared "
        "length, with the unchanged P and with other weights in its place.",
    ),
    "autoregression_pruned": ReportFigure(
        pruned,
        "The squared error over the next state's squared length with all heads, with the best "
        "subset of as many as suffice (chosen on other functions), and with none. What is pruned "
        "writes its mean at each position.",
    ),
    "autoregression_starts": ReportFigure(
        other_starts,
        "The squared error over the next state's squared length, from the task's own s_0 and from "
        "others, with keys divided by |s_0i|^2 and with heads as they are.",
    ),
}
