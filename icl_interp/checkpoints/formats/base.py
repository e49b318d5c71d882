"""What a format is, what a caller may say beside a file, and what reading gives."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from torch import nn

from icl_interp.checkpoints import config
from icl_interp.checkpoints.assumptions import Assumption
from icl_interp.checkpoints.config import TrainingConfig
from icl_interp.errors import InputError, shown, unknown
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import build
from icl_interp.tasks.base import Task

Source = Path | nn.Module  # a file, a folder, or a model in memory
# What public code has for a setting that its files do not tell.
ELSEWHERE = {
    "act_fn": ("relu and gelu (peachyland, an option of its own)",),
    "attention_dir": ("bidirectional (Bernardo1998, gpt2_no_mask)",),
    "norm_position": ("pre (norm_first=True)",),
    "positional_embedding_type": ("none (Bernardo1998, gpt2_no_pe)",),
    "use_attn_scale": ("False (an option of GPT2Config)",),
}

_HOW = {
    "n_heads": ("the number of attention heads", "n_heads=N (--n-heads N)"),
    "task": (
        "the task",
        (
            "task=icl_interp.tasks.Polynomial(...) or another (--task FILE.yaml, with a recipe's "
            "section 'task')"
        ),
    ),
    "encoding": (
        "how it reads prompts",
        " or ".join(f"encoding={name!r}" for name in tokens.ENCODINGS) + " (--encoding NAME)",
    ),
    "normalization_type": (
        "its norm, which has no weights",
        (
            "settings={'normalization_type': 'LNPre'}, or None for no norm (--setting "
            "normalization_type=LNPre, or =null)"
        ),
    ),
    "attention_dir": (
        "whether its tokens see those after them",
        (
            "settings={'attention_dir': ...} with causal or bidirectional (--setting "
            "attention_dir=...)"
        ),
    ),
    "act_fn": (
        "the activation of its MLPs",
        "settings={'act_fn': ...} with gelu, gelu_new or relu (--setting act_fn=...)",
    ),
}


def lacking(where: object, names: Iterable[str]) -> InputError:
    """The error for settings that a file does not contain.

    It says how to give them in Python and, in brackets, on the command line.
    """
    names = list(names)
    whats = []
    for name in names:
        what, _ = _HOW[name]
        whats.append(what)
    hows = " and ".join(how_to_give(names))
    return InputError(f"{where} does not tell {' and '.join(whats)}: give {hows}")


def how_to_give(names: Iterable[str]) -> list[str]:
    """How each of these is given, in Python and (in brackets) in the shell."""
    hows = []
    for name in names:
        _, how = _HOW[name]
        hows.append(how)
    return hows


@dataclass(frozen=True)
class Given:
    """What a caller says about a model, for what its file does not tell.

    Attributes:
        task: what the model was trained on, or is asked about. It replaces the file's own.
        encoding: how the model reads prompts. It replaces the file's own.
        settings: of the model, in the words of `HookedTransformerConfig`. None may contradict the
            file.
    """

    task: Task | None = None
    encoding: Encoding | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: Task | None = None,
        encoding: Encoding | str | None = None,
        n_heads: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """The same from the arguments of `icl_interp.load`.

        Raises:
            InputError: an encoding or a setting that does not exist.
        """
        # A package that brings studies may bring the encoding.
        config.find_encoding(encoding)
        encoding = None if encoding is None else tokens.named(encoding)
        words = dict(settings or {})
        if n_heads is not None:
            words["n_heads"] = n_heads
        known = [f.name for f in fields(HookedTransformerConfig)]
        for name in words:
            if name not in known:
                raise unknown("setting", name, known)
        return cls(task, encoding, words)

    def check(self, told: Mapping[str, Any], where: object) -> None:
        """Refuse a setting that contradicts what a file tells.

        Raises:
            InputError: naming the setting and both values.
        """
        for name, value in self.settings.items():
            if name in told and told[name] != value:
                raise InputError(
                    f"{where} says {name}={shown(told[name])}, but {name}={shown(value)} was "
                    "given: leave out what you gave"
                )

    def complete(
        self,
        told: Mapping[str, Any],
        where: object,
        *,
        needed: Iterable[str] = (),
        usual: Mapping[str, Any] | None = None,
        asks: Iterable[str] = (),
    ) -> tuple[HookedTransformerConfig, tuple[Assumption, ...]]:
        """A model's config from what its file tells and what was given.

        Args:
            told: settings that the file tells.
            where: the file, for messages.
            needed: settings without which there is no model.
            usual: settings that the library which wrote the file takes where nothing is said.
            asks: "task" and "encoding", where the file does not tell them.

        Returns:
            The config, and an assumption for each of the `usual` settings that was taken.

        Raises:
            InputError: something is missing (all of it is named), or a setting contradicts the
                file.
        """
        self.check(told, where)
        usual = usual or {}
        words = {**usual, **told, **self.settings}
        missing = [name for name in needed if name not in words]
        for name in asks:
            if getattr(self, name) is None:
                missing.append(name)
        if missing:
            raise lacking(where, missing)
        assumed = []
        for name in usual:
            if name not in told and name not in self.settings:
                assumed.append(_assumption(name, words[name]))
        cfg = build(HookedTransformerConfig, words, f"the settings of {where}")
        return cfg, tuple(assumed)


def _assumption(name: str, value: Any) -> Assumption:
    """The usual value of a setting of the model, which a file does not tell."""
    remedy = f"settings={{{name!r}: ...}} (--setting {name}=...)"
    return Assumption(name, value, ELSEWHERE.get(name, ()), remedy)


@dataclass(frozen=True)
class Parts:
    """What a source holds: the parts of a checkpoint. None stands for what it does not tell.

    Attributes:
        model: with the weights of the source, in evaluation mode.
        task: what it was trained on. encoding: how it reads prompts.
        training: how it was trained, where that is known in our words.
        step: of its training. provenance: further facts, as JSON holds them.
        folder: the run folder that may hold snapshots.
        assumptions: what the source does not tell and the reader filled in. notes: what else a
            report says of the source, a sentence each.
    """

    model: HookedTransformer
    task: Task | None = None
    encoding: Encoding | None = None
    training: TrainingConfig | None = None
    step: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A kind of file, folder or model that icl_interp can tell from others.

    Attributes:
        name: in a few words, for messages: "a ... checkpoint".
        recognises: whether a source is of this kind, by what is in it. It never fails.
        read: the parts of a source of this kind. What the source does not tell comes from `Given`;
            what neither tells is an `InputError`.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, Given], Parts]
