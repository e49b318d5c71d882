"""Trained linear layers beside as many steps of descent, of preconditioned descent, and of GD++.

Von Oswald et al. (2023) compare trained layers of linear self-attention with descent and with
GD++. The number of their figure could not be checked; the setting is that of their code.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from xarray import DataArray

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.presets import training_of, whole_prompts
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, statement
from icl_interp.results import Result, make_array
from icl_interp.studies.gradient_descent.claims import steps
from icl_interp.studies.gradient_descent.measurements.distances import FAMILIES, distances
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.regression import LinearRegression

SOURCE = (
    "von Oswald et al. (2023), trained linear self-attention beside descent and GD++ (which figure "
    "it is could not be checked)"
)
RECIPES = {
    1: "lsa_fixed",
    2: "lsa_fixed_2_layers",
    3: "lsa_fixed_3_layers",
    4: "lsa_fixed_4_layers",
}
NEAREST = at_most("squared distance to L steps of the nearest family", steps.NEAR, steps.FAR)
LAYERS = "1, 2, 3 and 4 layers of linear self-attention"
SIZES = {
    "smoke": f"{LAYERS}, d = 5, N = 20, 200 steps: shows that it runs, and nothing else",
    "small": f"{LAYERS}, d = 5, N = 20, 6,000 steps of Adam",
    "paper": f"{LAYERS}, d = 10, N = 10, 10,000 steps of Adam",
}
STATISTICS = ("value", "low", "high")


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands."""
    section = training_of(config, scale)
    if scale == "small":
        return config
    if scale == "smoke":
        changes = {"steps": 200, "warmup_steps": 20, "checkpoint_every": 200, "batch_size": 128}
        training = whole_prompts(section, config.task, changes)
        return replace(config, training=replace(training, snapshots=()))
    # The setting of the authors' code, `transformers_learn_icl_by_gd/src/config.py`.
    task = LinearRegression(n_dims=10, n_points=11, inputs=Uniform(-1, 1))
    model = replace(config.model, d_model=11, d_head=11, d_in=11, n_ctx=11)
    training = whole_prompts(section, task, {"steps": 10_000})
    return replace(config, model=model, task=task, training=replace(training, snapshots=()))


def run(setup: Setup) -> dict[str, Result]:
    """D with its interval by number of layers and family."""
    known = [layers for layers, name in RECIPES.items() if setup.has(name)]
    if not known:
        return {}
    values = []
    for layers in known:
        result = setup.measure(RECIPES[layers], distances)
        found = []
        for name in steps.rows(result):
            one = steps.distance(result, [name])
            found.append((one.value, one.low, one.high))
        values.append(found)
    axes = {"layers": tuple(known), "family": FAMILIES, "statistic": STATISTICS}
    note = "squared distance from L layers to L steps, over the variance of predictions"
    return {"distances": make_array(np.array(values), axes, note=note)}


def states(results: Results) -> tuple[Statement, ...]:
    """For each number of layers, how far the nearest family is, and which it is."""
    found = results.get("distances")
    if not isinstance(found, DataArray):
        return ()
    lines = []
    for layers in found.indexes["layers"]:
        here = found.sel(layers=layers)
        family = str(here.sel(statistic="value").idxmin("family").item())
        value, low, high = here.sel(family=family).values
        descent = float(here.sel(family="descent", statistic="value"))
        words = (
            f"{layers} layer{'s' * (layers != 1)}: the nearest is {family} at a distance of "
            f"{value:.2g}; descent with one size is at {descent:.2g}."
        )
        lines.append(statement(words, NEAREST, low, high))
    return tuple(lines)


LAYERS_EXPERIMENT = Experiment(
    "gradient_descent.layers",
    "Trained linear layers beside steps of descent",
    SOURCE,
    tuple(Model(name, scaled=at_scale) for name in RECIPES.values()),
    run,
    states,
    sample="512 functions, families tuned on 512 others",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["layers"],
)
