"""Models in memory that are not ours: what `analyze` and `evaluate` take beside files."""

from typing import Any

from icl_interp.checkpoints import store
from icl_interp.checkpoints.formats import modules, registry
from icl_interp.checkpoints.formats.base import Given
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models import hooks
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.base import Task


def check_intact(source: Any, who: str) -> None:
    """Refuse a model in memory that has hooks attached, also inside a checkpoint or a wrapper.

    Raises:
        InputError: naming what has hooks.
    """
    hooks.check_unhooked(source.model if isinstance(source, Checkpoint) else source, who)


def as_checkpoint(model: Any, task: Task, encoding: Encoding | str | None = None) -> Checkpoint:
    """A bare model with the task that it is asked about, and how it reads that task's prompts.

    Args:
        model: see `adopt`.
        task: what the model is asked about.
        encoding: "interleaved", "stacked", "states", "augmented" or "driven", where neither the
            task nor the model's width tells.

    Raises:
        InputError: what `adopt` refuses, or prompts that do not fit the model.
    """
    return store.load(adopt(model), task, encoding=encoding)


def adopt(model: Any) -> HookedTransformer:
    """A `HookedTransformer` with the weights of a model that one of the formats knows.

    The copy is checked against the original on random prompts, so a model that merely shares the
    names is refused.

    Raises:
        InputError: no config or weights of that form, tensors that do not fit or hold NaN or
            infinity (named), or other outputs.
    """
    model = modules.unwrapped(model)
    return registry.find(model).read(model, Given()).model
