"""What a work prints and does not hold: each module of the theory lists its own as `ERRATA`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Compared(NamedTuple):
    """One number by the printed formula and by the right one."""

    printed: float
    right: float


@dataclass(frozen=True)
class Erratum:
    """A formula or statement that is wrong, loose or lacks something as it is printed.

    Attributes:
        work: authors and year.
        place: where it stands there.
        printed: what is printed, in words.
        right: what holds.
        shown_by: the functions of the theory that show it, the printed formula first.
        number: what is compared, in words; empty without an example.
        example: that number by both, where one tells them apart.
    """

    work: str
    place: str
    printed: str
    right: str
    shown_by: tuple[Callable[..., Any], ...]
    number: str = ""
    example: Callable[[], Compared] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Where the functions are public, below `icl_interp`."""
        found = []
        for one in self.shown_by:
            _, *package = one.__module__.split(".")[:3]
            found.append(".".join([*package, one.__name__]))
        return tuple(found)
