"""A figure of any measured array: squares over two axes, or lines over the one that is a number."""

import math
from collections.abc import Sequence

import numpy as np
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.errors import InputError, shown
from icl_interp.figures.colours import COLOURS
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Panel
from icl_interp.figures.render import render
from icl_interp.figures.text import plain

IN_A_ROW = 4  # panels
MOST = 12  # panels
DECADES = 100.0  # an axis whose ends are this far apart is logarithmic
HEIGHT = 220  # pixels of a row of panels
DASHES = ("solid", "dash", "dot")


def plot(result: DataArray, title: str = "") -> Figure:
    """A figure of a probe's result: `plot(probe(model, prompts)["attention_entropy.entropy"])`.

    Lines where an axis runs over numbers (`queries=` of a probe, or the last axis of a curve), else
    squares: a panel for each position, or for each entry of the first axis. Of the axis "statistic"
    the mean is drawn. `for_paper` gives the figure the size that it has in print.

    Args:
        result: up to three axes beside "statistic"; axes of one entry do not count.
        title: above the figure.

    Raises:
        InputError: the array has more axes than a figure can show, or too many panels: select some
            first.

    >>> from icl_interp.results import make_array
    >>> entropy = make_array([[0.1, 2.0], [0.7, 0.3]], {"layer": (0, 1), "head": (0, 1)}, "nats")
    >>> plot(entropy, "Attention entropy").data[0].z.tolist()
    [[0.1, 2.0], [0.7, 0.3]]
    """
    values = result.sel(statistic="mean", drop=True) if "statistic" in result.dims else result
    values = values.squeeze(drop=True)
    across = _running(values)
    if across:
        values = _only_numbers(values, across)
    if values.ndim not in (1, 2, 3):
        raise InputError(
            f"a figure shows up to three axes, but this array has {shown(list(values.dims))}: "
            'select some first, for example result.sel(position="query")'
        )

    # Of three axes, one is shown by panels.
    pieces = []
    if values.ndim == 3:
        others = [str(name) for name in values.dims if name != across]
        over = "position" if "position" in others else others[0]
        for name in values[over].values:
            pieces.append((f"{over} {name}", values.sel({over: name})))
        if len(pieces) > MOST:
            raise InputError(
                f"a figure has up to {MOST} panels, but {over} has {len(pieces)} entries: select "
                "some first"
            )
    if not pieces:
        pieces.append(("", values))

    units = values.attrs.get("units", "")
    panels = _lines(pieces, across, units) if across else _squares(pieces, units)
    below = plain(values.attrs.get("note", ""))
    same_y = bool(across)
    return render(Drawing(title or "Measured", below, panels, HEIGHT, IN_A_ROW, same_y))


def _running(values: DataArray) -> str:
    """The axis that runs over numbers; none where the array is a map."""
    if values.attrs.get("kind") == "curve":
        return str(values.dims[-1])
    if "position" in values.dims:
        places = values.indexes["position"]
        if any(isinstance(place, float) for place in places):
            return "position"
    if values.ndim != 1:
        return ""
    only = values.dims[0]
    numbered = values.indexes[only].dtype.kind in "if"
    return str(only) if numbered else ""


def _only_numbers(values: DataArray, axis: str) -> DataArray:
    """Without what an axis holds beside its numbers, such as "all"."""
    keep = []
    for i, entry in enumerate(values.indexes[axis]):
        if isinstance(entry, (int, float)):
            keep.append(i)
    return values.isel({axis: keep})


def _numbers(pieces: Sequence[tuple[str, DataArray]]) -> np.ndarray:
    """Of all panels."""
    return np.concatenate([piece.values.ravel() for _, piece in pieces])


def _squares(pieces: Sequence[tuple[str, DataArray]], units: str) -> list[Panel]:
    """A map in each panel, all of one scale of colours."""
    every = _numbers(pieces)
    finite = every[np.isfinite(every)]
    largest = float(np.abs(finite).max(initial=0.0)) or 1.0
    low = -largest if bool((finite < 0).any()) else 0.0
    panels = []
    for name, piece in pieces:
        squares = piece if piece.ndim == 2 else piece.expand_dims({"": [""]})
        down, right = map(str, squares.dims)
        rows = squares[down].values.tolist()
        columns = squares[right].values.tolist()
        # The bar of colours stands beside the last panel.
        last = len(panels) == len(pieces) - 1
        bar = units if last else None
        hover = f"{plain(down)} {{row}}, {plain(right)} {{column}}: {{z:.3g}}"
        matrix = Matrix(squares.values, rows, columns, low, largest, bar=bar, hover=hover)
        panels.append(Panel(name, Axis(right), Axis(down), [matrix]))
    return panels


def _lines(pieces: Sequence[tuple[str, DataArray]], across: str, units: str) -> list[Panel]:
    """A line for each entry of the other axis, in each panel on the same vertical scale."""
    vertical = _axis(_numbers(pieces), units or "value")
    title = "query" if across == "position" else across
    panels = []
    for name, piece in pieces:
        xs = np.asarray(piece[across].values, dtype=float)
        horizontal = _axis(xs, title)
        curves = _curves(piece, across, xs)
        panels.append(Panel(name, horizontal, vertical, curves))
    return panels


def _curves(piece: DataArray, across: str, xs: np.ndarray) -> list[Mark]:
    """The lines of a panel."""
    others = [str(one) for one in piece.dims if one != across]
    if not others:
        return [Line(xs, piece.values, name=across, listed=False)]
    other = others[0]
    marks: list[Mark] = []
    for k, key in enumerate(piece[other].values):
        # Dashes tell lines apart where there are more than colours.
        dash = DASHES[k // len(COLOURS) % len(DASHES)]
        colour = COLOURS[k % len(COLOURS)]
        values = piece.sel({other: key}).values
        name = f"{other} {key}"
        marks.append(Line(xs, values, name=name, colour=colour, dash=dash))
    return marks


def _axis(values: np.ndarray, title: str) -> Axis:
    """Logarithmic for positive numbers far apart."""
    held = values[np.isfinite(values)]
    low = float(held.min(initial=np.inf))
    high = float(held.max(initial=-np.inf))
    logarithmic = 0 < low < math.inf and high / low >= DECADES
    return Axis(title, log=logarithmic)
