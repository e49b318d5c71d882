"""`as_predictor`: what predicts as it is, and a bare model, a function or an estimator made to."""

from typing import Any

from torch import nn

from icl_interp.baselines.base import Predictor
from icl_interp.checkpoints import foreign, store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError
from icl_interp.models.tokens import Encoding
from icl_interp.predictors import adapters
from icl_interp.tasks.base import Task


def as_predictor(predictor: Any, task: Task, encoding: Encoding | str | None = None) -> Predictor:
    """The predictor itself, or a bare model, a function or an estimator as one.

    Raises:
        InputError: neither, prompts that do not fit a model, or an encoding for what reads prompts
            by itself.
    """
    # An estimator has a `predict` of its own kind, which takes no prompts.
    if not hasattr(predictor, "predict") or hasattr(predictor, "fit"):
        predictor = adapters.recognised(predictor) or predictor

    predicts = isinstance(predictor, Predictor) and not isinstance(predictor, type)
    if not predicts:
        return _from_model(predictor, task, encoding)
    if isinstance(predictor, store.Checkpoint):
        return _checked(predictor, task, encoding)
    if encoding is not None:
        raise InputError(
            f"encoding= is for models; a {type(predictor).__name__} reads prompts by itself"
        )
    return predictor


def _from_model(model: Any, task: Task, encoding: Encoding | str | None) -> store.Checkpoint:
    """A bare model as a checkpoint of a task; whatever else does not predict is refused."""
    if not isinstance(model, nn.Module):
        raise InputError(
            "a predictor is a Checkpoint, its folder or bundled name, a model with "
            "TransformerLens' names, or an object with predict(prompts) -> (batch, point, target), "
            "a function (xs, ys, x_query) -> y_query, or an estimator of scikit-learn, "
            f"but got {described(model)}"
        )
    return foreign.as_checkpoint(model, task, encoding)


def _checked(
    checkpoint: store.Checkpoint, task: Task, encoding: Encoding | str | None
) -> store.Checkpoint:
    """A checkpoint that can read prompts of a task, in its own encoding or in another one."""
    if encoding is not None:
        return foreign.as_checkpoint(checkpoint.model, task, encoding)
    # The configuration refuses prompts that do not fit the model.
    RunConfig(checkpoint.model.cfg, task, checkpoint.config.encoding)
    return checkpoint


def described(value: object) -> str:
    """What kind of thing was given, for an error message.

    >>> described(3.0), described(float)
    ('a float', 'the class float')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
