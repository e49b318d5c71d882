"""A figure on a narrow screen: its panels stand below each other, and its words take more lines.

No number changes.
"""

from typing import Any

import plotly.io
from plotly.graph_objects import Figure

from icl_interp.figures.fitting import Size
from icl_interp.figures.letters import Data
from icl_interp.figures.render import drawing_of, render
from icl_interp.figures.slider import stepped, steps_of

WIDTH = 440.0  # pixels that the figure is laid out for; it is as wide as its page has room
LIMIT = 1000  # pixels: wider screens show figures as they are
# A figure takes the size of its frame.
_SCRIPT = """
(function () {
  const plot = document.getElementById("{plot_id}"), frame = plot.parentElement.style, \
narrow = NARROW;
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
    return screen.matches ? Plotly.react(plot, data, layout) : \
Plotly.react(plot, wide.data, wide.layout);
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
        the bar of colours that it has then ("bar" is that of its markers). None for a figure that
        was drawn or changed by hand: it keeps its width.
    """
    drawing = drawing_of(figure)
    steps = steps_of(figure)
    if drawing is not None:
        laid = render(drawing, Size(width)).to_plotly_json()
    elif steps is not None:
        laid = stepped(steps, Size(width)).to_plotly_json()
    else:
        return None
    return {"layout": _without(laid["layout"]), "traces": list(map(_changed, laid["data"]))}


def _without(layout: Data) -> Data:
    """A layout without what the page's figure keeps."""
    kept = dict(layout)
    for key in ("template", "width", "meta"):
        kept.pop(key, None)
    return kept


def script(figure: Figure) -> str | None:
    """JavaScript that lays a drawn figure out anew on a narrow screen; None if not needed."""
    changes = narrow(figure)
    if changes is None:
        return None
    # With \u003c for <, so that no text ends the script.
    data = str(plotly.io.to_json(changes, validate=False))
    return _SCRIPT.replace("LIMIT", str(LIMIT)).replace("NARROW", data)


def _changed(trace: Data) -> Data:
    changed = {key: trace[key] for key in ("name", "colorbar") if key in trace}
    bar: Any = (trace.get("marker") or {}).get("colorbar")
    if bar:
        changed["bar"] = bar
    return changed
