"""Panels that several figures of reports share: rows of intervals, and maps of numbers."""

from collections.abc import Mapping, Sequence

import numpy as np

from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Matrix, Panel, Points, rows
from icl_interp.figures.text import number, plain
from icl_interp.resampling import Interval

LOWEST = 1e-6  # numbers below are drawn there
MOST_NUMBERS = 8  # rows up to which cells hold their numbers


def in_rows(found: Mapping[str, Interval], words: str, title: str = "") -> Panel:
    """A row a name, on a logarithmic axis that ends at `LOWEST`.

    Args:
        found: by name of the row.
        words: what the numbers are.
        title: of the panel.
    """
    points = Points(
        [one.value for one in found.values()],
        range(len(found)),
        [one.low for one in found.values()],
        [one.high for one in found.values()],
        colour=INK,
        size=9,
        hover=f"{plain(words)}: {{x:.3g}}",
    )
    x = Axis(words, LOWEST / 2, log=True, least=LOWEST, labels=5, holds=(1.0,))
    below = f"{number(LOWEST, 1)} or less at the left"
    return Panel(title, x, rows(list(found)), [points], row=40, below=below)


def as_map(
    values: np.ndarray,
    names: Sequence[str],
    hover: str,
    x: str,
    y: str,
    size: float | None = None,
    title: str = "",
) -> Panel:
    """A square of colours, with its numbers where there are few.

    Args:
        values: NaN is left white.
        names: of rows and columns.
        hover: as `Matrix.hover`.
        x: title of the columns' axis.
        y: title of the rows' axis.
        size: where colours end on both sides of 0; without it they go from 0 to 1.
        title: of the panel.
    """
    texts = None
    if len(names) <= MOST_NUMBERS:
        texts = [["" if np.isnan(one) else number(one, 2) for one in row] for row in values]
    low, high, colours = (0.0, 1.0, "from zero") if size is None else (-size, size, "diverging")
    matrix = Matrix(values, names, names, low, high, colours, texts=texts, hover=hover)
    return Panel(title, Axis(x), Axis(y), [matrix])
