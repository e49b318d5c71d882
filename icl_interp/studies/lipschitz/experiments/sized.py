"""Units of the study `lipschitz` in other dimensions than their recipe's.

The model is made to fit the task.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.presets import PRESETS
from icl_interp.studies.lipschitz.experiments.models import Varied, VariedModel, varied


@dataclass(frozen=True)
class Sized(Varied):
    """As `Varied`, for a softmax unit whose task is of another size.

    Inputs have another dimension, or prompts are longer.
    """

    def __call__(self, config: RunConfig, scale: str) -> RunConfig:
        """The run."""
        task = replace(config.task, **dict(self.task))
        width = (
            task.dim + 1
        )  # the residual stream is the token (x; y), and one head reads and writes all of it
        sizes = {"d_in": width, "d_model": width, "d_head": width, "n_ctx": task.n_points}
        model = replace(config.model, **sizes, d_mlp=4 * width)
        return super().__call__(replace(config, task=task, model=model), scale)


def sized(
    recipe: str,
    label: str,
    seed: int = 0,
    scales: Iterable[str] = tuple(PRESETS),
    training: Mapping[str, Any] | None = None,
    **task: Any,
) -> VariedModel:
    """A softmax unit of a recipe with another task, whose inputs may have another dimension.

    Args:
        recipe: its name; of a softmax unit (`cfg.unit`).
        label: what differs, in words.
        seed: of weights and prompts.
        scales: at which it is asked for.
        training: fields of the training section at scale small.
        task: fields of the task.

    >>> from icl_interp.experiments.obtain import config_of
    >>> from icl_interp.tasks import Sphere
    >>> config_of(sized("lipschitz_relu", "d = 5", inputs=Sphere(5)), "small").model.d_in
    6
    """
    model = varied(recipe, label, seed, scales, training, **task)
    assert isinstance(model.scaled, Varied)
    return replace(model, scaled=Sized(model.scaled.task, model.scaled.training))
