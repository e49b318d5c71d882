"""Models and samples of the study `linear_attention`, and error by length.

The recipes of the study are given for each scale.

Source: Zhang, Frei & Bartlett (2023) as in Wu's slides. Softmax models there: N = 40, 70, 100, and
d = 20 in the paper. The scale "small" keeps N / d at a fifth of both: d = 4, N = 8, 14, 20; "smoke"
halves these again.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Precondition
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.baselines.regression import LeastSquares
from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments.base import Model
from icl_interp.experiments.presets import named, of_regression, whole_prompts
from icl_interp.experiments.setup import Setup
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.resampling import bootstrap
from icl_interp.results import make_array
from icl_interp.tasks.regression import Exponential, LinearRegression

SLIDES = "Zhang, Frei & Bartlett (2023), in Wu's slides"
LENGTHS = (8, 14, 20)  # N of the softmax recipes
BATCH = 256  # prompts drawn and predicted at once; draws depend on it
# The sample of this study: prompts are independent, and intervals come from blocks of them.
SAMPLE = "{n_functions} blocks of {n_contexts} independent prompts"
LEAST_SQUARES = "least squares"
HERE = "d = 4 at scale small, 20 in the source"  # said beside what softmax models do
ERROR = "error over E[y²] on the law trained on"
# Predicting 0 has no spike and no shift makes it worse: what says something are models that do
# better.
LEARNED = Precondition(
    ERROR, (0.0, 1 - LEARNED_R2), "Its error is {value:.2g} of E[y²]: it has not learned."
)

SOFTMAX_SIZES = {
    "smoke": "2 layers, width 32, d = 2, N = 4, 7, 10, 100 steps: shows that it runs, and nothing "
    "else",
    "small": "3 layers, width 64, 4 heads, d = 4, N = 8, 14, 20 (the slides' N / d), 12,000 steps",
    "paper": "12 layers, width 256, 8 heads, d = 20, N = 40, 70, 100, 500,000 steps",
}
LSA_SIZES = {
    "smoke": "layers of linear self-attention of the recipe's size, 200 steps: shows that it runs, "
    "and nothing else",
    "small": "layers of linear self-attention, d = 5, N = 20, 6,000 steps of Adam",
    "paper": "layers of linear self-attention, d = 20, N = 80, 20,000 steps of Adam",
}


def at_preset(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe of this study at another scale; "small" is the recipe as it stands.

    >>> from icl_interp.training import recipes
    >>> at_preset(recipes.resolve("softmax_fixed_14"), "paper").task.n_points
    71
    """
    named(scale)
    if not isinstance(config.task, LinearRegression) or config.training is None:
        raise InputError(
            "a recipe of linear_attention has a LinearRegression task and a training section"
        )
    if scale == "small":
        return config
    if config.model.score_fn != "linear":
        return of_regression(config, scale)
    return _linear(config, config.task, config.training, scale)


def _linear(
    config: RunConfig, task: LinearRegression, training: TrainingConfig, scale: str
) -> RunConfig:
    model = config.model
    if scale == "smoke":
        changes = {"steps": 200, "warmup_steps": 20, "checkpoint_every": 200, "batch_size": 128}
    else:
        changes = {"steps": 20_000, "batch_size": 1024}
        if task.n_dims > 2:  # the trap is about two dimensions
            diagonal = task.covariance
            if isinstance(diagonal, tuple):
                diagonal = diagonal * 4
            d = 4 * task.n_dims
            n_points = 4 * (task.n_points - 1) + 1
            task = replace(task, n_dims=d, covariance=diagonal, n_points=n_points)
            n_ctx = 4 * model.n_ctx
            model = replace(model, d_in=d + 1, n_ctx=n_ctx, d_model=64, d_head=64, d_mlp=256)
    training = whole_prompts(training, task, changes)
    return replace(config, model=model, task=task, training=training)


def softmax(kind: str, n: int | str) -> Model:
    """A softmax model of kind "fixed" or "random".

    n is the number of examples in training (at scale small), or another suffix of its name.
    """
    return Model(f"softmax_{kind}_{n}", scaled=at_preset)


def linear(
    name: str, seed: int = 0, scales: tuple[str, ...] = ("smoke", "small", "paper")
) -> Model:
    """An LSA layer."""
    return Model(name, seed, scales, at_preset)


def task_of(checkpoint: Checkpoint) -> LinearRegression:
    """The task of a model of this study: `at_preset` lets it be no other."""
    assert isinstance(checkpoint.task, LinearRegression)
    return checkpoint.task


def trained_length(checkpoint: Checkpoint) -> int:
    """N: labelled examples of a training prompt."""
    return checkpoint.task.n_points - 1


def tests(d: int, scales: tuple[float, ...]) -> dict[str, LinearRegression]:
    """The slides' test laws by name: Lambda = I, and c Lambda with random Lambda.

    Lambda has a fresh Exponential(1) diagonal in each prompt.
    """
    found = {"fixed": LinearRegression(n_dims=d, n_points=2)}
    for c in scales:
        found[f"random, c = {c:g}"] = LinearRegression(
            n_dims=d, n_points=2, covariance=Exponential(), covariance_scale=c
        )
    return found


def errors_by_length(
    setup: Setup,
    name: str,
    task: LinearRegression,
    m: int,
    edit: str = "",
    edited: Callable[[], Predictor | None] = lambda: None,
) -> DataArray:
    """Squared error after 1, .., m labelled examples, (block, M).

    Prompts are the same for every predictor.

    Args:
        setup: has the model, the sizes of the sample, and what is kept.
        name: a model of the setup, or LEAST_SQUARES.
        task: gives the prompts.
        m: the largest number of labelled examples.
        edit: says what was done to the model.
        edited: makes the model that this gives; None for the model itself.
    """

    def compute() -> DataArray:
        predictor = edited()
        if not predictor:
            predictor = LeastSquares(task) if name == LEAST_SQUARES else setup.models[name]
        n_blocks = setup.preset.n_functions
        each = setup.preset.n_contexts
        at_once = max(1, BATCH // each)  # blocks
        squares = []
        for first in range(0, n_blocks, at_once):
            stream = generator(setup.seed, "linear_attention/length", first)
            n = min(at_once, n_blocks - first) * each
            prompts = task.sample(n, stream, n_points=m + 1, dtype=torch.float64)
            residuals = predictions(predictor, prompts) - prompts.ys
            squares.append(as_numbers(residuals.square())[:, 1:])
        # The mean over the prompts of a block, which stand side by side.
        blocks = torch.cat(squares).unflatten(0, (-1, each)).mean(1).numpy()
        axes = {"block": tuple(range(len(blocks))), "M": tuple(range(1, m + 1))}
        return make_array(blocks, axes, note=f"blocks of {each} independent prompts")

    found = setup.keep(
        "linear_attention: error by length",
        [name],
        compute,
        task=encode(task),
        m=m,
        predictor=name if name == LEAST_SQUARES else "model",
        edit=edit,
    )
    assert isinstance(found, DataArray)
    return found


def with_interval(errors: DataArray) -> np.ndarray:
    """(mean, low, high) x M: 95 % bootstrap over blocks."""
    rows = []
    for column in np.asarray(errors.values).T:
        mean = bootstrap(lambda mean: mean, column)
        rows.append([mean.value, mean.low, mean.high])
    return np.array(rows).T
