"""Squared errors at the query of prompts whose law is not that of training, shift by shift.

The shifts are those of Garg et al. (2022), `icl_interp.tasks.shifts`. Least squares and predicting
0 are measured on the same prompts.
"""

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.regression import LeastSquares
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.tasks.base import Task
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.shifts import Arranged, shifted

INSIDE = "in distribution"
MODEL = "model"
LEAST_SQUARES = "least squares"
ZERO = "zero"
ARRANGED = ("quadrants", "half-subspace", "skewed")
INPUTS = ("x*1/3", "x*1/2", "x*2", "x*3")
FUNCTIONS = ("y*1/3", "y*1/2", "y*2", "y*3")
NOISY = "noisy"
# A model that stands known factors need not stand those between: one more is drawn.
DRAWN_INPUTS = "x*drawn"
DRAWN_FUNCTIONS = "y*drawn"
NOISE = 1.0  # standard deviation of the noise of the shift "noisy"


def needs_shifts(facts: Facts) -> str | None:
    """Why the shifts say nothing about a model."""
    reason = needs_linear_functions(facts)
    if reason:
        return reason
    assert isinstance(facts.task, LinearRegression)
    if facts.task.n_dims < 2:
        return "The claim is about inputs of two coordinates or more; here they have one."
    return None


def needs_silence(facts: Facts) -> str | None:
    """Why noise in labels is no shift for a model, or `needs_shifts`."""
    reason = needs_shifts(facts)
    if reason:
        return reason
    assert isinstance(facts.task, LinearRegression)
    if facts.task.noise_std >= NOISE:
        return (
            f"The claim is about noise of standard deviation {NOISE:g} that was absent in "
            f"training; this model was trained with {facts.task.noise_std:g}."
        )
    return None


def drawn_factor(seed: int) -> float:
    """A factor between the smallest and the largest of Garg et al., even in the logarithm.

    >>> 1 / 3 < drawn_factor(0) < 3
    True
    """
    share = torch.rand((), generator=generator(seed, "robustness/factor"), dtype=torch.float64)
    return 3.0 ** float(2 * share - 1)


def laws(task: LinearRegression, seed: int) -> dict[str, Task]:
    """The task itself, and every shift of it, by name.

    Directions that inputs prefer are drawn with the sample, and so is one factor.
    """
    found: dict[str, Task] = {INSIDE: task}
    for name in ARRANGED:
        found[name] = Arranged.of(task, name, seed=seed)
    factor = drawn_factor(seed)
    for name in INPUTS:
        found[name] = shifted(task, name)
    found[DRAWN_INPUTS] = task.scaled(inputs=factor)
    for name in FUNCTIONS:
        found[name] = shifted(task, name)
    found[DRAWN_FUNCTIONS] = task.scaled(functions=factor)
    found[NOISY] = shifted(task, NOISY)
    return found


def squared_errors(
    task: Task, prompts: Prompts, predictions: torch.Tensor, n_units: int
) -> list[np.ndarray]:
    """Mean squares at the query by unit: of the model's error, that of least squares, and of 0.

    The truth has no noise: noise in labels is among what a model has to read.

    Args:
        task: the law of the prompts.
        prompts: as many of each unit, those of one unit together.
        predictions: of the model for each prompt's query, (prompt, target).
        n_units: of the sample.
    """
    truth = as_numbers(task.targets(prompts.parameters, prompts.xs))[:, -1]
    best = as_numbers(LeastSquares(task).at_query(prompts))
    found = []
    for miss in (as_numbers(predictions) - truth, best - truth, truth):
        squares = miss.double().square()
        found.append(squares.view(n_units, -1).mean(1).numpy())
    return found


@measurement("robustness/shifts")
def shifts(lab: Lab) -> DataArray:
    """Squared error at the query by shift, by who predicts, and by unit (a function).

    Prompts are as long as in training. Functions are drawn anew for each shift.
    """
    assert isinstance(lab.task, LinearRegression)
    every = laws(lab.task, lab.seed)
    # All prompts first, so that the model reads them in one go.
    asked = {}
    for name, task in every.items():
        stream = generator(lab.seed, f"robustness/{name}")
        asked[name] = task.sample(
            lab.n_units, stream, n_contexts=lab.unit_size, dtype=torch.float64
        )
    sweeps = []
    for prompts in asked.values():
        sweeps.append(lab.ask(prompts=prompts))
    answers = lab.run_single(sweeps)
    # Each shift beside least squares on the same prompts.
    values = []
    for (name, task), said in zip(every.items(), answers, strict=True):
        values.append(squared_errors(task, asked[name], said[:, 0], lab.n_units))
    axes = {
        "shift": tuple(every),
        "who": (MODEL, LEAST_SQUARES, ZERO),
        "unit": tuple(range(lab.n_units)),
    }
    note = f"{lab.n_units} functions of each shift, {lab.unit_size} prompts of each"
    return make_array(values, axes, note=note)
