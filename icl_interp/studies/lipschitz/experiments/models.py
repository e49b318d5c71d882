"""Models and samples of the study `lipschitz`, and errors.

Models are recipes with other tasks, at each scale.

Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari. They give
neither d, n and sigma of their experiments nor how units are trained, so the sizes here are our
own.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.baselines.base import Predictor, predictions
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint, predict
from icl_interp.errors import InputError
from icl_interp.experiments.presets import PRESETS, named, whole_prompts
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.varied import VariedModel
from icl_interp.models.softmax_unit import SoftmaxAttention, read_softmax_unit
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, generator
from icl_interp.results import make_array
from icl_interp.studies.lipschitz.measurements.unit import sigma_of
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

SLIDES = "Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari"
SAMPLE = "{n_functions} blocks of {n_contexts} independent prompts"
BATCH = 512  # prompts drawn and predicted at once
SMOKE_N = 20  # labelled examples at scale smoke, at most
UNIT_SIZES = {
    "smoke": "units of softmax attention, d = 3, n = 20, 20 steps: shows that it runs, and nothing "
    "else",
    "small": "units of softmax attention, d = 3, n = 100, 2,000 steps of Adam",
    "paper": "units of softmax attention, d = 3, n = 100, 20,000 steps of Adam with batches of "
    "1,024",
}


def at_preset(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe of this study at another scale; "small" is the recipe as it stands.

    >>> from icl_interp.training import recipes
    >>> at_preset(recipes.resolve("lipschitz_relu"), "smoke").task.n_points
    21
    """
    named(scale)
    task, training = config.task, config.training
    if not isinstance(task, RidgeFunction) or training is None:
        raise InputError("a recipe of lipschitz has a RidgeFunction task and a training section")
    if scale == "small":
        return config
    if scale == "smoke":
        changes = {
            "steps": 20,
            "warmup_steps": 5,
            "batch_size": 64,
            "checkpoint_every": 20,
            "log_every": 10,
        }
        task = task.with_points(min(task.n_points, SMOKE_N + 1))
    else:
        changes = {
            "steps": 10 * training.steps,
            "warmup_steps": 10 * training.warmup_steps,
            "batch_size": 4 * training.batch_size,
            "learning_rate": training.learning_rate / 10,
            "checkpoint_every": 2000,
            "snapshots": tuple(10 * step for step in training.snapshots),
        }
    training = whole_prompts(training, task, changes)
    return replace(config, task=task, training=training)


@dataclass(frozen=True)
class Varied:
    """What a recipe of this study is at a scale after changes of its task and of its training.

    Attributes:
        task: fields of the task with their values.
        training: fields of the training section with their values, of scale small.
    """

    task: tuple[tuple[str, Any], ...] = ()
    training: tuple[tuple[str, Any], ...] = ()

    def __call__(self, config: RunConfig, scale: str) -> RunConfig:
        """The run."""
        task = replace(config.task, **dict(self.task))
        training = config.training
        if training:
            training = replace(training, **dict(self.training))
        changed = replace(config, task=task, training=training)
        return at_preset(changed, scale)


def varied(
    recipe: str,
    label: str = "",
    seed: int = 0,
    scales: Iterable[str] = tuple(PRESETS),
    training: Mapping[str, Any] | None = None,
    **task: Any,
) -> VariedModel:
    """A model of a recipe with other settings of its task and, where given, of its training.

    Args:
        recipe: its name.
        label: what differs, in words; `task` in words by default, which must then be numbers or
            names.
        seed: of weights and prompts.
        scales: at which it is asked for.
        training: fields of the training section at scale small; `at_preset` makes the other scales
            of these.
        task: fields of the task.

    >>> varied("lipschitz_relu", lipschitz=10.0).name
    'lipschitz_relu, L = 10'
    >>> varied("lipschitz_relu", lipschitz=10.0).folder
    'lipschitz_relu_l_10'
    """
    words = {"lipschitz": "L", "noise_std": "σ", "n_points": "points"}
    parts = []
    for key, value in task.items():
        if isinstance(value, (int, float)):
            word = words.get(key, key)
            parts.append(f"{word} = {value:g}")
        else:
            parts.append(f"{key} {value}")
    label = label or ", ".join(parts)
    training = training or {}
    changes = Varied(tuple(task.items()), tuple(training.items()))
    return VariedModel(recipe, seed, tuple(scales), changes, label)


# Units of softmax attention on F_L^+, as different as the recipe makes them: by L.
RELU_UNITS = {
    0.3: varied("lipschitz_relu", lipschitz=0.3),
    1.0: varied("lipschitz_relu", lipschitz=1.0),
    10.0: varied("lipschitz_relu", lipschitz=10.0),
}


# ---- what a model is -----------------------------------------------------------------------------


def task_of(checkpoint: Checkpoint) -> RidgeFunction:
    """The task of a model of this study: `at_preset` lets it be no other."""
    assert isinstance(checkpoint.task, RidgeFunction)
    return checkpoint.task


def trained_length(checkpoint: Checkpoint) -> int:
    """n: labelled examples of a training prompt."""
    return checkpoint.task.n_points - 1


def matrix_of(model: HookedTransformer) -> Float[Tensor, "dim dim"]:
    """M of a softmax unit, in float64.

    Raises:
        InputError: the model is something else.
    """
    return read_softmax_unit(model).product


def window_of(model: HookedTransformer, task: RidgeFunction) -> theory.Isotropy:
    """w and the deviation from w I of Sigma^(1/2) M Sigma^(1/2), the M of whitened inputs."""
    whitened = theory.whitened(matrix_of(model), sigma_of(task))
    return theory.isotropy(whitened)


@dataclass(frozen=True, eq=False)
class KernelUnit:
    """The softmax unit with a given M as a predictor in float64, for prompts of any length.

    Attributes:
        matrix: M.
    """

    matrix: Float[Tensor, "dim dim"]
    # By points: making one takes a while.
    _made: dict[int, HookedTransformer] = field(default_factory=dict, repr=False)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of the query; NaN for the other points, whose labels are shown."""
        n_points = prompts.n_points
        if n_points not in self._made:
            unit = SoftmaxAttention.from_product(self.matrix.double())
            self._made[n_points] = unit.to_transformer(n_points)
        return predict(self._made[n_points], Stacked(), prompts)


# ---- errors --------------------------------------------------------------------------------------


def batches(
    setup: Setup, task: RidgeFunction, stream: str, seed: int | None = None
) -> Iterator[Prompts]:
    """The prompts of the setup's sample in float64, some blocks at a time.

    Whoever asks gets the same prompts.

    Args:
        setup: has the sizes of the sample.
        task: gives the prompts, with its own number of points.
        stream: names what they are for.
        seed: of the sample; that of the setup by default.
    """
    if seed is None:
        seed = setup.seed
    n_blocks = setup.preset.n_functions
    each = setup.preset.n_contexts
    at_once = max(1, BATCH // each)  # blocks; draws depend on it
    for first in range(0, n_blocks, at_once):
        n = min(at_once, n_blocks - first) * each
        numbers = generator(seed, f"lipschitz/{stream}", first)
        yield task.sample(n, numbers, dtype=torch.float64)


def by_block(
    setup: Setup, parts: Iterable[Float[Tensor, "prompt *rest"]]
) -> Float[np.ndarray, "block *rest"]:
    """Means over the prompts of each block, of one number or more a prompt."""
    together = torch.cat(list(parts))
    blocks = together.unflatten(0, (-1, setup.preset.n_contexts))
    return blocks.mean(1).numpy()


def query_errors(
    setup: Setup, name: str, task: RidgeFunction, predictor: Predictor | None = None
) -> DataArray:
    """Squared error at the query against the noiseless value, (block,).

    Errors are means over the prompts of each block.

    All predictors see the same prompts of a task.

    Args:
        setup: has the model, the sizes of the sample, and what is kept.
        name: a model of the setup, or any name for a predictor.
        task: gives the prompts, with its own number of points.
        predictor: is asked instead of the model of that name. Results of a `KernelUnit` are kept by
            its M; of others the name must say everything.
    """
    asked = predictor if predictor is not None else setup.models[name]

    def compute() -> DataArray:
        squares = []
        for prompts in batches(setup, task, "queries"):
            misses = predictions(asked, prompts) - prompts.ys
            squares.append(misses[:, -1, 0].square())
        blocks = by_block(setup, squares)
        axes = {"block": tuple(range(len(blocks)))}
        return make_array(blocks, axes, note=SAMPLE.format(**asdict(setup.preset)))

    if isinstance(asked, KernelUnit):
        own = asked.matrix.tolist()
    elif predictor is None:
        own = "model"
    else:
        own = name
    found = setup.keep(
        "lipschitz: error at the query", [name], compute, task=encode(task), predictor=own
    )
    assert isinstance(found, DataArray)
    return found
