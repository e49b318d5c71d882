"""Squared errors and distances on functions of a mixture, and on combinations of them."""

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
from icl_interp.studies.mixtures.measurements.laws import ONE, bayes, combinations, single_laws
from icl_interp.tasks.mixture import Mixture

HALF = "d/2 examples"
DIMENSIONS = "d examples"
TWICE = "2 d examples"
ALL = "all examples"
DRAWN = "a drawn number of examples"
LENGTHS = (HALF, DIMENSIONS, TWICE, ALL, DRAWN)
INSIDE = "functions of the mixture"
OUTSIDE = "combinations"
MODEL = "model"
BAYES = "Bayes of the mixture"
BEST = "Bayes of these functions"
SIZE = "mean square"
Points = Float[Tensor, "batch point"]


def n_examples(task: Mixture, n_units: int, seed: int) -> dict[str, Tensor]:
    """Examples before the point that is predicted, (unit,), by name; each unit draws a number."""
    whole = task.n_points - 1
    known = {HALF: (task.dim + 1) // 2, DIMENSIONS: task.dim, TWICE: 2 * task.dim, ALL: whole}
    found = {}
    for name, n in known.items():
        found[name] = torch.full((n_units,), min(n, whole))
    stream = generator(seed, "mixtures/lengths")
    found[DRAWN] = torch.randint(1, whole + 1, (n_units,), generator=stream)
    return found


def distance(who: str) -> str:
    """The name of a predictor's distance from the Bayes predictor of the mixture."""
    return f"{who}, {BAYES}"


def squares(task: Mixture, law: Mixture, prompts: Prompts, said: Points) -> dict[str, Points]:
    """Squared errors of all predictors against f(x), their squared distances, and f(x) squared.

    The last one is about the mean of f(x) over the mixture.

    Args:
        task: that the model was trained on.
        law: that the prompts are of.
        prompts: at whose points all predict.
        said: what the model predicts.
    """
    answers = {MODEL: said}
    answers[BEST] = as_numbers(bayes(law).predict(prompts))
    answers[BAYES] = as_numbers(bayes(task).predict(prompts))
    laws = single_laws(task)
    for name, one in laws.items():
        answers[name] = as_numbers(one.given(prompts).mean)
    values = as_numbers(law.targets(prompts.parameters, prompts.xs))
    found = {}
    for who, its in answers.items():
        found[who] = (its - values).square()
        if who not in (BEST, BAYES):
            found[distance(who)] = (its - answers[BAYES]).square()
    mean = laws[ONE].mean * prompts.xs.sum(-1)
    return found | {SIZE: (values - mean).square()}


@measurement("mixtures/distances")
def distances(lab: Lab) -> DataArray:
    """Means of `squares` over the prompts of each unit: (functions, length, of, unit).

    Lengths after which the model predicts nothing are left out: some encodings give the last
    prediction only.
    """
    task = lab.task
    assert isinstance(task, Mixture)
    other = combinations(task, lab.seed)
    stream = generator(lab.seed, "mixtures/outside")
    outside = other.sample(lab.n_units, stream, n_contexts=lab.unit_size, dtype=torch.float64)
    found = []
    for law, prompts in ((task, lab.prompts), (other, outside)):
        said = as_numbers(lab.predict(prompts)).double()
        found.append(squares(task, law, prompts, said))
    # At some points of each prompt.
    rows = torch.arange(lab.n_units * lab.unit_size)
    names = tuple(found[0])
    values = {}
    for length, numbers in n_examples(task, lab.n_units, lab.seed).items():
        points = numbers.repeat_interleave(lab.unit_size)
        here = [[lab.by_unit(each[of][rows, points]) for of in names] for each in found]
        if np.isfinite(here).all():
            values[length] = here
    axes = {"length": tuple(values), "functions": (INSIDE, OUTSIDE), "of": names}
    note = f"{lab.n_units} functions of each kind, {lab.unit_size} prompts of each"
    return make_array(
        np.array(list(values.values())), {**axes, "unit": tuple(range(lab.n_units))}, note=note
    )
