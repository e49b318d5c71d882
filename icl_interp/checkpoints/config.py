"""What a run is: model, task, encoding and training, as plain data."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any, Literal

from icl_interp import plugins
from icl_interp.errors import InputError, counted, shown, unknown
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.provenance import build, check_scalar, decode, encode, finite
from icl_interp.structured import Stored
from icl_interp.tasks import covariance, functions, registry
from icl_interp.tasks.base import Task

SCHEMA = "icl_interp.config/1"


@dataclass(frozen=True)
class Curriculum:
    """Easier prompts first, as a pure function of the step.

    Attributes:
        first_points: prompt length at step 0; it grows linearly to the task's `n_points`.
        until: the step from which prompts are full length.
        degrees: pairs (step, degrees): from that step on, polynomials of these degrees. Empty: the
            task's own, always.
    """

    first_points: int = 3
    until: int = 0
    degrees: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        for name in ("first_points", "until"):
            check_scalar(getattr(self, name), int, f"curriculum.{name}")
        if not isinstance(self.degrees, tuple):
            raise InputError(
                f"curriculum.degrees must be pairs (step, degrees), but got {shown(self.degrees)}"
            )
        if self.first_points < 2 or self.until < 0:
            raise InputError(
                "curriculum needs first_points >= 2 and until >= 0, but got "
                f"{shown(self.first_points)} and {shown(self.until)}"
            )
        for entry in self.degrees:
            if not (isinstance(entry, tuple) and list(map(type, entry)) == [int, tuple]):
                raise InputError(
                    "curriculum.degrees holds pairs (step, degrees) such as (0, (1,)), but got "
                    f"{shown(entry)}"
                )
        for (step, _), (next_step, _) in pairwise(self.degrees):
            if next_step <= step:
                raise InputError(
                    "curriculum.degrees must come in the order of their steps, but got "
                    f"{shown(self.degrees)}"
                )

    def points(self, n_points: int, step: int) -> int:
        """Points of the prompts that a step poses, for a task whose prompts have `n_points`.

        >>> Curriculum(first_points=3, until=100).points(21, 50)
        12
        """
        if step >= self.until:
            return n_points
        first = min(self.first_points, n_points)
        return first + (n_points - first) * step // self.until


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: Adam on the squared error over all prefixes.

    Attributes:
        steps: total, fixed from the start because the schedules depend on it.
        batch_size: prompts a step, fresh ones but for `n_prompts`.
        learning_rate: its peak.
        warmup_steps: of the linear rise to it.
        decay: what follows, to zero at the end.
        grad_clip: largest gradient norm.
        seed: of weights and prompts.
        log_every: steps between lines of metrics.jsonl.
        checkpoint_every: steps between checkpoints.
        curriculum: easier prompts first.
        snapshots: steps whose weights are kept in snapshots.safetensors, for claims about the way
            there; 0 is before the first step, steps past the last are not reached.
        n_prompts: size of one finite set of prompts, a multiple of `batch_size`: a run takes all of
            them in every epoch, in an order of its own, and each line of metrics has the error on a
            test set besides (`test_loss`). None: fresh prompts at every step.
        accumulate: parts in which a batch is computed, one after another, for small memories.
            Their gradients add up to those of the whole batch.
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
    n_prompts: int | None = field(default=None, metadata={"later": True})
    accumulate: int = field(default=1, metadata={"later": True})

    def __post_init__(self) -> None:
        # Numbers and words, one by one.
        for name in ("steps", "batch_size", "log_every", "checkpoint_every", "accumulate"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(
                    f"training.{name} must be a whole number from 1 up, but got {shown(value)}"
                )
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise InputError(
                "training.warmup_steps must be a whole number from 0 up, but got "
                f"{shown(self.warmup_steps)}"
            )
        for name in ("learning_rate", "grad_clip"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InputError(
                    f"training.{name} must be a positive number, but got {shown(value)} (write "
                    "0.001 or 1.0e-3)"
                )
        if not isinstance(self.decay, str) or self.decay not in ("cosine", "linear", "constant"):
            raise InputError(
                f"training.decay must be cosine, linear or constant, but got {shown(self.decay)}"
            )
        if not _increase(self.snapshots):
            raise InputError(
                "training.snapshots must be whole numbers that increase from 0 up, but got "
                f"{shown(self.snapshots)}"
            )
        # What is left: True for a number, a seed that is none.
        for f in fields(self):
            check_scalar(getattr(self, f.name), f.type, f"training.{f.name}")
        if not isinstance(self.curriculum, Curriculum):
            raise InputError(
                f"training.curriculum must be a Curriculum, but got {shown(self.curriculum)}"
            )
        self._check_set()

    def _check_set(self) -> None:
        """Refuse a finite set that no epoch can go through, or that changes with the step."""
        n = self.n_prompts
        if n is None:
            return
        if not isinstance(n, int) or isinstance(n, bool) or n < 1 or n % self.batch_size:
            raise InputError(
                "training.n_prompts must be a multiple of training.batch_size="
                f"{self.batch_size}, or null for fresh prompts, but got {shown(n)}"
            )
        if self.curriculum.until or self.curriculum.degrees:
            raise InputError(
                "training.n_prompts fixes one set of prompts for all steps, but the curriculum "
                "changes them: set curriculum.until to 0 and leave out its degrees, or leave out "
                "n_prompts"
            )


def _increase(steps: object) -> bool:
    """Whether it is a tuple of whole numbers from 0 up, each larger than the one before."""
    if not isinstance(steps, tuple):
        return False
    if any(isinstance(step, bool) or not isinstance(step, int) for step in steps):
        return False
    return all(before < step for before, step in pairwise((-1, *steps)))


@dataclass(frozen=True)
class RunConfig:
    """A whole run.

    `training` is None for a model that came from elsewhere; no `encoding` means the task's default.
    """

    model: HookedTransformerConfig
    task: Task
    encoding: str = ""
    training: TrainingConfig | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise InputError(
                "task must be a task such as icl_interp.tasks.Polynomial(...), but got "
                f"{_short(self.task)}; one of your own is a class below icl_interp.tasks.Task"
            )
        if self.encoding == "":
            object.__setattr__(self, "encoding", self.task.default_encoding)
        # The model, the task and the encoding must fit each other.
        find_encoding(self.encoding)
        encoding = tokens.named(self.encoding)
        encoding.check(self.task)
        dim = self.task.dim
        n_targets = self.task.n_targets
        d_in = encoding.d_in(dim, n_targets)
        if d_in != self.model.d_in:
            values = "" if n_targets == 1 else f" and values of {n_targets}"
            raise InputError(
                f"{self.encoding} prompts with inputs of {counted(dim, 'coordinate')}{values} have "
                f"d_in={d_in}, but the model has d_in={self.model.d_in}: train one with "
                f"model.d_in={d_in}, or choose another encoding or task"
            )
        if self.model.d_out != n_targets:
            raise InputError(
                f"the task's values have {counted(n_targets, 'coordinate')} (n_targets), but the "
                f"model has d_out={self.model.d_out}: train one with model.d_out={n_targets}, or "
                "choose another task"
            )
        if self.model.keys and self.encoding != "stacked":
            raise InputError(
                f"keys={self.model.keys!r} hides the query's own column from attention, which only "
                f"stacked prompts have, but the encoding is {self.encoding!r}: use stacked, or "
                "leave keys out"
            )
        needed = encoding.n_tokens(self.task.n_points)
        if needed > self.model.n_ctx:
            raise InputError(
                f"n_ctx={self.model.n_ctx} tokens is too short for prompts of "
                f"n_points={self.task.n_points}: {self.encoding} prompts of that length need "
                f"{needed}"
            )
        degrees = self.training.curriculum.degrees if self.training else ()
        if not degrees:
            return
        if not isinstance(self.task, functions.Polynomial):
            raise InputError(
                "a curriculum over degrees needs a Polynomial task, but got "
                f"{type(self.task).__name__}"
            )
        for _, stage in degrees:
            self.task.with_degrees(stage)  # refuses what are no degrees

    @property
    def reached(self) -> Task:
        """The task with the longest prompts of the whole training.

        They are shorter than `task.n_points` where the curriculum of lengths stops early. A model
        has read no longer prompt, and vectors of later positions are as they were drawn.
        """
        if self.training is None:
            return self.task
        longest = self.training.curriculum.points(self.task.n_points, self.training.steps - 1)
        return self.task.with_points(longest) if longest < self.task.n_points else self.task


def find_encoding(name: object) -> None:
    """Import the packages that bring studies if no encoding has this name: one may register it."""
    if isinstance(name, str) and name not in tokens.ENCODINGS:
        plugins.found()


# Words that are often written for a setting whose name is too far from them to be found by its
# letters.
_MEANT = {
    "norm": "normalization_type",
    "normalization": "normalization_type",
    "activation": "act_fn",
    "layers": "n_layers",
    "heads": "n_heads",
    "width": "d_model",
    "hidden": "d_mlp",
    "context": "n_ctx",
    "attention": "score_fn",
    "bidirectional": "attention_dir",
    "causal": "attention_dir",
    "lr": "learning_rate",
    "batch": "batch_size",
    "warmup": "warmup_steps",
    "schedule": "decay",
    "clip": "grad_clip",
}
_SECTIONS: dict[str, type] = {
    "model": HookedTransformerConfig,
    "training": TrainingConfig,
    "curriculum": Curriculum,
}


def parse(data: Any, where: str = "config") -> RunConfig:
    """A `RunConfig` from JSON or YAML data.

    Every unknown key is refused with the nearest known one.

    Sections know their own class; distributions and tasks name theirs:
    `{kind: Uniform, low: -1, high: 1}`.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a mapping with the sections model, task and training")
    Stored(data, where).plain()
    sections = {key: value for key, value in data.items() if key not in ("schema", "kind")}
    if "model" in sections:
        sections["model"] = _section("model", sections["model"], f"{where}.model")
    if sections.get("training") is not None:
        sections["training"] = _section("training", sections["training"], f"{where}.training")
    if "task" in sections:
        sections["task"] = parse_task(sections["task"], f"{where}.task")
    return build(RunConfig, sections, where)


def parse_task(data: Any, where: str) -> Task:
    """A task from the data of a config's section `task`, which names its kind.

    Raises:
        InputError: no mapping, or a kind or setting that is not known; naming it.
    """
    if not isinstance(data, Mapping) or "kind" not in data:
        raise InputError(f"{where} must name its kind, for example 'kind: Polynomial'")
    registry.find(data["kind"])
    _check_kind(data["kind"], registry.tasks(), where)
    for key, value in data.items():
        # Matrices, before anything looks at each number of them; a law's settings too.
        parts = [value]
        if isinstance(value, Mapping):
            parts += value.values()
        for part in parts:
            long = isinstance(part, list) and len(part) > covariance.MAX_ROWS
            if long and isinstance(part[0], list):
                raise InputError(f"{where}: {covariance.too_many_rows(len(part))}")
        if isinstance(value, Mapping) and "kind" in value:
            _check_kind(value["kind"], registry.KINDS, f"{where}.{key}")
    return decode(data, registry.KINDS, where)


def _check_kind(kind: Any, known: Collection[str], where: str) -> None:
    """Refuse a class that is not known, and say what makes it known."""
    if isinstance(kind, str) and kind in known:
        return
    hint = (
        f"; a class of your own is registered first: icl_interp.tasks.register({kind}), in the "
        "script that loads it, or for the command line in a package with an entry point of the "
        "group icl_interp.studies"
    )
    own = isinstance(kind, str) and kind.isidentifier()
    raise InputError(f"{unknown(f'kind in {where}', kind, known)}{hint if own else ''}")


def _section(name: str, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a mapping, but got {shown(data)}")
    known = [f.name for f in fields(_SECTIONS[name])]
    for key in data:
        meant = _MEANT.get(key)
        if meant in known:
            near = f"did you mean {meant!r}? (known: {', '.join(known)})"
            raise InputError(f"unknown key in {where} {shown(key)}: {near}")
    values = {}
    for key, value in data.items():
        if key not in ("kind", "curriculum"):
            values[key] = decode(value, {}, where)
    if "curriculum" in data:
        values["curriculum"] = _section("curriculum", data["curriculum"], f"{where}.curriculum")
    return build(_SECTIONS[name], values, where)


def check_registered(task: Task) -> None:
    """Refuse a task of a class that a stored report could not name.

    Raises:
        InputError: the class of the task, or of a part of it, is not registered.
    """
    _check_registered(task)
    for f in fields(task):
        _check_registered(getattr(task, f.name))


def check_round_trip(config: RunConfig) -> None:
    """Refuse, before training starts, a config that its own `config.json` would not give back.

    Raises:
        InputError: a class that is not registered, or a setting that JSON does not give back as it
            was; it is named.
    """
    # Part by part, so that the error names the one.
    task = config.task
    check_registered(task)
    for section, part in (("task", task), ("model", config.model), ("training", config.training)):
        for f in fields(part) if part is not None else ():
            _check_json(getattr(part, f.name), f"{section}.{f.name}")
    # The whole.
    try:
        back = parse(json.loads(json.dumps(finite(encode(config)))))
    except (InputError, TypeError, ValueError) as error:
        raise InputError(
            f"{type(task).__name__} cannot be read back from a config.json: {error}"
        ) from error
    if back == config:
        return
    for f in fields(task):
        mine = getattr(task, f.name)
        theirs = getattr(back.task, f.name)
        if not _same(mine, theirs):
            raise InputError(
                f"task.{f.name} does not come back from a config.json as it was: {_short(mine)} "
                f"became {_short(theirs)}; use numbers, text, tuples of these, and registered laws"
            )
    raise InputError(
        f"a {type(task).__name__} does not come back from a config.json equal to itself: make it a "
        "dataclass with eq=True whose fields say everything about it"
    )


def _check_registered(part: Any) -> None:
    """Refuse a dataclass whose name means nothing, or another class, to whoever reads a config."""
    cls = type(part)
    if isinstance(part, type) or not is_dataclass(part):
        return
    known = registry.KINDS.get(cls.__name__)
    if known is cls:
        return
    if known is not None:
        raise InputError(
            f"{cls.__name__} now names another class, {known.__module__}.{known.__qualname__}: "
            "make the task anew from the registered class, or give yours another name"
        )
    raise InputError(
        f"the class {cls.__name__} is not registered, so a run with it could not be read back: "
        f"call icl_interp.tasks.register({cls.__name__}) first"
    )


def _check_json(value: Any, where: str) -> None:
    try:
        json.dumps(finite(encode(value)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where} cannot be written to a config.json, because it holds {_short(value)}: use "
            "numbers, text, tuples of these, and registered laws"
        ) from error


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):  # arrays, whose comparison is no truth value
        return False


def _short(value: Any) -> str:
    """A value in a line, and its class."""
    return f"{shown(value)} ({type(value).__name__})"
