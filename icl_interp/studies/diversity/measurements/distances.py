"""How far predictions are from ridge regression and from the Bayes predictor of a pool.

A model that is trained on a finite pool of functions may weigh the functions of the pool, or forget
that there are so few of them. Both are compared at the query, on functions of the pool and on new
ones.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.mixture import BayesPool
from icl_interp.baselines.regression import Ridge
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.regression import LinearRegression

SEEN = "functions of the pool"
NEW = "new functions"
RIDGE = "model, ridge"
POOL = "model, pool"
APART = "ridge, pool"
SIZE = "ridge squared"
LARGE_POOL = 4096  # functions from which each unit has one prompt: every prompt weighs them all


def needs_pool(facts: Facts) -> str | None:
    """Why ridge and the Bayes predictor of a pool are no two ways to predict for a model."""
    reason = needs_linear_functions(facts)
    if reason:
        return reason
    task = facts.task
    assert isinstance(task, LinearRegression)
    if task.n_tasks is None:
        return (
            "The claim is about models that are trained on a finite pool of functions; every "
            "function of this model's task is new (n_tasks is not given)."
        )
    if not isinstance(task.weights, Normal) or task.weights.mean or not task.noise_std:
        return (
            "The claim is about weights from a centred normal law and noisy labels, where ridge "
            f"has a known penalty; here weights are from {task.weights}, with noise of "
            f"{task.noise_std:g}."
        )
    return None


def rivals(task: LinearRegression) -> tuple[Ridge, BayesPool]:
    """Ridge with the penalty that is best over all functions of the law, and Bayes over the pool.

    Source: Raventos et al. (2023), section 2: ridge with penalty noise^2 / spread^2, and dMMSE.
    """
    assert isinstance(task.weights, Normal)
    penalty = (task.noise_std / task.weights.std) ** 2
    return Ridge(task, penalty), BayesPool(task, task.noise_std)


def differences(
    task: LinearRegression, prompts: Prompts, said: Float[Tensor, " batch"]
) -> dict[str, Float[Tensor, " batch"]]:
    """Squared differences at the query of each prompt, and the square of what ridge says.

    Args:
        task: with the pool.
        prompts: whole ones.
        said: predictions of the model for their queries.
    """
    by_ridge, by_pool = rivals(task)
    ridge = as_numbers(by_ridge.predict(prompts))[:, -1]
    pool = as_numbers(by_pool.predict(prompts))[:, -1]
    return {
        RIDGE: (said - ridge).square(),
        POOL: (said - pool).square(),
        APART: (ridge - pool).square(),
        SIZE: ridge.square(),
    }


@measurement("diversity/distances")
def distances(lab: Lab) -> DataArray:
    """Mean squared differences at the query: (functions, pair, unit). A unit is a function."""
    task = lab.task
    assert isinstance(task, LinearRegression)
    assert task.n_tasks is not None
    n_contexts = lab.unit_size if task.n_tasks < LARGE_POOL else 1
    asked = []
    for name, law in ((SEEN, task), (NEW, task.fresh())):
        stream = generator(lab.seed, f"diversity/{name}")
        drawn = law.sample(lab.n_units, stream, n_contexts=n_contexts, dtype=torch.float64)
        asked.append(drawn)

    # The model reads all prompts in one go.
    sweeps = []
    for prompts in asked:
        sweeps.append(lab.ask(prompts=prompts))
    answers = lab.run_single(sweeps)
    # Each kind of functions beside both predictors.
    values = []
    for prompts, answer in zip(asked, answers, strict=True):
        said = as_numbers(answer[:, :1])[:, 0]
        found = differences(task, prompts, said.double())
        rows = []
        for squares in found.values():
            by_unit = squares.view(lab.n_units, -1).mean(1)
            rows.append(by_unit.numpy())
        values.append(rows)
    axes = {
        "functions": (SEEN, NEW),
        "pair": (RIDGE, POOL, APART, SIZE),
        "unit": tuple(range(lab.n_units)),
    }
    note = f"{lab.n_units} functions, {n_contexts} prompts of each, at the query"
    return make_array(np.array(values), axes, note=note)
