"""A figure of any measured array: squares over two axes, or lines over the one that is a number."""

import math
from collections.abc import Sequence

import numpy as np
from plotly.graph_objects import Figure
from xarray import DataArray

from icl_interp.errors import InputError, shown
from icl_interp.figures.grid import COLOURS, Span, add_line, add_matrix, add_panel, spans
from icl_interp.figures.style import finish, log_axis, ranged
from icl_interp.figures.text import plain

IN_A_ROW, MOST = 4, 12  # panels
DECADES = 100.0  # an axis whose ends are this far apart is logarithmic
HEIGHT = 220  # pixels of a row of panels


def plot(result: DataArray, title: str = "") -> Figure:
    """What a probe returned, as a picture: `plot(probe(model, prompts)["attention_entropy.entropy"])`.

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
    units, note = values.attrs.get("units", ""), values.attrs.get("note", "")
    draw = _lines if across else _squares
    figure, height = draw(pieces or [("", values)], across, units)
    return finish(figure, title or "Measured", plain(note), height, r=90 if not across else 24)


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


def _places(n: int) -> tuple[list[tuple[Span, Span]], int]:
    """Where n panels stand, row by row, and the height of all."""
    columns, rows = min(n, IN_A_ROW), math.ceil(n / IN_A_ROW)
    across, up = spans(columns, 0.09), spans(rows, 0.34 / rows if rows > 1 else 0.0)[::-1]
    return [(across[i % columns], up[i // columns]) for i in range(n)], HEIGHT * rows + 60 * (
        rows - 1
    )


def _squares(pieces: Sequence[tuple[str, DataArray]], _: str, units: str) -> tuple[Figure, int]:
    """A map in each panel, all of one scale of colours."""
    figure, (places, height) = Figure(), _places(len(pieces))
    finite = np.concatenate(
        [piece.values[np.isfinite(piece.values)].ravel() for _, piece in pieces]
    )
    largest, signed = float(np.abs(finite).max(initial=0.0)), bool((finite < 0).any())
    for i, ((name, piece), (across, up)) in enumerate(zip(pieces, places, strict=True)):
        rows = piece if piece.ndim == 2 else piece.expand_dims({"": [""]})
        bar = {"x": 1.01, "y": 0.5, "len": 1.0, "title": {"text": plain(units)}} if i == 0 else None
        add_matrix(figure, i, across, up, plain(name), rows, largest, bar, signed=signed)
    return figure, height


def _lines(pieces: Sequence[tuple[str, DataArray]], across: str, units: str) -> tuple[Figure, int]:
    """A line for each entry of the other axis, in each panel on the same vertical scale."""
    figure, (places, height) = Figure(), _places(len(pieces))
    values = np.concatenate([piece.values.ravel() for _, piece in pieces])
    vertical = _axis(values[np.isfinite(values)], units or "value")
    for i, ((name, piece), (left, up)) in enumerate(zip(pieces, places, strict=True)):
        xs = np.asarray([float(x) for x in piece[across].values])
        named = [str(one) for one in piece.dims if one != across]
        rows = (
            [(f"{named[0]} {key}", piece.sel({named[0]: key})) for key in piece[named[0]].values]
            if named
            else []
        )
        for k, (line, numbers) in enumerate(rows or [(across, piece)]):
            dash = ("solid", "dash", "dot")[k // len(COLOURS) % 3]
            add_line(
                figure,
                i,
                line,
                xs,
                numbers.values,
                COLOURS[k % len(COLOURS)],
                dash,
                i == 0 and bool(rows),
            )
        horizontal = "query" if across == "position" else across
        add_panel(figure, i, left, up, plain(name), _axis(xs, horizontal), vertical)
    return figure, height


def _axis(values: np.ndarray, title: str) -> dict[str, object]:
    """Logarithmic for positive numbers far apart."""
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    if 0 < low < math.inf and high / low >= DECADES:
        return log_axis(plain(title), low / 1.3, high * 1.3, 6)
    return {
        "title": {"text": plain(title)},
        **({"range": ranged([low, high])} if low <= high else {}),
    }
