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

MODEL, ISOTROPIC, BEST, SKEWED, UNIFORM = (
    "the model's M",
    "its w I",
    "w* I",
    "w* I, skewed",
    "equal weights",
)
FLAT = 0.01  # share of the least loss by which windows may exceed it and still count as no worse
SKEW = 0.25  # how far eigenvalues of `SKEWED` lie from w*, relative to it
GROUPS = 64  # of contexts, which intervals resample
CONTEXTS, KEYS = 6400, 640_000  # at most: contexts, and examples in all of them
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
    table, best = loss_table_of(task), best_window(task)
    fine = torch.logspace(
        math.log10(float(table.windows[0])),
        math.log10(float(table.windows[-1])),
        FINE,
        dtype=torch.float64,
    ).clamp(table.windows[0], table.windows[-1])
    inside = (
        theory.window_loss(table, fine, task.lipschitz, task.noise_std).value
        <= (1 + FLAT) * best.risk
    )
    windows = fine[inside]
    values = {
        "w*": best.window,
        "low": best.low,
        "high": best.high,
        "flat low": torch.zeros(())
        if bool(inside[0])
        else torch.minimum(windows.min(), best.window),
        "flat high": torch.tensor(math.inf)
        if bool(inside[-1])
        else torch.maximum(windows.max(), best.window),
        "loss": best.risk,
        "standard error of the loss": best.risk_error,
        "share of the bias": best.bias_share,
    }
    return table_of_numbers(
        values, note="Monte Carlo with common random numbers for all windows, no training"
    )


@measurement("lipschitz/window_loss")
def window_loss(lab: Lab) -> DataArray:
    """Bias, noise and their sum for windows w I, (part, w), up to Monte-Carlo error."""
    task = task_of(lab)
    table = loss_table_of(task)
    total, bias = (
        theory.window_loss(table, table.windows, task.lipschitz, s).value
        for s in (task.noise_std, 0.0)
    )
    axes = {"part": ("loss", "bias", "noise"), "w": tuple(table.windows.tolist())}
    return make_curve(
        torch.stack([total, bias, total - bias]).numpy(),
        axes,
        "squared label",
        "squared error against f(x_q)",
    )


@measurement("lipschitz/matrix_loss", needs=(kernel,))
def matrix_losses(lab: Lab, result: DataArray) -> DataArray:
    """Losses of several matrices on the same contexts, in groups of them: (group, matrix).

    The model's whitened M; w I with its own w; w* I; w* I with two eigenvalues moved by a quarter
    of w*, one up and one down, which says how well the loss can tell a matrix that is not
    isotropic; and M = 0, equal weights.
    """
    task = task_of(lab)
    d, n = task.dim, task.n_points - 1
    own, identity = whitened_kernel(result), torch.eye(d, dtype=torch.float64)
    best = float(best_window(task).window)
    skew = torch.zeros(d, dtype=torch.float64)
    skew[0], skew[-1] = SKEW, -SKEW
    matrices = {
        MODEL: own,
        ISOTROPIC: theory.isotropy(own).window * identity,
        BEST: best * identity,
        SKEWED: best * (identity + torch.diag(skew)),
        UNIFORM: 0 * identity,
    }
    count = GROUPS * max(1, min(CONTEXTS, KEYS // n) // GROUPS)
    contexts = theory.draw_contexts(n, functions_of(task), count, d=d)
    values = np.stack([losses(matrix, contexts, task.noise_std) for matrix in matrices.values()], 1)
    axes = {"group": tuple(range(GROUPS)), "matrix": tuple(matrices)}
    return make_array(values, axes, "squared label", "on the same contexts for all matrices")


def losses(
    matrix: Float[Tensor, "dim dim"], contexts: theory.Contexts, noise: float
) -> Float[np.ndarray, " group"]:
    """The loss of a matrix in each of `GROUPS` groups of contexts."""
    size = len(contexts.queries) // GROUPS
    parts = [
        theory.Contexts(*(t[i * size : (i + 1) * size] for t in contexts)) for i in range(GROUPS)
    ]
    return np.array([float(theory.matrix_loss(matrix, part, noise)) for part in parts])
