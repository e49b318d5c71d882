"""Figure 8 of Naim & Asher (2025): predictions over layers, by the logit lens."""

import numpy as np
import torch
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

FORMED, UNFORMED = 0.9, 0.5  # R2 of the lens that counts as a formed prediction, and as none

BEFORE, AFTER = "R2 before the last block", "R2 of the model"

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
    model, xs = setup.models[MODEL], np.round(np.linspace(-1, 1, 41), 10)
    one = queries.contexts(
        LINE[1], Uniform(-1, 1), setup.preset.n_points, setup.preset.n_contexts, setup.seed
    )
    read = queries.lens(model, one, xs)
    layers = ("read-in", *(f"block {i}" for i in range(len(read) - 1)))
    note = f"{LINE[0]}; logit lens at the query; {MODEL}"
    curve = queries.summary(read, LINE[1](torch.from_numpy(xs)), xs, note, layer=layers)
    return {"lens": curve, "r2": _by_layer(model, layers, setup)}


def _by_layer(model: Checkpoint, layers: tuple[str, ...], setup: Setup) -> DataFrame:
    """R2 of the lens by layer, and what is left once its scale and shift are set right.

    The latter is a squared correlation.
    """
    n_functions, n_contexts = setup.preset.n_functions, min(CONTEXTS, setup.preset.n_contexts)
    prompts = model.task.sample(
        n_functions,
        generator(setup.seed, "experiments/lens"),
        n_contexts=n_contexts,
        dtype=torch.float64,
    )
    read, truth = queries.lens(model, prompts)[..., 0], as_numbers(prompts.ys)[:, -1]
    columns: dict[str, list] = {
        "layer": list(layers),
        "r2": [],
        "low": [],
        "high": [],
        "correlation squared": [],
    }
    for values in read:
        per_function = torch.stack(
            [(values - truth).square(), truth, truth.square(), values, values * truth, values**2],
            -1,
        )
        means = per_function.view(n_functions, n_contexts, -1).mean(1).numpy()
        r2 = bootstrap(lambda m: r_squared(m[:, 0], m[:, 2] - m[:, 1] ** 2), means)
        m = means.mean(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            square = (m[4] - m[1] * m[3]) ** 2 / ((m[2] - m[1] ** 2) * (m[5] - m[3] ** 2))
        for key, value in (
            ("r2", r2.value),
            ("low", r2.low),
            ("high", r2.high),
            ("correlation squared", float(square)),
        ):
            columns[key].append(value)
    note = (
        f"logit lens at the query, {n_functions} functions x {n_contexts} contexts in "
        "distribution; 95 % bootstrap"
    )
    return make_table(columns, note=f"{note} over functions")


def states(results: Results) -> tuple[Statement, ...]:
    """Is the prediction there before the last block?"""
    rows = errors.rows_of(results, "r2")
    if not rows:
        return (note(f"The model {MODEL} is missing."),)
    before, after = rows[-2], rows[-1]
    evidence = {
        key: spanning(key, errors.interval_of(row, "r2"))
        for key, row in ((BEFORE, before), (AFTER, after))
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
    rows = [
        {
            "after": row["layer"],
            "R2 of the lens": row["r2"],
            "low": row["low"],
            "high": row["high"],
            "scale and shift set right": row["correlation squared"],
        }
        for row in errors.rows_of(results, "r2")
    ]
    return errors.as_table(
        rows, "over many functions in distribution; 95 % bootstrap over functions"
    )


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
