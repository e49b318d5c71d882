"""Words of a drawing in the room that they have: how wide they are, and where lines break."""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from icl_interp.figures.letters import MM, PT, SCREEN, Style, without_tags
from icl_interp.figures.style import WIDTH

NARROW = 120 * MM  # up to here panels stand below each other
LINE = 1.3  # height of a line, in letters
BOLD = 1.1  # how much wider bold letters are
SMALL = 11 / 13  # letters of words beside and under panels, as shares of the figure's
TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"(?:<[^>]*>|[^<\s])+")  # to the next space outside a tag
SWATCH = 46.0  # pixels, at every size, that an entry of the legend takes beside its name


@dataclass(frozen=True)
class Size:
    """What a figure is rendered for.

    Attributes:
        width: in pixels.
        look: of the letters.
        titled: whether title and the words below it stand in the figure; papers have captions.
        tallest: pixels that it should not be higher than: panels stand beside each other, and are
            lower, where they would not fit otherwise.
    """

    width: float = float(WIDTH)
    look: Style = field(default_factory=lambda: Style(points=SCREEN / PT))
    titled: bool = True
    tallest: float = math.inf

    @property
    def narrow(self) -> bool:
        """Whether panels stand below each other."""
        return self.width <= NARROW

    @property
    def line(self) -> float:
        """Height of a line in pixels."""
        return LINE * self.look.letter

    def pixels(self, screen: float) -> float:
        """Pixels of the screen's figure as they are here: they shrink as letters do."""
        return screen * self.look.scale


def lines_of(marked: str) -> list[str]:
    """Lines of marked-up words, without tags."""
    return without_tags(marked, "\n").split("\n")


def widest(marked: str, size: Size) -> float:
    """About how many pixels the widest line of marked-up words takes."""
    return max(map(size.look.width, lines_of(marked)))


def wrapped(marked: str, size: Size, room: float) -> list[str]:
    """Marked-up words in lines that fit into so many pixels; tags take no room.

    Letters have the size of the figure's.
    """
    lines: list[str] = []
    for part in marked.split("<br>"):
        lines += _broken(part, size, room)
    return lines


def _broken(part: str, size: Size, room: float) -> list[str]:
    lines = [""]
    at = 0.0
    for word in WORD.findall(part):
        wide = size.look.width(html.unescape(TAG.sub("", word)) + " ")
        if lines[-1] and at + wide > room:
            lines.append("")
            at = 0.0
        lines[-1] += f" {word}" if lines[-1] else word
        at += wide
    return lines


def legend_height(entries: Sequence[str], size: Size, room: float) -> float:
    """Height of the legend, whose entries stand beside each other as far as they fit.

    Args:
        entries: marked up, in lines.
        size: of the figure.
        room: pixels of a row of entries.
    """
    if not entries:
        return 0.0
    rows = 1
    at = 0.0
    highest = 1
    for entry in entries:
        width = SWATCH + widest(entry, size)
        if at and at + width > 0.97 * room:
            rows += 1
            at = 0.0
        at += width
        highest = max(highest, len(lines_of(entry)))
    return rows * max(19.0, size.line * highest + 3) + size.pixels(4)


def ticks_left(labels: Sequence[str], size: Size, room: float) -> np.ndarray:
    """Which labels of a horizontal axis stay, evenly from 0 on, so that they fit."""
    needed = sum(widest(label, size) + 0.6 * size.look.letter for label in labels)
    every = max(1, math.ceil(needed / room))
    zero = labels.index("0") if "0" in labels else 0
    return np.flatnonzero((np.arange(len(labels)) - zero) % every == 0)
