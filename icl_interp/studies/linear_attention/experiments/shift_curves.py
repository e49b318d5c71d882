"""Under distribution shift, as curves over the number of examples, at d = 20.

The slides show the three shifts of Garg et al. (2022) as curves over the examples of a prompt:
skewed inputs, noisy labels, examples from a single orthant. Larger functions (task shift) and a
larger query (query shift) join them, as in `linear_attention.shifts`. A layer of linear
self-attention at the minimum of its training loss stands beside least squares, and where the
theory covers the shift, its exact risk beside the layer. Such a layer needs no training, so d and
N are those of the source at every preset but the smallest.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.baselines.base import predictions
from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.errors import plainly
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, none_of, note, statement
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.studies.linear_attention.experiments.models import LEAST_SQUARES
from icl_interp.studies.linear_attention.experiments.shifts import (
    IN_DISTRIBUTION,
    LSA,
    ORTHANT,
    ZERO,
    shifts,
)
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

WIDTH = {"smoke": 4, "small": 20, "paper": 20}  # d
TRAINED = 2  # N over d; prompts go on to twice N
LENGTHS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # M over d
PREDICTORS = (LSA, LEAST_SQUARES)
STATISTICS = ("mean", "low", "high")
THEORY = "theory"
EACH = 16  # prompts in a block
SAMPLE = f"{{n_functions}} blocks of {EACH} independent prompts"
FOLLOWS = none_of("lengths at which the error is four standard errors from theory")
SIZES = {
    "smoke": "the optimal layer of linear self-attention, d = 4, N = 8",
    "small": "the optimal layer of linear self-attention, d = 20, N = 40",
    "paper": "the optimal layer of linear self-attention, d = 20, N = 40",
}


def lengths(d: int) -> tuple[int, ...]:
    """Numbers of examples M, from a tenth of d to four times d.

    >>> lengths(20)
    (2, 5, 10, 15, 20, 30, 40, 60, 80)
    """
    return tuple(round(share * d) for share in LENGTHS[-3 if d < 10 else 0 :])


def exact_risk(task: LinearRegression, product: torch.Tensor, m: int) -> float:
    """E(yhat - y)^2 / E[y^2] of the layer at the query after m examples, without label noise.

    NaN where the examples are not centred normal, as within a single orthant: the theory does not
    cover it. The error is against the function's own value, so the query's noise is not in it.
    """
    if task.single_orthant:
        return float("nan")
    covariance = task.covariance_matrix
    eye = torch.eye(task.n_dims, dtype=torch.float64)
    assert isinstance(task.weights, Normal)
    second = eye * task.weights.std**2
    query = eye * task.query.std**2 if isinstance(task.query, Normal) else covariance
    risk = theory.product_risk(product, m, covariance, second, task.noise_std**2, query)
    return float((risk.variance + risk.bias) / (second @ query).trace())


def run(setup: Setup) -> dict[str, Result]:
    """Errors over E[y^2] by shift, predictor and number of examples, beside theory."""
    d = WIDTH[setup.preset.name]
    n = TRAINED * d
    product = theory.landscape(torch.eye(d, dtype=torch.float64), n).product
    laws = shifts(d, n)
    curves = []
    rows = []
    for shift, task in laws.items():
        # Errors over that of predicting 0 on the same prompts, with intervals.
        layer = []
        best = []
        for m in lengths(d):
            zero = _errors(setup, task, ZERO, product, m)
            layer.append(_over_zero(_errors(setup, task, LSA, product, m), zero))
            best.append(_over_zero(_errors(setup, task, LEAST_SQUARES, product, m), zero))
        curves.append([layer, best])
        # The same as rows, beside theory.
        for place, m in enumerate(lengths(d)):
            row: dict = {"shift": shift, "M": m}
            row[LSA] = layer[place][0]
            row["low"] = layer[place][1]
            row["high"] = layer[place][2]
            row[LEAST_SQUARES] = best[place][0]
            row[THEORY] = exact_risk(task, product, m)
            rows.append(row)
    about = f"squared error at the query after M examples / E[y²]; d = {d}, trained on N = {n}"
    axes = {"shift": tuple(laws), "predictor": PREDICTORS, "M": lengths(d), "statistic": STATISTICS}
    return {
        "curves": make_array(np.array(curves), axes, note=about),
        "by length": table_of_rows(rows, note=about),
    }


def _errors(
    setup: Setup, task: LinearRegression, name: str, product: torch.Tensor, m: int
) -> np.ndarray:
    """Squared error at the query by block of independent prompts of m examples."""
    at_length = replace(task, n_points=m + 1)
    layer = LinearSelfAttention.from_product(product)
    predict: dict[str, Callable[[Prompts], torch.Tensor]] = {
        LSA: lambda prompts: predictions(layer, prompts)[:, -1],
        LEAST_SQUARES: LeastSquares(at_length).at_query,
        ZERO: lambda prompts: torch.zeros_like(prompts.ys[:, -1]),
    }

    def compute() -> DataArray:
        blocks = []
        for block in range(setup.preset.n_functions):
            stream = generator(setup.seed, "linear_attention/shift curves", block)
            prompts = at_length.sample(EACH, stream, dtype=torch.float64)
            truth = at_length.targets(prompts.parameters, prompts.xs[:, -1:])[:, 0]
            miss = predict[name](prompts) - truth
            blocks.append(float(as_numbers(miss.square()).mean()))
        return make_array(np.array(blocks), {"block": tuple(range(len(blocks)))})

    settings = {"task": encode(at_length), "predictor": name, "m": m}
    found = setup.keep("linear_attention: error by examples", [], compute, **settings)
    return np.asarray(found.values)


def _over_zero(error: np.ndarray, zero: np.ndarray) -> tuple[float, float, float]:
    found = bootstrap(lambda e, z: e / z, error, zero)
    return found.value, found.low, found.high


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Shift by shift: the error by the number of examples, and whether theory gives it."""
    by_shift: dict[str, list] = {}
    for row in errors.rows_of(results, "by length"):
        mine = by_shift.setdefault(row["shift"], [])
        mine.append(row)
    lines = []
    for shift, rows in by_shift.items():
        lines.append(_states_shift(shift, rows))
    return tuple(lines)


def _states_shift(shift: str, rows: list) -> Statement:
    last = rows[-1]
    name = "no shift" if shift == IN_DISTRIBUTION else shift
    words = (
        f"{name}: after {last['M']} examples the error over E[y²] is {plainly(last[LSA])} "
        f"[{plainly(last['low'])}, {plainly(last['high'])}]"
    )
    if shift == ORTHANT:
        return note(f"{words}; the theory does not cover examples of one orthant.")
    n_off = 0
    for row in rows:
        n_off += not _on_theory(row)
    words = f"{words}, by theory {plainly(last[THEORY])}"
    return statement(f"{words}.", FOLLOWS, n_off, kind="formula")


def _on_theory(row: dict) -> bool:
    """Whether the measured error is within four standard errors of theory."""
    standard_error = (row["high"] - row["low"]) / (2 * 1.96)
    return abs(row[LSA] - row[THEORY]) < 4 * standard_error


def compare(results: Results) -> DataFrame | None:
    """Errors by shift and number of examples; the slides show curves and print no numbers."""
    found = results.get("by length")
    return found if isinstance(found, DataFrame) else None


SHIFT_CURVES_EXPERIMENT = Experiment(
    "linear_attention.shift_curves",
    "Under distribution shift, by the number of examples",
    f"{models.SLIDES}: behavior of trained transformers under distribution shifts (figure of Garg "
    "et al., 2022)",
    (),
    run,
    states,
    compare,
    sample=SAMPLE,
    sizes=SIZES,
    settings=settings.SETTINGS["shift_curves"],
)
