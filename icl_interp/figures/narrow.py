"""A figure on a narrow screen: its panels stand below each other, and its words take more lines.

No number changes.
"""

import html
import re
from typing import Any

import plotly.io
from plotly.graph_objects import Figure

from icl_interp.errors import InputError
from icl_interp.figures.fitting import Size
from icl_interp.figures.paper import for_paper
from icl_interp.figures.render import drawing_of, render
from icl_interp.figures.sheet import MM, PT, SCREEN, Data, Style
from icl_interp.figures.style import GREY

WIDTH = 440.0  # pixels that the figure is laid out for; it is as wide as its page has room
LIMIT = 700  # pixels: wider screens show figures as they are
TITLE, SMALL = 16, 12  # pixels of letters
# A figure takes the size of its frame.
_SCRIPT = """
(function () {
  const plot = document.getElementById("{plot_id}"), frame = plot.parentElement.style, narrow = NARROW;
  const wide = {data: plot.data, layout: plot.layout, height: frame.height};
  const data = wide.data.map((trace, i) => {
    const {bar, ...changed} = narrow.traces[i];
    const marker = bar ? {marker: Object.assign({}, trace.marker, {colorbar: bar})} : {};
    return Object.assign({}, trace, changed, marker);
  });
  const layout = Object.assign({template: wide.layout.template, autosize: true}, narrow.layout);
  const screen = matchMedia("screen and (max-width: LIMITpx)");
  const draw = () => {
    frame.height = screen.matches ? layout.height + "px" : wide.height;
    return screen.matches ? Plotly.react(plot, data, layout) : Plotly.react(plot, wide.data, wide.layout);
  };
  screen.addEventListener("change", draw);
  if (screen.matches) draw();
})();
"""


def narrow(figure: Figure, width: float = WIDTH) -> Data | None:
    """What a figure changes on a narrow screen.

    Args:
        figure: of a report or an experiment; it is not changed.
        width: pixels; up to 453 (120 mm) panels stand below each other, else beside each other.

    Returns:
        "layout", whole but for its template and width, and "traces": for each trace the name and
        the bar of colours that it has then ("bar" is that of its markers). None for a table, or
        where a panel would have no room: such a figure keeps its width.
    """
    drawing = drawing_of(figure)
    if drawing is not None:
        laid = render(drawing, Size(width)).to_plotly_json()
        return {
            "layout": _without(laid["layout"]),
            "traces": [_changed(trace) for trace in laid["data"]],
        }
    if (figure.to_plotly_json()["layout"].get("meta") or {}).get("layout") == "fixed":
        return None
    try:
        laid = for_paper(figure, width / MM, style=Style(points=SCREEN / PT)).to_plotly_json()
    except InputError:
        return None
    layout = _without(laid["layout"])
    _head(layout, (figure.to_plotly_json()["layout"].get("title") or {}).get("text", ""), width)
    return {"layout": layout, "traces": [_changed(trace) for trace in laid["data"]]}


def _without(layout: Data) -> Data:
    """A layout without what the page's figure keeps."""
    return {key: value for key, value in layout.items() if key not in ("template", "width", "meta")}


def script(figure: Figure) -> str | None:
    """JavaScript that lays a drawn figure out anew on a narrow screen; None if not needed."""
    changes = narrow(figure)
    if changes is None:
        return None
    data = str(
        plotly.io.to_json(changes, validate=False)
    )  # with \u003c for <, so that no text ends the script
    return _SCRIPT.replace("LIMIT", str(LIMIT)).replace("NARROW", data)


def _changed(trace: Data) -> Data:
    bar: Any = (trace.get("marker") or {}).get("colorbar")
    return {key: trace[key] for key in ("name", "colorbar") if key in trace} | (
        {"bar": bar} if bar else {}
    )


def _head(layout: Data, title: str, width: float) -> None:
    """Put the title and the words below it above the legend, in as many lines as they need."""
    bold, _, below = title.partition("</b>")
    parts = [
        ("<b>{}</b>", _lines(bold, TITLE * 1.08, width)),  # bold letters are wider
        (
            f'<span style="font-size:{SMALL}px;color:{GREY}">{{}}</span>',
            _lines(below, SMALL, width),
        ),
    ]
    text = "<br>".join(form.format("<br>".join(lines)) for form, lines in parts if lines)
    if not text:
        return
    room = 16 + 1.3 * TITLE * (
        text.count("<br>") + 1
    )  # every line is as high as those of the title
    layout["margin"]["t"] += room
    layout["height"] = round(layout["height"] + room)
    layout["legend"]["y"] = 1 - room / layout["height"]
    layout["title"] = {
        **{
            "text": text,
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
        },
        **{"yanchor": "top", "pad": {"l": 4, "t": 12}, "font": {"size": TITLE}},
    }


def _lines(marked: str, size: float, width: float) -> list[str]:
    """The words of a marked-up text, in lines that fit."""
    rows = [
        re.sub(r"<[^>]*>", "", row.replace("<sup>", "^")).strip() for row in marked.split("<br>")
    ]
    lines = [
        line
        for row in rows
        if row
        for line in Style(points=size / PT).lines(html.unescape(row), width - 24)
    ]
    return [html.escape(line, quote=False) for line in lines]
