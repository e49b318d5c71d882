"""Models of the study `autoregression`: units and trained transformers.

Units are trained by gradient descent on exact losses.

A unit is a layer of diagonal linear attention with heads (a_h, b_h) and a matrix P of positions.
Its loss over all lengths of the prompt is known exactly, so plain gradient descent on it has no
samples and no noise.
"""

import functools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap
from xarray import DataArray

from icl_interp.analyses.criterion import Precondition
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments.errors import interval_of
from icl_interp.experiments.presets import PRESETS, named, whole_prompts
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.varied import VariedModel
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, generator
from icl_interp.resampling import LEVEL, Interval, half_width
from icl_interp.results import make_array, make_curve
from icl_interp.studies.autoregression.measurements import descent_steps
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory
from icl_interp.training.adam import Adam
from icl_interp.training.schedules import learning_rate

WORK = "Sander, Giryes, Suzuki, Blondel & Peyré (2024)"
CHUNK = 500  # steps of gradient descent that are kept together
STILL = 1e-9  # the largest entry of all gradients below which descent has ended
FOUND = 1e-3  # mean loss over that of predicting 0, up to which a minimum counts as found
LEARNED = Precondition(
    "largest error of these models over that of predicting 0",
    (0.0, 0.9),
    "A model has hardly learned: its error is {value:.2g} of that of predicting 0, and 0.9 is "
    "asked for.",
)
Key = TypeVar("Key", bound=Hashable)  # tells models of an experiment apart
SAMPLE = "{n_functions} blocks of {n_contexts} sequences, each with a matrix of its own"


# ---- units on exact losses -----------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A layer to be trained by gradient descent on its exact loss.

    Attributes:
        d: coordinates.
        heads: H.
        n_tokens: T of the longest prompt; prompts of 2, ..., T tokens count alike, each with a row
            of P.
        paired: whether eigenvalues of W come in conjugate pairs (rotations) or not (unitary).
        rate: size of a step.
        scale: standard deviation of the entries of A, B and P at the start.
    """

    d: int
    heads: int
    n_tokens: int
    paired: bool
    rate: float
    scale: float = 0.1

    @property
    def law(self) -> str:
        """The law of W in a word."""
        return "rotations" if self.paired else "unitary"

    @property
    def name(self) -> str:
        """What it is called in results.

        >>> Unit(4, 2, 8, True, 0.01).name
        'rotations, d = 4, H = 2'
        """
        return f"{self.law}, d = {self.d}, H = {self.heads}"


class Weights(NamedTuple):
    """Weights of one unit after as many runs as there are seeds."""

    A: Float[Tensor, "seed head dim"]
    B: Float[Tensor, "seed head dim"]
    P: Float[Tensor, "seed row token"]

    @property
    def products(self) -> Float[Tensor, "seed dim dim"]:
        """C = B^T A of each run."""
        return self.B.mT @ self.A


def start_of(unit: Unit, n_seeds: int, seed: int = 0) -> Weights:
    """Weights before the first step: independent centred normal numbers.

    They are the same for a seed however many seeds there are.
    """
    runs = []
    for i in range(n_seeds):
        numbers = generator(seed, f"autoregression/unit {i}")
        drawn = []
        for shape in _shapes(unit):
            normal = torch.randn(shape, generator=numbers, dtype=torch.float64)
            drawn.append(unit.scale * normal)
        runs.append(drawn)
    parts = zip(*runs, strict=True)
    return Weights(*map(torch.stack, parts))


def _shapes(unit: Unit) -> tuple[tuple[int, int], ...]:
    """Of A, B and P."""
    heads = (unit.heads, unit.d)
    positions = (unit.n_tokens - 1, unit.n_tokens)
    return (heads, heads, positions)


def loss_of(unit: Unit, weights: Weights) -> Float[Tensor, " seed"]:
    """Mean loss over all lengths of the prompt, in units of d, the loss of predicting 0.

    It is 0 at a minimiser.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), loss (3) and Proposition 4.
    """
    total = functools.partial(_total, unit)
    n_lengths = unit.n_tokens - 1
    return vmap(total)(*weights) / (unit.d * n_lengths)


def gradients(unit: Unit, weights: Weights) -> Weights:
    """Of the sum over all lengths of the prompt, in A, B and P."""
    total = functools.partial(_total, unit)
    of_run = grad(total, argnums=(0, 1, 2))
    return Weights(*vmap(of_run)(*weights))


def _total(unit: Unit, a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """The sum of the losses of all lengths, for one run."""
    losses = theory.row_losses(b.mT @ a, p, paired=unit.paired)
    return losses.sum()


def stepped(unit: Unit, weights: Weights, n_steps: int) -> Weights:
    """Weights after steps of plain gradient descent on the sum of the losses of all lengths."""
    for _ in range(n_steps):
        moved = []
        for weight, slope in zip(weights, gradients(unit, weights), strict=True):
            moved.append(weight - unit.rate * slope)
        weights = Weights(*moved)
    return weights


def descend(setup: Setup, unit: Unit, n_seeds: int, n_steps: int) -> tuple[Weights, int]:
    """Weights after gradient descent from each of several starts, and the steps that were taken.

    Each part of the way is kept, so that a run that was cut off goes on there. It ends early where
    the gradients of all runs have vanished.

    Args:
        setup: keeps the way.
        unit: what is trained.
        n_seeds: starts.
        n_steps: at most so many.
    """
    weights = start_of(unit, n_seeds, setup.seed)
    taken = 0
    while taken < n_steps:
        steps = min(CHUNK, n_steps - taken)
        kept = setup.keep(
            "autoregression: gradient descent of a unit",
            [],
            functools.partial(_part, unit, weights, steps),
            unit=encode(unit),
            seeds=n_seeds,
            after=taken,
            steps=steps,
        )
        assert isinstance(kept, DataArray)
        weights = _unpacked(unit, kept)
        taken += steps
        slopes = _flat(gradients(unit, weights))
        largest = slopes.abs().amax(1)
        # The slopes of runs that diverged are NaN, and stay so.
        if not (largest > STILL).any():
            break
    return weights, taken


def _part(unit: Unit, weights: Weights, n_steps: int) -> DataArray:
    """A part of the way, as it is kept."""
    after = stepped(unit, weights, n_steps)
    return _packed(after)


def share_of_runs(found: int, n_runs: int) -> Interval:
    """The share of starts from which something is found, with the 95 % interval of Wilson (1927).

    >>> one = share_of_runs(8, 16)
    >>> round(one.low, 2), one.value, round(one.high, 2)
    (0.28, 0.5, 0.72)
    """
    z = half_width(1 - LEVEL)
    value = found / n_runs
    shrinking = 1 + z**2 / n_runs
    centre = (value + z**2 / (2 * n_runs)) / shrinking
    variance = value * (1 - value) / n_runs + (z / (2 * n_runs)) ** 2
    width = z * math.sqrt(variance) / shrinking
    low = max(0.0, centre - width)
    high = min(1.0, centre + width)
    return Interval(value, low, high)


def _flat(weights: Weights) -> Float[Tensor, "seed entry"]:
    """A, B and P of each run in a row."""
    return torch.cat([each.flatten(1) for each in weights], 1)


def _packed(weights: Weights) -> DataArray:
    flat = _flat(weights).numpy()
    n_seeds, n_entries = flat.shape
    axes = {"seed": range(n_seeds), "entry": range(n_entries)}
    return make_array(flat, axes, note="A, B and P, row by row")


def _unpacked(unit: Unit, kept: DataArray) -> Weights:
    shapes = _shapes(unit)
    flat = torch.from_numpy(np.array(kept.values))
    parts = []
    for part, shape in zip(flat.split([a * b for a, b in shapes], 1), shapes, strict=True):
        parts.append(part.unflatten(1, shape))
    return Weights(*parts)


# ---- transformers --------------------------------------------------------------------------------


def at_preset(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe of this study at another scale; "small" is the recipe as it stands.

    >>> from icl_interp.training import recipes
    >>> at_preset(recipes.resolve("autoregression_tiled"), "smoke").training.steps
    40
    """
    named(scale)
    task = config.task
    training = config.training
    if not isinstance(task, AutoregressiveProcess) or training is None:
        raise InputError(
            "a recipe of autoregression has an AutoregressiveProcess task and a training section"
        )
    if scale == "small":
        return config
    if scale == "smoke":
        changes = {
            "steps": 40,
            "warmup_steps": 5,
            "batch_size": 64,
            "checkpoint_every": 40,
            "log_every": 20,
        }
        task = task.with_points(min(task.n_points, 10))
    else:
        # Longer paths, and four times as much training on batches four times as large.
        changes = {"steps": 4 * training.steps, "warmup_steps": 4 * training.warmup_steps}
        changes |= {"batch_size": 4 * training.batch_size, "checkpoint_every": 1000}
        task = task.with_points(max(task.n_points, 50))
    model = replace(config.model, n_ctx=task.n_points)
    changed = whole_prompts(training, task, changes)
    return replace(config, model=model, task=task, training=changed)


@dataclass(frozen=True)
class Varied:
    """What a recipe of this study is at a scale after changes of its model, task and training.

    The widths of tokens, predictions and heads follow that of states, in proportion; so do the
    stream and the MLP where the stream is the token itself, and else they keep their own.

    Attributes:
        model: fields of the model with their values.
        task: of the task.
        training: of the training section, of scale small.
        at_paper: of the task, at scale paper alone.
    """

    model: tuple[tuple[str, Any], ...] = ()
    task: tuple[tuple[str, Any], ...] = ()
    training: tuple[tuple[str, Any], ...] = ()
    at_paper: tuple[tuple[str, Any], ...] = ()

    def __call__(self, config: RunConfig, scale: str) -> RunConfig:
        """The run."""
        task = replace(config.task, **dict(self.task))
        if scale == "paper":
            task = replace(task, **dict(self.at_paper))
        followed = ["d_in", "d_out", "d_head"]
        if config.model.read_in == "token":
            followed += ["d_model", "d_mlp"]
        fields = {}
        for name in followed:
            width = getattr(config.model, name)
            fields[name] = width * task.dim // config.task.dim
        # Widths that are asked for by name do not follow.
        fields |= dict(self.model)
        model = replace(config.model, **fields)
        training = config.training and replace(config.training, **dict(self.training))
        changed = replace(config, model=model, task=task, training=training)
        return at_preset(changed, scale)


def varied(
    recipe: str,
    label: str,
    seed: int = 0,
    scales: Iterable[str] = tuple(PRESETS),
    model: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    at_paper: Mapping[str, Any] | None = None,
) -> VariedModel:
    """A model of a recipe with other settings.

    Args:
        recipe: its name.
        label: what differs, in words.
        seed: of weights and prompts.
        scales: at which it is asked for.
        model: fields of the model; widths that are not named follow the task.
        task: fields of the task.
        training: fields of the training section at scale small; `at_preset` makes the other scales
            of these.
        at_paper: fields of the task at scale paper alone.

    >>> varied("autoregression_tiled", "4 heads", 1, model={"n_heads": 4}).folder
    'autoregression_tiled_4_heads_seed_1'
    """
    sections = (model, task, training, at_paper)
    changes = (tuple((fields or {}).items()) for fields in sections)
    return VariedModel(recipe, seed, tuple(scales), Varied(*changes), label)


# ---- errors --------------------------------------------------------------------------------------


def blocks(setup: Setup, task: AutoregressiveProcess) -> Iterator[Prompts]:
    """The sequences of the setup's sample in float64, block by block.

    Whoever asks gets the same sequences.
    """
    for block in range(setup.preset.n_functions):
        numbers = generator(setup.seed, "autoregression/errors", block)
        yield task.sample(setup.preset.n_contexts, numbers, dtype=torch.float64)


def mean_square(setup: Setup, task: AutoregressiveProcess) -> float:
    """Of a number of what is predicted, in the sample: the error of predicting 0."""
    squares = [prompts.ys.square().mean() for prompts in blocks(setup, task)]
    mean = torch.stack(squares).mean()
    return float(mean)


def point_errors(
    setup: Setup, name: str, task: AutoregressiveProcess, predictor: Predictor | None = None
) -> DataArray:
    """Squared error over that of predicting 0, (block, point).

    Errors are means over the sequences of each block.

    All predictors see the same matrices of a law, also where states stand several times in a token.

    Args:
        setup: has the model, the sizes of the sample, and what is kept.
        name: a model of the setup; for another predictor any name that says everything about it.
        task: gives the sequences.
        predictor: is asked instead of the model of that name.
    """
    asked = predictor if predictor is not None else setup.models[name]

    def compute() -> DataArray:
        misses = []
        for prompts in blocks(setup, task):
            gap = predictions(asked, prompts) - prompts.ys
            misses.append(gap.square().mean((0, 2)))
        values = torch.stack(misses).numpy() / mean_square(setup, task)
        axes = {"block": range(len(values)), "point": range(1, task.n_points + 1)}
        return make_array(values, axes, note=SAMPLE.format(**asdict(setup.preset)))

    own = "model" if predictor is None else name
    found = setup.keep(
        "autoregression: errors by point", [name], compute, task=encode(task), predictor=own
    )
    assert isinstance(found, DataArray)
    return found


def errors_of(setup: Setup, its: Mapping[Key, VariedModel]) -> dict[Key, DataArray]:
    """`point_errors` of those models that are here, each on the task that it was trained on."""
    found = {}
    for key, model in its.items():
        if setup.has(model.name):
            task = task_of(setup.models[model.name])
            found[key] = point_errors(setup, model.name, task)
    return found


def curves_of(
    found: Mapping[Key, DataArray], its: Mapping[Key, VariedModel], note: str
) -> DataArray:
    """Means over blocks of `errors_of`, by the names of the models: (model, point)."""
    names = [its[key].name for key in found]
    means = [each.values.mean(0) for each in found.values()]
    first, *_ = found.values()
    axes = {"model": names, "point": first["point"].values}
    return make_curve(means, axes, note=note)


def scored(errors: DataArray, late: bool = False) -> Float[np.ndarray, " block"]:
    """Mean of each block over the points that a layer can learn at.

    These are all from the second on, or with `late` the last quarter.

    Nothing comes before the first state that its successor could be told from.
    """
    first = descent_steps.late(errors.shape[1]).start if late else 1
    return errors.values[:, first:].mean(1)


def task_of(checkpoint: Checkpoint) -> AutoregressiveProcess:
    """The task of a model of this study: `at_preset` lets it be no other."""
    assert isinstance(checkpoint.task, AutoregressiveProcess)
    return checkpoint.task


# ---- intervals in tables and sentences -----------------------------------------------------------


def ends(found: Interval, name: str = "ratio") -> dict[str, float]:
    """A value and the ends of its interval, as columns of a table."""
    return {name: found.value, "low": found.low, "high": found.high}


def ratio_of(row: Mapping[str, Any]) -> Interval:
    """The ratio in a row of a table."""
    return interval_of(row, "ratio")


def ratio_text(row: Mapping[str, Any]) -> str:
    """The ratio in a row of a table with its interval, in words."""
    return f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


# ---- heads that start alike ----------------------------------------------------------------------


def alike(config: HookedTransformerConfig, spread: float, seed: int) -> HookedTransformer:
    """A fresh model whose heads are the first one but for small independent changes.

    Args:
        config: of the model.
        spread: standard deviation of the changes, in units of that of fresh weights.
        seed: of weights and changes.
    """
    model = HookedTransformer(config, seed=seed)
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            for letter in "QKVO":
                heads = getattr(block.attn, f"W_{letter}")
                numbers = generator(seed, f"autoregression/alike/{i}/{letter}")
                noise = torch.randn(heads.shape, generator=numbers)
                heads.copy_(heads[:1] + spread * config.init_std * noise)
    return model


def trained(model: HookedTransformer, config: RunConfig) -> HookedTransformer:
    """The model after the training of a config, from the weights that it has.

    The training is Adam, as `training.trainer` does it.
    """
    training = config.training
    encoding = tokens.named(config.encoding)
    assert training is not None
    optimiser = Adam(model.named_parameters())
    for step in range(training.steps):
        numbers = generator(training.seed, "train/prompts", step)
        prompts = config.task.sample(training.batch_size, numbers)
        predicted = model(encoding.encode(prompts))
        loss = (predicted - prompts.ys).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.grad_clip)
        optimiser.step(learning_rate(training, step))
    return model.eval()
