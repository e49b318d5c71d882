"""Squared distances from Bayes predictors on a mixture's own functions, and errors on combinations.

Both are measured after several numbers of examples. The last axis of each result is a unit: a
function with all of its prompts.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.mixtures.measurements.laws import (
    BAYES,
    bayes,
    combinations,
    mean_weight,
    rivals,
)
from icl_interp.tasks.mixture import Mixture

HALF = "d/2 examples"
DIMENSIONS = "d examples"
TWICE = "2 d examples"
ALL = "all examples"
DRAWN = "a drawn number of examples"
LENGTHS = (HALF, DIMENSIONS, TWICE, ALL, DRAWN)
MODEL = "model"
BEST = "Bayes predictor of the combinations"
SIZE = "mean square"
Points = Float[Tensor, "batch point"]


def n_examples(task: Mixture, n_units: int, seed: int) -> dict[str, Tensor]:
    """The number of examples before the predicted point, for each unit, by name.

    Beside four known numbers each unit draws one of its own, evenly from 1 to all.
    """
    whole = task.n_points - 1
    stream = generator(seed, "mixtures/lengths")
    found = {}
    for name, n in (
        (HALF, (task.dim + 1) // 2),
        (DIMENSIONS, task.dim),
        (TWICE, 2 * task.dim),
        (ALL, whole),
    ):
        found[name] = torch.full((n_units,), min(n, whole))
    found[DRAWN] = torch.randint(1, whole + 1, (n_units,), generator=stream)
    return found


def by_length(lab: Lab, squares: dict[str, Points], of: str, note: str) -> DataArray:
    """Means of squares over the prompts of each unit: (length, `of`, unit).

    Lengths after which the model predicts nothing are left out: some encodings give the last
    prediction only.

    Args:
        lab: whose units they are.
        squares: at every point of every prompt, by what they are of.
        of: the name of the middle axis.
        note: about the sample.
    """
    prompts = torch.arange(lab.n_units * lab.unit_size)
    kept = []
    values = []
    for name, numbers in n_examples(lab.task, lab.n_units, lab.seed).items():
        points = numbers.repeat_interleave(lab.unit_size)
        rows = []
        for each in squares.values():
            here = each[prompts, points].view(lab.n_units, -1)
            rows.append(here.mean(1).numpy())
        if np.isnan(rows).any():
            continue
        kept.append(name)
        values.append(rows)
    axes = {"length": tuple(kept), of: tuple(squares), "unit": tuple(range(lab.n_units))}
    shape = tuple(map(len, axes.values()))
    return make_array(np.reshape(values, shape), axes, note=note)


def said_by(lab: Lab, prompts: Prompts) -> Points:
    """What the model predicts for every point."""
    return as_numbers(lab.predict(prompts)).double()


@measurement("mixtures/inside")
def inside(lab: Lab) -> DataArray:
    """Squared distances on functions of the mixture, and the mean square of f(x): (length, of, unit).

    Distances are from the Bayes predictor to the model and to each rival, and from the model to
    each rival. The mean square is that about the mean of f(x) over the mixture.
    """
    task = lab.task
    assert isinstance(task, Mixture)
    prompts = lab.prompts
    said = said_by(lab, prompts)
    best = as_numbers(bayes(task).predict(prompts))
    squares = {pair(MODEL, BAYES): (said - best).square()}
    for name, law in rivals(task).items():
        its = as_numbers(law.given(prompts).mean)
        squares[pair(MODEL, name)] = (said - its).square()
        squares[pair(BAYES, name)] = (best - its).square()
    values = as_numbers(task.targets(prompts.parameters, prompts.xs))
    mean = mean_weight(task) * prompts.xs.sum(-1)
    squares[SIZE] = (values - mean).square()
    note = f"{lab.n_units} functions of the mixture, {lab.unit_size} prompts of each"
    return by_length(lab, squares, "of", note)


def pair(one: str, other: str) -> str:
    """The name of a distance."""
    return f"{one}, {other}"


@measurement("mixtures/outside")
def outside(lab: Lab) -> DataArray:
    """Squared errors on combinations of functions of the mixture's families: (length, who, unit).

    Errors are against f(x) without noise.
    """
    task = lab.task
    assert isinstance(task, Mixture)
    other = combinations(task, lab.seed)
    stream = generator(lab.seed, "mixtures/outside")
    prompts = other.sample(lab.n_units, stream, n_contexts=lab.unit_size, dtype=torch.float64)
    said = {
        MODEL: said_by(lab, prompts),
        BEST: as_numbers(bayes(other).predict(prompts)),
        BAYES: as_numbers(bayes(task).predict(prompts)),
    }
    for name, law in rivals(task).items():
        said[name] = as_numbers(law.given(prompts).mean)
    values = as_numbers(other.targets(prompts.parameters, prompts.xs))
    squares = {}
    for who, its in said.items():
        squares[who] = (its - values).square()
    note = f"{lab.n_units} combinations of functions, {lab.unit_size} prompts of each"
    return by_length(lab, squares, "who", note)
