"""The number of functions from which a model predicts as ridge does on functions it never saw.

Raventos et al. (2023) train models on pools of more and more functions. The number of their figure
could not be checked; the setting is that of the example in their code.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from xarray import DataArray

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.presets import training_of, whole_prompts
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement
from icl_interp.results import Result, make_array
from icl_interp.studies.diversity.claims.new_functions import NEARER, ratio
from icl_interp.studies.diversity.measurements.distances import NEW, SEEN, distances

SOURCE = (
    "Raventos, Paul, Chen & Ganguli (2023), distances from ridge and from dMMSE by the number of "
    "functions (which figure it is could not be checked)"
)
POOLS = (16, 64, 256, 1024, 4096)
SEEDS = (0, 1, 2)
STATISTICS = ("value", "low", "high")
# Squared distances from the predictor that a model must be like, over that from the other.
LIKE = at_most("squared distance / squared distance", 1 / NEARER, NEARER)
SIZES = {
    "smoke": "2 layers, width 32, d = 5, 17 points, 100 steps, one seed: shows that it runs, and "
    "nothing else",
    "small": "3 layers, width 64, 4 heads, d = 5, 17 points, 12,000 steps, three seeds",
    "paper": "8 layers, width 128, 2 heads, d = 8, 16 points, 500,000 steps, three seeds",
}


def recipe(n_tasks: int) -> str:
    """The recipe of a model that is trained on so many functions."""
    return f"regression_pool_{n_tasks}"


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands."""
    section = training_of(config, scale)
    if scale == "small":
        return config
    if scale == "smoke":
        shape = {"n_layers": 2, "d_model": 32, "d_head": 8, "d_mlp": 128}
        changes = {"steps": 100, "warmup_steps": 10, "checkpoint_every": 100}
        return replace(
            config, model=replace(config.model, **shape), training=replace(section, **changes)
        )
    # The example of the authors' code: d = 8, 16 points, and pools of the sizes here.
    task = replace(config.task, n_dims=8, n_points=16)
    shape = {"n_layers": 8, "d_model": 128, "d_head": 64, "n_heads": 2, "d_mlp": 512}
    model = replace(config.model, **shape, d_in=8, n_ctx=32)
    changes = {"steps": 500_000, "batch_size": 256, "warmup_steps": 250_000, "decay": "linear"}
    training = whole_prompts(section, task, changes | {"checkpoint_every": 10_000})
    return replace(config, model=model, task=task, training=training)


def _model(n_tasks: int, seed: int) -> Model:
    """The run of one pool and seed; further seeds are left out at the smallest scale."""
    scales = ("smoke", "small", "paper") if seed == 0 else ("small", "paper")
    return Model(recipe(n_tasks), seed, scales, at_scale)


MODELS = tuple(_model(n_tasks, seed) for seed in SEEDS for n_tasks in POOLS)


def run(setup: Setup) -> dict[str, Result]:
    """log10 of distances' ratio by functions asked, seed and size of the pool.

    A seed needs the smallest pool and the largest one; a pool between needs all these seeds.
    """
    ends = (POOLS[0], POOLS[-1])
    seeds = []
    for seed in SEEDS:
        if _have(setup, ends, [seed]):
            seeds.append(seed)
    if not seeds:
        return {}
    pools = []
    for n_tasks in POOLS:
        if _have(setup, [n_tasks], seeds):
            pools.append(n_tasks)
    # Each model on new functions and on those of its pool.
    values = np.empty((2, len(seeds), len(pools), len(STATISTICS)))
    for column, seed in enumerate(seeds):
        for place, n_tasks in enumerate(pools):
            result = setup.measure(_name(n_tasks, seed), distances)
            for row, functions in enumerate((NEW, SEEN)):
                found = ratio(result, functions)
                values[row, column, place] = found.value, found.low, found.high
    axes = {
        "asked": (NEW, SEEN),
        "seed": tuple(seeds),
        "functions of training": tuple(pools),
        "statistic": STATISTICS,
    }
    words = "squared distance from ridge over that from the pool's Bayes predictor, at the query"
    return {"ratios": make_array(values, axes, units="log10", note=words)}


def _have(setup: Setup, pools: Sequence[int], seeds: Sequence[int]) -> bool:
    """Whether the models of these pools and seeds are all there."""
    for n_tasks in pools:
        for seed in seeds:
            name = _name(n_tasks, seed)
            if not setup.has(name):
                return False
    return True


def _name(n_tasks: int, seed: int) -> str:
    return Model(recipe(n_tasks), seed).name


def states(results: Results) -> tuple[Statement, ...]:
    """On which side the smallest and the largest pool are, and where the side changes."""
    found = results.get("ratios")
    if not isinstance(found, DataArray):
        return ()
    new = found.sel(asked=NEW)
    smallest = _alike(-new, POOLS[0], "the pool's Bayes predictor")
    largest = _alike(new, POOLS[-1], "ridge")
    crossings = []
    for seed in new.indexes["seed"]:
        logs = new.sel(seed=seed, statistic="value").values
        crossings.append(crossing(logs, new.indexes["functions of training"].tolist()))
    where = note(
        f"Models change sides at {_listed(crossings)} functions (one number for each seed)."
    )
    return smallest, largest, where


def _alike(logs: DataArray, n_tasks: int, like: str) -> Statement:
    """Whether all seeds with a pool of this size predict like one of both.

    Args:
        logs: of the distance from this one over that from the other.
        n_tasks: functions of the pool.
        like: its name.
    """
    here = logs.sel({"functions of training": n_tasks})
    ratios = 10.0 ** here.transpose("statistic", "seed").values
    values = ratios[list(STATISTICS).index("value")]
    words = (
        f"trained on {n_tasks:,} functions, models predict like {like} on new ones: the squared "
        f"distance from it is {_range(values)} times that from the other."
    )
    return statement(words, LIKE, ratios.min(), ratios.max())


def crossing(logs: np.ndarray, pools: Sequence[int]) -> float:
    """The number of functions at which a line through log ratios crosses 0; NaN where none does.

    >>> round(crossing(np.array([1.0, 1.0, 1.0, -1.0, -1.0]), POOLS))
    512
    """
    sizes = np.log(pools)
    for i in range(len(logs) - 1):
        if logs[i] > 0 >= logs[i + 1]:
            share = logs[i] / (logs[i] - logs[i + 1])
            step = sizes[i + 1] - sizes[i]
            return float(np.exp(sizes[i] + share * step))
    return float("nan")


def _range(values: np.ndarray) -> str:
    if len(values) == 1:
        return f"{values[0]:.2g}"
    return f"{values.min():.2g} to {values.max():.2g}"


def _listed(numbers: list[float]) -> str:
    return ", ".join("no number of" if np.isnan(n) else f"{n:.0f}" for n in numbers)


THRESHOLD_EXPERIMENT = Experiment(
    "diversity.threshold",
    "Ridge or the functions of training, by their number",
    SOURCE,
    MODELS,
    run,
    states,
    sample="128 functions of the pool and 128 new ones",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["threshold"],
)
