"""The implicit update by the number of examples: the same predictions, and steps that get small.

Dherin et al. (2025) show two things of one block without norms. Predictions with examples have the
error of those for the query alone under the update. The steps of the implicit weights fall towards
0. We know both figures by accounts of others.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp import resampling
from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Precondition
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import interval_of, plainly, rows_of
from icl_interp.experiments.presets import of_regression
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.implicit_update.claims.rank_one_steps import DIFFERENT, SAME, TINY
from icl_interp.studies.implicit_update.measurements.lengths import SIZE, UNDER, WITH, by_length
from icl_interp.studies.implicit_update.measurements.updates import LABEL

FIGURES = (
    "Dherin et al. (2025), predictions under the update, and the size of steps (figures that we "
    "know by accounts of others)"
)
ONE_BLOCK = "regression_one_block"
RECIPES = (ONE_BLOCK, "softmax_fixed_20", "softmax_random_20")
TRAINED = "as trained"
UNTRAINED = "untrained"
LAST_ERROR = "error over that of predicting 0, with the most examples"
LEARNED = Precondition(
    LAST_ERROR,
    (0.0, 1 - LEARNED_R2),
    "Its error is {value:.2g} of that of predicting 0: it has not learned.",
)
IDENTICAL = at_most(
    "largest difference of predictions, over the labels' standard deviation", SAME, DIFFERENT
)
FALLS = at_most("slope of log size of a step in log number of examples", 0.0, None, LEARNED)
SIZES = {
    "smoke": "one block and 2 layers, width 32, d = 2, 10 examples, 100 steps: shows that it runs, "
    "and nothing else",
    "small": "one block without norms on d = 2, and 3 layers on d = 4; width 64, 4 heads, 20 "
    "examples, 12,000 steps",
    "paper": "one block without norms on d = 2, and 12 layers on d = 20; width 256, 8 heads, 100 "
    "examples, 500,000 steps",
}


def one_block(config: RunConfig, scale: str) -> RunConfig:
    """The run of one block at another scale: it stays one block, and d stays that of the work."""
    d = config.task.dim
    # What scales runs of regression is for prompts whose tokens are as wide as an input.
    in_turn = replace(config, encoding="interleaved", model=replace(config.model, d_in=d))
    found = of_regression(in_turn, scale)
    model = replace(found.model, n_layers=1, d_in=config.model.d_in)
    task = replace(found.task, n_dims=d)
    return replace(found, encoding=config.encoding, model=model, task=task)


def run(setup: Setup) -> dict[str, Result]:
    """Errors, differences and sizes by model, weights and number of examples, and slopes."""
    rows = []
    slopes = []
    for name in setup.among(RECIPES):
        for weights in (TRAINED, UNTRAINED):
            key = {"model": name, "weights": weights}
            result = _measured(setup, name, weights)
            found = by_number(result)
            rows += [key | row for row in found]
            i = fall(result)
            ends = {"slope": i.value, "low": i.low, "high": i.high}
            slopes.append({**key, **ends, "error": found[-1]["error"]})
    if not rows:
        return {}
    words = (
        "errors are over that of predicting 0, differences over the labels' standard deviation; "
        "size is the mean length of the next step, hidden units weighted by their effect"
    )
    return {
        "by length": table_of_rows(rows, note=words),
        "slopes": table_of_rows(slopes, note="slopes of log size in log number of examples"),
    }


def _measured(setup: Setup, name: str, weights: str) -> DataArray:
    """Of a model, or of an untrained one of its shape."""
    if weights == TRAINED:
        return setup.measure(name, by_length)

    def compute() -> DataArray:
        one = setup.models[name]
        lab = Lab(one.model, one.task, one.encoding, seed=setup.seed)
        return lab.control.measure(by_length)

    version = by_length.version
    found = setup.keep(f"{by_length.name}, {UNTRAINED}", [name], compute, version=version)
    assert isinstance(found, DataArray)
    return found


def by_number(result: DataArray) -> list[dict[str, float]]:
    """Errors, the largest difference of predictions, and the mean size: a row a length."""
    rows = []
    for n in result.indexes["examples"]:
        one = result.sel(examples=n)
        label, shown, under = [one.sel(number=key).values for key in (LABEL, WITH, UNDER)]
        zero = float(np.mean(label**2))
        row = {
            "examples": int(n),
            "error": float(np.mean((shown - label) ** 2)) / zero,
            "error under the update": float(np.mean((under - label) ** 2)) / zero,
            "difference": float(abs(shown - under).max() / label.std()),
            "size": float(one.sel(number=SIZE).mean()),
        }
        rows.append(row)
    return rows


def fall(result: DataArray) -> resampling.Interval:
    """The slope of the log of the mean size of a step in the log of the number of examples."""
    sizes = result.sel(number=SIZE).transpose("unit", "examples").values
    log_n = np.log(np.asarray(result.indexes["examples"], float))

    def statistic(mean: Float[np.ndarray, "draw examples"]) -> np.ndarray:
        return resampling.slope(log_n, np.log(np.maximum(mean, TINY)))

    return resampling.bootstrap(statistic, sizes)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether predictions are the same, whether steps fall, and a note on untrained weights."""
    lines = []
    for row in rows_of(results, "slopes"):
        name = row["model"]
        value, low, high = row["slope"], row["low"], row["high"]
        slope = f"{name}, {row['weights']}: the slope is {value:.2f} [{low:.2f}, {high:.2f}]"
        if row["weights"] == TRAINED:
            lines.append(_identity(results, name))
            ends = interval_of(row, "slope")
            given = {LAST_ERROR: row["error"]}
            lines.append(statement(f"{slope}.", FALLS, ends, given=given))
        elif high < 0:
            lines.append(note(f"{slope}. Steps fall without training: a fall shows no learning."))
        else:
            lines.append(note(f"{slope}. Steps are not seen to fall without training."))
    return tuple(lines)


def _identity(results: Results, name: str) -> Statement:
    """Of the largest difference at each number of examples."""
    rows = rows_of(results, "by length", model=name, weights=TRAINED)
    found = [row["difference"] for row in rows]
    words = (
        f"{name}: predictions with examples and under the update differ by at most "
        f"{plainly(max(found))} of the labels' standard deviation. By algebra they must agree."
    )
    return statement(words, IDENTICAL, *found, kind="formula")


def compare(results: Results) -> DataFrame | None:
    """Errors and sizes by the number of examples; of the work we know no numbers."""
    found = results.get("by length")
    return found if isinstance(found, DataFrame) else None


CONVERGENCE_EXPERIMENT = Experiment(
    "implicit_update.convergence",
    "The implicit update and its steps, by the number of examples",
    FIGURES,
    (
        Model(ONE_BLOCK, scaled=one_block),
        *(Model(name, scaled=of_regression) for name in RECIPES[1:]),
    ),
    run,
    states,
    compare,
    sample="128 functions, a prompt of each",
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["convergence"],
)
