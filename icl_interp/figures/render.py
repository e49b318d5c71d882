"""Drawings as plotly figures, laid out for the width that is asked for."""

from collections.abc import Sequence
from dataclasses import replace

from plotly.graph_objects import Figure

from icl_interp.errors import InputError, unknown
from icl_interp.figures.drawing import Bars, Drawing, Panel
from icl_interp.figures.fitting import Size, lines_of
from icl_interp.figures.layout import TITLE, Sheet, lay_out, outer
from icl_interp.figures.letters import Data, template_of
from icl_interp.figures.painter import Painter
from icl_interp.figures.text import escaped
from icl_interp.figures.traces import LISTED, NAME

DRAWING = "_icl_interp_drawing"  # plotly lets figures keep what begins with an underscore
RANK = 1000  # plotly's own for entries of a legend


def render(drawing: Drawing, size: Size | None = None) -> Figure:
    """A drawing as a plotly figure.

    Args:
        drawing: what is shown.
        size: what it is rendered for; a screen by default.

    Raises:
        InputError: a panel has no room at this width.
    """
    size = size or Size()
    sheet = lay_out(drawing, size)
    layout: Data = {"template": template_of(size.look), "hovermode": "closest"}
    layout |= {"width": round(size.width), "height": round(sheet.height)}
    layout["margin"] = _margin(sheet)
    layout["legend"] = _legend(sheet)
    layout |= _bars(drawing)
    if size.titled:
        layout["title"] = _title(sheet)
    else:
        layout["meta"] = {"title": plain_title(drawing)}

    # Panels add their axes, words and shapes to the layout.
    layout |= {"annotations": [], "shapes": []}
    traces: list[Data] = []
    for number, place in enumerate(sheet.places, 1):
        own = "" if number == 1 else str(number)
        Painter(sheet, place, own, layout, traces).paint()
    _list_names(traces, sheet)
    figure = Figure({"data": traces, "layout": layout})
    setattr(figure, DRAWING, (drawing, size))
    return figure


def rendered(drawn: Drawing | Figure) -> Figure:
    """A drawing for the screen; a figure of plotly as it is."""
    return render(drawn) if isinstance(drawn, Drawing) else drawn


def drawing_of(figure: Figure) -> Drawing | None:
    """The drawing that a figure shows; None where it was drawn or changed by hand."""
    known = getattr(figure, DRAWING, None)
    if known is None:
        return None
    drawing, size = known
    return drawing if render(drawing, size).to_json() == figure.to_json() else None


def alone(drawing: Drawing, panel: int | str) -> Drawing:
    """A drawing of one panel, without the heading of the panel.

    Args:
        drawing: of several panels.
        panel: its number in reading order, from 1, or how its heading begins.

    Raises:
        InputError: there is no such panel.
    """
    return replace(drawing, panels=(replace(chosen(drawing, panel), title=""),))


def chosen(drawing: Drawing, panel: int | str) -> Panel:
    """One panel of a drawing; arguments are those of `alone`."""
    panels = drawing.panels
    if isinstance(panel, int):
        if not 1 <= panel <= len(panels):
            raise InputError(f"panel must be from 1 to {len(panels)}, but got {panel}")
        return panels[panel - 1]
    names = [_words(one.title) for one in panels]
    found = [i for i, name in enumerate(names) if name and name.startswith(panel)]
    if len(found) != 1:
        raise unknown("panel", panel, list(filter(None, names)))
    return panels[found[0]]


def _words(title: str) -> str:
    return " ".join(lines_of(escaped(title)))


def plain_title(drawing: Drawing) -> str:
    """Title and the words below it, without tags, as a caption begins."""
    return f"{_words(drawing.title)} {' '.join(lines_of(drawing.below))}".strip()


def _margin(sheet: Sheet) -> Data:
    """What is left around all panels."""
    left, right = outer(sheet.places, sheet.size)
    top = min(place.top for place in sheet.places)
    bottom = max(place.bottom for place in sheet.places)
    return {"l": left, "t": top, "r": sheet.size.width - right, "b": sheet.height - bottom}


def _title(sheet: Sheet) -> Data:
    pixels = sheet.size.pixels
    title: Data = {"text": sheet.title, "font": {"size": TITLE * sheet.size.look.letter}}
    title |= {"x": 0, "xref": "container", "xanchor": "left"}
    title |= {"y": 1, "yref": "container", "yanchor": "top"}
    return title | {"pad": {"l": pixels(12), "t": pixels(18)}}


def _legend(sheet: Sheet) -> Data:
    legend: Data = {"orientation": "h", "tracegroupgap": 0}
    legend |= {"x": 0.01, "xref": "container", "xanchor": "left"}
    y = 1 - sheet.legend_top / sheet.height
    return legend | {"y": y, "yref": "container", "yanchor": "top"}


def _bars(drawing: Drawing) -> Data:
    """How bars of one place stand."""
    stacked = False
    for panel in drawing.panels:
        stacked |= any(isinstance(mark, Bars) and mark.stacked for mark in panel.marks)
    return {"barmode": "stack" if stacked else "group", "bargap": 0.25}


def _list_names(traces: Sequence[Data], sheet: Sheet) -> None:
    """Let each name stand in the legend once, in its order."""
    order = list(sheet.legend)
    seen: set[str] = set()
    for trace in traces:
        name = trace.pop(NAME, "")
        listed = trace.pop(LISTED, True) and bool(name) and name not in seen
        trace["showlegend"] = listed
        if name:
            trace["legendgroup"] = name
            trace["name"] = sheet.legend.get(name, escaped(name))
        if listed:
            trace["legendrank"] = RANK + order.index(name)
            seen.add(name)
