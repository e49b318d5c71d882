"""Drawings of one kind as one figure, of which a slider shows one at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.figures.drawing import Drawing
from icl_interp.figures.render import render

BELOW = 90  # pixels for the slider, below the axis
LOOK = {"pad": {"t": 46, "b": 6}, "len": 0.95, "x": 0.0, "ticklen": 4, "minorticklen": 0}


def stepped(drawings: Mapping[str, Drawing], prefix: str = "") -> Figure:
    """One figure with a slider, whose steps are drawings.

    Args:
        drawings: by the name of their step, the first one first. They have equal numbers of panels
            and marks; only the numbers of the marks are exchanged, so their axes must be the same
            (`same_ends`).
        prefix: words before the name of the step.

    >>> from icl_interp.figures.drawing import Line, Panel
    >>> def one(slope):
    ...     panel = Panel("", Axis("x", 0, 1), Axis("y", 0, 2), [Line([0, 1], [0, slope])])
    ...     return Drawing("Lines", "", [panel])
    >>> figure = stepped({"flat": one(0.0), "steep": one(2.0)})
    >>> [step.label for step in figure.layout.sliders[0].steps], list(figure.data[0].y)
    (['flat', 'steep'], [0.0, 0.0])
    """
    rendered = {name: render(drawing) for name, drawing in drawings.items()}
    figure = next(iter(rendered.values()))
    traces = list(range(len(figure.data)))
    steps = []
    for name, other in rendered.items():
        numbers = {axis: [_plain(trace[axis]) for trace in other.data] for axis in ("x", "y")}
        steps.append({"label": name, "method": "restyle", "args": [numbers, traces]})
    said = {"prefix": prefix, "xanchor": "left", "font": {"size": 13}}
    figure.update_layout(
        height=figure.layout.height + BELOW,
        margin_b=figure.layout.margin.b + BELOW,
        sliders=[{**LOOK, "active": 0, "currentvalue": said, "steps": steps}],
    )
    return figure


def same_ends(drawings: Mapping[str, Drawing], low: float, high: float) -> dict[str, Drawing]:
    """The drawings, of one panel each, with one vertical axis from low to high."""
    found = {}
    for name, drawing in drawings.items():
        (panel,) = drawing.panels
        axis = replace(panel.y, low=low, high=high)
        found[name] = replace(drawing, panels=[replace(panel, y=axis)])
    return found


def _plain(numbers: Sequence[Any] | np.ndarray) -> list[Any]:
    """Numbers as JSON has them; gaps of a line are null."""
    values = np.asarray(numbers, dtype=float).ravel()
    return [None if np.isnan(value) else float(value) for value in values]
