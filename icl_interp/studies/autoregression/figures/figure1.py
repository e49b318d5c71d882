"""The figure of `autoregression.figure1`.

It shows two paths on the sphere, seen along a fixed direction, and one coordinate over time.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Note, Panel, Points
from icl_interp.results import Result

LOOKS = ((BLUE, "circle"), (ORANGE, "x"))
AZIMUTH, ELEVATION = np.deg2rad(-60.0), np.deg2rad(20.0)  # of the viewer
PALEST = 0.25  # share of the colour in the first state
EDGE = 1.45  # of the axes of the view: the sphere has radius 1


def figure1(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """The sphere on the left, the first coordinate over time on the right."""
    paths = results.get("paths")
    if not isinstance(paths, DataArray):
        return {}
    panels = [_sphere(paths), _over_time(paths)]
    below = (
        f"Each process has {paths.sizes['t']} states s<sub>t+1</sub> = W s<sub>t</sub> and a "
        "rotation W of its own; both begin at s<sub>0</sub> = (1, 1, 1) / √3. Left: later states "
        "are darker. The grey circle is the outline of the unit sphere."
    )
    title = "Two autoregressive processes in three dimensions"
    return {"figure1": Drawing(title, below, panels, height=330)}


def _seen(points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point 2"]:
    """Points as a viewer far away sees them: across and up."""
    sin, cos = np.sin(AZIMUTH), np.cos(AZIMUTH)
    across = np.array([-sin, cos, 0.0])
    up = np.array([-cos * np.sin(ELEVATION), -sin * np.sin(ELEVATION), np.cos(ELEVATION)])
    return points @ np.stack([across, up], 1)


def _sphere(paths: DataArray) -> Panel:
    turn = np.linspace(0, 2 * np.pi, 121)
    outline = Line(np.cos(turn), np.sin(turn), colour=PALE, width=1.0, hover="", listed=False)
    marks: list[Mark] = [outline, *_axes(paths)]
    for (colour, symbol), name in zip(LOOKS, paths["matrix"].values, strict=True):
        path = paths.sel(matrix=name).values
        seen = _seen(path)
        shades = [faded(colour, PALEST + (1 - PALEST) * t / len(path)) for t in range(len(path))]
        words = [f"t = {t}: ({', '.join(f'{x:.2f}' for x in s)})" for t, s in enumerate(path)]
        marks.append(
            Points(
                seen[:, 0],
                seen[:, 1],
                name=str(name),
                colour=shades,
                symbol=symbol,
                size=7,
                edge=0.5,
                texts=words,
                hover="{text}",
                listed=False,
            )
        )
    view = Axis(low=-EDGE, high=EDGE, ticks={}, shown=False)
    return Panel("states on the sphere", view, view, marks, width=1.0)


def _axes(paths: DataArray) -> list[Mark]:
    """The three coordinate axes from the centre, with their names."""
    marks: list[Mark] = []
    for name, end in zip(paths["coordinate"].values, _seen(1.3 * np.eye(3)), strict=True):
        x, y = np.array([np.zeros(2), end]).T
        marks.append(Line(x, y, colour=PALE, width=1.0, hover="", listed=False))
        marks.append(Note(str(name), x=1.05 * end[0], y=1.05 * end[1]))
    return marks


def _over_time(paths: DataArray) -> Panel:
    first = paths.isel(coordinate=0)
    times = first["t"].values
    marks: list[Mark] = []
    for (colour, symbol), name in zip(LOOKS, first["matrix"].values, strict=True):
        values = first.sel(matrix=name).values
        line = Line(times, values, name=str(name), colour=colour, symbol=symbol, size=5, width=1.0)
        marks.append(line)
    y = Axis(str(paths["coordinate"].values[0]), -1.1, 1.1)
    return Panel("one coordinate", Axis("t", whole=True), y, marks, width=1.7)


def faded(colour: str, share: float) -> str:
    """A colour mixed with white.

    >>> faded("#0072B2", 1.0), faded("#000000", 0.0)
    ('#0072B2', '#FFFFFF')
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(share * part + (1 - share) * 255) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in mixed)
