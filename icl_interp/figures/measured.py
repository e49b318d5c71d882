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

IN_A_ROW, MOST = 4, 12  # panels
DECADES = 100.0  # an axis whose ends are this far apart is logarithmic
HEIGHT = 220  # pixels of a row of panels


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
    inside = 2  # axes of a panel
    others = [str(name) for name in values.dims if name != across]
    over = (
        "position"
        if "position" in others and len(others) + bool(across) > inside
        else others[0]
        if others
        else ""
    )
    panelled = len(others) + bool(across) > inside
    if len(others) + bool(across) > inside + 1 or values.ndim == 0:
        raise InputError(
            f"a figure shows up to three axes, but this array has {shown(list(values.dims))}: "
            'select some first, for example result.sel(position="query")'
        )
    pieces = (
        [(f"{over} {name}", values.sel({over: name})) for name in values[over].values]
        if panelled
        else []
    )
    if len(pieces) > MOST:
        raise InputError(
            f"a figure has up to {MOST} panels, but {over} has {len(pieces)} entries: select some "
            "first"
        )
    pieces = pieces or [("", values)]
    units = values.attrs.get("units", "")
    panels = _lines(pieces, across, units) if across else _squares(pieces, units)
    below = plain(values.attrs.get("note", ""))
    same_y = bool(across)
    return render(Drawing(title or "Measured", below, panels, HEIGHT, IN_A_ROW, same_y))


def _running(values: DataArray) -> str:
    """The axis that runs over numbers; none where the array is a map."""
    if values.attrs.get("kind") == "curve":
        return str(values.dims[-1])
    if "position" in values.dims and any(
        isinstance(one, float) for one in values.indexes["position"]
    ):
        return "position"
    return (
        str(values.dims[0])
        if values.ndim == 1 and values.indexes[values.dims[0]].dtype.kind in "if"
        else ""
    )


def _only_numbers(values: DataArray, axis: str) -> DataArray:
    """Without what an axis holds beside its numbers, such as "all"."""
    keep = [i for i, one in enumerate(values.indexes[axis]) if isinstance(one, (int, float))]
    return values.isel({axis: keep})


def _squares(pieces: Sequence[tuple[str, DataArray]], units: str) -> list[Panel]:
    """A map in each panel, all of one scale of colours."""
    every = np.concatenate([piece.values.ravel() for _, piece in pieces])
    finite = every[np.isfinite(every)]
    largest = float(np.abs(finite).max(initial=0.0)) or 1.0
    low = -largest if bool((finite < 0).any()) else 0.0
    panels = []
    for name, piece in pieces:
        last = len(panels) == len(pieces) - 1
        rows = piece if piece.ndim == 2 else piece.expand_dims({"": [""]})
        down, right = map(str, rows.dims)
        matrix = Matrix(
            rows.values,
            rows[down].values.tolist(),
            rows[right].values.tolist(),
            low,
            largest,
            bar=units if last else None,
            hover=f"{plain(down)} {{row}}, {plain(right)} {{column}}: {{z:.3g}}",
        )
        panels.append(Panel(name, Axis(right), Axis(down), [matrix]))
    return panels


def _lines(pieces: Sequence[tuple[str, DataArray]], across: str, units: str) -> list[Panel]:
    """A line for each entry of the other axis, in each panel on the same vertical scale."""
    vertical = _axis(
        np.concatenate([piece.values.ravel() for _, piece in pieces]), units or "value"
    )
    panels = []
    for name, piece in pieces:
        xs = np.asarray(piece[across].values, dtype=float)
        horizontal = _axis(xs, "query" if across == "position" else across)
        panels.append(Panel(name, horizontal, vertical, _curves(piece, across, xs)))
    return panels


def _curves(piece: DataArray, across: str, xs: np.ndarray) -> list[Mark]:
    """The lines of a panel."""
    named = [str(one) for one in piece.dims if one != across]
    if not named:
        return [Line(xs, piece.values, name=across, listed=False)]
    marks: list[Mark] = []
    for k, key in enumerate(piece[named[0]].values):
        dash = ("solid", "dash", "dot")[k // len(COLOURS) % 3]
        colour = COLOURS[k % len(COLOURS)]
        values = piece.sel({named[0]: key}).values
        marks.append(Line(xs, values, name=f"{named[0]} {key}", colour=colour, dash=dash))
    return marks


def _axis(values: np.ndarray, title: str) -> Axis:
    """Logarithmic for positive numbers far apart."""
    held = values[np.isfinite(values)]
    low, high = float(held.min(initial=np.inf)), float(held.max(initial=-np.inf))
    return Axis(title, log=0 < low < math.inf and high / low >= DECADES)
