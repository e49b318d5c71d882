"""A figure on a page of the documentation."""

from typing import Any

import plotly.io
from plotly.graph_objects import Figure

from icl_interp.figures.narrow import narrow

TEXT = 720  # pixels that a page's text is wide on most screens


def div(figure: Any) -> str:
    """HTML with a figure's data and its narrow layout, which static/figures.js draws.

    Args:
        figure: of plotly, or its dict.
    """
    whole = figure if isinstance(figure, Figure) else Figure(figure)
    column = narrow(whole)
    layouts = {"text": column if _across(whole) > 1 else narrow(whole, TEXT), "column": column}
    data = str(plotly.io.to_json({"figure": whole, **layouts}, validate=False))
    data = data.replace("<", "\\u003c")  # no text of a figure can end the script
    return f'<div class="plotly-figure"><script type="application/json">{data}</script></div>'


def _across(figure: Figure) -> int:
    """How many panels stand beside each other."""
    axes = [
        value for key, value in figure.to_plotly_json()["layout"].items() if key.startswith("xaxis")
    ]
    return len({tuple(axis.get("domain", (0, 1))) for axis in axes})
