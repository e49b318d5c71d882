"""Marks with numbers as plotly's traces: lines, points, bands, bars and matrices."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from icl_interp.figures.axes import Scale
from icl_interp.figures.colours import BLUE, INK, ORANGE
from icl_interp.figures.drawing import Band, Bars, Line, Matrix, Points, Rule, numbers
from icl_interp.figures.fitting import SMALL, Size
from icl_interp.figures.letters import Data
from icl_interp.figures.style import joined
from icl_interp.figures.text import escaped

# White at 0, so that what is absent is not drawn; both signs are dark at the end.
DIVERGING = [[0.0, ORANGE], [0.5, "#FFFFFF"], [1.0, BLUE]]
FROM_ZERO = [[0.0, "#FFFFFF"], [1.0, BLUE]]
# Keys that the renderer reads when it makes the legend; plotly never sees them.
NAME = "_name"
LISTED = "_listed"


@dataclass(frozen=True)
class Frame:
    """What traces have to know of their panel.

    Attributes:
        size: of the figure.
        x, y: its axes.
        rows: whether it has rows, so that intervals run across.
        own: what plotly writes behind the panel's axes.
    """

    size: Size
    x: Scale
    y: Scale
    rows: bool
    own: str

    def trace(self, kind: str) -> Data:
        """A trace of this kind on the axes of the panel."""
        return {"type": kind, "xaxis": f"x{self.own}", "yaxis": f"y{self.own}"}


def series(mark: Line | Points, frame: Frame) -> Data:
    """A line, or points."""
    x, y = _in_a_row(mark)
    trace = frame.trace("scatter")
    trace["x"] = frame.x.drawn(x)
    trace["y"] = frame.y.drawn(y)
    trace[NAME] = mark.name
    trace[LISTED] = mark.listed
    if isinstance(mark, Line):
        trace["mode"] = "lines+markers" if mark.symbol else "lines"
        trace["opacity"] = mark.opacity
        trace["line"] = line_of(mark, frame.size)
    else:
        trace["mode"] = "markers"
    if mark.symbol:
        trace["marker"] = _marker(mark, frame.size)
    trace |= _whiskers(mark, frame)
    return trace | _hover(mark, x, y, frame)


def _in_a_row(mark: Line | Points) -> tuple[np.ndarray, np.ndarray]:
    """Places of a series; several curves have gaps between them."""
    x = np.asarray(mark.x, dtype=float)
    y = np.asarray(mark.y, dtype=float)
    if y.ndim < 2:
        return x, y
    return joined(np.broadcast_to(x, y.shape)), joined(y)


def line_of(mark: Line | Rule, size: Size) -> Data:
    """How a line looks."""
    return {"color": mark.colour, "dash": mark.dash, "width": size.pixels(mark.width)}


def rule(mark: Rule, frame: Frame) -> Data:
    """A straight line that stands in the legend."""
    trace = frame.trace("scatter")
    trace["mode"] = "lines"
    trace["line"] = line_of(mark, frame.size)
    trace["x"] = frame.x.ends if mark.x is None else frame.x.drawn([mark.x, mark.x])
    trace["y"] = frame.y.ends if mark.y is None else frame.y.drawn([mark.y, mark.y])
    trace["hovertemplate"] = f"{escaped(mark.name)}<extra></extra>"
    trace[NAME] = mark.name
    return trace


def _marker(mark: Line | Points, size: Size) -> Data:
    marker: Data = {"color": mark.colour, "symbol": mark.symbol}
    marker["size"] = np.multiply(mark.size, size.look.scale)
    if isinstance(mark, Points):
        # Plotly makes marks of several sizes transparent, unless it is told not to.
        marker["opacity"] = mark.opacity
        colour = mark.edge_colour or mark.colour
        marker["line"] = {"color": colour, "width": size.pixels(mark.edge)}
    return marker


def _whiskers(mark: Line | Points | Bars, frame: Frame) -> Data:
    """An interval about each point, where the mark has them."""
    if mark.low is None or mark.high is None:
        return {}
    scale, places = (frame.x, mark.x) if frame.rows else (frame.y, mark.y)
    middle = scale.drawn(numbers(places))
    error: Data = {"type": "data"}
    error["array"] = scale.drawn(numbers(mark.high)) - middle
    error["arrayminus"] = middle - scale.drawn(numbers(mark.low))
    error["thickness"] = frame.size.pixels(1.2)
    error["width"] = frame.size.pixels(3)
    return {"error_x" if frame.rows else "error_y": error}


def _hover(mark: Line | Points, x: np.ndarray, y: np.ndarray, frame: Frame) -> Data:
    """What is shown by hovering, in the numbers that were given and not where they stand."""
    texts = mark.texts
    pattern = mark.hover
    if pattern is None:
        pattern = "{text}" if texts is not None else "{x:.3g}: {y:.3g}"
    if not pattern:
        return {"hoverinfo": "skip"}
    found: Data = {}
    if frame.x.moves or frame.y.moves:
        found["customdata"] = np.stack([x, y], -1)
        pattern = pattern.replace("{x", "{customdata[0]").replace("{y", "{customdata[1]")
    if texts is not None:
        found["text"] = _texts(texts, mark.y)
    found["hovertemplate"] = template(pattern, mark.name)
    return found


def _texts(texts: Sequence[str], y: ArrayLike) -> list[str]:
    """Words of each point; those of a curve are said at each of its points."""
    shape = np.shape(y)
    if len(shape) < 2:
        return list(texts)
    return np.repeat(np.asarray(texts, dtype=object), shape[1] + 1)[:-1].tolist()


def template(pattern: str, name: str = "") -> str:
    """A pattern in plotly's notation, with the name of the mark.

    >>> template("|x| = {x:.4g}<br>{text}", "model")
    '|x| = %{x:.4g}<br>%{text}<extra>model</extra>'
    """
    return re.sub(r"\{", "%{", pattern) + f"<extra>{escaped(name)}</extra>"


def band(mark: Band, frame: Frame) -> Data:
    """An area between two curves."""
    held = np.isfinite(numbers(mark.low)) & np.isfinite(numbers(mark.high))
    x = numbers(mark.x)[held]
    low = numbers(mark.low)[held]
    high = numbers(mark.high)[held]
    trace = frame.trace("scatter")
    trace["x"] = frame.x.drawn(np.concatenate([x, x[::-1]]))
    trace["y"] = frame.y.drawn(np.concatenate([high, low[::-1]]))
    # The outline goes there along the upper end, and back along the lower one.
    trace |= {"fill": "toself", "fillcolor": mark.colour, "opacity": mark.opacity}
    trace |= {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    trace[NAME] = mark.name
    return trace


def bars(mark: Bars, frame: Frame) -> Data:
    """Bars from 0 up."""
    trace = frame.trace("bar")
    trace["x"] = numbers(mark.x)
    trace["y"] = numbers(mark.y)
    edge = {"color": INK, "width": frame.size.pixels(mark.edge)}
    trace["marker"] = {"color": mark.colour, "line": edge}
    # Bars would show what is called text.
    trace["hovertemplate"] = template(mark.hover.replace("{text}", "{hovertext}"), mark.name)
    trace["hovertext"] = list(mark.texts or [])
    trace[NAME] = mark.name
    return trace | _whiskers(mark, frame)


def matrix(mark: Matrix, frame: Frame) -> Data:
    """A matrix as squares, without the place of its bar of colours."""
    trace = frame.trace("heatmap")
    trace["z"] = np.asarray(mark.values, dtype=float)
    trace["x"] = list(mark.columns)
    trace["y"] = list(mark.rows)
    trace |= _colours(mark)

    # By hovering, numbers are told that may differ from those that give the colours.
    pattern = mark.hover.replace("{row}", "{y}").replace("{column}", "{x}")
    if mark.shown is not None:
        trace["customdata"] = np.asarray(mark.shown, dtype=float)
        pattern = pattern.replace("{z", "{customdata")
    trace["hovertemplate"] = template(pattern)
    if mark.texts is not None:
        trace["text"] = mark.texts
        trace["texttemplate"] = "%{text}"
    return trace


def _colours(mark: Matrix) -> Data:
    """The scale of colours and its ends."""
    values = np.asarray(mark.values, dtype=float)
    finite = values[np.isfinite(values)]
    high = mark.high
    if high is None:
        high = float(np.abs(finite).max(initial=0.0)) or 1.0
    low = mark.low
    if low is None:
        signed = mark.colours == "diverging" and bool((finite < 0).any())
        low = -high if signed else 0.0
    scale = mark.colours
    if scale == "diverging":
        scale = DIVERGING if low < 0 else FROM_ZERO
    elif scale == "from zero":
        scale = FROM_ZERO
    return {"zmin": low, "zmax": high, "colorscale": scale, "showscale": mark.bar is not None}


def bar_of_colours(mark: Matrix, right: float, up: Sequence[float], size: Size) -> Data:
    """The bar of colours of a matrix on the right of its panel, as high as the panel.

    Args:
        mark: the matrix.
        right: where the bar begins, as a share of the figure's inner part.
        up: both ends of the panel, as shares.
        size: of the figure.
    """
    bar: Data = {"x": right, "xpad": 0, "y": (up[0] + up[1]) / 2, "len": up[1] - up[0]}
    bar["thickness"] = size.pixels(10)
    bar["tickfont"] = {"size": SMALL * size.look.letter}
    bar["title"] = {"text": escaped(mark.bar or "")}
    return bar
