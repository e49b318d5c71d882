"""What a file does not tell and its reader fills in: each is recorded, and a report names it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from icl_interp.errors import shown

# Their names in a checkpoint's provenance.
RECORDED = "assumptions"
NOTES = "notes"
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
        more = []
        if self.others:
            more.append(f"elsewhere {', '.join(self.others)}")
        if self.remedy:
            more.append(f"to set it, give {self.remedy}")
        value = self.value
        if not isinstance(value, str):
            value = shown(value)
        text = f"{self.name}={value}"
        if more:
            text += f" ({'; '.join(more)})"
        return text

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The assumption that `as_data` wrote."""
        others = tuple(map(str, data.get("others", ())))
        name = str(data.get("name"))
        remedy = str(data.get("remedy", ""))
        of_task = bool(data.get("of_task"))
        return cls(name, data.get("value"), others, remedy, of_task)


def as_data(assumptions: Iterable[Assumption], notes: Iterable[str] = ()) -> dict[str, Any]:
    """Assumptions and notes as a checkpoint's provenance holds them; empty where there are none."""
    found: dict[str, Any] = {}
    for each in assumptions:
        data = asdict(each)
        data["others"] = list(each.others)
        found.setdefault(RECORDED, []).append(data)
    said = list(dict.fromkeys(notes))
    if said:
        found[NOTES] = said
    return found


def recorded(provenance: Mapping[str, Any]) -> tuple[Assumption, ...]:
    """The assumptions in a checkpoint's provenance."""
    return tuple(map(Assumption.of, _listed(provenance, RECORDED, Mapping)))


def lines(provenance: Mapping[str, Any]) -> list[str]:
    """What a report says of a file: its assumptions in one line, then a line a note."""
    notes = _listed(provenance, NOTES, str)
    found = "; ".join(map(str, recorded(provenance)))
    if not found:
        return notes
    return [f"The file does not say {found}: {IN_DISTRIBUTION}.", *notes]


def without_task(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The same provenance for a checkpoint with another task, without what was assumed of it."""
    kept = []
    for each in recorded(provenance):
        if not each.of_task:
            kept.append(each)
    rest = dict(provenance)
    rest.pop(RECORDED, None)
    return {**rest, **as_data(kept)}


def _listed(provenance: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    """The entries of a list in provenance that are of a kind: a stored file may hold anything."""
    held = provenance.get(name)
    if not isinstance(held, (list, tuple)):
        return []
    return [each for each in held if isinstance(each, kind)]
