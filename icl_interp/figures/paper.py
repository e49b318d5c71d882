"""Figures for print: size in millimetres, letters in points, no title, since papers have captions.

A figure is laid out anew, and no number in it changes: at the width of a column its panels stand
below each other, at the width of a page they stand as they do in the report.
"""

import html
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, shown, unknown
from icl_interp.figures.fitting import Size
from icl_interp.figures.render import alone, drawing_of, render
from icl_interp.figures.sheet import (
    MM,
    PT,
    SCREEN,
    Data,
    Panel,
    Sheet,
    Span,
    Style,
    chosen,
    near,
    plain_text,
    sheet_of,
    template_of,
)

WIDTHS = {"column": 85.0, "page": 175.0}  # mm
NARROW = 120.0  # mm: up to here panels stand below each other
LEAST = 15.0  # mm that a panel has to have
SMALLEST = 5.0  # points of letters that can be read
STYLES = {
    "sans": Style(),
    "serif": Style("'Times New Roman', Times, 'Liberation Serif', serif", 8.0),
}


def for_paper(
    figure: Figure,
    width: str | float = "column",
    panel: int | str | None = None,
    style: str | Style = "sans",
) -> Figure:
    """A figure in the size that it has in print.

    `write_image("name.pdf")` of what is returned gives a file of that size; a PNG of 300 dots an
    inch needs `scale=300 / 96`. The words that stood above the figure are in
    `layout.meta["title"]`.

    Args:
        figure: of a report, an experiment or `icl_interp.figures`; it is not changed.
        width: "column" (85 mm), "page" (175 mm), or a number of millimetres.
        panel: only this panel: its number in reading order, from 1, or how its heading begins.
        style: "sans" (Helvetica, 7 pt), "serif" (Times, 8 pt), or a `Style`.

    Raises:
        InputError: no such width, panel or style, or the figure has no room at this width.
    """
    look = style if isinstance(style, Style) else STYLES.get(style)
    if look is None:
        raise unknown("style", style, STYLES)
    size = _pixels(width)
    drawing = drawing_of(figure)
    if drawing is not None:
        shown_alone = drawing if panel is None else alone(drawing, panel)
        return render(shown_alone, Size(size, look, titled=False))
    fixed = (figure.to_plotly_json()["layout"].get("meta") or {}).get("layout") == "fixed"
    if fixed:
        look = _smaller(figure, look, size)
    sheet = sheet_of(figure, look, size)
    if fixed and panel is not None:
        raise InputError("this figure is one table and has no panels: leave out panel")
    if panel is not None:
        _alone(sheet, chosen(sheet, panel))
    elif size <= NARROW * MM and len({one.across for one in sheet.panels}) > 1:
        _stack(sheet)
    else:
        _spread(sheet, fits=fixed)
    narrowest = min((one.across[1] - one.across[0]) * sheet.room for one in sheet.places.values())
    if narrowest < LEAST * MM:
        raise InputError(
            f"this figure has no room at {sheet.size / MM:.0f} mm: a panel would be "
            f"{max(narrowest, 0) / MM:.0f} mm wide, and needs {LEAST:.0f}; ask for a greater "
            "width, or for one panel"
        )
    _move(sheet)
    return _finished(sheet)


def _smaller(figure: Figure, look: Style, size: float) -> Style:
    """Letters so small that a figure whose layout is fixed has this width."""
    points = SCREEN * size / PT / figure.to_plotly_json()["layout"]["width"]
    if points < SMALLEST:
        raise InputError(
            f"this figure is a table whose letters would have {points:.1f} points at "
            f"{size / MM:.0f} mm, and need {SMALLEST:.0f}: ask for width='page'"
        )
    return replace(look, points=points)


def _pixels(width: str | float) -> float:
    if isinstance(width, str):
        if width not in WIDTHS:
            raise unknown("width", width, WIDTHS)
        return WIDTHS[width] * MM
    if not 40 <= width <= 400:
        raise InputError(f"width must be from 40 to 400 millimetres, but got {shown(width)}")
    return width * MM


def _alone(sheet: Sheet, panel: Panel) -> None:
    """Remove all other panels from the sheet.

    Where the legend belongs to lines of another panel, equal lines of this panel take its entries
    over.
    """
    layout, n = sheet.data["layout"], panel.axis
    mine = [t for t in sheet.data["data"] if t.get("xaxis", "x") == f"x{n}"]
    for other in sheet.data["data"]:
        group = other.get("legendgroup")
        if other.get("showlegend") is False or not group or any(other is t for t in mine):
            continue
        same = [t for t in mine if t.get("legendgroup") == group]
        if same and all(t.get("showlegend") is False for t in same):
            same[0].update(name=other["name"], showlegend=True)
    sheet.data["data"] = mine
    above = sheet.heading(panel)
    for kind in ("annotations", "shapes"):
        layout[kind] = [
            one for one in layout.get(kind, ()) if one is not above and sheet.owner(one) is panel
        ]
    for key in [key for key in layout if key[1:5] == "axis" and key[5:] != n]:
        del layout[key]
    sheet.margin["l"] = sheet.before(panel) * sheet.look.scale
    sheet.margin["r"] = max(sheet.margin["r"], sheet.after(panel) * sheet.look.scale)
    sheet.panels = [panel]
    sheet.places = {n: Panel(n, (0.0, 1.0), (0.0, 1.0))}
    sheet.plot = _height(sheet, panel, sheet.room)
    sheet.margin |= {"t": 6.0, "b": _fit(sheet, panel, sheet.room)}


def _stack(sheet: Sheet) -> None:
    """Panels below each other, in reading order."""
    look = sheet.look
    lefts = [sheet.before(one) * look.scale for one in sheet.panels]
    rights = [max(sheet.margin["r"], sheet.after(one) * look.scale) for one in sheet.panels]
    sheet.margin |= {"l": min(lefts), "r": min(rights)}
    rooms = [sheet.size - left - right for left, right in zip(lefts, rights, strict=True)]
    heights = [_height(sheet, one, room) for one, room in zip(sheet.panels, rooms, strict=True)]
    below = [_fit(sheet, one, room) for one, room in zip(sheet.panels, rooms, strict=True)]
    heads = [_above(sheet, one, room) for one, room in zip(sheet.panels, rooms, strict=True)]
    sheet.plot = sum(heights) + sum(heads[1:]) + sum(below[:-1])
    top = sheet.plot + heads[0]
    for one, left, room, height, head, axis in zip(
        sheet.panels, lefts, rooms, heights, heads, below, strict=True
    ):
        top -= head
        start = left - sheet.margin["l"]
        across = (start / sheet.room, (start + room) / sheet.room)
        sheet.places[one.axis] = replace(
            one, across=across, up=((top - height) / sheet.plot, top / sheet.plot)
        )
        top -= height + axis
    sheet.margin |= {"t": heads[0], "b": below[-1]}


def _height(sheet: Sheet, panel: Panel, room: float) -> float:
    """The height of a panel whose width is `room`.

    It is the height on the screen, but at most two thirds of the width.

    Where rows have names, each needs its line.
    """
    axis = sheet.data["layout"].get(f"yaxis{panel.axis}", {})
    rows = len(axis.get("ticktext") or ()) if axis.get("ticks") == "" else 0
    as_drawn = (panel.up[1] - panel.up[0]) * sheet.inner[1] * sheet.look.scale
    return max(min(as_drawn, 0.66 * room), 1.7 * sheet.look.letter * (rows + 1) if rows else 0.0)


def _spread(sheet: Sheet, fits: bool) -> None:
    """Panels as on the screen.

    The room between them is that of their letters, and panels share what is left.

    Args:
        sheet: is changed.
        fits: its words fit as they are.
    """
    spans = sorted({one.across for one in sheet.panels})
    overlap = any(b[0] < a[1] - 1e-9 for a, b in itertools.pairwise(spans))
    for one in sheet.panels:
        columns = [one.across] if overlap else spans
        edges = [0.0, *(edge for span in columns for edge in span), 1.0]
        gaps = [
            (b - a) * sheet.inner[0] * sheet.look.scale
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]
        share = (sheet.room - sum(gaps)) / sum(b - a for a, b in columns)
        i = columns.index(one.across)
        left = sum(gaps[: i + 1]) + share * sum(b - a for a, b in columns[:i])
        across = (left / sheet.room, (left + share * (one.across[1] - one.across[0])) / sheet.room)
        sheet.places[one.axis] = replace(one, across=across)
    sheet.plot = sheet.inner[1] * sheet.look.scale
    if fits:
        sheet.margin["t"] = 0.0
        return
    rooms = [(new.across[1] - new.across[0]) * sheet.room for new in sheet.places.values()]
    sheet.margin["b"] = max(
        _fit(sheet, one, room) for one, room in zip(sheet.panels, rooms, strict=True)
    )
    heads = [_above(sheet, one, _to_next(sheet, sheet.places[one.axis])) for one in sheet.panels]
    sheet.margin["t"] = max(heads)


def _to_next(sheet: Sheet, place: Panel) -> float:
    """Pixels from a panel's left end to the next panel, or to the end of the sheet."""
    starts = [
        o.across[0]
        for o in sheet.places.values()
        if o.across[0] > place.across[0] and near(o.up[1], place.up[1])
    ]
    end = min(starts) * sheet.room - 8 if starts else sheet.room + sheet.margin["r"]
    return end - place.across[0] * sheet.room


def _above(sheet: Sheet, panel: Panel, room: float) -> float:
    """Have a panel's heading fit. Returns the room that words take above the panel."""
    letter, heading = sheet.look.letter, sheet.heading(panel)
    highest = (
        1.4 * letter * _wrap(sheet, heading, room / 1.1) if heading else 0.0
    )  # bold letters are wider
    for note in sheet.data["layout"].get("annotations", ()):
        top = (
            panel.up[1]
            if note.get("yref") == "paper"
            else 1.0
            if str(note.get("yref")).endswith("domain")
            else None
        )
        if (
            note is not heading
            and top is not None
            and note["y"] >= top
            and sheet.owner(note) is panel
        ):
            rows = 0 if note.get("yanchor") == "top" else note["text"].count("<br>") + 1
            highest = max(highest, (note.get("yshift") or 0.0) + 1.4 * letter * rows)
    return highest + 6


def _wrap(sheet: Sheet, words: Data, room: float) -> int:
    """Break words in lines that fit, unless there are marks inside them.

    Returns the number of lines.
    """
    inside = re.fullmatch(r"(<b>|<span [^>]*>)?((?:[^<]|<br>)*)(</b>|</span>)?", words["text"])
    if not inside:
        return words["text"].count("<br>") + 1
    parts = [html.unescape(part) for part in inside[2].split("<br>")]
    lines = [
        html.escape(line, quote=False) for part in parts for line in sheet.look.lines(part, room)
    ]
    words["text"] = (inside[1] or "") + "<br>".join(lines) + (inside[3] or "")
    return len(lines)


def _fit(sheet: Sheet, panel: Panel, room: float) -> float:
    """Have the words below a panel and inside it fit. Returns the room that is needed below it."""
    look, axis = sheet.look, sheet.data["layout"].setdefault(f"xaxis{panel.axis}", {})
    if axis.get("ticktext") is not None:
        _thin(axis, look, room)
    title = axis.get("title") or {}
    lines = _wrap(sheet, title, room + 0.3 * sheet.margin["l"]) if title.get("text") else 1
    below = sheet.margin["b"] + (lines - 1) * 1.3 * look.letter
    for note in sheet.data["layout"].get("annotations", ()):
        if note.get("name") == "panel" or sheet.owner(note) is not panel:
            continue
        widest = max(map(look.width, plain_text(note, "\n").split("\n")))
        if note.get("xref") != "paper":
            if widest > 0.6 * room:
                _wrap(sheet, note, 0.5 * room)
            continue
        rows = _wrap(sheet, note, room) if widest > room else note["text"].count("<br>") + 1
        if note.get("yref") == "paper" and note["y"] <= panel.up[0]:  # words under the axis
            lower = (panel.up[0] - note["y"]) * sheet.inner[1] * look.scale - (
                note.get("yshift") or 0.0
            )
            below = max(below, lower + 1.4 * look.letter * rows)
    return below


def _thin(axis: Data, look: Style, room: float) -> None:
    """Leave out labels of an axis, evenly from 0 on, until they fit beside each other."""
    labels = axis["ticktext"]
    widths = [look.width(plain_text({"text": str(label)})) + 0.6 * look.letter for label in labels]
    zero = next((i for i, label in enumerate(labels) if label == "0"), 0)
    every = max(1, math.ceil(sum(widths) / room))
    keep = [i for i in range(len(labels)) if (i - zero) % every == 0]
    axis.update({key: [axis[key][i] for i in keep] for key in ("ticktext", "tickvals")})


def _moved(value: float, old: Span, new: Span, outside: float) -> float:
    """A place in an interval as one in another.

    Beyond its ends, so many times as far away as it was.
    """
    if value < old[0]:
        return new[0] + (value - old[0]) * outside
    if value > old[1]:
        return new[1] + (value - old[1]) * outside
    return new[0] + (value - old[0]) / (old[1] - old[0]) * (new[1] - new[0])


def _move(sheet: Sheet) -> None:
    """Axes, words, shapes and bars of colours to where their panel stands now."""
    layout, scale = sheet.data["layout"], sheet.look.scale
    outside = {
        "x": sheet.inner[0] * scale / sheet.room,
        "y": sheet.inner[1] * scale / sheet.plot,
    }  # pixels stay
    for mark in [*layout.get("annotations", ()), *layout.get("shapes", ())]:
        old = sheet.owner(mark)
        new = sheet.places[old.axis]
        for name, before, after in (("x", old.across, new.across), ("y", old.up, new.up)):
            if (
                mark.get(f"{name}ref", "paper") == "paper"
                and mark.get(f"{name}sizemode") != "pixel"
            ):
                ends = [
                    key
                    for key in (name, f"{name}0", f"{name}1")
                    if isinstance(mark.get(key), (int, float))
                ]
                mark.update({key: _moved(mark[key], before, after, outside[name]) for key in ends})
    for trace, bar in _bars(sheet.data["data"]):
        old = next(
            (one for one in sheet.panels if f"x{one.axis}" == trace.get("xaxis", "x")),
            sheet.panels[-1],
        )
        new = sheet.places[old.axis]
        bar["x"] = _moved(bar.get("x", 1.02), old.across, new.across, outside["x"])
        bar["y"] = _moved(bar.get("y", 0.5), old.up, new.up, outside["y"])
        bar["len"] = bar.get("len", 1.0) * (new.up[1] - new.up[0]) / (old.up[1] - old.up[0])
    for axis, new in sheet.places.items():  # clipped: sums of floats may end a last bit outside
        layout.setdefault(f"xaxis{axis}", {})["domain"] = np.clip(new.across, 0, 1).tolist()
        layout.setdefault(f"yaxis{axis}", {})["domain"] = np.clip(new.up, 0, 1).tolist()


def _bars(traces: Sequence[Data]) -> Iterator[tuple[Data, Data]]:
    for trace in traces:
        for part in (trace, trace.get("marker") or {}):
            if isinstance(part, Mapping) and part.get("showscale") and part.get("colorbar"):
                yield trace, part["colorbar"]


def _finished(sheet: Sheet) -> Figure:
    layout, look = sheet.data["layout"], sheet.look
    for trace in sheet.data["data"]:
        if trace.get("name") and trace.get("showlegend") is not False:
            text = html.unescape(trace["name"]) if "<" not in trace["name"] else ""
            if text:
                trace["name"] = "<br>".join(
                    html.escape(t, quote=False) for t in look.lines(text, sheet.size - 60)
                )
    legend = _legend(sheet) if layout.get("showlegend") is not False else 0.0
    margin = {**sheet.margin, "t": sheet.margin["t"] + legend + 4}
    layout.update(
        width=round(sheet.size),
        height=round(sheet.plot + margin["t"] + margin["b"]),
        margin=margin,
        template=template_of(look),
    )
    layout["legend"] = {
        **{"orientation": "h", "x": 0.01, "xref": "container", "xanchor": "left"},
        **{"y": 1.0, "yref": "container", "yanchor": "top", "tracegroupgap": 0},
    }
    return Figure(sheet.data)


def _legend(sheet: Sheet) -> float:
    """Height of the legend in pixels: one row, or columns as wide as the widest entry."""
    named = [
        t["name"] for t in sheet.data["data"] if t.get("name") and t.get("showlegend") is not False
    ]
    lines = [[re.sub(r"<[^>]*>", "", line) for line in name.split("<br>")] for name in named]
    widths = [40 + max(map(sheet.look.width, each)) for each in lines]
    if not widths:
        return 0.0
    rows = (
        1
        if sum(widths) < sheet.size
        else math.ceil(len(widths) / max(1, int(sheet.size / max(widths))))
    )
    return rows * max(19.0, 1.3 * sheet.look.letter * max(map(len, lines)) + 3) + 4
