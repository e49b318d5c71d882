"""Lines of several models in one panel: the same panel of each one's figure, a colour a model."""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, shown, unknown
from icl_interp.figures.colours import COLOURS, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, numbers
from icl_interp.figures.render import chosen, drawing_of, render
from icl_interp.figures.text import plain

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
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
    _check_number(len(figures))
    panels = {}
    for model, figure in figures.items():
        drawing = drawing_of(figure)
        if drawing is None:
            raise InputError(
                f"lines of {shown(model)} cannot be read: its figure was drawn or changed by hand; "
                "give figures as reports and experiments return them"
            )
        panels[model] = chosen(drawing, panel)
    drawn = {model: _lines(one) for model, one in panels.items()}
    names = _asked(_names([drawn]), panel, lines)
    looks = _Looks(dict(zip(figures, COLOURS, strict=False)), _dashes([drawn], names))
    together = _overlaid(panels, names, looks)
    heading = title or together.title or "Models compared"
    whole = replace(together, title="")
    return render(Drawing(heading, plain(", ".join(figures)), [whole], HEIGHT))


def overlay_panels(drawings: Mapping[str, Drawing]) -> Figure | None:
    """Every panel of a figure in which several models have lines, with the lines of all of them.

    Panels of one heading belong together. One that cannot be compared (no model but one has it, it
    has no lines, or its axes are of different kinds) is left out, and so are bundles of lines, such
    as one for each context: those of several models would hide each other.

    Args:
        drawings: of the figure of one name, by the name of the model.

    Returns:
        None where no panel can be compared.

    Raises:
        InputError: fewer than two drawings, or more than there are colours.
    """
    _check_number(len(drawings))
    # Panels that several models have, without their bundles of lines.
    groups: list[dict[str, Panel]] = []
    drawn: list[dict[str, list[Line]]] = []
    for group in _by_heading(drawings):
        if len(group) > 1:
            lines = {}
            alone = {}
            for model, panel in group.items():
                lines[model] = _single(panel)
                alone[model] = replace(panel, marks=lines[model])
            drawn.append(lines)
            groups.append(alone)

    # One look for all panels: a colour a model, a dash a kind of line.
    names = list(dict.fromkeys(_names(drawn)))
    looks = _Looks(dict(zip(drawings, COLOURS, strict=False)), _dashes(drawn, names))
    panels = []
    for group in groups:
        with contextlib.suppress(InputError):  # axes of different kinds
            panels.append(_overlaid(group, names, looks))
    if not panels:
        return None
    title = next(iter(drawings.values())).title
    return render(Drawing(title, plain(", ".join(drawings)), panels, HEIGHT))


@dataclass(frozen=True)
class _Looks:
    """Of lines: a colour by model, and a dash by the name of a line that is not common to all."""

    colours: Mapping[str, str]
    dashes: Mapping[str, str]


def _check_number(n: int) -> None:
    if not 2 <= n <= len(COLOURS):
        raise InputError(f"lines of 2 to {len(COLOURS)} models can be told apart, but got {n}")


def _by_heading(drawings: Mapping[str, Drawing]) -> list[dict[str, Panel]]:
    """Panels with lines in groups of one heading, by model."""
    groups: dict[str, dict[str, Panel]] = {}
    for model, drawing in drawings.items():
        for number, panel in enumerate(drawing.panels):
            if _single(panel):
                heading = panel.title or str(number)
                groups.setdefault(heading, {}).setdefault(model, panel)
    return list(groups.values())


def _names(drawn: Sequence[Mapping[str, Sequence[Line]]]) -> list[str]:
    """Of the lines of all models in all panels."""
    names = []
    for group in drawn:
        for lines in group.values():
            for line in lines:
                names.append(line.name)
    return names


def _dashes(drawn: Sequence[Mapping[str, Sequence[Line]]], names: Sequence[str]) -> dict[str, str]:
    """A dash for each line that is not the same for all models in every panel."""
    differing: set[str] = set()
    for group in drawn:
        differing.update(_own(group, names))
    own = [name for name in names if name in differing]
    return dict(zip(own, itertools.cycle(DASHES), strict=False))


def _own(drawn: Mapping[str, Sequence[Line]], names: Sequence[str]) -> list[str]:
    """The lines of a panel that models have of their own: not all have the same."""
    found = []
    for name in names:
        lines = [_named(of_model, name) for of_model in drawn.values()]
        if any(lines) and not _same(lines):
            found.append(name)
    return found


def _overlaid(panels: Mapping[str, Panel], names: Sequence[str], looks: _Looks) -> Panel:
    """One panel with the lines of all models."""
    drawn = {}
    horizontal = []
    vertical = []
    for model, panel in panels.items():
        drawn[model] = _lines(panel)
        horizontal.append(panel.x)
        vertical.append(panel.y)
    return Panel(
        title=next(iter(panels.values())).title,
        x=_axis(horizontal),
        y=_axis(vertical),
        marks=_marks(drawn, names, looks),
    )


def _lines(panel: Panel) -> list[Line]:
    """The lines of a panel that have a name, in the order in which they are drawn."""
    return [mark for mark in panel.marks if isinstance(mark, Line) and mark.name]


def _single(panel: Panel) -> list[Line]:
    """The lines of a panel that are one curve each."""
    return [line for line in _lines(panel) if np.ndim(line.y) == 1]


def _asked(names: Sequence[str], panel: int | str, lines: Sequence[str] | None) -> list[str]:
    """The lines to draw, each once."""
    if not names:
        raise InputError(
            f"panel {shown(panel)} of this figure has no lines to compare: name another one"
        )
    every = dict.fromkeys(names)
    if lines is None:
        return list(every)
    for name in lines:
        if name not in every:
            raise unknown("line", name, every)
    return [name for name in every if name in lines]


def _marks(drawn: Mapping[str, Sequence[Line]], names: Sequence[str], looks: _Looks) -> list[Mark]:
    """The lines of all models, and entries of the legend.

    The legend lists models, then kinds of line, then what is the same for all models.
    """
    own = _own(drawn, names)
    marks: list[Mark] = []

    # Lines of each model have its colour; the legend has an entry for the model alone.
    for model, found in drawn.items():
        colour = looks.colours[model]
        marks.append(Line(NOWHERE, NOWHERE, name=model, colour=colour))
        for line in found:
            if line.name in own:
                look = {"colour": colour, "dash": looks.dashes[line.name], "width": 2.0}
                name = f"{model}: {line.name}"
                marks.append(replace(line, name=name, symbol="", listed=False, **look))

    # The legend tells dashes apart where there are several.
    if len(looks.dashes) > 1:
        for name in own:
            dash = looks.dashes[name]
            marks.append(Line(NOWHERE, NOWHERE, name=name, colour=INK, dash=dash))

    # Lines that are the same for all models are those of the first one.
    first = next(iter(drawn.values()))
    for name in names:
        if name not in own:
            for line in _named(first, name):
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
    holds: list[float] = []
    for axis in axes:
        ticks |= axis.ticks or {}
        holds.extend(axis.holds)
    return replace(
        axes[0],
        low=_end(axes, "low", min),
        high=_end(axes, "high", max),
        least=_end(axes, "least", min),
        holds=holds,
        ticks=dict(sorted(ticks.items())) or None,
    )


def _kind(axis: Axis) -> str:
    """How places on an axis are computed from numbers."""
    if axis.symlog:
        return f"symmetric-log from {axis.symlog:g}"
    return "log" if axis.log else "linear"


def _end(
    axes: Sequence[Axis], which: str, outermost: Callable[[list[float]], float]
) -> float | None:
    """The outermost of the models' ends; None where one of them follows its marks."""
    ends = [getattr(axis, which) for axis in axes]
    return None if None in ends else outermost(ends)
