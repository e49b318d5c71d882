"""Where the panels of a drawing stand at a given width, in pixels, and the words around them."""

import math
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
HEIGHTS = (1.0, 0.8, 0.65, 0.5, 0.4)
ROOM = 0.75  # of its share of the width, about what the inner part of a panel on a narrow sheet has
PAIR = 0.65  # of what is asked for, that pairs have at least
FLAT = 0.8  # height of a panel that fills a narrow sheet, at most, as a share of its width
UPRIGHT = 1.1  # of one that stands beside another there
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
        y_title: the title of the vertical axis, in lines.
        labelled: whether the vertical axis has its labels.
        x_labelled: whether the horizontal axis has its labels and title.
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
    y_title: Sequence[str]
    labelled: bool
    x_labelled: bool

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
        y_title: the title of the vertical axis, in lines.
        labelled: whether the vertical axis has its labels.
        x_labelled: whether the horizontal axis has its labels and title.
    """

    panel: Panel
    x: Scale
    y: Scale
    y_title: Sequence[str]
    labelled: bool
    x_labelled: bool = True


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
        # Plotly breaks the legend at the width of what lies between the margins.
        left, right = outer(places, size)
        room = right - left
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


def outer(places: Sequence[Place], size: Size) -> Span:
    """Left and right end of what lies between the margins: of the inner parts of all panels.

    In print it is the whole width. Nobody changes it there, and the legend has more room.
    """
    if not size.titled:
        return 0.0, size.width
    return min(place.left for place in places), max(place.right for place in places)


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
    narrow sheet. Of others at most two do, and only where nothing else helps: they have words in
    them that need the width.

    Raises:
        InputError: a panel has no room at this width, even below all others.
    """
    yield _places(drawing, size)
    most = len(drawing.panels)
    fewest = 1 if size.narrow else min(drawing.columns or most, most)
    if not drawing.same_y:
        most = fewest
    for share in HEIGHTS:
        for columns in range(fewest, most + 1):
            places = _in_rows(drawing, size, _rows(len(drawing.panels), columns), share)
            if _fits(places, size, columns):
                yield places
    for share in HEIGHTS[1:] if size.narrow and not drawing.same_y else ():
        places = _in_rows(drawing, size, _pairs(drawing.panels), share, grid=False)
        if _fits(places, size, 2):
            yield places


def _places(drawing: Drawing, size: Size) -> list[Place]:
    """Panels in rows, as many beside each other as have room; the first row is on top."""
    asked = 1 if size.narrow else drawing.columns or len(drawing.panels)
    narrowest = 0.0
    for columns in range(min(asked, len(drawing.panels)), 0, -1):
        places = _in_rows(drawing, size, _rows(len(drawing.panels), columns))
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
        if i + 1 < len(places) and places[i + 1].top == place.top:
            limit = places[i + 1].left
        if BOLD * widest("<br>".join(place.heading), size) > limit - place.left:
            return False
    return True


def _in_rows(
    drawing: Drawing, size: Size, rows: Sequence[slice], share: float = 1.0, grid: bool = True
) -> list[Place]:
    """Panels in such rows, from the top down.

    Args:
        drawing: of the panels.
        size: of the figure.
        rows: which panels stand beside each other.
        share: of the height that the drawing asks for.
        grid: panels below each other have the same ends; otherwise each row fills the width.
    """
    shared = common(drawing.panels) if drawing.same_y else None
    drafts = []
    for row in rows:
        for i, panel in enumerate(drawing.panels[row]):
            x, y = scales_of(panel)
            y = shared or y
            high = math.inf
            if share < 1:
                room = FLAT * ROOM * size.width / (row.stop - row.start)
                high = share * min(room, size.pixels(panel.height or drawing.height))
            drafts.append(Draft(panel, x, y, y_title(y, size, high), not shared or i == 0))

    if grid:
        ends = _ends(drafts, size, rows[0].stop)
        if share < 1 and rows[0].stop == 1:
            _share_x(drafts, ends)
    else:
        ends = []
        for row in rows:
            ends += _ends(drafts[row], size, row.stop - row.start)

    top = 0.0
    places: list[Place] = []
    for row in rows:
        # Pairs are low already, since they are narrow.
        paired = not grid and row.stop - row.start > 1
        held = max(share, PAIR) if paired else share
        flat = UPRIGHT if paired else FLAT
        placed = _row(drafts[row], ends[row], drawing, size, top, held, flat)
        places += placed
        top = max(place.bottom + place.below for place in placed)
    return places


def _share_x(drafts: list[Draft], ends: list[Span]) -> None:
    """Panels below each other with one horizontal axis get the same ends, and label it once."""
    for i in range(1, len(drafts)):
        above = drafts[i - 1]
        if above.x != drafts[i].x or above.panel.below:
            continue
        drafts[i - 1] = replace(above, x_labelled=False)
        both = (max(ends[i - 1][0], ends[i][0]), min(ends[i - 1][1], ends[i][1]))
        ends[i - 1] = ends[i] = both
    # Ends are narrowed downwards; those above follow.
    for i in reversed(range(1, len(drafts))):
        if not drafts[i - 1].x_labelled:
            ends[i - 1] = ends[i]


def _rows(n_panels: int, columns: int) -> list[slice]:
    """Rows of so many panels; the last one may have fewer."""
    return [slice(at, min(at + columns, n_panels)) for at in range(0, n_panels, columns)]


def _pairs(panels: Sequence[Panel]) -> list[slice]:
    """Rows of two panels; one with named rows stands alone, since names need the width."""
    rows = []
    at = 0
    while at < len(panels):
        two = panels[at : at + 2]
        stop = at + (1 if any(panel.y.rows for panel in two) else len(two))
        rows.append(slice(at, stop))
        at = stop
    return rows


def _ends(drafts: Sequence[Draft], size: Size, columns: int) -> list[Span]:
    """The left and right end of each panel; panels below each other have the same ends.

    Where a row is one panel, each has its own.
    """
    before = []
    after = []
    for draft in drafts:
        before.append(_before(draft, size))
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
    flat: float,
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

    heights = []
    for draft, (left, right) in zip(drafts, ends, strict=True):
        heights.append(_height(draft, drawing, size, flat * (right - left), share))
    if share < 1 or size.narrow:
        # What one panel needs for its title, those beside it take as well.
        heights = [max(heights)] * len(drafts)

    places = []
    for draft, (left, right), heading, high in zip(drafts, ends, headings, heights, strict=True):
        panel = draft.panel
        bottom = top + high
        below = _below(draft, size, right - left)
        sides = (left, right, top, bottom)
        axes = (draft.y_title, draft.labelled, draft.x_labelled)
        places.append(Place(panel, draft.x, draft.y, *sides, heading, below, *axes))
    return places


def _height(draft: Draft, drawing: Drawing, size: Size, highest: float, share: float) -> float:
    """Height of a panel: rows need a line each, and narrow panels are not higher than wide.

    With a share below 1 panels are lower, as far as their rows, and the title and labels of their
    axis, can still be read.
    """
    panel = draft.panel
    if not panel.marks:
        return 0.0
    asked = size.pixels(panel.height or drawing.height)
    if size.narrow:
        asked = min(asked, highest)
    if share < 1:
        asked = max(share * asked, max(map(size.look.width, draft.y_title), default=0.0))

    # Labels of rows have a line each.
    if draft.y.matrix is not None and size.narrow and draft.labelled:
        written = math.ceil(len(draft.y.matrix) / draft.y.settings()["dtick"])
        asked = max(asked, TICK * size.line * written)
    if not panel.y.rows:
        return asked
    lines = len("\n".join(panel.y.rows).split("\n")) + panel.y.spare
    row = max(share * size.pixels(panel.row), TICK * size.line)
    return max(asked, row * lines + size.pixels(20))


def _before(draft: Draft, size: Size) -> float:
    """Room on the left of a panel: labels and the title of its axis."""
    if not draft.labelled:
        return size.pixels(TICKS)
    room = size.pixels(MARGIN)
    if draft.y.axis.shown:
        room += TICK * draft.y.label_width(size.look)
    if draft.y_title:
        room += size.line * len(draft.y_title) + size.pixels(8)
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


def y_title(y: Scale, size: Size, high: float) -> list[str]:
    """The title of a vertical axis: in two lines of about the same length where one is too long.

    Args:
        y: the axis.
        size: of the figure.
        high: pixels that it may be long.
    """
    words = y.axis.words.split(" ")
    if not y.axis.words:
        return []
    best = [y.axis.words]
    if size.look.width(best[0]) <= high:
        return best
    for i in range(1, len(words)):
        lines = [" ".join(words[:i]), " ".join(words[i:])]
        if max(map(size.look.width, lines)) < max(map(size.look.width, best)):
            best = lines
    return best


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


def _below(draft: Draft, size: Size, room: float) -> float:
    """Room under a panel: its axis, and its own words."""
    if not draft.x_labelled:
        return size.pixels(TICKS)
    words = size.line * len(under(draft.panel, size, room))
    return under_axis(draft.panel, draft.x, size, room) + words + size.pixels(12)
