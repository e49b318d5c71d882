"""The figure of `autoregression.figure2`.

It shows, for some angles, the two vectors that a layer adds up, and their sum.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel
from icl_interp.results import Result
from icl_interp.studies.autoregression.experiments.figure2 import (
    BEFORE,
    FROM_BEFORE,
    FROM_LAST,
    LAST,
    PREDICTED,
)

ARROWS = {
    BEFORE: ("s", GREY, "solid"),
    LAST: ("R s", INK, "solid"),
    FROM_LAST: ("last token: 2 cos(θ) R s", BLUE, "dash"),
    FROM_BEFORE: ("token before: -s", ORANGE, "dash"),
    PREDICTED: ("sum: R² s", GREEN, "solid"),
}
EDGE = 1.8  # of the axes: no vector is longer than 2 cos(30°)
TICKS = {-1.0: "-1", 0.0: "0", 1.0: "1"}
HOVER = "({x:.3g}, {y:.3g})"


def figure2(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """A plane for each angle, with all vectors from its centre."""
    found = results.get("parts")
    if not isinstance(found, DataArray):
        return {}
    panels = []
    for angle in found["angle"].values:
        own = found.sel(angle=angle)
        name = f"θ = {angle:g}°"
        panels.append(_plane(own, name))
    below = (
        "R turns the plane by θ. The layer of Lemma 3 reads s and R s. What its last token writes "
        "and what the token before writes add up to the next state, since 2 cos(θ) R - I = "
        "R<sup>2</sup>. Dotted: the parallelogram of both. The grey circle has radius 1."
    )
    title = "The trigonometric formula that half as many heads as coordinates compute"
    return {"figure2": Drawing(title, below, panels, height=330)}


def _thin(x: ArrayLike, y: ArrayLike, colour: str) -> Line:
    """A line that is no data."""
    return Line(x, y, colour=colour, width=1.0, hover="", listed=False)


def _plane(found: DataArray, title: str) -> Panel:
    turn = np.linspace(0, 2 * np.pi, 121)
    across = np.cos(turn)
    up = np.sin(turn)
    circle = _thin(across, up, PALE)
    marks: list[Mark] = [circle]
    # The other two sides of the parallelogram.
    end = found.sel(part=PREDICTED)
    x_end, y_end = end.values
    for part in (FROM_LAST, FROM_BEFORE):
        own = found.sel(part=part)
        x, y = own.values
        side = _thin([x, x_end], [y, y_end], GREY)
        marks.append(replace(side, dash="dot"))
    # All vectors begin in the centre.
    for part, (name, colour, dash) in ARROWS.items():
        own = found.sel(part=part)
        x, y = own.values
        arrow = Line([0, x], [0, y], name=name, colour=colour, dash=dash, hover=HOVER)
        marks.append(replace(arrow, symbol="circle", size=[0, 8]))
    plane = Axis("", -EDGE, EDGE, ticks=TICKS)
    return Panel(title, plane, plane, marks)
