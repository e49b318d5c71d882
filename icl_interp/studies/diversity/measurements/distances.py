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

SEEN, NEW = "functions of the pool", "new functions"
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
    ridge, pool = (as_numbers(rival.predict(prompts))[:, -1] for rival in rivals(task))
    pairs = {RIDGE: said - ridge, POOL: said - pool, APART: ridge - pool, SIZE: ridge}
    return {name: each.square() for name, each in pairs.items()}


@measurement("diversity/distances")
def distances(lab: Lab) -> DataArray:
    """Mean squared differences at the query: (functions, pair, unit). A unit is a function."""
    assert isinstance(lab.task, LinearRegression)
    assert lab.task.n_tasks is not None
    n_contexts = lab.unit_size if lab.task.n_tasks < LARGE_POOL else 1
    asked = {}
    for name, task in ((SEEN, lab.task), (NEW, lab.task.fresh())):
        stream = generator(lab.seed, f"diversity/{name}")
        asked[name] = task.sample(lab.n_units, stream, n_contexts=n_contexts, dtype=torch.float64)

    # The model reads all prompts in one go.
    answers = lab.run_single([lab.ask(prompts=prompts) for prompts in asked.values()])
    values = []
    for prompts, answer in zip(asked.values(), answers, strict=True):
        found = differences(lab.task, prompts, as_numbers(answer[:, :1])[:, 0].double())
        values.append([each.view(lab.n_units, -1).mean(1).numpy() for each in found.values()])
    axes = {
        "functions": (SEEN, NEW),
        "pair": (RIDGE, POOL, APART, SIZE),
        "unit": tuple(range(lab.n_units)),
    }
    note = f"{lab.n_units} functions, {n_contexts} prompts of each, at the query"
    return make_array(np.array(values), axes, note=note)
