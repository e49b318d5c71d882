"""The iterates that are nearest to each layer of a trained model of several layers.

Fu et al. (2023) match each of 12 layers with an iterate of Newton's iteration and with a number of
steps of descent (their Figure 3, which we know by the numbers in a transcript).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from xarray import DataArray

from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.sizes import N_UNITS
from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.presets import of_regression, training_of
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement
from icl_interp.results import Result, make_array, make_table
from icl_interp.studies.newton.claims import iterations
from icl_interp.studies.newton.measurements.iterates import GROUP, TUNING, iterates

RECIPE = "softmax_fixed_20_deep"
STATISTICS = ("value", "low", "high")
SIZES = {
    "smoke": "2 layers of width 32, d = 2, 10 examples, 100 steps: shows that it runs, and nothing "
    "else",
    "small": "6 layers of width 64 with 4 heads, d = 4, 20 examples, 12,000 steps of Adam",
    "paper": "12 layers of width 256 with 8 heads, d = 20, 40 examples, 500,000 steps of Adam",
}


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands."""
    training_of(config, scale)
    found = of_regression(config, scale)
    if scale != "paper":
        return found
    # The work has 40 examples of 20 dimensions: two for each.
    n_points = 2 * found.task.dim + 1
    model = replace(found.model, n_ctx=2 * n_points)
    return replace(found, model=model, task=found.task.with_points(n_points))


def run(setup: Setup) -> dict[str, Result]:
    """The numbers that the claims ask for, and by layer the nearest iterates."""
    if not setup.has(RECIPE):
        return {}
    result = setup.measure(RECIPE, iterates)
    found = iterations.numbers(result)
    rows = []
    for one in iterations.LINEAR_CLAIM.criterion.named(found).values():
        rows.append((one.value, one.low, one.high))
    axes = {"quantity": tuple(found), "statistic": STATISTICS}
    columns = iterations.by_layer(result).to_dict("list")
    return {
        "numbers": make_array(np.array(rows), axes, note=result.attrs["note"]),
        "by layer": make_table(columns),
    }


def states(results: Results) -> tuple[Statement, ...]:
    """Whether layers move on as the work says, by the criteria of the two claims."""
    found = results.get("numbers")
    if not isinstance(found, DataArray):
        return ()
    evidence = {}
    for key in found.indexes["quantity"]:
        value, low, high = map(float, found.sel(quantity=key).values)
        evidence[key] = Estimate(key, value, low, high)
    lines = []
    for claim in iterations.CLAIMS:
        lines.append(Statement(claim.statement, claim.criterion, evidence))
    return tuple(lines)


LAYERS_EXPERIMENT = Experiment(
    "newton.layers",
    "Newton's iterates and steps of descent that are nearest to each layer",
    "Fu et al. (2023), Figure 3 (known by the numbers in a transcript)",
    (Model(RECIPE, scaled=at_scale),),
    run,
    states,
    sample=f"{TUNING * N_UNITS:,} functions for read-outs, {GROUP * N_UNITS} others to judge them",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["layers"],
)
