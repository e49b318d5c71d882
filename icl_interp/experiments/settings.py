"""The setting of a work beside ours: what it uses, where it says so, and what differs here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.presets import PRESETS

NOT_GIVEN = "not given"
LOST = "given, but lost in the text that we read"  # a formula that a copy of the work has dropped
# A word or number for all scales, one for each, or what is read off the run of each model.
Ours = str | Mapping[str, str] | Callable[[RunConfig], Any]


@dataclass(frozen=True)
class Setting:
    """One quantity of an experiment, as the work has it and as we have it.

    Attributes:
        name: the quantity, such as "layers".
        work: its value in the work; `NOT_GIVEN` where the work gives none, `LOST` where the text
            that we read has lost it.
        place: where the work gives it; empty where it gives none.
        ours: our value, in the same words where it is the same.
    """

    name: str
    work: str
    place: str
    ours: Ours

    def here(self, scale: str, runs: Sequence[RunConfig] = ()) -> str:
        """Our value at a scale, where `runs` are the runs of its models.

        >>> Setting("layers", "12", "Figure 2", {"small": "3", "paper": "12"}).here("small")
        '3'
        """
        if isinstance(self.ours, str):
            return self.ours
        if isinstance(self.ours, Mapping):
            return self.ours[scale]
        return listed(self.ours(run) for run in runs)


@dataclass(frozen=True)
class Row:
    """A setting at one scale, as pages and the terminal show it."""

    name: str
    work: str
    place: str
    ours: str

    @property
    def given(self) -> bool:
        """Whether the work has a value that we know."""
        return self.work not in (NOT_GIVEN, LOST)

    @property
    def differs(self) -> bool:
        """Whether our value is another one than the work's.

        >>> Row("width", "256", "Figure 3", "64").differs
        True
        >>> Row("width", NOT_GIVEN, "", "64").differs
        False
        """
        return self.given and self.work != self.ours

    def to_dict(self) -> dict[str, str]:
        """The row as JSON data."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def from_dicts(data: Iterable[Mapping[str, str]]) -> tuple[Row, ...]:
    """Rows of a record."""
    return tuple(Row(**one) for one in data)


def listed(values: Iterable[Any]) -> str:
    """Different values in their order, or numbers by size; None stands for no value.

    >>> listed([3, 1, 3]), listed([16000, 1e-4]), listed(["none", "pre"])
    ('1, 3', '0.0001, 16,000', 'none, pre')
    """
    found = list(dict.fromkeys(value for value in values if value is not None))
    if all(isinstance(one, int | float) for one in found):
        return ", ".join(_number(one) for one in sorted(found))
    return ", ".join(str(one) for one in found)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def given(rows: Iterable[Row]) -> str:
    """The work's setting in a line: what it gives, then what it does not give.

    >>> given([Row("layers", "12", "Figure 2", "3"), Row("prompts", NOT_GIVEN, "", "100")])
    'layers: 12; not given: prompts'
    """
    rows = tuple(rows)
    parts = [f"{row.name}: {row.work}" for row in rows if row.given]
    for word in (NOT_GIVEN, LOST):
        without = [row.name for row in rows if row.work == word]
        if without:
            parts.append(f"{word}: {', '.join(without)}")
    return "; ".join(parts)


def different(rows: Iterable[Row]) -> str:
    """What differs here, in a line; "nothing" where all that the work gives is the same.

    >>> different([Row("layers", "12", "Figure 2", "3")])
    'layers'
    """
    return ", ".join(row.name for row in rows if row.differs) or "nothing"


def by_scale(field: str) -> dict[str, str]:
    """A number of the presets, such as `n_points`, by scale.

    >>> by_scale("n_points")["paper"]
    '41'
    """
    return {name: str(getattr(preset, field)) for name, preset in PRESETS.items()}


def trained(field: str) -> Callable[[RunConfig], Any]:
    """What a run's training section has, such as `steps`.

    >>> from icl_interp.training import recipes
    >>> trained("batch_size")(recipes.resolve("affine"))
    64
    """
    return lambda run: getattr(run.training, field)


def shape(field: str) -> Callable[[RunConfig], Any]:
    """What a run's model has, such as `n_layers`.

    >>> from icl_interp.training import recipes
    >>> shape("n_layers")(recipes.resolve("affine"))
    3
    """
    return lambda run: getattr(run.model, field)


def of_task(field: str) -> Callable[[RunConfig], Any]:
    """What a run's task has, such as `n_points`.

    >>> from icl_interp.training import recipes
    >>> of_task("n_points")(recipes.resolve("affine"))
    20
    """
    return lambda run: getattr(run.task, field)


def not_given(name: str, ours: Ours) -> Setting:
    """A quantity that the work gives no value of."""
    return Setting(name, NOT_GIVEN, "", ours)
