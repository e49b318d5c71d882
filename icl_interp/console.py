"""A console of rich whose texts are printable, whatever a file or a name brings."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from icl_interp.errors import printable


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
