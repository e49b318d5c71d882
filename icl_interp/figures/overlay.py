"""Lines of several models in one panel: the same panel of each one's figure, a colour a model."""

import html
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, shown, unknown
from icl_interp.figures.grid import COLOURS, add_line, add_panel
from icl_interp.figures.sheet import (
    PT,
    SCREEN,
    Data,
    Panel,
    Sheet,
    Style,
    chosen,
    plain_text,
    sheet_of,
)
from icl_interp.figures.style import INK, finish, traces_of
from icl_interp.figures.text import plain

AS_DRAWN = Style(points=SCREEN / PT)  # pixels stay what they are
DASHES = ("solid", "dash", "dot", "dashdot")
HEIGHT = 320  # pixels of the panel
NOWHERE = (np.array([np.nan]), np.array([np.nan]))  # of an entry of the legend


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
        InputError: fewer than two figures, more than there are colours, no such panel or line, a
            panel without lines, or axes of different kinds.
    """
    if not 2 <= len(figures) <= len(COLOURS):
        raise InputError(
            f"lines of 2 to {len(COLOURS)} models can be told apart, but got {len(figures)}"
        )
    sheets = {
        model: sheet_of(figure, AS_DRAWN, figure.layout.width or 700)
        for model, figure in figures.items()
    }
    panels = {model: chosen(sheet, panel) for model, sheet in sheets.items()}
    drawn = {
        model: _lines(figure, sheets[model], panels[model]) for model, figure in figures.items()
    }
    names = _asked([name for found in drawn.values() for name, _ in found], panel, lines)
    figure = Figure()
    _draw(figure, drawn, names)
    across, up = (
        _axis([sheets[m].data["layout"].get(f"{a}axis{panels[m].axis}", {}) for m in figures])
        for a in "xy"
    )
    add_panel(figure, 0, (0.0, 1.0), (0.0, 1.0), "", across, up)
    first = next(iter(figures))
    heading = plain_text(sheets[first].heading(panels[first]))
    return finish(figure, title or heading or "Models compared", plain(", ".join(figures)), HEIGHT)


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


def _draw(
    figure: Figure, drawn: Mapping[str, Sequence[tuple[str, Data]]], names: Sequence[str]
) -> None:
    """The lines of all models, and the legend: models, then kinds of line, then what is the same for all."""
    common = [name for name in names if _same([_named(found, name) for found in drawn.values()])]
    dashes = dict(
        zip([name for name in names if name not in common], itertools.cycle(DASHES), strict=False)
    )
    for (model, found), colour in zip(drawn.items(), COLOURS, strict=False):
        add_line(figure, 0, model, *NOWHERE, colour)
        for name, line in found:
            if name in dashes:
                add_line(
                    figure, 0, f"{model}: {name}", line["x"], line["y"], colour, dashes[name], False
                )
    for name, dash in dashes.items() if len(dashes) > 1 else ():
        add_line(figure, 0, name, *NOWHERE, INK, dash)
    for name in common:
        for i, line in enumerate(_named(next(iter(drawn.values())), name)):
            dash = line.get("line", {}).get("dash", "dot")
            add_line(figure, 0, name, line["x"], line["y"], INK, dash, i == 0, 1.2)


def _lines(figure: Figure, sheet: Sheet, panel: Panel) -> list[tuple[str, Data]]:
    """The lines of a panel that have a name, with it, in the order in which they are drawn."""
    found = []
    for trace, whole in zip(sheet.data["data"], traces_of(figure), strict=True):
        drawn = trace.get("type", "scatter") == "scatter" and "lines" in trace.get("mode", "lines")
        here = trace.get("xaxis", "x") == f"x{panel.axis}" and not trace.get("fill")
        name = html.unescape(
            str(trace.get("name") or trace.get("legendgroup") or "")
        )  # written again, it is escaped
        if drawn and here and name:
            found.append((name, {**trace, "x": _numbers(whole.x), "y": _numbers(whole.y)}))
    return found


def _numbers(values: Any) -> np.ndarray:
    """Places of a line; None, where plotly has one, is a gap."""
    return np.asarray(values, dtype=float)


def _named(lines: Sequence[tuple[str, Data]], name: str) -> list[Data]:
    return [line for own, line in lines if own == name]


def _same(lines: Sequence[Sequence[Data]]) -> bool:
    """Whether every model has the same lines of a name."""
    first, *others = ([np.stack([line["x"], line["y"]]) for line in found] for found in lines)

    def equal(a: np.ndarray, b: np.ndarray) -> bool:
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, equal_nan=True)

    return all(len(one) == len(first) and all(map(equal, first, one)) for one in others)


def _axis(axes: Sequence[Data]) -> Data:
    """The axis of the first model, so long that it holds those of all, with the ticks of all.

    The title says how places are computed from numbers, where that is neither linear nor
    logarithmic.
    """
    kinds = sorted(
        {(axis.get("title", {}).get("text", ""), axis.get("type", "linear")) for axis in axes}
    )
    if len(kinds) > 1:
        words = " and ".join(f"{title} ({kind})" for title, kind in kinds)
        raise InputError(
            f"the models' axes differ, so that lines cannot be compared: {words}; choose another "
            "panel"
        )
    kept = {
        key: value for key, value in axes[0].items() if key not in ("domain", "anchor", "matches")
    }
    ranges = [axis["range"] for axis in axes if axis.get("range") is not None]
    if len(ranges) == len(axes):
        lows, highs = zip(*ranges, strict=True)
        kept["range"] = [min(lows), max(highs)] if lows[0] <= highs[0] else [max(lows), min(highs)]
    if all("ticktext" in axis for axis in axes):
        ticks = {
            v: t for axis in axes for v, t in zip(axis["tickvals"], axis["ticktext"], strict=True)
        }
        kept |= {"tickvals": sorted(ticks), "ticktext": [ticks[v] for v in sorted(ticks)]}
    return kept
