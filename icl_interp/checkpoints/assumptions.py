"""What a file does not tell and its reader fills in: each is recorded, and a report names it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from icl_interp.errors import shown

RECORDED, NOTES = "assumptions", "notes"  # the names in a checkpoint's provenance
IN_DISTRIBUTION = 'verdicts "in distribution" rest on this'


@dataclass(frozen=True)
class Assumption:
    """A value that a file does not tell, and that its reader took.

    Attributes:
        name: of a setting of the model or of the task, such as "act_fn" or "noise_std".
        value: the one that was taken, as text or a plain number.
        others: further values that public code has for it, and where.
        remedy: how to set it.
        of_task: whether it is about the task; such a one falls away where a task is given.

    >>> print(Assumption("noise_std", 0.0, ("3 (HariDaCoder)",), "task=..."))
    noise_std=0.0 (elsewhere 3 (HariDaCoder); to set it, give task=...)
    """

    name: str
    value: Any
    others: tuple[str, ...] = ()
    remedy: str = ""
    of_task: bool = False

    def __str__(self) -> str:
        elsewhere = f"elsewhere {', '.join(self.others)}" if self.others else ""
        remedy = f"to set it, give {self.remedy}" if self.remedy else ""
        more = "; ".join(part for part in (elsewhere, remedy) if part)
        value = self.value if isinstance(self.value, str) else shown(self.value)
        return f"{self.name}={value}" + (f" ({more})" if more else "")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The assumption that `as_data` wrote."""
        others = tuple(str(each) for each in data.get("others", ()))
        name = str(data.get("name"))
        remedy = str(data.get("remedy", ""))
        return cls(name, data.get("value"), others, remedy, bool(data.get("of_task")))


def as_data(assumptions: Iterable[Assumption], notes: Iterable[str] = ()) -> dict[str, Any]:
    """Assumptions and notes as a checkpoint's provenance holds them; empty where there are none."""
    recorded = [{**asdict(each), "others": list(each.others)} for each in assumptions]
    said = list(dict.fromkeys(notes))
    found = {RECORDED: recorded, NOTES: said}
    return {name: value for name, value in found.items() if value}


def recorded(provenance: Mapping[str, Any]) -> tuple[Assumption, ...]:
    """The assumptions in a checkpoint's provenance."""
    held = provenance.get(RECORDED)
    if not isinstance(held, (list, tuple)):
        return ()
    return tuple(Assumption.of(each) for each in held if isinstance(each, Mapping))


def lines(provenance: Mapping[str, Any]) -> list[str]:
    """What a report says of a file: its assumptions in one line, then a line a note."""
    found = [str(each) for each in recorded(provenance)]
    notes = provenance.get(NOTES)
    said = [str(each) for each in notes] if isinstance(notes, (list, tuple)) else []
    if found:
        said.insert(0, f"The file does not tell {'; '.join(found)}: {IN_DISTRIBUTION}.")
    return said


def without_task(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The same provenance for a checkpoint with another task, without what was assumed of it."""
    kept = [each for each in recorded(provenance) if not each.of_task]
    rest = {name: value for name, value in provenance.items() if name != RECORDED}
    return {**rest, **as_data(kept)}
