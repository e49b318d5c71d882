"""Drawings of one kind as one figure, of which a slider shows one at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.figures.drawing import Drawing
from icl_interp.figures.fitting import Size
from icl_interp.figures.render import render

BELOW = 90  # pixels for the slider, below the axis
LOOK = {"pad": {"t": 46, "b": 6}, "len": 0.95, "x": 0.0, "ticklen": 4, "minorticklen": 0}
STEPS = "_icl_interp_steps"  # plotly lets figures keep what begins with an underscore


@dataclass(frozen=True)
class Steps:
    """What a slider chooses from.

    Attributes:
        drawings: by the name of their step, the first one first. They have equal numbers of panels
            and marks; only the numbers of the marks are exchanged, so their axes must be the same
            (`same_ends`).
        prefix: words before the name of the step.
    """

    drawings: Mapping[str, Drawing]
    prefix: str = ""

    @property
    def first(self) -> Drawing:
        """What is shown before anybody moves the slider, and in print."""
        return next(iter(self.drawings.values()))


def stepped(steps: Steps, size: Size | None = None) -> Figure:
    """One figure with a slider.

    Args:
        steps: what it chooses from.
        size: what it is laid out for; a screen by default.

    >>> from icl_interp.figures.drawing import Axis, Line, Panel
    >>> def one(slope):
    ...     panel = Panel("", Axis("x", 0, 1), Axis("y", 0, 2), [Line([0, 1], [0, slope])])
    ...     return Drawing("Lines", "", [panel])
    >>> figure = stepped(Steps({"flat": one(0.0), "steep": one(2.0)}))
    >>> [step.label for step in figure.layout.sliders[0].steps], figure.data[0].y.tolist()
    (['flat', 'steep'], [0.0, 0.0])
    """
    figure = render(steps.first, size)
    traces = list(range(len(figure.data)))
    choices = []
    for name, drawing in steps.drawings.items():
        numbers = _numbers(render(drawing, size))
        choices.append({"label": name, "method": "restyle", "args": [numbers, traces]})
    slider: dict[str, Any] = {**LOOK, "active": 0, "steps": choices}
    slider["currentvalue"] = {"prefix": steps.prefix, "xanchor": "left", "font": {"size": 13}}
    # The slider stands below the axis.
    layout: Any = figure.layout
    layout.height += BELOW
    layout.margin.b += BELOW
    layout.sliders = [slider]
    setattr(figure, STEPS, steps)
    return figure


def steps_of(figure: Figure) -> Steps | None:
    """What the slider of a figure chooses from; None where it has none."""
    return getattr(figure, STEPS, None)


def same_ends(drawings: Mapping[str, Drawing], low: float, high: float) -> dict[str, Drawing]:
    """The drawings, of one panel each, with one vertical axis from low to high."""
    found = {}
    for name, drawing in drawings.items():
        (panel,) = drawing.panels
        axis = replace(panel.y, low=low, high=high)
        found[name] = replace(drawing, panels=[replace(panel, y=axis)])
    return found


def _numbers(figure: Figure) -> dict[str, list[list[float | None]]]:
    """x and y of all traces."""
    xs = []
    ys = []
    for trace in figure.data:
        xs.append(_plain(trace["x"]))
        ys.append(_plain(trace["y"]))
    return {"x": xs, "y": ys}


def _plain(numbers: Sequence[Any] | np.ndarray) -> list[float | None]:
    """Numbers as JSON has them; gaps of a line are null."""
    values = np.asarray(numbers, dtype=float).ravel().tolist()
    return [None if math.isnan(value) else value for value in values]
