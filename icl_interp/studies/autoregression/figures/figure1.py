"""The figure of `autoregression.figure1`.

It shows two paths on the sphere, seen along a fixed direction, and one coordinate over time.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
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
    sin = np.sin(AZIMUTH)
    cos = np.cos(AZIMUTH)
    across = np.array([-sin, cos, 0.0])
    forward = np.array([-cos, -sin, 0.0])
    upright = np.array([0.0, 0.0, 1.0])
    up = np.sin(ELEVATION) * forward + np.cos(ELEVATION) * upright
    return points @ np.stack([across, up], 1)


def _sphere(paths: DataArray) -> Panel:
    turn = np.linspace(0, 2 * np.pi, 121)
    # The sphere, and its axes.
    outline = _thin(np.cos(turn), np.sin(turn))
    marks: list[Mark] = [outline]
    marks += _axes(paths)
    names = paths["matrix"].values
    for (colour, symbol), name in zip(LOOKS, names, strict=True):
        path = paths.sel(matrix=name).values
        seen = _seen(path)
        # Its states as they are seen, darker with time.
        shades = []
        words = []
        for t, state in enumerate(path):
            share = PALEST + (1 - PALEST) * t / len(path)
            shades.append(faded(colour, share))
            words.append(f"t = {t}: {np.round(state, 2)}")
        points = Points(
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
        marks.append(points)
    view = Axis(low=-EDGE, high=EDGE, ticks={}, shown=False)
    return Panel("states on the sphere", view, view, marks, width=1.0)


def _thin(x: ArrayLike, y: ArrayLike) -> Line:
    """A line that is no data."""
    return Line(x, y, colour=PALE, width=1.0, hover="", listed=False)


def _axes(paths: DataArray) -> list[Mark]:
    """The three coordinate axes from the centre, with their names."""
    marks: list[Mark] = []
    ends = _seen(1.3 * np.eye(3))
    for i, name in enumerate(paths["coordinate"].values):
        x, y = ends[i]
        marks.append(_thin([0, x], [0, y]))
        note = Note(str(name), x=1.05 * x, y=1.05 * y)
        marks.append(note)
    return marks


def _over_time(paths: DataArray) -> Panel:
    first = paths.isel(coordinate=0)
    times = first["t"].values
    names = first["matrix"].values
    marks: list[Mark] = []
    for (colour, symbol), name in zip(LOOKS, names, strict=True):
        values = first.sel(matrix=name).values
        line = Line(times, values, name=str(name), colour=colour, symbol=symbol, size=5, width=1.0)
        marks.append(line)
    shown = str(first["coordinate"].values)
    x = Axis("t", whole=True)
    y = Axis(shown, -1.1, 1.1)
    return Panel("one coordinate", x, y, marks, width=1.7)


def faded(colour: str, share: float) -> str:
    """A colour mixed with white.

    >>> faded("#0072B2", 1.0), faded("#000000", 0.0)
    ('#0072B2', '#FFFFFF')
    """
    parts = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8)
    mixed = np.round(share * parts + (1 - share) * 255)
    return f"#{mixed.astype(np.uint8).tobytes().hex().upper()}"
