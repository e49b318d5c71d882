"""The look of every figure: a white template, colour-blind safe colours, and the symlog axis."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.figures.colours import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    YELLOW,
)
from icl_interp.figures.text import MINUS, number, plain, without_foreign_tags

__all__ = ["Figure"]  # the type, for those who may not import plotly

WIDTH = 1080
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Look:
    """How a verdict is shown: a word, a sign and colours; never by colour alone."""

    word: str
    sign: str
    colour: str
    ink: str  # the same, dark enough for small print on white
    pale: str  # for areas


VERDICTS = {
    "supported": Look("supported", "✓", BLUE, "#005A8C", "#D6E9F5"),
    "contradicted": Look("contradicted", "✗", ORANGE, "#AB4A00", "#F9E3D3"),
    "inconclusive": Look("inconclusive", "?", GREY, "#555555", "#EDEDED"),
    "not_applicable": Look("not applicable", "–", PALE, "#767676", "#F5F5F5"),
}

_AXIS = {
    "showline": True,
    "linecolor": INK,
    "linewidth": 1,
    "ticks": "outside",
    "ticklen": 4,
    "tickcolor": INK,
    "showgrid": False,
    "zeroline": False,
    "exponentformat": "power",
    "minexponent": 4,
    "automargin": True,
    "title": {"standoff": 6, "font": {"size": 13}},
    "tickfont": {"size": 12},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": [BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW],
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
        "annotationdefaults": {"font": {"size": 12}, "showarrow": False},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
        },
    }
)


def safe(figure: Figure) -> Figure:
    """The figure without any tag in its texts that figures here do not use.

    Whoever draws passes what they were given through `plain`; this holds for what one of them
    forgets.
    """
    changed = False

    def cleaned(value: Any) -> Any:
        nonlocal changed
        if isinstance(value, str):
            text = without_foreign_tags(value)
            changed |= text != value
            return text
        if isinstance(value, dict):
            return {key: cleaned(item) for key, item in value.items()}
        if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
            value = value.tolist()
        return [cleaned(item) for item in value] if isinstance(value, (list, tuple)) else value

    data = cleaned(figure.to_plotly_json())
    return Figure(data) if changed else figure


def log_axis(title: str, low: float, high: float, at_most: int = 9) -> dict[str, Any]:
    """A logarithmic axis from `low` to `high`, with at most one label a decade.

    Where the range holds hardly any power of ten, labels stand at 1, 2 and 5, too.
    """
    first, last = np.log10(low), np.log10(high)
    decades = np.arange(np.ceil(first - 1e-9), np.floor(last + 1e-9) + 1)
    if len(decades) > 2:
        every = int(np.ceil(len(decades) / at_most))
        ticks = [10.0**d for d in decades if d % every == 0]
    else:
        ticks = [m * 10.0**d for d in np.arange(np.floor(first), last + 1) for m in (1, 2, 5)]
        ticks = [t for t in ticks if low <= t <= high]
    return {
        "type": "log",
        "range": [float(first), float(last)],
        "title": {"text": title},
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [tick(t) for t in ticks],
    }


def rows_axis(labels: list[str], shown: bool = True, spare: float = 0.0) -> dict[str, Any]:
    """A vertical axis with a named row each, the first on top.

    Args:
        labels: text, in lines of its own.
        shown: write the labels.
        spare: rows of room below for words.
    """
    ticks, texts = (
        list(range(len(labels))),
        [plain(label).replace("\n", "<br>") for label in labels],
    )
    return {
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": texts,
        "showticklabels": shown,
        "ticks": "",
        "range": [len(labels) - 0.4 + spare, -0.6],
        "showgrid": True,
        "gridcolor": FAINT,
        "showline": False,
        "fixedrange": True,
    }


def joined(curves: np.ndarray) -> np.ndarray:
    """Rows one after the other with a NaN between them, which plotly draws as separate lines."""
    rows = np.asarray(curves, dtype=float)
    return np.concatenate([rows, np.full((len(rows), 1), np.nan)], 1).ravel()[:-1]


def ranged(values: list[float], share: float = 0.06) -> list[float]:
    """A range that holds all finite values, and a margin."""
    finite = [v for v in values if np.isfinite(v)]
    low, high = min(finite), max(finite)
    pad = share * ((high - low) or abs(high) or 1.0)
    return [low - pad, high + pad]


@dataclass(frozen=True)
class Symlog:
    """A symmetric-log axis, which plotly lacks.

    It is linear up to `threshold`, then has one unit a decade, in both directions.

    >>> axis = Symlog(0.1)
    >>> axis(np.array([-10.0, -0.1, 0.05, 0.1, 1e6])).round(9).tolist()
    [-3.0, -1.0, 0.5, 1.0, 8.0]
    >>> axis.back(axis(np.array([-10.0, 0.05]))).round(9).tolist()
    [-10.0, 0.05]
    """

    threshold: float

    def __call__(self, values: np.ndarray | float) -> np.ndarray:
        """Where values lie on the axis."""
        scaled = np.asarray(values, dtype=float) / self.threshold
        size = np.maximum(np.abs(scaled), 1.0)
        return np.where(np.abs(scaled) <= 1, scaled, np.sign(scaled) * (1 + np.log10(size)))

    def back(self, places: np.ndarray) -> np.ndarray:
        """The values at places on the axis."""
        places = np.asarray(places, dtype=float)
        outside = np.sign(places) * 10 ** (np.abs(places) - 1)
        return self.threshold * np.where(np.abs(places) <= 1, places, outside)

    def axis(self, largest: float, every: int = 1) -> dict[str, Any]:
        """Tick places and labels up to `largest`, each decade or each so many, 0 among them."""
        decades = range(0, int(np.floor(np.log10(largest / self.threshold) + 1e-9)) + 1, every)
        sizes = [self.threshold * 10.0**k for k in decades]
        places = [float(self(np.array(v))) for v in sizes]
        labels = [tick(v) for v in sizes]
        return {
            "tickmode": "array",
            "tickvals": [-p for p in reversed(places)] + [0.0] + places,
            "ticktext": [MINUS + text for text in reversed(labels)] + ["0"] + labels,
        }


def tick(value: float) -> str:
    """A tick label: powers of ten beyond 100 either way as powers."""
    exponent = np.log10(value)
    if abs(exponent) > 2.5 and abs(exponent - round(exponent)) < 1e-9:
        return f"10<sup>{round(exponent)}</sup>".replace("-", MINUS)
    return number(value)
