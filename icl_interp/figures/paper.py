"""Figures for print: size in millimetres, letters in points, no title, since papers have captions.

A figure is laid out anew, and no number in it changes: at the width of a column its panels stand
below each other, at the width of a page they stand as they do in the report. Where it would be too
tall, panels are lower, label an axis that they share once, and at last stand in pairs.
"""

from plotly.graph_objects import Figure

from icl_interp.errors import InputError, logger, shown, unknown
from icl_interp.figures.drawing import Drawing
from icl_interp.figures.fitting import Size
from icl_interp.figures.letters import MM, Style, scaled, template_of, without_tags
from icl_interp.figures.render import alone, drawing_of, render
from icl_interp.figures.slider import steps_of

log = logger(__name__)

WIDTHS = {"column": 85.0, "page": 175.0}  # mm
TALLEST = 120.0  # mm: more leaves no room for text on a page
STYLES = {
    "sans": Style(),
    "serif": Style("'Times New Roman', Times, 'Liberation Serif', serif", 8.0),
}
MARGIN = 60.0  # pixels of the screen around a figure that names no margin
HEIGHT = 450.0  # of one that names no height


def for_paper(
    figure: Figure,
    width: str | float = "column",
    panel: int | str | None = None,
    style: str | Style = "sans",
    height: float = TALLEST,
) -> Figure:
    """A figure in the size that it has in print.

    `write_image("name.pdf")` of what is returned gives a file of that size; a PNG of 300 dots an
    inch needs `scale=300 / 96`. The words that stood above the figure are in
    `layout.meta["title"]`. Of a figure with a slider its first step is drawn. Panels of a figure
    that was drawn or changed by hand stay where they are.

    Args:
        figure: of a report, an experiment or `icl_interp.figures`, or one of your own; it is not
            changed.
        width: "column" (85 mm), "page" (175 mm), or a number of millimetres.
        panel: only this panel: its number in reading order, from 1, or how its heading begins.
        style: "sans" (Helvetica, 7 pt), "serif" (Times, 8 pt), or a `Style`.
        height: millimetres that it should not be higher than. Its panels are arranged for that as
            far as they stay readable, so a figure of many rows may still be higher; a warning
            says so. `math.inf` leaves them as they are.

    Raises:
        InputError: no such width, height, panel or style, the figure has no room at this width, or
            one panel is asked for of a figure that was drawn or changed by hand.
    """
    look = style if isinstance(style, Style) else STYLES.get(style)
    if look is None:
        raise unknown("style", style, STYLES)
    size = _pixels(width)
    if not height > 0:
        raise InputError(f"height must be a positive number of millimetres, got {shown(height)}")
    drawing = drawing_of(figure)
    if steps := steps_of(figure):
        drawing = steps.first
    if drawing is not None:
        shown_alone = drawing if panel is None else alone(drawing, panel)
        return _drawn(shown_alone, Size(size, look, titled=False, tallest=height * MM))
    if panel is not None:
        raise InputError(
            "this figure was drawn or changed by hand, so that its panels are not known: leave out "
            "panel, or choose the panel first and then change the figure"
        )
    return _by_hand(figure, size, look)


def _drawn(drawing: Drawing, size: Size) -> Figure:
    """The figure; a warning tells where it is taller than asked for."""
    figure = render(drawing, size)
    tall = figure.to_dict()["layout"]["height"] / MM
    asked = size.tallest / MM
    if tall > asked + 1:
        log.warning(
            "this figure is %.0f mm tall at a width of %.0f mm, where %g mm were asked for: "
            'width="page" or one panel makes it lower',
            tall,
            size.width / MM,
            asked,
        )
    return figure


def _pixels(width: str | float) -> float:
    if isinstance(width, str):
        if width not in WIDTHS:
            raise unknown("width", width, WIDTHS)
        return WIDTHS[width] * MM
    if not 40 <= width <= 400:
        raise InputError(f"width must be from 40 to 400 millimetres, but got {shown(width)}")
    return width * MM


def _by_hand(figure: Figure, size: float, look: Style) -> Figure:
    """A figure of which only plotly's data are known: letters, lines and marks as in print."""
    data = scaled(figure.to_plotly_json(), look.scale)
    layout = data["layout"]
    title = (layout.pop("title", None) or {}).get("text") or ""
    layout["meta"] = {"title": without_tags(title).strip()}

    # Words around the panels shrink as letters do; nothing stands above but the legend, for which
    # plotly makes room.
    margin = layout.get("margin") or {}
    small = {side: look.scale * margin.get(side, MARGIN) for side in "lrb"}
    layout["margin"] = {**small, "t": look.letter}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
    layout["width"] = round(size)
    layout["height"] = round(look.scale * layout.get("height", HEIGHT))
    layout["template"] = template_of(look)
    return Figure(data)
