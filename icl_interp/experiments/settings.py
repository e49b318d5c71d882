"""The setting of a work beside ours: what it uses, where it says so, and what differs here.

Our value is a word for all scales, one for each, or, behind an equals sign, what is read off the
run of each model: `=model.n_layers`, `=training.steps`, `=task.n_points`, and the names in `READ`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from icl_interp.checkpoints.config import RunConfig
from icl_interp.provenance import read_json

NOT_GIVEN = "not given"
LOST = "given, but lost in the text that we read"  # a formula that a copy of the work has dropped
UNREAD = "not known, since we read the abstract only"
UNKNOWN = (NOT_GIVEN, LOST, UNREAD)
Ours = str | Mapping[str, str]


def _norms(run: RunConfig) -> str:
    if not run.model.normalization_type:
        return "none"
    if run.model.norm_position == "both":
        return "before and after each sublayer"
    return "before each sublayer" if run.model.norm_position == "pre" else "after each sublayer"


def _lengths(run: RunConfig) -> str:
    first = run.training.curriculum.first_points if run.training else run.task.n_points
    return f"{first - 1} to {_examples(run)} labelled examples"


def _examples(run: RunConfig) -> int:
    return run.task.n_points - 1


def _examples_of_softmax(run: RunConfig) -> int | None:
    return None if run.model.score_fn == "linear" else _examples(run)


READ: dict[str, Callable[[RunConfig], Any]] = {
    "norms": _norms,
    "lengths": _lengths,
    "examples": _examples,
    "examples of softmax": _examples_of_softmax,
}


def read_off(run: RunConfig, what: str) -> Any:
    """A value of a run, by its name in `READ` or by its path, such as `model.n_layers`.

    >>> from icl_interp.training import recipes
    >>> run = recipes.resolve("affine")
    >>> read_off(run, "model.n_layers"), read_off(run, "norms"), read_off(run, "examples")
    (3, 'before each sublayer', 19)
    """
    if what in READ:
        return READ[what](run)
    section, field = what.split(".")
    return getattr(getattr(run, section), field)


@dataclass(frozen=True)
class Setting:
    """One quantity of an experiment, as the work has it and as we have it.

    Attributes:
        name: the quantity, such as "layers".
        work: its value in the work; `NOT_GIVEN` where the work gives none, `LOST` where the text
            that we read has lost it, `UNREAD` where we read no more than the abstract.
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
        ours = self.ours if isinstance(self.ours, str) else self.ours[scale]
        if not ours.startswith("="):
            return ours
        return listed(read_off(run, ours[1:]) for run in runs)


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
        return self.work not in UNKNOWN

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
        return asdict(self)


def from_dicts(data: Iterable[Mapping[str, str]]) -> tuple[Row, ...]:
    """Rows of a record."""
    found = []
    for one in data:
        found.append(Row(one["name"], one["work"], one["place"], one["ours"]))
    return tuple(found)


def listed(values: Iterable[Any]) -> str:
    """Different values in their order, or numbers by size; None stands for no value.

    >>> listed([3, 1, 3]), listed([16000, 1e-4]), listed(["none", "pre"])
    ('1, 3', '0.0001, 16,000', 'none, pre')
    """
    found = dict.fromkeys(values)
    found.pop(None, None)
    words = list(found)
    if not any(isinstance(one, str) for one in words):
        words = map(_number, sorted(words))
    return ", ".join(words)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def given(rows: Iterable[Row]) -> str:
    """The work's setting in a line: what it gives, then what it does not give.

    >>> given([Row("layers", "12", "Figure 2", "3"), Row("prompts", NOT_GIVEN, "", "100")])
    'layers: 12; not given: prompts'
    """
    parts = []
    without: dict[str, list[str]] = {word: [] for word in UNKNOWN}
    for row in rows:
        if row.given:
            parts.append(f"{row.name}: {row.work}")
        else:
            without[row.work].append(row.name)
    for word, names in without.items():
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    return "; ".join(parts)


def different(rows: Iterable[Row]) -> str:
    """What differs here, in a line; "nothing" where all that the work gives is the same.

    >>> different([Row("layers", "12", "Figure 2", "3")])
    'layers'
    """
    return ", ".join(row.name for row in rows if row.differs) or "nothing"


def not_given(name: str, ours: Ours) -> Setting:
    """A quantity that the work gives no value of."""
    return Setting(name, NOT_GIVEN, "", ours)


def read(file: Path) -> dict[str, tuple[Setting, ...]]:
    """The settings of a study's experiments, by the part of their ids after the dot."""
    found = {}
    for name, data in read_json(file).items():
        rows = []
        for one in data:
            rows.append(Setting(**one))
        found[name] = tuple(rows)
    return found
