"""Where the panels of a drawing stand at a given width, in pixels, and the words around them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from icl_interp.errors import InputError
from icl_interp.figures.axes import Scale, common, scales_of
from icl_interp.figures.colours import GREY
from icl_interp.figures.drawing import Column, Drawing, Matrix, Panel, Span
from icl_interp.figures.fitting import BOLD, SMALL, Size, legend_height, widest, wrapped
from icl_interp.figures.letters import MM
from icl_interp.figures.text import escaped

LEAST = 15 * MM  # that a panel has to have
# Heights of panels, as shares of what the drawing asks for, that are tried one after another where
# a figure would be too tall.
HEIGHTS = (1.0, 0.8, 0.65, 0.5)
FLAT = 0.8  # height of a panel that fills a narrow sheet, at most, as a share of its width
TITLE = 16 / 13  # letters of the title, as shares of the figure's
BELOW = 12 / 13  # of the words below it
DIGITS = 1.18  # how much wider digits are than the mean letter; columns beside rows hold many
TICK = 12 / 13  # of tick labels

# In pixels of the screen.
ROOMY = 115.0  # that a panel beside others has on a screen
EDGE = 24.0  # left free on the right of a panel
BAR = 64.0  # taken by a bar of colours
TICKS = 8.0  # from an axis to its labels
MARGIN = 14.0  # from the labels of an axis to what stands on their left


@dataclass(frozen=True)
class Place:
    """A panel, and where its inner part stands, in pixels from the upper left of the figure.

    Attributes:
        panel: with its marks.
        x, y: its axes.
        left, right, top, bottom: ends of its inner part.
        heading: its title in lines that fit.
        below: height of what stands under it.
        labelled: whether the vertical axis has its labels.
    """

    panel: Panel
    x: Scale
    y: Scale
    left: float
    right: float
    top: float
    bottom: float
    heading: Sequence[str]
    below: float
    labelled: bool

    @property
    def room(self) -> float:
        """Width of the inner part."""
        return self.right - self.left


@dataclass(frozen=True)
class Draft:
    """A panel with its axes, whose place is not known yet.

    Attributes:
        panel: with its marks.
        x, y: its axes.
        labelled: whether the vertical axis has its labels.
    """

    panel: Panel
    x: Scale
    y: Scale
    labelled: bool


@dataclass(frozen=True)
class Sheet:
    """A whole figure, laid out.

    Attributes:
        size: what it is laid out for.
        height: in pixels.
        title: the words above it, marked up.
        legend: names as they are written in it, by name and in order.
        legend_top: pixels from the top to the legend.
        places: of all panels.
    """

    size: Size
    height: float
    title: str
    legend: dict[str, str]
    legend_top: float
    places: Sequence[Place]


def lay_out(drawing: Drawing, size: Size) -> Sheet:
    """Find a place for each panel of a drawing.

    Raises:
        InputError: a panel has no room at this width, even below all others.
    """
    title, legend_top = _title(drawing, size)
    legend = {}
    for name in named(drawing):
        legend[name] = "<br>".join(wrapped(escaped(name), size, size.width - 60))

    lowest = None
    for places in _arrangements(drawing, size):
        # Plotly breaks the legend at the width of what lies between the outer axes.
        room = max(place.right for place in places) - min(place.left for place in places)
        top = legend_top + legend_height(list(legend.values()), size, room) + size.pixels(4)
        placed = [replace(one, top=one.top + top, bottom=one.bottom + top) for one in places]
        height = max(place.bottom + place.below for place in placed)
        sheet = Sheet(size, height, title, legend, legend_top, placed)
        if height <= size.tallest:
            return sheet
        if lowest is None or height < lowest.height:
            lowest = sheet
    assert lowest is not None
    return lowest


def named(drawing: Drawing) -> list[str]:
    """Names in the legend, in its order."""
    found: dict[str, None] = {}
    for panel in drawing.panels:
        for mark in panel.marks:
            name = getattr(mark, "name", "")
            if name and getattr(mark, "listed", True):
                found[name] = None
    first = dict.fromkeys(filter(found.__contains__, drawing.legend))
    return list(first | found)


def _title(drawing: Drawing, size: Size) -> tuple[str, float]:
    """Title and the words below it, and the pixels that they take."""
    if not size.titled:
        return "", size.pixels(4)
    room = size.width - size.pixels(24)
    bold = wrapped(escaped(drawing.title), size, room / (TITLE * BOLD))
    small = wrapped(drawing.below, size, room / BELOW) if drawing.below else []
    text = f"<b>{'<br>'.join(bold)}</b>"
    if small:
        pixels = size.look.letter * BELOW
        style = f"font-size:{pixels:.4g}px;color:{GREY}"
        text += f'<br><span style="{style}">{"<br>".join(small)}</span>'
    # Plotly gives every line the height of the largest letters.
    high = TITLE * size.line * (len(bold) + len(small))
    return text, high + size.pixels(20)


def _arrangements(drawing: Drawing, size: Size) -> Iterator[list[Place]]:
    """Places of all panels, the one that is liked best first; more only where a figure is too tall.

    Then panels are lower. Those of one kind, with one axis, may also stand beside each other on a
    narrow sheet; others have words in them that need the width.

    Raises:
        InputError: a panel has no room at this width, even below all others.
    """
    yield _places(drawing, size)
    most = min(drawing.columns or len(drawing.panels), len(drawing.panels))
    fewest = 1 if size.narrow else most
    if size.narrow and not drawing.same_y:
        most = 1
    for share in HEIGHTS:
        for columns in range(fewest, most + 1):
            places = _in_rows(drawing, size, columns, share)
            if _fits(places, size, columns):
                yield places


def _places(drawing: Drawing, size: Size) -> list[Place]:
    """Panels in rows, as many beside each other as have room; the first row is on top."""
    asked = 1 if size.narrow else drawing.columns or len(drawing.panels)
    narrowest = 0.0
    for columns in range(min(asked, len(drawing.panels)), 0, -1):
        places = _in_rows(drawing, size, columns)
        if _fits(places, size, columns):
            return places
        narrowest = min(place.room for place in places)
    raise InputError(
        f"this figure has no room at {size.width / MM:.0f} mm: a panel would be "
        f"{max(narrowest, 0) / MM:.0f} mm wide, and needs {LEAST / MM:.0f}; ask for a greater "
        "width, or for one panel"
    )


def _fits(places: Sequence[Place], size: Size, columns: int) -> bool:
    """Whether each panel has the room that it needs."""
    narrowest = min(place.room for place in places)
    return narrowest >= LEAST and (columns == 1 or _roomy(places, size))


def _roomy(places: Sequence[Place], size: Size) -> bool:
    """Whether panels beside each other are wide enough to be read, and so for their headings."""
    for i, place in enumerate(places):
        if size.titled and place.room < size.pixels(ROOMY):
            return False
        # A heading may reach to the next panel; the last one in a row, to the edge of the sheet.
        limit = size.width
        if i + 1 < len(places) and places[i + 1].left > place.left:
            limit = places[i + 1].left
        if BOLD * widest("<br>".join(place.heading), size) > limit - place.left:
            return False
    return True


def _in_rows(drawing: Drawing, size: Size, columns: int, share: float = 1.0) -> list[Place]:
    """Panels in rows of so many, from the top down, with a share of the height asked for."""
    shared = common(drawing.panels) if drawing.same_y else None
    drafts = []
    for i, panel in enumerate(drawing.panels):
        x, y = scales_of(panel)
        drafts.append(Draft(panel, x, shared or y, not shared or i % columns == 0))
    ends = _ends(drafts, size, columns)
    top = 0.0
    places: list[Place] = []
    for first in range(0, len(drafts), columns):
        row = slice(first, first + columns)
        placed = _row(drafts[row], ends[row], drawing, size, top, share)
        places += placed
        top = max(place.bottom + place.below for place in placed)
    return places


def _ends(drafts: Sequence[Draft], size: Size, columns: int) -> list[Span]:
    """The left and right end of each panel; panels below each other have the same ends.

    Where a row is one panel, each has its own.
    """
    before = []
    after = []
    for draft in drafts:
        before.append(_before(draft.y, size, draft.labelled))
        after.append(_after(draft.panel, size))
    if columns == 1:
        return [(left, size.width - right) for left, right in zip(before, after, strict=True)]

    # Words on both sides of panels have their room first, and panels share what is left.
    first_row = drafts[:columns]
    lefts = []
    rights = []
    for column in range(len(first_row)):
        lefts.append(max(before[column::columns]))
        rights.append(max(after[column::columns]))
    free = size.width - sum(lefts) - sum(rights)
    unit = free / sum(draft.panel.width for draft in first_row)
    at = 0.0
    ends: list[Span] = []
    for draft, left, right in zip(first_row, lefts, rights, strict=True):
        start = at + left
        at = start + unit * draft.panel.width
        ends.append((start, at))
        at += right
    return [ends[i % columns] for i in range(len(drafts))]


def _row(
    drafts: Sequence[Draft],
    ends: Sequence[Span],
    drawing: Drawing,
    size: Size,
    top: float,
    share: float,
) -> list[Place]:
    """A row of panels beside each other."""
    # Headings may reach to the next panel, or to the columns of words.
    limits = [*(left for left, _ in ends[1:]), size.width]
    headings = []
    lines = 0
    for draft, (left, right), limit in zip(drafts, ends, limits, strict=True):
        panel = draft.panel
        room = (right if panel.y.beside else limit - size.pixels(10)) - left
        headings.append(wrapped(escaped(panel.title), size, room / BOLD) if panel.title else [])
        lines = max(lines, len(headings[-1]), 1 if panel.y.beside else 0)
    top += lines * size.line + size.pixels(9)

    places = []
    for draft, (left, right), heading in zip(drafts, ends, headings, strict=True):
        panel = draft.panel
        bottom = top + _height(panel, drawing, size, right - left, share)
        below = _below(panel, draft.x, size, right - left)
        sides = (left, right, top, bottom)
        places.append(Place(panel, draft.x, draft.y, *sides, heading, below, draft.labelled))
    return places


def _height(panel: Panel, drawing: Drawing, size: Size, room: float, share: float) -> float:
    """Height of a panel: rows need a line each, and narrow panels are not higher than wide.

    With a share below 1 panels are lower, as far as their rows, and the title of their axis, can
    still be read.
    """
    if not panel.marks:
        return 0.0
    asked = size.pixels(panel.height or drawing.height)
    if size.narrow:
        asked = min(asked, FLAT * room)
    if share < 1:
        asked = max(share * asked, size.look.width(panel.y.words))
    if not panel.y.rows:
        return asked
    lines = len("\n".join(panel.y.rows).split("\n")) + panel.y.spare
    row = max(share * size.pixels(panel.row), TICK * size.line)
    return max(asked, row * lines + size.pixels(20))


def _before(y: Scale, size: Size, labelled: bool) -> float:
    """Room on the left of a panel: labels and the title of its axis."""
    if not labelled:
        return size.pixels(TICKS)
    room = size.pixels(MARGIN)
    if y.axis.shown:
        room += TICK * y.label_width(size.look)
    if y.axis.words:
        room += size.line + size.pixels(8)
    return room


def _after(panel: Panel, size: Size) -> float:
    """Room on the right of a panel: columns of words, or a bar of colours."""
    if panel.y.beside:
        return sum(column_width(column, size) for column in panel.y.beside) + size.pixels(16)
    for mark in panel.marks:
        if isinstance(mark, Matrix) and mark.bar is not None:
            return size.pixels(BAR)
    return size.pixels(EDGE)


def column_width(column: Column, size: Size) -> float:
    """Pixels that a column of words beside rows takes."""
    widths = []
    for words in (column.heading, *column.words):
        widths.append(widest(escaped(words), size))
    return SMALL * DIGITS * max(widths) + size.pixels(12)


def x_title(x: Scale, size: Size, room: float) -> list[str]:
    """The title of a horizontal axis, in lines; it may be a little wider than its panel.

    Beside a panel at least `EDGE` and `TICKS` are free, half of which it may take on each side.
    """
    if not x.axis.words:
        return []
    return wrapped(escaped(x.axis.words), size, room + size.pixels(EDGE + TICKS))


def under(panel: Panel, size: Size, room: float) -> list[str]:
    """The words under a panel, in lines."""
    return wrapped(escaped(panel.below), size, room / SMALL) if panel.below else []


def under_axis(panel: Panel, x: Scale, size: Size, room: float) -> float:
    """Pixels that ticks, their labels and the title of the horizontal axis take."""
    if not panel.marks:
        return 0.0
    taken = size.pixels(TICKS)
    if x.axis.shown:
        taken += size.line * x.label_lines()
    lines = len(x_title(x, size, room))
    if lines:
        taken += size.line * lines + size.pixels(6)
    return taken


def _below(panel: Panel, x: Scale, size: Size, room: float) -> float:
    """Room under a panel: its axis, and its own words."""
    words = size.line * len(under(panel, size, room))
    return under_axis(panel, x, size, room) + words + size.pixels(12)
