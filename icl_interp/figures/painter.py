"""One panel of a drawing in the layout of plotly: its axes, marks, and the words around it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from icl_interp.figures import layout as layouts
from icl_interp.figures import traces as made
from icl_interp.figures.axes import Scale
from icl_interp.figures.colours import GREY, INK
from icl_interp.figures.drawing import (
    Band,
    Bars,
    Column,
    Line,
    Mark,
    Matrix,
    Note,
    Points,
    Rule,
    Span,
    Zone,
)
from icl_interp.figures.fitting import SMALL, Size, ticks_left, widest, wrapped
from icl_interp.figures.layout import Place, Sheet
from icl_interp.figures.letters import SCREEN, Data
from icl_interp.figures.text import escaped

ACROSS = ("left", "center", "right")
UP = ("bottom", "middle", "top")
WIDEST = 0.6  # of a panel, that words in it take before they are broken


class Painter:
    """Puts one panel into a figure.

    Args:
        sheet: the whole figure.
        place: of the panel.
        own: what plotly writes behind the axes of the panel.
        layout: of the figure, with its margin; axes, words and shapes are added to it.
        traces: of the figure; they become more.
    """

    def __init__(
        self, sheet: Sheet, place: Place, own: str, layout: Data, traces: list[Data]
    ) -> None:
        self.size = sheet.size
        self.place = place
        self.own = own
        self.layout = layout
        self.traces = traces
        self.frame = made.Frame(sheet.size, place.x, place.y, bool(place.panel.y.rows), own)

        # The inner part of the panel as shares of that of the figure.
        margin = layout["margin"]
        self.inner = sheet.size.width - margin["l"] - margin["r"]
        # Where all panels are words alone, nothing is left for axes.
        high = sheet.height - margin["t"] - margin["b"] or 1.0
        across = np.array([place.left, place.right]) - margin["l"]
        down = np.array([place.bottom, place.top]) - margin["t"]
        # Clipped: sums of floats may end a last bit outside.
        self.across = np.clip(across / self.inner, 0, 1).tolist()
        self.up = np.clip(1 - down / high, 0, 1).tolist()

    def paint(self) -> None:
        """Put the panel into the figure."""
        self._axes()
        self._heading()
        self._under()
        self._beside()
        for mark in self.place.panel.marks:
            self._mark(mark)

    def _axes(self) -> None:
        place = self.place

        # Labels of the horizontal axis that have no room are left out.
        x = place.x.settings()
        if "ticktext" in x:
            kept = ticks_left(x["ticktext"], self.size, place.room)
            for key in ("ticktext", "tickvals"):
                x[key] = np.asarray(x[key], dtype=object)[kept].tolist()
        words = layouts.x_title(place.x, self.size, place.room) if place.x_labelled else []
        x["title"] = {"text": "<br>".join(words)}
        x["showticklabels"] = place.x.axis.shown and place.x_labelled
        x["domain"] = self.across
        x["anchor"] = f"y{self.own}"

        # Panels that share an axis label it once.
        y = place.y.settings()
        y["title"] = {"text": "<br>".join(map(escaped, place.y_title)) if place.labelled else ""}
        y["showticklabels"] = place.y.axis.shown and place.labelled
        y["domain"] = self.up
        y["anchor"] = f"x{self.own}"

        # A panel without marks has only words.
        if not place.panel.marks:
            x["visible"] = False
            y["visible"] = False
        self.layout[f"xaxis{self.own}"] = x
        self.layout[f"yaxis{self.own}"] = y

    def _write(self, text: str, letters: float, colour: str, **settings: Any) -> None:
        """Words; letters are so many times as large as those of the figure."""
        font = {"size": letters * self.size.look.letter, "color": colour}
        note = {"showarrow": False, "text": text, "font": font, **settings}
        self.layout["annotations"].append(note)

    def _heading(self) -> None:
        """The title of the panel, above its left end."""
        if not self.place.heading:
            return
        where = self._at_left()
        where["y"] = self.up[1]
        where["yanchor"] = "bottom"
        where["yshift"] = self.size.pixels(4)
        text = "<br>".join(self.place.heading)
        self._write(f"<b>{text}</b>", 1.0, INK, name="panel", **where)

    def _at_left(self) -> Data:
        """Where words begin at the left end of the panel."""
        paper = {"xref": "paper", "yref": "paper"}
        return {**paper, "x": self.across[0], "xanchor": "left", "align": "left"}

    def _under(self) -> None:
        """The words below the axis."""
        place = self.place
        words = layouts.under(place.panel, self.size, place.room)
        if not words:
            return
        taken = layouts.under_axis(place.panel, place.x, self.size, place.room)
        where = self._at_left()
        where["y"] = self.up[0]
        where["yanchor"] = "top"
        where["yshift"] = -taken - self.size.pixels(4)
        self._write("<br>".join(words), SMALL, GREY, **where)

    def _beside(self) -> None:
        """Columns of words on the right of rows."""
        shift = self.size.pixels(14)
        for column in self.place.panel.y.beside:
            self._column(column, shift)
            shift += layouts.column_width(column, self.size)

    def _column(self, column: Column, shift: float) -> None:
        where = {"xref": f"x{self.own} domain", "x": 1, "xanchor": "left", "xshift": shift}
        where["align"] = "left"
        above = {"yref": f"y{self.own} domain", "y": 1, "yanchor": "bottom"}
        above["yshift"] = self.size.pixels(4)
        self._write(escaped(column.heading), SMALL, GREY, **where, **above)
        colours = column.colours or [INK] * len(column.words)
        for row, (words, colour) in enumerate(zip(column.words, colours, strict=True)):
            self._write(escaped(words), SMALL, colour, yref=f"y{self.own}", y=row, **where)

    def _mark(self, mark: Mark) -> None:
        match mark:
            case Line() | Points():
                self.traces.append(made.series(mark, self.frame))
            case Band():
                self.traces.append(made.band(mark, self.frame))
            case Bars():
                self.traces.append(made.bars(mark, self.frame))
            case Matrix():
                self._matrix(mark)
            case Zone():
                settings = {"fillcolor": mark.colour, "opacity": mark.opacity}
                self._shape("rect", mark.x, mark.y, line={"width": 0}, **settings)
            case Rule():
                self._rule(mark)
            case Note():
                self._note(mark)

    def _matrix(self, mark: Matrix) -> None:
        trace = made.matrix(mark, self.frame)
        right = self.across[1] + self.size.pixels(8) / self.inner
        trace["colorbar"] = made.bar_of_colours(mark, right, self.up, self.size)
        self.traces.append(trace)

    def _shape(self, kind: str, x: Span | None, y: Span | None, **settings: Any) -> None:
        """A line or an area behind the marks; across the whole panel where ends are None."""
        shape: Data = {"type": kind, "layer": "below", **settings}
        shape |= self._ends("x", x, self.place.x)
        shape |= self._ends("y", y, self.place.y)
        self.layout["shapes"].append(shape)

    def _ends(self, name: str, ends: Span | None, scale: Scale) -> Data:
        """Both ends of a shape along one axis."""
        axis = f"{name}{self.own}"
        if ends is None:
            axis += " domain"
            first = 0.0
            last = 1.0
        else:
            first, last = scale.inside(ends)
        return {f"{name}ref": axis, f"{name}0": first, f"{name}1": last}

    def _rule(self, mark: Rule) -> None:
        if mark.name:
            self.traces.append(made.rule(mark, self.frame))
        else:
            line = made.line_of(mark, self.size)
            across = None if mark.x is None else (mark.x, mark.x)
            up = None if mark.y is None else (mark.y, mark.y)
            self._shape("line", across, up, line=line)
        if mark.words:
            ink = mark.ink or mark.colour
            self._note(Note(mark.words, mark.x, mark.y, mark.at, colour=ink, size=11))

    def _note(self, mark: Note) -> None:
        letters = mark.size / SCREEN
        text = escaped(mark.words)
        room = WIDEST * self.place.room / letters
        if widest(text, self.size) > room:
            text = "<br>".join(wrapped(text, self.size, room))
        x = _anchored("x", mark.x, self.place.x, _side(mark.at, ACROSS), self.size)
        y = _anchored("y", mark.y, self.place.y, _side(mark.at, UP), self.size)
        x["xref"] = f"x{self.own}" + x["xref"]
        y["yref"] = f"y{self.own}" + y["yref"]
        ground = {"bgcolor": mark.ground} if mark.ground else {}
        self._write(text, letters, mark.colour, align=x["xanchor"], **x, **y, **ground)


def _side(at: str, sides: Sequence[str]) -> int:
    """Which way words stand along one axis: -1, 0 or 1."""
    first, _, last = sides
    return -1 if first in at else 1 if last in at else 0


def _anchored(name: str, value: float | None, scale: Scale, side: int, size: Size) -> Data:
    """Settings that put words at a place, or inside a panel at its edge, along one axis."""
    if name == "x":
        sides = ACROSS
        away = size.pixels(3)
    else:
        sides = UP
        away = size.pixels(1)
    if value is None:
        # Inside, at the edge that the side names.
        domain = " domain"
        place = 0.5 + 0.5 * side
        fixed = sides[1 + side]
        shift = -2 * away * side
    else:
        # Words on the right of a place begin there: their left end is fixed.
        domain = ""
        place = scale.place(value)
        fixed = sides[1 - side]
        shift = away * side
    return {f"{name}ref": domain, name: place, f"{name}anchor": fixed, f"{name}shift": shift}
