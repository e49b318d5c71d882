"""A figure laid out anew for print: its panels, what belongs to each, and smaller pixel sizes."""

import copy
import html
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, unknown
from icl_interp.figures.style import FONT, TEMPLATE

MM = 96 / 25.4  # pixels: files that are made of a figure have 96 of them an inch
PT = 96 / 72
SCREEN = 13  # pixels of a letter where a figure is drawn for the screen
LETTER = 0.54  # mean width of a letter, as a share of its size
Span = tuple[float, float]
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

    def lines(self, text: str, room: float) -> list[str]:
        """Text in lines that fit into so many pixels."""
        return textwrap.wrap(text, max(8, int(room / (LETTER * self.letter)))) or [""]


@dataclass(frozen=True)
class Panel:
    """A pair of axes, and where it stands: shares of the inner part of its figure.

    Attributes:
        axis: what plotly writes behind "xaxis" and "yaxis".
        across: left and right end. up: lower and upper end.
    """

    axis: str
    across: Span
    up: Span


@dataclass
class Sheet:
    """A figure that is being laid out.

    Attributes:
        data: of the figure; pixels are those of print.
        look: of its letters.
        size: width in pixels.
        inner: width and height of the screen's inner part, in its own pixels.
        margin: around the inner part, in pixels of print.
        panels: where they stood on the screen.
        places: where they stand in print, by axis.
        plot: height of the inner part.
    """

    data: Data
    look: Style
    size: float
    inner: Span
    margin: dict[str, float]
    panels: list[Panel]
    places: dict[str, Panel] = field(default_factory=dict)
    plot: float = 0.0

    @property
    def room(self) -> float:
        """Width of the inner part in print."""
        return self.size - self.margin["l"] - self.margin["r"]

    def heading(self, panel: Panel) -> Data | None:
        """The words above a panel."""
        for note in self.data["layout"].get("annotations", ()):
            if (
                note.get("name") == "panel"
                and near(note["x"], panel.across[0])
                and near(note["y"], panel.up[1])
            ):
                return note
        return None

    def owner(self, mark: Data) -> Panel:
        """The panel that an annotation or a shape belongs to: by its axes, or by its place."""
        refs = [str(mark.get(ref) or "paper").removesuffix(" domain") for ref in ("xref", "yref")]
        for one in self.panels:
            if refs[0] == f"x{one.axis}" or refs[1] == f"y{one.axis}":
                return one
        x, y = (mark.get(name, mark.get(f"{name}0", 0.0)) for name in "xy")
        return min(self.panels, key=lambda one: outside(x, one.across) + outside(y, one.up))

    def before(self, panel: Panel) -> float:
        """Room on the left of a panel, for the words of its axis, in pixels of the screen."""
        row = [one for one in self.panels if one.up[1] > panel.up[0] and one.up[0] < panel.up[1]]
        left = [one for one in row if one.across[1] <= panel.across[0] + 1e-9]
        if not left:
            return panel.across[0] * self.inner[0] + self.margin["l"] / self.look.scale
        last = max(left, key=lambda one: one.across[1])
        return (panel.across[0] - last.across[1]) * self.inner[0] - self.after(last)

    def after(self, panel: Panel) -> float:
        """Room on the right of a panel that its own words take, in pixels of the screen."""
        room = 0.0
        for note in self.data["layout"].get("annotations", ()):
            if note.get("xref") == f"x{panel.axis} domain" and note.get("x") == 1:
                words = max(map(len, plain_text(note, "\n").split("\n"))) * LETTER * SCREEN
                right = note.get("xanchor") == "right"
                room = max(
                    room, note.get("xshift", 0.0) / self.look.scale + (0.0 if right else words)
                )
        return room


def sheet_of(figure: Figure, look: Style, size: float) -> Sheet:
    """A figure without its title, its pixels scaled so that letters have their size in print."""
    data = copy.deepcopy(figure.to_plotly_json())
    layout = data["layout"]
    title = (layout.pop("title", None) or {}).get("text", "")
    layout["meta"] = {"title": html.unescape(re.sub(r"<[^>]*>", " ", title)).strip()}
    layout.pop("template", None)
    margin = {side: float(layout.get("margin", {}).get(side, 60)) for side in "lrtb"}
    inner = (
        layout.get("width", 700) - margin["l"] - margin["r"],
        layout.get("height", 450) - margin["t"] - margin["b"],
    )
    panels = [
        Panel(key[5:], _domain(layout[key]), _domain(layout.get("yaxis" + key[5:], {})))
        for key in layout
        if key.startswith("xaxis")
    ]
    panels.sort(key=lambda one: (-round(one.up[1], 6), one.across[0]))
    small = {side: look.scale * pixels for side, pixels in margin.items()}
    return Sheet(
        scaled(data, look.scale),
        look,
        size,
        inner,
        small,
        panels or [Panel("", (0.0, 1.0), (0.0, 1.0))],
    )


def chosen(sheet: Sheet, panel: int | str) -> Panel:
    """One panel, by its number in reading order, from 1, or by how its heading begins.

    Raises:
        InputError: there is no such panel.
    """
    names = [plain_text(sheet.heading(one)) for one in sheet.panels]
    if isinstance(panel, int):
        if not 1 <= panel <= len(names):
            raise InputError(f"panel must be from 1 to {len(names)}, but got {panel}")
        return sheet.panels[panel - 1]
    found = [
        one
        for one, name in zip(sheet.panels, names, strict=True)
        if name and name.startswith(panel)
    ]
    if len(found) != 1:
        raise unknown("panel", panel, [name for name in names if name])
    return found[0]


def _domain(axis: Data) -> Span:
    low, high = axis.get("domain") or (0.0, 1.0)
    return low, high


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
        return re.sub(
            r"font-size:([\d.]+)px",
            lambda found: f"font-size:{float(found[1]) * scale:.2f}px",
            value,
        )
    if isinstance(value, Mapping):
        ours = {name: scaled(item, scale, name, key) for name, item in value.items()}
        for side in "xy":  # a line or an area that is placed by pixels
            if ours.get(f"{side}sizemode") == "pixel":
                ours |= {f"{side}{end}": ours[f"{side}{end}"] * scale for end in (0, 1)}
        return ours
    if _is_pixels(key, parent) and value is not None:
        return (
            np.asarray(value) * scale
            if isinstance(value, (list, tuple, np.ndarray))
            else value * scale
        )
    return (
        [scaled(item, scale, key, parent) for item in value]
        if isinstance(value, (list, tuple))
        else value
    )


def near(a: float, b: float) -> bool:
    """Whether two shares of a figure are one place."""
    return abs(a - b) < 1e-6


def plain_text(note: Data | None, between: str = " ") -> str:
    """The words of an annotation without marks, its lines joined by `between`."""
    return (
        html.unescape(re.sub(r"<[^>]*>", "", note["text"].replace("<br>", between))) if note else ""
    )


def outside(value: float, span: Span) -> float:
    """How far a value lies outside an interval."""
    return max(span[0] - value, value - span[1], 0.0)


def template_of(look: Style) -> Data:
    """The template of all figures, with letters of this look."""
    made = scaled(TEMPLATE.to_plotly_json(), look.scale)
    made["layout"]["font"] = {**made["layout"]["font"], "family": look.font, "size": look.letter}
    made["data"] = {
        "scatter": [{"marker": {"size": 6 * look.scale}, "line": {"width": 2 * look.scale}}]
    }
    return made
