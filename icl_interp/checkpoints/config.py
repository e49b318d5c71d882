"""What a run is: model, task, encoding and training, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from icl_interp.errors import InputError, shown, unknown
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.provenance import build, decode
from icl_interp.stored import Stored
from icl_interp.tasks import functions, regression
from icl_interp.tasks.base import Task

SCHEMA = "icl_interp.config/1"


@dataclass(frozen=True)
class Curriculum:
    """Easier prompts first, as a pure function of the step.

    Attributes:
        first_points: prompt length at step 0; it grows linearly to the task's `n_points`.
        until: the step from which prompts are full length.
        degrees: pairs (step, degrees): from that step on, polynomials of these degrees. Empty: the task's own, always.
    """

    first_points: int = 3
    until: int = 0
    degrees: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        if self.first_points < 2 or self.until < 0:
            raise InputError(
                "curriculum needs first_points >= 2 and until >= 0, but got "
                f"{shown(self.first_points)} and {shown(self.until)}"
            )
        for entry in self.degrees:
            if not (isinstance(entry, tuple) and list(map(type, entry)) == [int, tuple]):
                raise InputError(
                    f"curriculum.degrees holds pairs (step, degrees) such as (0, (1,)), but got {shown(entry)}"
                )
        if any(later[0] <= earlier[0] for earlier, later in zip(self.degrees, self.degrees[1:], strict=False)):
            raise InputError(f"curriculum.degrees must come in the order of their steps, but got {shown(self.degrees)}")


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: Adam on the squared error over all prefixes.

    Attributes:
        steps: total, fixed from the start because the schedules depend on it.
        batch_size: fresh prompts a step.
        learning_rate: its peak. warmup_steps: of the linear rise to it. decay: what follows, to zero at the end.
        grad_clip: largest gradient norm.
        seed: of weights and prompts.
        log_every: steps between lines of metrics.jsonl. checkpoint_every: steps between checkpoints.
        curriculum: easier prompts first.
        snapshots: steps whose weights are kept in snapshots.safetensors, for claims about the way there; 0 is before
            the first step, steps past the last are not reached.
    """

    steps: int
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    grad_clip: float = 1.0
    seed: int = 0
    log_every: int = 100
    checkpoint_every: int = 1000
    curriculum: Curriculum = field(default_factory=Curriculum)
    snapshots: tuple[int, ...] = field(default=(), compare=False, metadata={"records": True})

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "checkpoint_every"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(
                    f"training.{name} must be a whole number from 1 up, but got {shown(getattr(self, name))}"
                )
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise InputError(
                f"training.warmup_steps must be a whole number from 0 up, but got {shown(self.warmup_steps)}"
            )
        for name in ("learning_rate", "grad_clip"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InputError(
                    f"training.{name} must be a positive number, but got {shown(value)} (write 0.001 or 1.0e-3)"
                )
        if self.decay not in ("cosine", "linear", "constant"):
            raise InputError(f"training.decay must be cosine, linear or constant, but got {shown(self.decay)}")
        steps = self.snapshots
        whole = isinstance(steps, tuple) and all(isinstance(s, int) and not isinstance(s, bool) for s in steps)
        if not whole or (steps and steps[0] < 0) or any(b <= a for a, b in pairwise(steps)):
            raise InputError(
                f"training.snapshots must be whole numbers that increase from 0 up, but got {shown(steps)}"
            )


@dataclass(frozen=True)
class RunConfig:
    """A whole run. `training` is None for a model that came from elsewhere."""

    model: HookedTransformerConfig
    task: Task
    encoding: str = "interleaved"
    training: TrainingConfig | None = None

    def __post_init__(self) -> None:
        encoding = tokens.named(self.encoding)
        if encoding.d_in(self.task.dim) != self.model.d_in:
            raise InputError(
                f"{self.encoding} prompts with inputs of {self.task.dim} coordinates have "
                f"d_in={encoding.d_in(self.task.dim)}, but the model has d_in={self.model.d_in}"
            )
        needed = encoding.n_tokens(self.task.n_points)
        if needed > self.model.n_ctx:
            raise InputError(
                f"n_ctx={self.model.n_ctx} tokens is too short for prompts of n_points={self.task.n_points}: "
                f"{self.encoding} prompts of that length need {needed}"
            )
        degrees = self.training.curriculum.degrees if self.training else ()
        if degrees and not isinstance(self.task, functions.Polynomial):
            raise InputError(f"a curriculum over degrees needs a Polynomial task, but got {type(self.task).__name__}")
        for _, stage in degrees:
            self.task.with_degrees(stage)  # refuses what are no degrees


_KINDS: dict[str, type] = {**functions.KINDS, **regression.KINDS}
_TASKS = [name for name, cls in _KINDS.items() if issubclass(cls, Task)]
_SECTIONS: dict[str, type] = {"model": HookedTransformerConfig, "training": TrainingConfig, "curriculum": Curriculum}


def parse(data: Any, where: str = "config") -> RunConfig:
    """A `RunConfig` from JSON or YAML data; every unknown key is refused with the nearest known one.

    Sections know their own class; distributions and tasks name theirs: `{kind: Uniform, low: -1, high: 1}`.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a mapping with the sections model, task and training")
    Stored(data, where).plain()
    sections = {key: value for key, value in data.items() if key not in ("schema", "kind")}
    for key in ("model", "training"):
        if key in sections and (key == "model" or sections[key] is not None):
            sections[key] = _section(key, sections[key], f"{where}.{key}")
    if "task" in sections:
        if not isinstance(sections["task"], Mapping) or "kind" not in sections["task"]:
            raise InputError(f"{where}.task must name its kind, for example 'kind: Polynomial'")
        if sections["task"]["kind"] not in _TASKS:
            raise unknown(f"kind in {where}.task", sections["task"]["kind"], _TASKS)
        sections["task"] = decode(sections["task"], _KINDS, f"{where}.task")
    return build(RunConfig, sections, where)


def _section(name: str, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a mapping, but got {shown(data)}")
    values = {key: decode(value, {}, where) for key, value in data.items() if key not in ("kind", "curriculum")}
    if "curriculum" in data:
        values["curriculum"] = _section("curriculum", data["curriculum"], f"{where}.curriculum")
    return build(_SECTIONS[name], values, where)
