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
        if isinstance(value, (list, tuple)):
            return list(map(cleaned, value))
        return value

    data = cleaned(figure.to_plotly_json())
    return Figure(data) if changed else figure


def log_axis(title: str, low: float, high: float, at_most: int = 9) -> dict[str, Any]:
    """A logarithmic axis from `low` to `high`, with at most one label a decade.

    Where the range holds hardly any power of ten, labels stand at 1, 2 and 5, too.
    """
    first = np.log10(low)
    last = np.log10(high)
    decades = np.arange(np.ceil(first - 1e-9), np.floor(last + 1e-9) + 1)
    ticks = []
    if len(decades) > 2:
        every = int(np.ceil(len(decades) / at_most))
        for decade in decades:
            if decade % every == 0:
                ticks.append(10.0**decade)
    else:
        for decade in np.arange(np.floor(first), last + 1):
            for digit in (1, 2, 5):
                place = digit * 10.0**decade
                if low <= place <= high:
                    ticks.append(place)
    return {
        "type": "log",
        "range": [float(first), float(last)],
        "title": {"text": title},
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": list(map(tick, ticks)),
    }


def rows_axis(labels: list[str], shown: bool = True, spare: float = 0.0) -> dict[str, Any]:
    """A vertical axis with a named row each, the first on top.

    Args:
        labels: text, in lines of its own.
        shown: write the labels.
        spare: rows of room below for words.
    """
    return {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": [plain(label).replace("\n", "<br>") for label in labels],
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
    gaps = np.full((len(rows), 1), np.nan)
    with_gaps = np.concatenate([rows, gaps], 1)
    return with_gaps.ravel()[:-1]  # none after the last row


def ranged(values: list[float], share: float = 0.06) -> list[float]:
    """A range that holds all finite values, and a margin."""
    finite = [v for v in values if np.isfinite(v)]
    low = min(finite)
    high = max(finite)
    length = (high - low) or abs(high) or 1.0
    pad = share * length
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
        size = np.abs(scaled)
        decades = np.log10(np.maximum(size, 1.0))
        outside = np.sign(scaled) * (1 + decades)
        return np.where(size <= 1, scaled, outside)

    def back(self, places: np.ndarray) -> np.ndarray:
        """The values at places on the axis."""
        places = np.asarray(places, dtype=float)
        size = np.abs(places)
        outside = np.sign(places) * 10 ** (size - 1)
        return self.threshold * np.where(size <= 1, places, outside)

    def axis(self, largest: float, every: int = 1) -> dict[str, Any]:
        """Tick places and labels up to `largest`, each decade or each so many, 0 among them."""
        n_decades = int(np.floor(np.log10(largest / self.threshold) + 1e-9))
        places = [0.0]
        labels = ["0"]
        for decade in range(0, n_decades + 1, every):
            size = self.threshold * 10.0**decade
            place = float(self(np.array(size)))
            places = [-place, *places, place]
            label = tick(size)
            labels = [MINUS + label, *labels, label]
        return {"tickmode": "array", "tickvals": places, "ticktext": labels}


def tick(value: float) -> str:
    """A tick label: powers of ten beyond 100 either way as powers."""
    exponent = np.log10(value)
    if abs(exponent) > 2.5 and abs(exponent - round(exponent)) < 1e-9:
        return f"10<sup>{round(exponent)}</sup>".replace("-", MINUS)
    return number(value)
