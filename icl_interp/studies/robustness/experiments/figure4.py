"""Figure 4 of Garg et al. (2022): errors by the number of examples under shifts of the prompts.

The work shows prompts with skewed inputs, with noisy labels and with examples of one orthant, and
in its appendix inputs of half of the dimensions. A model and least squares see the same prompts.
"""

from pathlib import Path

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Precondition
from icl_interp.baselines.base import Predictor, Zero, predictions
from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import plainly
from icl_interp.experiments.presets import of_regression
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, statement
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.robustness.claims.shift import AS_GOOD, EXACT, WORSE, over_bar
from icl_interp.studies.robustness.measurements.shifts import (
    INSIDE,
    LEAST_SQUARES,
    MODEL,
    NOISY,
    ZERO,
)
from icl_interp.tasks.base import Task
from icl_interp.tasks.shifts import shifted

FIGURE = "Garg, Tsipras, Liang & Valiant (2022), Figure 4 and its appendix"
RECIPE = "softmax_fixed_20"
LAWS = (INSIDE, "skewed", NOISY, "quadrants", "half-subspace")
PREDICTORS = (MODEL, LEAST_SQUARES)
EACH = 16  # prompts of a block
SAMPLE = f"{{n_functions}} blocks of {EACH} independent prompts"
INSIDE_ERROR = "error over that of predicting 0, in distribution"
LEARNED = Precondition(
    INSIDE_ERROR,
    (0.0, 1 - LEARNED_R2),
    "Its error is {value:.2g} of that of predicting 0: it has not learned.",
)
CLOSE = at_most("error over the bar of least squares", AS_GOOD, WORSE, LEARNED)
SIZES = {
    "smoke": "2 layers, width 32, d = 2, 10 examples, 100 steps: shows that it runs, and nothing "
    "else",
    "small": "3 layers, width 64, 4 heads, d = 4, 20 examples, 12,000 steps",
    "paper": "12 layers, width 256, 8 heads, d = 20, 100 examples, 500,000 steps",
}


def run(setup: Setup) -> dict[str, Result]:
    """Errors over that of predicting 0 by shift, predictor and number of examples."""
    if not setup.has(RECIPE):
        return {}
    task = setup.models[RECIPE].task
    curves = []
    rows = []
    for name in LAWS:
        law = task if name == INSIDE else shifted(task, name)
        found = {who: _errors(setup, law, who) for who in (*PREDICTORS, ZERO)}
        # Curves over the number of examples, each length over predicting 0 on the same prompts.
        lines = []
        for who in PREDICTORS:
            lines.append(_over_zero(found[who], found[ZERO]))
        curves.append(np.stack(lines))
        # What decides, at the trained length.
        last = [found[who][:, -1] for who in (*PREDICTORS, ZERO)]
        own = lines[0][:, -1]
        best = lines[1][:, -1]
        decides = over_bar(*last)
        rows.append(
            {
                "shift": name,
                "model": own[0],
                "low": own[1],
                "high": own[2],
                "least squares": best[0],
                "over the bar": decides.value,
                "over the bar, low": decides.low,
                "over the bar, high": decides.high,
            }
        )
    n = task.n_points - 1
    note = f"squared error at the query over that of predicting 0; d = {task.dim}, N = {n}"
    axes = {
        "shift": LAWS,
        "predictor": PREDICTORS,
        "statistic": ("mean", "low", "high"),
        "examples": tuple(range(1, n + 1)),
    }
    table = table_of_rows(rows, note=f"{note}; after N examples")
    return {"curves": make_curve(np.stack(curves), axes, note=note), "at N": table}


def _errors(setup: Setup, law: Task, who: str) -> np.ndarray:
    """Squared error by block of independent prompts and number of examples, (block, examples)."""

    def compute() -> DataArray:
        known: dict[str, Predictor] = {LEAST_SQUARES: LeastSquares(law), ZERO: Zero()}
        predictor = known.get(who) or setup.models[RECIPE]
        blocks = []
        for block in range(setup.preset.n_functions):
            stream = generator(setup.seed, "robustness/figure 4", block)
            prompts = law.sample(EACH, stream, dtype=torch.float64)
            truth = law.targets(prompts.parameters, prompts.xs)
            miss = as_numbers(predictions(predictor, prompts) - truth)[:, 1:]
            blocks.append(miss.square().mean(0).numpy())
        axes = {"block": tuple(range(len(blocks))), "examples": tuple(range(1, law.n_points))}
        return make_array(np.stack(blocks), axes)

    models = [RECIPE] if who == MODEL else []
    settings = {"task": encode(law), "predictor": who}
    found = setup.keep("robustness: error by examples", models, compute, **settings)
    return np.asarray(found.values)


def _over_zero(error: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Errors over those of predicting 0, with both ends: (statistic, examples)."""
    columns = []
    for place in range(error.shape[1]):
        i = bootstrap(lambda e, z: e / z, error[:, place], zero[:, place])
        columns.append((i.value, i.low, i.high))
    return np.array(columns).T


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Shift by shift, whether the model's error stays close to that of least squares."""
    rows = errors.rows_of(results, "at N")
    inside = 1.0
    lines = []
    for row in rows:
        if row["shift"] == INSIDE:
            inside = row["model"]
            continue
        best = row["least squares"] if row["least squares"] > EXACT else 0.0
        words = (
            f"{row['shift']}: the error is {plainly(row['model'])} of that of predicting 0, that "
            f"of least squares {plainly(best)}, and in distribution {plainly(inside)}."
        )
        ends = (row["over the bar, low"], row["over the bar, high"])
        lines.append(statement(words, CLOSE, *ends, given={INSIDE_ERROR: inside}))
    return tuple(lines)


def compare(results: Results) -> DataFrame | None:
    """Errors after N examples by shift; the work shows curves and prints no numbers."""
    found = results.get("at N")
    return found if isinstance(found, DataFrame) else None


FIGURE4_EXPERIMENT = Experiment(
    "robustness.figure4",
    "Under shifts of the prompts, by the number of examples",
    FIGURE,
    (Model(RECIPE, scaled=of_regression),),
    run,
    states,
    compare,
    sample=SAMPLE,
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["figure4"],
)
