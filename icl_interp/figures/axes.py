"""Axes of a drawing with their ends and ticks, in the coordinates in which plotly draws."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_interp.figures.drawing import Axis, Matrix, Panel
from icl_interp.figures.fitting import lines_of
from icl_interp.figures.letters import Style
from icl_interp.figures.style import Symlog, log_axis, ranged, rows_axis
from icl_interp.figures.text import escaped, number

FACTOR, SHARE, SHARE_SYMLOG = 2.0, 0.05, 0.02  # margins of axes without given ends
LABELS = 9  # of axes with powers of ten, at most
NAMES_DOWN, NAMES_ACROSS = 12, 8  # along a matrix, up to which all are written
WHOLE = 7  # labels of an axis of whole numbers, at most


@dataclass(frozen=True)
class Scale:
    """An axis whose ends are known.

    Attributes:
        axis: what was asked for.
        low, high: its ends as plotly's range has them: on a logarithmic axis exponents, on a
            symmetric-log one places.
        matrix: the labels along it, where it is that of a matrix.
        down: whether it runs downwards, as rows of a matrix do.
    """

    axis: Axis
    low: float
    high: float
    matrix: Sequence[Any] | None = None
    down: bool = False

    def clipped(self, values: ArrayLike) -> np.ndarray:
        """Values, none of them smaller than the least that the axis shows."""
        held = np.asarray(values, dtype=float)
        return held if self.axis.least is None else np.asarray(np.maximum(held, self.axis.least))

    def drawn(self, values: ArrayLike) -> np.ndarray:
        """Values as traces and shapes have them."""
        held = self.clipped(values)
        return Symlog(self.axis.symlog)(held) if self.axis.symlog else held

    def place(self, value: float) -> float:
        """A value as the range of the axis and annotations have it."""
        at = float(self.drawn(value))
        return math.log10(at) if self.axis.log else at

    def inside(self, ends: tuple[float, float]) -> tuple[float, float]:
        """An interval as shapes have it, cut at both ends of the axis."""
        low, high = self.ends
        places = [end if math.isinf(end) else float(self.drawn(end)) for end in ends]
        first, last = np.clip(places, low, high).tolist()
        return first, last

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends as traces have them."""
        low, high = sorted((self.low, self.high))
        return (10.0**low, 10.0**high) if self.axis.log else (low, high)

    @property
    def moves(self) -> bool:
        """Whether values may be drawn at other places than their own."""
        return bool(self.axis.symlog) or self.axis.least is not None

    def settings(self) -> dict[str, Any]:
        """Plotly's settings of the axis, all but its title and its place."""
        found = self._range_and_ticks()
        if self.axis.ticks is not None:
            found["tickmode"] = "array"
            found["tickvals"] = self._tick_places(list(self.axis.ticks))
            found["ticktext"] = list(map(escaped, self.axis.ticks.values()))
        if self.axis.format:
            found["tickformat"] = self.axis.format
        return found

    def _range_and_ticks(self) -> dict[str, Any]:
        axis = self.axis
        if self.matrix is not None:
            return _matrix_axis(self.matrix, self.down)
        if axis.rows:
            return rows_axis(list(axis.rows), spare=axis.spare)
        found: dict[str, Any] = {"range": [self.low, self.high]}
        if axis.log:
            found |= log_axis("", *self.ends, axis.labels or LABELS)
            found["range"] = [self.low, self.high]  # as it was before it was a power
        elif axis.symlog:
            found |= _symlog_ticks(axis, max(abs(self.low), abs(self.high)))
        elif axis.whole:
            found["tick0"] = 0
            found["dtick"] = max(1, math.ceil((self.high - self.low) / WHOLE))
        elif axis.labels:
            found["nticks"] = axis.labels
        return found

    def _tick_places(self, values: list[float]) -> list[float]:
        return self.drawn(values).tolist() if self.axis.symlog else values

    def label_width(self, look: Style) -> float:
        """About how many pixels the widest tick label takes, in letters of the figure."""
        return max(map(look.width, self._labels()))

    def label_lines(self) -> int:
        """How many lines the longest tick label has."""
        labels = self.settings().get("ticktext") or self.matrix or [""]
        return max(str(label).count("<br>") for label in labels) + 1

    def _labels(self) -> list[str]:
        """Lines of the labels; where plotly chooses them, those of round numbers."""
        known = self.settings().get("ticktext")
        if known:
            return lines_of("<br>".join(map(str, known)))
        if self.matrix is not None:
            return lines_of("<br>".join(map(str, self.matrix)))
        if self.axis.format.endswith("%"):
            return ["100%"]
        span = max(abs(self.high - self.low), 1e-300)
        step = 10.0 ** math.floor(math.log10(span / 4))
        return [number(round(end / step) * step) for end in (self.low, self.high)]


def scales_of(panel: Panel) -> tuple[Scale, Scale]:
    """Both axes of a panel, with the ends that its marks need."""
    for mark in panel.marks:
        if isinstance(mark, Matrix):
            across = Scale(panel.x, -0.5, len(mark.columns) - 0.5, mark.columns)
            down = Scale(panel.y, len(mark.rows) - 0.5, -0.5, mark.rows, not mark.upwards)
            return across, down
    xs, ys = _held([panel])
    return scale_of(panel.x, xs), scale_of(panel.y, ys)


def _held(panels: Sequence[Panel]) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the marks of panels along x, and along y."""
    xs = [np.array([])]
    ys = [np.array([])]
    for panel in panels:
        for mark in panel.marks:
            x, y = mark.held(bool(panel.y.rows))
            xs.append(x)
            ys.append(y)
    return np.concatenate(xs), np.concatenate(ys)


def common(panels: Sequence[Panel]) -> Scale:
    """One vertical axis that holds the marks of all panels."""
    first = scales_of(panels[0])[1]
    if first.matrix is not None:
        return first
    return scale_of(panels[0].y, _held(panels)[1])


def scale_of(axis: Axis, values: np.ndarray) -> Scale:
    """An axis with ends that hold values; ends that it has already stay.

    >>> scale_of(Axis(log=True), np.array([1.0, 100.0, np.nan])).ends[1] > 100
    True
    >>> scale_of(Axis(low=0.0, high=5.0), np.array([9.0])).ends
    (0.0, 5.0)
    """
    if axis.rows:
        return Scale(axis, len(axis.rows) - 0.4 + axis.spare, -0.6)

    # The ends that hold all values.
    held = np.concatenate([values[np.isfinite(values)], np.asarray(axis.holds, dtype=float)])
    held = Scale(axis, 0.0, 1.0).clipped(held)
    if axis.log:
        low, high = _log_ends(held[held > 0])
    elif axis.symlog:
        places = Symlog(axis.symlog)(held) if held.size else np.array([-1.0, 1.0])
        low, high = ranged(places.tolist(), SHARE_SYMLOG)
    else:
        low, high = ranged(held.tolist(), SHARE) if held.size else (0.0, 1.0)

    # The ends that were asked for. One may lie below the least value: marks there are then whole.
    scale = Scale(replace(axis, least=None), low, high)
    if axis.low is not None:
        low = scale.place(axis.low)
    if axis.high is not None:
        high = scale.place(axis.high)
    return Scale(axis, low, high)


def _log_ends(held: np.ndarray) -> tuple[float, float]:
    low = float(held.min()) if held.size else 0.1
    high = float(held.max()) if held.size else 1.0
    return math.log10(low / FACTOR), math.log10(high * FACTOR)


def _symlog_ticks(axis: Axis, largest: float) -> dict[str, Any]:
    """Ticks at powers of ten on both sides of 0, so few that there are not too many."""
    scale = Symlog(axis.symlog)
    top = float(scale.back(np.array([largest]))[0])
    decades = math.log10(max(top / axis.symlog, 1.0))
    return scale.axis(max(top, axis.symlog), max(1, math.ceil(decades / (axis.labels or LABELS))))


def _matrix_axis(labels: Sequence[Any], down: bool) -> dict[str, Any]:
    """Few labels along a matrix; a few names are all written."""
    found: dict[str, Any] = {"mirror": True}
    every = max(1, round(len(labels) / 5))
    found["tick0"] = every if every > 1 else 0
    if any(isinstance(label, str) for label in labels):
        found["type"] = "category"
        found["tick0"] = 0
        every = 1 if len(labels) <= (NAMES_DOWN if down else NAMES_ACROSS) else every
    found["dtick"] = every
    if down:
        found["autorange"] = "reversed"
    return found
