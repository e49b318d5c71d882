"""Letters and pixels: what a figure's sizes are on a screen and in print."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icl_interp.figures.style import FONT, TEMPLATE

MM = 96 / 25.4  # pixels: files that are made of a figure have 96 of them an inch
PT = 96 / 72
SCREEN = 13  # pixels of a letter where a figure is drawn for the screen
LETTER = 0.54  # mean width of a letter, as a share of its size
Data = dict[str, Any]


@dataclass(frozen=True)
class Style:
    """How letters look in print.

    Attributes:
        font: families, in the order of CSS.
        points: size of the letters.
    """

    font: str = FONT
    points: float = 7.0

    @property
    def letter(self) -> float:
        """Size of the letters in pixels."""
        return self.points * PT

    @property
    def scale(self) -> float:
        """What a pixel of the screen's figure becomes."""
        return self.letter / SCREEN

    def width(self, text: str) -> float:
        """About how many pixels a line of text is wide."""
        return LETTER * self.letter * len(text)


# What plotly counts in pixels, by its name and what it is part of.
_PIXELS = {
    "ticklen",
    "linewidth",
    "standoff",
    "xshift",
    "yshift",
    "thickness",
    "tickwidth",
    "borderpad",
    "arrowwidth",
}


def _is_pixels(key: str, parent: str) -> bool:
    if key == "size":
        return parent.endswith("font") or parent == "marker"
    return key in _PIXELS or (key == "width" and parent in ("line", "error_x", "error_y"))


def scaled(value: Any, scale: float, key: str = "", parent: str = "") -> Any:
    """The same, with everything that is counted in pixels multiplied."""
    if isinstance(value, str):
        return _in_text(value, scale)
    if isinstance(value, Mapping):
        ours = {}
        for name, item in value.items():
            ours[name] = scaled(item, scale, name, key)
        _scale_sides(ours, scale)
        return ours
    several = isinstance(value, (list, tuple, np.ndarray))
    if _is_pixels(key, parent) and value is not None:
        return np.asarray(value) * scale if several else value * scale
    if isinstance(value, (list, tuple)):
        return [scaled(item, scale, key, parent) for item in value]
    return value


def _in_text(text: str, scale: float) -> str:
    """A text in which sizes of letters are multiplied."""

    def smaller(found: re.Match[str]) -> str:
        size = scale * float(found[1])
        return f"font-size:{size:.2f}px"

    return re.sub(r"font-size:([\d.]+)px", smaller, text)


def _scale_sides(shape: Data, scale: float) -> None:
    """Scale the ends of a line or an area that is placed by pixels."""
    for side in "xy":
        if shape.get(f"{side}sizemode") == "pixel":
            shape[f"{side}0"] *= scale
            shape[f"{side}1"] *= scale


def without_tags(marked: str, between: str = " ") -> str:
    """Marked-up words as they are read, their lines joined by `between`."""
    lines = marked.replace("<br>", between)
    plain = re.sub(r"<[^>]*>", "", lines)
    return html.unescape(plain)


def template_of(look: Style) -> Data:
    """The template of all figures, with letters of this look."""
    made = scaled(TEMPLATE.to_plotly_json(), look.scale)
    font = made["layout"]["font"]
    font["family"] = look.font
    font["size"] = look.letter
    marker = {"size": 6 * look.scale}
    line = {"width": 2 * look.scale}
    made["data"] = {"scatter": [{"marker": marker, "line": line}]}
    return made
