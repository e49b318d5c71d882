"""The console: rich's, whose texts are printable, whatever a file or a name brings."""

import os
import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from icl_interp.errors import printable

WIDTH = 160  # where the output is no terminal, and COLUMNS says nothing


class PrintableConsole(Console):
    """A console whose texts are printable: rich itself lets most control characters through."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """What is printed, piece by piece."""
        if (
            isinstance(renderable, Text)
            and (plain := printable(renderable.plain)) != renderable.plain
        ):
            # Before lines are broken, since an escape is wider than what it stands for. A text of
            # several styles loses them here, whose places are no longer the same.
            renderable = Text(plain, style=renderable.style, overflow=renderable.overflow)
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=printable(piece.text))


class Fitted:
    """What is shown in one way where the screen is wide enough, and in another where it is not.

    Args:
        wide: shown where none of its lines would be broken.
        narrow: shown elsewhere.
    """

    def __init__(self, wide: RenderableType, narrow: RenderableType) -> None:
        self.wide = wide
        self.narrow = narrow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The one that fits."""
        unbroken = options.update(max_width=10_000)
        needs = Measurement.get(console, unbroken, self.wide).maximum
        yield self.wide if needs <= options.max_width else self.narrow


def console(width: int | None = None) -> Console:
    """A console on standard output.

    Args:
        width: in characters; else that of the terminal or of COLUMNS, else `WIDTH`.
    """
    if width is None and not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        width = WIDTH
    return PrintableConsole(highlight=False, width=width)
