"""Errors on continuous functions: some that are named, and families that are drawn."""

from typing import cast

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import Predictor
from icl_interp.baselines.regression import LeastSquares
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import per_unit, polynomial_task, squared_errors
from icl_interp.studies.limits.measurements.drawn_functions import FAMILIES
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Continuous, FunctionName

# Those of Figures 1 and 6.
DOMAINS: dict[FunctionName, tuple[float, float]] = {
    "exp": (0.0, 1.0),
    "sin": (0.0, 1.0),
    "log1p": (0.0, 1.0),
    "abs": (-1.0, 1.0),
}


@measurement("classes/continuous", version=2)
def continuous(lab: Lab) -> DataArray:
    """Squared error on exp, sin and ln(1+x) over [0, 1], |x| over [-1, 1], and on two families.

    The families are drawn over the same intervals. Functions whose domain the model's inputs do not
    cover are left out. A named function is the same in every prompt, so units are groups of
    contexts; of a family each unit has a function of its own. Beside the model stands least squares
    with polynomials of the largest degree it was trained on.
    """
    task = polynomial_task(lab)
    names = within(task.inputs.interval)
    predictors: dict[str, Predictor] = {"model": lab, "least squares": LeastSquares(task)}
    # Scored from where the function is determined, and always at the query.
    first = min(task.n_determining, task.n_points - 1)
    n_units = lab.n_units
    values = np.empty((len(predictors), len(names), n_units))
    for column, name in enumerate(names):
        prompts = prompts_of(lab, name)
        for row, predictor in enumerate(predictors.values()):
            square = squared_errors(predictor, prompts)
            scored = square[:, first:]
            values[row, column] = per_unit(scored, n_units)
    groups = tuple(range(n_units))
    axes = {"predictor": tuple(predictors), "function": names, "group": groups}
    n_contexts = _n_contexts(lab)
    note = f"{n_contexts} contexts a group; a named function is the same in every prompt; float32"
    return make_array(values, axes, note=note)


def _n_contexts(lab: Lab) -> int:
    return max(1, lab.unit_size // 8)


def prompts_of(lab: Lab, name: str) -> Prompts:
    """Prompts of a named function, or of a family: there each unit is one function."""
    n_points = lab.task.n_points
    n_contexts = _n_contexts(lab)
    draw = generator(lab.seed, f"classes/{name}")
    if name not in FAMILIES:
        known = cast(FunctionName, name)
        inputs = Uniform(*DOMAINS[known])
        law = Continuous(function=known, inputs=inputs, n_points=n_points)
        return law.sample(lab.n_units, draw, n_contexts=n_contexts, dtype=torch.float64)
    # All prompts of a unit are of one function: it is drawn at their inputs together.
    family = FAMILIES[name]
    shape = (lab.n_units, n_contexts * n_points)
    inputs = Uniform(*family.domain)
    xs = inputs.sample(shape, draw, torch.float64)
    ys = family.draw(xs, draw)
    xs = xs.view(-1, n_points, 1)
    ys = ys.view(-1, n_points, 1)
    unit = torch.arange(lab.n_units)
    function = unit.repeat_interleave(n_contexts)
    no_parameters = torch.empty(len(xs), 0, dtype=torch.float64)
    return Prompts(xs, ys, no_parameters, function)


def within(interval: tuple[float, float]) -> tuple[str, ...]:
    """The continuous functions whose domain lies in an interval: named ones, then families."""
    domains: dict[str, tuple[float, float]] = {**DOMAINS}
    for name, family in FAMILIES.items():
        domains[name] = family.domain
    lowest, highest = interval
    found = []
    for name, (low, high) in domains.items():
        if lowest <= low and high <= highest:
            found.append(name)
    return tuple(found)
