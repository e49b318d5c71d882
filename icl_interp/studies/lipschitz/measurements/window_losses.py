"""What a window costs: the least loss over windows w I, and the losses of the model's M.

All are on the same contexts.

Losses are mean squared errors against the noiseless f(x_q), in squared units of the labels. They
are those of the estimator of equation (2) with some M: what else a model does (a gain on the
labels, an MLP) is not in them.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.results import make_array, make_curve, table_of_numbers
from icl_interp.studies.lipschitz.measurements.unit import (
    functions_of,
    kernel,
    task_of,
    whitened_kernel,
)
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

MODEL = "the model's M"
ISOTROPIC = "its w I"
BEST = "w* I"
SKEWED = "w* I, skewed"
UNIFORM = "equal weights"
FLAT = 0.01  # share of the least loss by which windows may exceed it and still count as no worse
SKEW = 0.25  # how far eigenvalues of `SKEWED` lie from w*, relative to it
GROUPS = 64  # of contexts, which intervals resample
CONTEXTS = 6400  # at most
KEYS = 640_000  # examples in all contexts, at most
FINE = 4000  # windows among which those that are no worse are looked for


def loss_table_of(task: RidgeFunction) -> theory.LossTable:
    """Theory's table for the task's class, prompt length and dimension."""
    return theory.loss_table(task.n_points - 1, task.dim, functions_of(task))


def best_window(task: RidgeFunction) -> theory.Optimum:
    """w* of the task."""
    return theory.table_optimum(loss_table_of(task), task.lipschitz, task.noise_std)


@measurement("lipschitz/optimum")
def optimum(lab: Lab) -> DataFrame:
    """w* with its interval by Monte Carlo, its loss, and the windows that are nearly as good.

    The loss of such windows exceeds the least by 1 % at most.

    "low" and "high" span the 95 % interval of w*; "flat low" and "flat high" the windows that are
    no worse. An end is 0 or infinite where the table's first or last window is among them.
    """
    task = task_of(lab)
    table = loss_table_of(task)
    best = best_window(task)

    # Windows between the table's first and last, and which of them are no worse than w*.
    first = table.windows[0]
    last = table.windows[-1]
    low_power = math.log10(float(first))
    high_power = math.log10(float(last))
    fine = torch.logspace(low_power, high_power, FINE, dtype=torch.float64).clamp(first, last)
    risks = theory.window_loss(table, fine, task.lipschitz, task.noise_std).value
    inside = risks <= (1 + FLAT) * best.risk
    windows = fine[inside]

    flat_low = torch.zeros(())
    if not bool(inside[0]):
        flat_low = torch.minimum(windows.min(), best.window)
    flat_high = torch.tensor(math.inf)
    if not bool(inside[-1]):
        flat_high = torch.maximum(windows.max(), best.window)
    values = {
        "w*": best.window,
        "low": best.low,
        "high": best.high,
        "flat low": flat_low,
        "flat high": flat_high,
        "loss": best.risk,
        "standard error of the loss": best.risk_error,
        "share of the bias": best.bias_share,
    }
    note = "Monte Carlo with common random numbers for all windows, no training"
    return table_of_numbers(values, note=note)


@measurement("lipschitz/window_loss")
def window_loss(lab: Lab) -> DataArray:
    """Bias, noise and their sum for windows w I, (part, w), up to Monte-Carlo error."""
    task = task_of(lab)
    table = loss_table_of(task)
    windows = table.windows
    total = theory.window_loss(table, windows, task.lipschitz, task.noise_std).value
    bias = theory.window_loss(table, windows, task.lipschitz, 0.0).value
    values = torch.stack([total, bias, total - bias])
    axes = {"part": ("loss", "bias", "noise"), "w": tuple(windows.tolist())}
    return make_curve(values.numpy(), axes, "squared label", "squared error against f(x_q)")


@measurement("lipschitz/matrix_loss", needs=(kernel,))
def matrix_losses(lab: Lab, result: DataArray) -> DataArray:
    """Losses of several matrices on the same contexts, in groups of them: (group, matrix).

    The model's whitened M; w I with its own w; w* I; w* I with two eigenvalues moved by a quarter
    of w*, one up and one down, which says how well the loss can tell a matrix that is not
    isotropic; and M = 0, equal weights.
    """
    task = task_of(lab)
    d = task.dim
    n = task.n_points - 1
    own = whitened_kernel(result)
    identity = torch.eye(d, dtype=torch.float64)
    best = float(best_window(task).window)
    # One eigenvalue of `SKEWED` is moved up and one down.
    skew = torch.zeros(d, dtype=torch.float64)
    skew[0] = SKEW
    skew[-1] = -SKEW
    matrices = {
        MODEL: own,
        ISOTROPIC: theory.isotropy(own).window * identity,
        BEST: best * identity,
        SKEWED: best * (identity + torch.diag(skew)),
        UNIFORM: 0 * identity,
    }
    group_size = max(1, min(CONTEXTS, KEYS // n) // GROUPS)
    contexts = theory.draw_contexts(n, functions_of(task), GROUPS * group_size, d=d)
    columns = [losses(matrix, contexts, task.noise_std) for matrix in matrices.values()]
    axes = {"group": tuple(range(GROUPS)), "matrix": tuple(matrices)}
    note = "on the same contexts for all matrices"
    return make_array(np.stack(columns, 1), axes, "squared label", note)


def losses(
    matrix: Float[Tensor, "dim dim"], contexts: theory.Contexts, noise: float
) -> Float[np.ndarray, " group"]:
    """The loss of a matrix in each of `GROUPS` groups of contexts."""
    size = len(contexts.queries) // GROUPS
    found = []
    for start in range(0, GROUPS * size, size):
        part = theory.Contexts(*(tensor[start : start + size] for tensor in contexts))
        loss = theory.matrix_loss(matrix, part, noise)
        found.append(float(loss))
    return np.array(found)
