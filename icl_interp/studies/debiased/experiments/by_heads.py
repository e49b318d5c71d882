"""Trained layers of 1, 2 and 4 softmax heads: their errors, w and weights of labels.

He et al. (2025) say of trained layers that several heads take a debiased step, and err less than
one head. Which figures these are could not be checked; the setting is that of their code.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.presets import training_of, whole_prompts
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_table
from icl_interp.studies.debiased.claims import head_patterns, step
from icl_interp.studies.debiased.measurements import predictions as said
from icl_interp.studies.debiased.measurements.heads import heads
from icl_interp.studies.debiased.measurements.predictions import predictions

RECIPES = {1: "softmax_heads_1", 2: "softmax_heads_2", 4: "softmax_heads_4"}
DISTANCE = "squared distance to a debiased step"
ERROR = "squared error, over the mean squared label"
AGAINST_ONE = "squared error, over that of one head"
QUANTITIES = (DISTANCE, ERROR, AGAINST_ONE)
STATISTICS = ("value", "low", "high")
NEAREST = at_most(DISTANCE, step.NEAR, step.FAR)
LESS = at_most(AGAINST_ONE, 0.9, 1.0)
SIZES = {
    "smoke": "1, 2 and 4 softmax heads, d = 5, 40 examples, 200 steps: shows that it runs, and "
    "nothing else",
    "small": "1, 2 and 4 softmax heads, d = 5, 40 examples, 30,000 steps of Adam",
    "paper": "1, 2 and 4 softmax heads, d = 5, 40 examples, 100,000 steps of Adam",
}


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands."""
    section = training_of(config, scale)
    if scale == "small":
        return config
    changes = {"steps": 100_000}
    if scale == "smoke":
        changes = {"steps": 200, "warmup_steps": 20, "checkpoint_every": 200}
    return replace(config, training=whole_prompts(section, config.task, changes))


def run(setup: Setup) -> dict[str, Result]:
    """By number of heads: distance and errors with their intervals, and a table of heads."""
    known = []
    for count, name in RECIPES.items():
        if setup.has(name):
            known.append(count)
    if not known:
        return {}
    rows = []
    tables = []
    beside = None
    for count in known:
        result = setup.measure(RECIPES[count], predictions)
        error = _squared(result, said.TRUTH)
        if beside is None:
            beside = error
        label = result.sel(comparison=said.TRUTH, number=said.LABEL).values
        # Functions are the same for all models, so errors are compared function by function.
        distance = step.distance(result, said.IN_DISTRIBUTION)
        for one in (distance, _ratio(error, label), _ratio(error, beside)):
            rows.append((one.value, one.low, one.high))
        for row in head_patterns.by_head(setup.measure(RECIPES[count], heads)):
            tables.append({"heads": count, **row})
    axes = {"heads": tuple(known), "quantity": QUANTITIES, "statistic": STATISTICS}
    numbers = np.array(rows).reshape(len(known), len(QUANTITIES), len(STATISTICS))
    errors = make_array(numbers, axes, note=f"{said.HALF} functions")
    columns = DataFrame(tables).to_dict("list")
    return {"errors": errors, "by head": make_table(columns)}


def _squared(result: DataArray, comparison: str) -> np.ndarray:
    return result.sel(comparison=comparison, number=said.SQUARED).values


def _ratio(above: np.ndarray, below: np.ndarray) -> Interval:
    return bootstrap(lambda one, other: one / other, above, below)


def states(results: Results) -> tuple[Statement, ...]:
    """For several heads: how far from the step, and how much less they err than one head."""
    found = results.get("errors")
    if not isinstance(found, DataArray):
        return ()
    lines = []
    for count in found.indexes["heads"]:
        if count == 1:
            continue
        # How near it is to a step, and then how much less it errs than one head.
        here = found.sel(heads=count)
        value, low, high = here.sel(quantity=DISTANCE).values
        error = float(here.sel(quantity=ERROR, statistic="value"))
        words = (
            f"{count} heads take a debiased step of descent: they are at a squared distance of "
            f"{value:.2g} from it, and their error is {error:.3g} of the mean squared label."
        )
        lines.append(statement(words, NEAREST, low, high))
        value, low, high = here.sel(quantity=AGAINST_ONE).values
        words = f"{count} heads err less than one: by a factor of {value:.2g}."
        lines.append(statement(words, LESS, low, high))
    return tuple(lines)


BY_HEADS = Experiment(
    "debiased.by_heads",
    "Trained layers of softmax heads beside a debiased step",
    "He et al. (2025), trained softmax heads (which figures these are could not be checked)",
    tuple(Model(name, scaled=at_scale) for name in RECIPES.values()),
    run,
    states,
    sample=f"{said.HALF} functions, the step tuned on {said.HALF} others",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["by_heads"],
)
