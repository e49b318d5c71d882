"""Errors of a model at other Lipschitz constants, beside those of theory's windows.

Both are on the same prompts.

All functions, inputs and noise of one L' are those of L with the slopes and the constant multiplied
by L' / L: the noise stays. So errors at different L', and of the model and of a window, are
compared on common random numbers.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.lipschitz.measurements.prediction import predicted
from icl_interp.studies.lipschitz.measurements.unit import functions_of, task_in, task_of
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)  # L' / L on the grid, which anybody can know
SPANS = ((0.1, 0.9), (1.1, 10.0))  # L' / L between which one more is drawn, evenly on the logarithm
N_CONTEXTS = 8  # of each function of a pair
MODEL = "model"
TRAINED = "window for L"
BEST = "window for L'"
RESCALED = "model, labels rescaled"
LINKS = ("relu", "affine")


def needs_layer_and_sphere(facts: Facts) -> str | None:
    """Why there is no optimum of Theorem 3 to compare a model with."""
    if reason := needs_task(facts, RidgeFunction):
        return reason
    task = task_in(facts)
    if not facts.outside and not _is_layer(facts):
        return (
            "The claim is about one layer of softmax attention on stacked prompts; this model has "
            "another design"
        )
    if reason := no_scaled_class(task):
        return reason
    if not task.noise_std > 0:
        return (
            "The claim is about tasks with label noise, since without it one window is the best "
            "for every L"
        )
    return None


def _is_layer(facts: Facts) -> bool:
    """Whether a model is one layer of softmax attention on stacked prompts."""
    cfg = facts.config
    attends = cfg.n_layers == 1 and not cfg.mlp_only and cfg.score_fn == "softmax"
    return attends and facts.encoding == "stacked"


def no_scaled_class(task: RidgeFunction) -> str | None:
    """Why L is no mere factor of the task's functions.

    The reason may also be that the best window is not that of the unit sphere.
    """
    if task.link not in LINKS:
        return (
            f"The claim is about functions that L multiplies ({' or '.join(LINKS)}); this task's "
            f"are {task.link}"
        )
    if not on_unit_sphere(task):
        return (
            "The claim is about functions of all directions of inputs on the unit sphere, with "
            "sigma the identity"
        )
    return None


def on_unit_sphere(task: RidgeFunction) -> bool:
    """Whether inputs are uniform on the unit sphere and functions read all of them as they are."""
    sphere = isinstance(task.inputs, Sphere) and abs(float(task.inputs.radius) - 1) < 1e-9
    eye = torch.eye(task.dim, dtype=torch.float64)
    return (
        sphere
        and task.dim > 1
        and task.rank == task.dim
        and torch.allclose(task.whitening, eye, rtol=0, atol=1e-9)
    )


def drawn(seed: int) -> tuple[float, ...]:
    """L' / L beside the grid, one in each of `SPANS`, to three digits.

    They are drawn from the seed of the analysis. One that three digits would put on the grid keeps
    all of its digits.

    A model could be right on a known grid and nowhere else.

    >>> inside = all(low <= at <= high for at, (low, high) in zip(drawn(0), SPANS))
    >>> drawn(0) == drawn(0) != drawn(1), inside
    (True, True)
    """
    draw = generator(seed, "lipschitz/transfer, places")
    shares = torch.rand(len(SPANS), generator=draw, dtype=torch.float64).tolist()
    places = []
    for share, (low, high) in zip(shares, SPANS, strict=True):
        place = low * (high / low) ** share
        rounded = float(f"{place:.3g}")
        places.append(place if rounded in FACTORS else rounded)
    return tuple(places)


def prompts_at(lab: Lab, factor: float) -> Prompts:
    """Prompts of L' = factor L, the same but for the size of the functions."""
    task = task_of(lab)
    other = replace(task, lipschitz=factor * task.lipschitz, intercept=factor * task.intercept)
    draw = generator(lab.seed, "lipschitz/transfer")
    return other.sample_pairs(lab.n_units, draw, n_contexts=N_CONTEXTS, dtype=torch.float64)


def window_predictions(prompts: Prompts, w: float) -> Float[Tensor, " batch"]:
    """The estimator of equation (2) with M = w I."""
    xs = prompts.xs[:, :-1]
    ys = prompts.ys[:, :-1, 0]
    query = prompts.xs[:, -1]
    matrix = w * torch.eye(xs.shape[-1], dtype=torch.float64)
    return theory.prediction(xs, ys, query, matrix)


def best_window(task: RidgeFunction, factor: float = 1.0) -> float:
    """w* of the task at factor L."""
    functions = functions_of(task)
    table = theory.loss_table(task.n_points - 1, task.dim, functions)
    best = theory.table_optimum(table, factor * task.lipschitz, task.noise_std)
    return float(best.window)


def _at_query(lab: Lab, prompts: Prompts) -> Float[Tensor, " batch"]:
    """The model's prediction from whole prompts, or a predictor's that is seen from outside."""
    if lab.outside:
        return lab.at_query(prompts)[:, 0]
    return predicted(lab, lab.single, prompts)[:, 0]


@measurement("lipschitz/transfer", version=2)
def transfer(lab: Lab) -> DataArray:
    """Squared error at the query, against f itself, at each L': (L' / L, who, unit).

    Errors are means over the prompts of a unit.

    Who: the model, from whole prompts, as it predicts; the windows that theory finds best for L and
    for L', on the same prompts; and the model when labels are divided by L' / L before it reads
    them, and its prediction is multiplied by that: a smoother cannot tell.
    """
    task = task_of(lab)
    own = best_window(task)
    factors = (*FACTORS, *drawn(lab.seed))
    rows = []
    for factor in factors:
        prompts = prompts_at(lab, factor)
        truth = prompts.ys[:, -1, 0]
        smaller = replace(prompts, ys=prompts.ys / factor)
        predictions = {
            MODEL: _at_query(lab, prompts),
            TRAINED: window_predictions(prompts, own),
            BEST: window_predictions(prompts, best_window(task, factor)),
            RESCALED: factor * _at_query(lab, smaller),
        }
        errors = [(out - truth).square() for out in predictions.values()]
        rows.append([lab.by_unit(error, prompts) for error in errors])
    axes = {
        "L' / L": factors,
        "who": (MODEL, TRAINED, BEST, RESCALED),
        "unit": tuple(range(lab.n_units)),
    }
    note = (
        f"{2 * N_CONTEXTS} prompts a unit, the same at every L' but for the size of the functions"
    )
    return make_array(np.array(rows), axes, "squared label", note)


@measurement("lipschitz/transfer, exact", version=2)
def exact(lab: Lab) -> DataArray:
    """Theory's risks at each L', by Monte Carlo over contexts.

    The risks are that of the window for L, the least one, and their ratio.

    Beside them the lower bound of Theorem 3 as the slides print it, up to its constant, over the
    least risk.
    """
    task = task_of(lab)
    n = task.n_points - 1
    d = task.dim
    noise = task.noise_std
    functions = functions_of(task)
    factors = (*FACTORS, *drawn(lab.seed))
    rows = []
    for factor in factors:
        tested = functions.with_lipschitz(factor * functions.lipschitz)
        found = theory.transfer(functions, tested, noise, n, d)
        bound = theory.transfer_bound_as_printed(functions.lipschitz, tested.lipschitz, noise, n, d)
        over_least = bound / found.best
        numbers = (found.risk, found.best, found.ratio, found.ratio_error, over_least)
        rows.append([float(number) for number in numbers])
    # In the order of the numbers of a row.
    names = (
        "risk",
        "least risk",
        "ratio",
        "standard error of the ratio",
        "printed bound / least risk",
    )
    return make_array(rows, {"L' / L": factors, "number": names}, note="theory.lipschitz.transfer")
