"""Lines of several models in one panel: the same panel of each one's figure, a colour a model."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, shown, unknown
from icl_interp.figures.colours import COLOURS, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, numbers
from icl_interp.figures.render import chosen, drawing_of, render
from icl_interp.figures.text import plain

DASHES = ("solid", "dash", "dot", "dashdot")
HEIGHT = 320  # pixels of the panel
NOWHERE = [np.nan]  # where an entry of the legend stands
THIN = 1.2  # pixels of a line that is the same for all models


def overlay(
    figures: Mapping[str, Figure],
    panel: int | str = 1,
    lines: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """One panel of the same figure of several models, with all their lines.

    Each model has a colour, each line of the panel a dash. A line that is the same for all of them,
    such as a bound, is drawn once, in black. What is no line with a name (areas, single contexts)
    is left out. `for_paper` gives the figure the size that it has in print.

    Args:
        figures: of one name, by the name of the model.
        panel: its number in reading order, from 1, or how its heading begins.
        lines: those to draw, as the legend calls them; all by default.
        title: above the figure; the heading of the panel by default.

    Raises:
        InputError: fewer than two figures, more than there are colours, one that was drawn or
            changed by hand, no such panel or line, a panel without lines, or axes of different
            kinds.
    """
    if not 2 <= len(figures) <= len(COLOURS):
        raise InputError(
            f"lines of 2 to {len(COLOURS)} models can be told apart, but got {len(figures)}"
        )
    panels = {}
    drawn = {}
    for model, figure in figures.items():
        drawing = drawing_of(figure)
        if drawing is None:
            raise InputError(
                f"lines of {shown(model)} cannot be read: its figure was drawn or changed by hand; "
                "give figures as reports and experiments return them"
            )
        panels[model] = chosen(drawing, panel)
        drawn[model] = _lines(panels[model])
    names = _asked([line.name for found in drawn.values() for line in found], panel, lines)
    first = next(iter(panels.values()))
    whole = Panel(
        x=_axis([one.x for one in panels.values()]),
        y=_axis([one.y for one in panels.values()]),
        marks=_marks(drawn, names),
    )
    heading = title or first.title or "Models compared"
    return render(Drawing(heading, plain(", ".join(figures)), [whole], HEIGHT))


def _lines(panel: Panel) -> list[Line]:
    """The lines of a panel that have a name, in the order in which they are drawn."""
    return [mark for mark in panel.marks if isinstance(mark, Line) and mark.name]


def _asked(names: Sequence[str], panel: int | str, lines: Sequence[str] | None) -> list[str]:
    """The lines to draw, each once."""
    if not names:
        raise InputError(
            f"panel {shown(panel)} of this figure has no lines to compare: name another one"
        )
    for name in lines or ():
        if name not in names:
            raise unknown("line", name, dict.fromkeys(names))
    return [name for name in dict.fromkeys(names) if lines is None or name in lines]


def _marks(drawn: Mapping[str, Sequence[Line]], names: Sequence[str]) -> list[Mark]:
    """The lines of all models, and entries of the legend.

    The legend lists models, then kinds of line, then what is the same for all models.
    """
    common = [name for name in names if _same([_named(found, name) for found in drawn.values()])]
    own = [name for name in names if name not in common]
    dashes = dict(zip(own, itertools.cycle(DASHES), strict=False))
    marks: list[Mark] = []

    # Lines of each model have its colour; the legend has an entry for the model alone.
    for (model, found), colour in zip(drawn.items(), COLOURS, strict=False):
        marks.append(Line(NOWHERE, NOWHERE, name=model, colour=colour))
        for line in found:
            if line.name in dashes:
                look = {"colour": colour, "dash": dashes[line.name], "width": 2.0}
                name = f"{model}: {line.name}"
                marks.append(replace(line, name=name, symbol="", listed=False, **look))

    # The legend tells dashes apart where there are several.
    if len(dashes) > 1:
        for name, dash in dashes.items():
            marks.append(Line(NOWHERE, NOWHERE, name=name, colour=INK, dash=dash))
    for name in common:
        for line in _named(next(iter(drawn.values())), name):
            marks.append(replace(line, colour=INK, width=THIN, listed=True))
    return marks


def _named(lines: Sequence[Line], name: str) -> list[Line]:
    return [line for line in lines if line.name == name]


def _same(lines: Sequence[Sequence[Line]]) -> bool:
    """Whether every model has the same lines of a name."""
    first, *others = lines
    for other in others:
        if len(other) != len(first):
            return False
        if not all(map(_equal, first, other)):
            return False
    return True


def _equal(one: Line, other: Line) -> bool:
    """Whether two lines lie on each other."""
    for a, b in ((one.x, other.x), (one.y, other.y)):
        if numbers(a).shape != numbers(b).shape:
            return False
        if not np.allclose(numbers(a), numbers(b), rtol=1e-9, equal_nan=True):
            return False
    return True


def _axis(axes: Sequence[Axis]) -> Axis:
    """The axis of the first model, so long that it holds those of all, with the ticks of all."""
    kinds = sorted({f"{axis.words} ({_kind(axis)})" for axis in axes})
    if len(kinds) > 1:
        raise InputError(
            "the models' axes differ, so that lines cannot be compared: "
            f"{' and '.join(kinds)}; choose another panel"
        )
    ticks: dict[float, str] = {}
    for axis in axes:
        ticks |= axis.ticks or {}
    first = axes[0]
    return replace(
        first,
        low=_end([axis.low for axis in axes], min),
        high=_end([axis.high for axis in axes], max),
        least=_end([axis.least for axis in axes], min),
        holds=[value for axis in axes for value in axis.holds],
        ticks=dict(sorted(ticks.items())) or None,
    )


def _kind(axis: Axis) -> str:
    """How places on an axis are computed from numbers."""
    if axis.symlog:
        return f"symmetric-log from {axis.symlog:g}"
    return "log" if axis.log else "linear"


def _end(given: Sequence[float | None], outermost: Callable[[list[float]], float]) -> float | None:
    """The outermost of the models' ends; None where one of them follows its marks."""
    ends = [end for end in given if end is not None]
    return outermost(ends) if len(ends) == len(given) else None
