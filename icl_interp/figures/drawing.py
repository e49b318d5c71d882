"""A figure as data: panels with axes, and marks on them; its size comes later.

A drawing says what is shown, in the numbers that were measured. It holds no pixel of a layout and
no place on paper: `render` is told the width first (a screen, a page, a column of a paper, a phone)
and then chooses where panels stand, how large letters are, which ticks are left out, and how much
room words need. So a figure of a report is a function that returns a `Drawing`:

>>> from icl_interp.figures.drawing import Axis, Drawing, Line, Panel, Points, Rule, Zone, rows
>>> xs = [1.0, 10.0, 100.0]
>>> error = Panel(
...     "Error by length",
...     x=Axis("prompt length", log=True),
...     y=Axis("squared error", log=True, least=1e-7),
...     marks=[
...         Line(xs, [1.0, 0.1, 0.01], name="least squares", dash="dot"),
...         Points(xs, [1.0, 0.2, 0.1], [0.9, 0.1, 0.05], [1.1, 0.3, 0.2], name="model"),
...         Rule(y=1.0, words="predicting 0"),
...     ],
... )
>>> share = Panel(
...     "Share",
...     x=Axis("share removed", 0, 1),
...     y=rows(["frozen", "control"]),
...     marks=[Zone(x=(0.5, 1.0)), Points([0.7, 0.1], [0, 1], [0.6, 0.0], [0.8, 0.2])],
... )
>>> drawing = Drawing("What is shown", "Tests <b>a claim</b>", [error, share], height=300)
>>> from icl_interp.figures import for_paper, render
>>> render(drawing).layout.width, for_paper(render(drawing), "column").layout.width
(1080, 321)

**Numbers.** Marks hold true values. The renderer puts them on logarithmic and symmetric-log axes,
and what a reader sees by hovering are the values. An axis whose ends are not given holds all
numbers of the marks on it, and a margin: no figure computes ranges by hand. `least` of an axis is
where smaller values are drawn (least squares is exact up to rounding, a lens can be arbitrarily
bad); hovering still tells the value. A NaN in a line is a gap, and `y` with two dimensions is a
curve for each row.

**Words.** All words are plain text, and the renderer escapes them. Words with tags of their own are
a `Markup` (`figures.text.markup`). Three things are marked up already: `below` (as `tested_by`
gives it), and `hover` and `texts`, where `<br>` begins a line. Words that come from a file pass
through `figures.text.plain` there.

**Names.** Marks that have a name stand in the legend, a name once in the whole drawing; give marks
of one meaning one name in all panels. `listed=False` keeps a mark out of it. `Drawing.legend` may
say which names come first.

**Hovering.** `hover` is a pattern in which `{x}`, `{y}`, `{z}`, `{text}`, `{row}` and `{column}`
stand for what a mark holds, with a format where one is wanted: `"|x| = {x:.4g}<br>y = {y:.4g}"`.
`texts` gives each point its own. An empty pattern shows nothing.

**Rows.** `y=rows([...])` names rows from top to bottom. Points lie at 0, 1, ... there, or at shares
between, and their intervals run across. `beside` writes columns of words on the right of rows.

To convert a figure that was drawn by hand: a trace becomes a `Line`, `Points`, `Band`, `Bars` or
`Matrix`; a shape across a panel a `Rule` or a `Zone`; an annotation the `words` of a rule, or a
`Note`, or `Panel.below`. Leave out domains, margins, `log_axis`, held values, `showlegend`,
`legendgroup`, escaping, and heights that depend on the number of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_interp.figures.colours import BLUE, FAINT, GREY, INK

Span = tuple[float, float]
NONE = np.array([])


@dataclass(frozen=True)
class Column:
    """Words on the right of rows.

    Attributes:
        heading: above them.
        words: one for each row.
        colours: of the words, one for each row; all in the colour of text by default.
    """

    heading: str
    words: Sequence[str]
    colours: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """An axis of a panel.

    Attributes:
        words: its title.
        low, high: its ends, in the unit of the marks; where they are None, the axis holds all
            numbers of the marks and a margin.
        holds: numbers that it holds in any case, beside those of the marks.
        log: whether it is logarithmic.
        symlog: where a symmetric-log axis ceases to be linear; 0 for other axes.
        least: smaller values are drawn here.
        labels: how many tick labels it has at most; as many as have room by default.
        whole: only whole numbers have ticks.
        ticks: labels by place, instead of those that are computed.
        format: of tick labels, in d3's notation, such as ".0%".
        shown: whether tick labels are written.
        rows: names of rows, from top to bottom; the axis is then one of rows.
        spare: rows of room below the last one, for words.
        beside: columns of words on the right of rows.
    """

    words: str = ""
    low: float | None = None
    high: float | None = None
    holds: Sequence[float] = ()
    log: bool = False
    symlog: float = 0.0
    least: float | None = None
    labels: int | None = None
    whole: bool = False
    ticks: Mapping[float, str] | None = None
    format: str = ""
    shown: bool = True
    rows: Sequence[str] = ()
    spare: float = 0.0
    beside: Sequence[Column] = ()


def rows(
    names: Sequence[str], words: str = "", spare: float = 0.0, beside: Sequence[Column] = ()
) -> Axis:
    """An axis of named rows, the first on top; a name may have several lines.

    Args:
        names: of the rows.
        words: the title of the axis.
        spare: rows of room below the last one, for words.
        beside: columns of words on the right of rows.

    >>> rows(["frozen", "control"]).rows
    ('frozen', 'control')
    """
    return Axis(words, rows=tuple(names), spare=spare, beside=beside)


@dataclass(frozen=True, eq=False)
class Series:
    """What a line and points have in common.

    Attributes:
        x, y: places; `y` may hold a curve in each row.
        low, high: ends of an interval about each point. It runs along y, and across where the
            panel has rows.
        name: in the legend and when hovering.
        colour: of all points, or one for each.
        symbol: as plotly names it; a line without one has no marks.
        size: of a mark in pixels of the screen, or one for each.
        opacity: from 0 to 1.
        hover: a pattern; None is that of the kind of mark.
        texts: words of each point, for `{text}`.
        listed: whether the name stands in the legend.
    """

    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    name: str = ""
    colour: str | Sequence[str] = BLUE
    symbol: str = ""
    size: float | Sequence[float] = 8.0
    opacity: float = 1.0
    hover: str | None = None
    texts: Sequence[str] | None = None
    listed: bool = True

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Numbers that the axes x and y have to hold; `across` says where intervals run."""
        x, y = numbers(self.x), numbers(self.y)
        ends = [numbers(end) for end in (self.low, self.high) if end is not None]
        if across:
            return np.concatenate([x, *ends]), y
        return x, np.concatenate([y, *ends])


@dataclass(frozen=True, eq=False)
class Line(Series):
    """A line through points, in their order.

    Attributes:
        dash: "solid", "dash", "dot", "dashdot", or lengths such as "8px,5px".
        width: in pixels of the screen.
    """

    dash: str = "solid"
    width: float = 2.0


@dataclass(frozen=True, eq=False)
class Points(Series):
    """Single points, each with its interval where there is one.

    Attributes:
        edge: width of the outline of a mark, in pixels of the screen.
        edge_colour: of the outline; that of the mark by default.
    """

    symbol: str = "circle"
    edge: float = 1.4
    edge_colour: str = ""


@dataclass(frozen=True, eq=False)
class Band:
    """An interval over x, shaded; places without numbers are left out.

    Attributes:
        x, low, high: places, and both ends there.
        colour, opacity: of the area.
        name: in the legend, where it has one.
    """

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    colour: str = BLUE
    opacity: float = 0.18
    name: str = ""

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Numbers that the axes x and y have to hold."""
        return numbers(self.x), np.concatenate([numbers(self.low), numbers(self.high)])


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars from 0 up.

    Attributes:
        x, y: places and heights.
        name: in the legend and when hovering.
        colour: of all bars, or one for each.
        hover: a pattern.
        stacked: on those of other marks in the panel, or else beside them.
        edge: width of the outline in pixels of the screen.
        low, high: ends of an interval about each height.
        texts: words of each bar, for `{text}`.
    """

    x: ArrayLike
    y: ArrayLike
    name: str = ""
    colour: str | Sequence[str] = BLUE
    hover: str = "{x:.3g}: {y:.3g}"
    stacked: bool = False
    edge: float = 0.0
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    texts: Sequence[str] | None = None

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Numbers that the axes x and y have to hold: bars are about one unit wide."""
        x = numbers(self.x)
        ends = [numbers(end) for end in (self.low, self.high) if end is not None]
        return np.concatenate([x - 0.5, x + 0.5]), np.concatenate([[0.0], numbers(self.y), *ends])


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix as squares.

    Attributes:
        values: (row, column); NaN is left white.
        rows, columns: labels of both axes, numbers or names.
        low, high: where colours end; by default the largest number, on both sides of 0 where some
            are negative.
        colours: "diverging", "from zero", or what plotly knows as a colour scale.
        bar: words above a bar of colours; None for no bar.
        texts: words in each square: (row, column).
        shown: numbers for `{z}`, where they differ from those that give the colours.
        hover: a pattern; also `{row}` and `{column}`.
        upwards: the first row is the lowest one, and not the one on top.
    """

    values: ArrayLike
    rows: Sequence[Any]
    columns: Sequence[Any]
    low: float | None = None
    high: float | None = None
    colours: str | Sequence[Any] = "diverging"
    bar: str | None = None
    texts: Sequence[Sequence[str]] | None = None
    shown: ArrayLike | None = None
    hover: str = "{row}, {column}: {z:.3g}"
    upwards: bool = False

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Nothing: a matrix has the ends of its own axes."""
        return NONE, NONE


@dataclass(frozen=True, eq=False)
class Zone:
    """An area behind the marks, across the whole panel where an interval is not given.

    Attributes:
        x, y: intervals; an infinite end is that of the axis.
        colour, opacity: of the area.
    """

    x: Span | None = None
    y: Span | None = None
    colour: str = FAINT
    opacity: float = 1.0

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Nothing: a zone ends where its axis does."""
        return NONE, NONE


@dataclass(frozen=True, eq=False)
class Rule:
    """A straight line across a panel, at x or at y, behind the marks.

    Attributes:
        x, y: where it stands; one of both.
        words: beside it.
        at: where the words stand: "top" or "bottom" and "left" or "right", of the line itself and
            of the panel.
        colour, dash, width: of the line, its width in pixels of the screen.
        ink: colour of the words; that of the line by default.
        name: in the legend.
        inside: whether an axis without given ends has to hold it.
    """

    x: float | None = None
    y: float | None = None
    words: str = ""
    at: str = "top right"
    colour: str = GREY
    dash: str = "dot"
    width: float = 1.0
    ink: str = ""
    name: str = ""
    inside: bool = True

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Numbers that the axes x and y have to hold."""
        x, y = (NONE if at is None or not self.inside else numbers(at) for at in (self.x, self.y))
        return x, y


@dataclass(frozen=True, eq=False)
class Note:
    """Words in a panel.

    Attributes:
        words: lines begin at a line break.
        x, y: where they stand; without x or y at the edge of the panel that `at` names.
        at: "top", "bottom" and "left", "right": the side of the place, or the edge of the panel;
            in the middle where it says nothing.
        colour: of the words.
        size: of the letters in pixels of the screen.
        ground: colour behind them.
    """

    words: str
    x: float | None = None
    y: float | None = None
    at: str = ""
    colour: str = INK
    size: float = 12.0
    ground: str = ""

    def held(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Nothing: words have to stand where numbers are."""
        return NONE, NONE


Mark = Line | Points | Band | Bars | Matrix | Zone | Rule | Note


@dataclass(frozen=True, eq=False)
class Panel:
    """A pair of axes with marks.

    Attributes:
        title: above it.
        x, y: its axes.
        marks: in the order in which they are drawn; zones and rules lie behind all others. A panel
            without marks has no axes, only its title and the words below it.
        width: of its inner part, in units of those of other panels.
        height: in pixels of the screen; that of the drawing by default.
        row: height of a row in pixels of the screen, where it has rows.
        below: words under it, a line or more.
    """

    title: str = ""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    marks: Sequence[Mark] = ()
    width: float = 1.0
    height: float | None = None
    row: float = 22.0
    below: str = ""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure: panels, and the words above them.

    Attributes:
        title: what is shown.
        below: more about it, a line or two; marked up already.
        panels: in reading order.
        height: of a row of panels in pixels of the screen; rows of names may need more.
        columns: how many panels stand in a row where there is room; all by default.
        same_y: panels have one vertical axis, which is labelled once in a row.
        legend: names that come first in the legend; the others follow as they are drawn.
    """

    title: str
    below: str
    panels: Sequence[Panel]
    height: float = 300.0
    columns: int | None = None
    same_y: bool = False
    legend: Sequence[str] = ()


def numbers(values: ArrayLike) -> np.ndarray:
    """Numbers in a row, as floats."""
    return np.asarray(values, dtype=float).ravel()
