"""Figure 8 of Naim & Asher (2025): predictions over layers, by the logit lens."""

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame

from icl_interp.analyses.criterion import INF, Condition, Criterion, Precondition
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note, spanning
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import bootstrap, r_squared
from icl_interp.results import Result, make_table
from icl_interp.studies.limits.experiments import queries, settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.tasks.distributions import Uniform

MODEL = "affine"

CONTEXTS = 8  # of each function for R2 of the lens

LINE = ("f(x) = x", lambda x: x)

# R2 of the lens that counts as a formed prediction, and as none.
FORMED = 0.9
UNFORMED = 0.5

BEFORE = "R2 before the last block"
AFTER = "R2 of the model"

FORMED_LAST = Criterion(
    (Condition(BEFORE, BEFORE, (-INF, UNFORMED), (FORMED, INF)),),
    (
        Precondition(
            AFTER,
            (FORMED, 1.0),
            "The model itself has only R² {value:.2f}, so there is no prediction to locate.",
        ),
    ),
)


def run(setup: Setup) -> dict[str, Result]:
    """The logit lens after each block: over x for one function, and its R2 over many."""
    if not setup.has(MODEL):
        return {}
    model = setup.models[MODEL]
    preset = setup.preset
    name, function = LINE
    xs = np.round(np.linspace(-1, 1, 41), 10)
    law = Uniform(-1, 1)
    prompts = queries.contexts(function, law, preset.n_points, preset.n_contexts, setup.seed)
    read = queries.lens(model, prompts, xs)
    n_blocks = len(read) - 1
    layers = ("read-in", *(f"block {i}" for i in range(n_blocks)))
    what = f"{name}; logit lens at the query; {MODEL}"
    truth = function(torch.from_numpy(xs))
    curve = queries.summary(read, truth, xs, what, layer=layers)
    return {"lens": curve, "r2": _by_layer(model, layers, setup)}


def _by_layer(model: Checkpoint, layers: tuple[str, ...], setup: Setup) -> DataFrame:
    """R2 of the lens by layer, and what is left once its scale and shift are set right.

    The latter is a squared correlation.
    """
    n_functions = setup.preset.n_functions
    n_contexts = min(CONTEXTS, setup.preset.n_contexts)
    prompts = model.task.sample(
        n_functions,
        generator(setup.seed, "experiments/lens"),
        n_contexts=n_contexts,
        dtype=torch.float64,
    )
    read = queries.lens(model, prompts)[..., 0]
    truth = as_numbers(prompts.ys)[:, -1]
    columns: dict[str, list] = {
        "layer": list(layers),
        "r2": [],
        "low": [],
        "high": [],
        "correlation squared": [],
    }
    for values in read:
        residual = values - truth
        moments = [residual.square(), truth, truth.square(), values, values * truth, values**2]
        per_context = torch.stack(moments, -1).view(n_functions, n_contexts, -1)
        # Contexts of one function are not independent, so functions are resampled.
        means = per_context.mean(1).numpy()
        r2 = bootstrap(_explained, means)
        columns["r2"].append(r2.value)
        columns["low"].append(r2.low)
        columns["high"].append(r2.high)
        square = _squared_correlation(means.mean(0))
        columns["correlation squared"].append(square)
    what = (
        f"logit lens at the query, {n_functions} functions x {n_contexts} contexts in "
        "distribution; 95 % bootstrap over functions"
    )
    return make_table(columns, note=what)


def _explained(moments: Float[np.ndarray, "draw moment"]) -> Float[np.ndarray, " draw"]:
    """R2 of the lens, from the means that `_by_layer` takes."""
    truth_variance = moments[:, 2] - moments[:, 1] ** 2
    return r_squared(moments[:, 0], truth_variance)


def _squared_correlation(moments: Float[np.ndarray, " moment"]) -> float:
    """Of the truth and what the lens reads, from the means that `_by_layer` takes."""
    _, truth, truth_squared, values, product, values_squared = moments
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = product - truth * values
        truth_variance = truth_squared - truth**2
        variance = values_squared - values**2
        return float(covariance**2 / (truth_variance * variance))


def states(results: Results) -> tuple[Statement, ...]:
    """Is the prediction there before the last block?"""
    rows = errors.rows_of(results, "r2")
    if not rows:
        return (note(f"The model {MODEL} is missing."),)
    before = rows[-2]
    after = rows[-1]
    evidence = {
        BEFORE: spanning(BEFORE, errors.interval_of(before, "r2")),
        AFTER: spanning(AFTER, errors.interval_of(after, "r2")),
    }
    text = (
        f"the lens reads R² {before['r2']:.3f} [{before['low']:.3f}, {before['high']:.3f}] before "
        f"the last block and {after['r2']:.3f} after it, where the prediction should be formed in "
        f"the last. There are {len(rows) - 1} blocks here and 12 in the paper; one run."
    )
    told = (
        f"With scale and shift corrected it is {before['correlation squared']:.3f} before the "
        "last block. The lens reads one direction, so it does not see what stands in others. And "
        "what can be read off need not be what later blocks use."
    )
    return Statement(text, FORMED_LAST, evidence), note(told)


def compare(results: Results) -> DataFrame | None:
    """R2 by layer; the paper's plots come without numbers."""
    rows = []
    for row in errors.rows_of(results, "r2"):
        renamed = {
            "after": row["layer"],
            "R2 of the lens": row["r2"],
            "low": row["low"],
            "high": row["high"],
            "scale and shift set right": row["correlation squared"],
        }
        rows.append(renamed)
    what = "over many functions in distribution; 95 % bootstrap over functions"
    return errors.as_table(rows, what)


FIGURE8_EXPERIMENT = Experiment(
    "limits.figure8",
    "Predictions over layers, by the logit lens",
    f"{PAPER}, appendix F, Figure 8",
    (Model(MODEL),),
    run,
    states,
    compare,
    sample=f"{{n_functions}} functions x at most {CONTEXTS} contexts of {{n_points}} points",
    settings=settings.SETTINGS["figure8"],
)
