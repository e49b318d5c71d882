"""What classical algorithms and a model predict for the same queries, in distribution and near it.

Every query is the last point of a prompt. Prompts come in units of four: an antithetic pair of
functions with two contexts each, or four contexts of one function where the law of functions has no
symmetry.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.baselines.named import classical
from icl_interp.baselines.uniform import BayesUniformPrior
from icl_interp.checkpoints.companions import Role
from icl_interp.probes.sweep import Sweep
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.rescaled import Rescaled

ARMS = ("in distribution", "functions x 3", "query at the edge", "scale and query drawn")
SCALED = 3.0
# The factor and the ends are known beforehand. So in one more arm both are drawn, near that factor
# and near the ends: what is asked there is hardly more than in the other arms.
FACTORS = (2.5, 3.5)
OUTER = 0.1  # of the interval's half-width
MODEL = "model"
SELF = "itself, context reshuffled"
SEED = "another seed"
TRUTH = "truth"
LAW_MEAN = "law's mean"
# Contexts of each function of a pair; twice as many do not make intervals shorter: a few contexts
# decide.
N_CONTEXTS = 2
UNIT_SIZE = 2 * N_CONTEXTS  # prompts of a unit


class Values(NamedTuple):
    """Polynomials whose values are shown in other units, as scale y + shift."""

    task: Polynomial
    scale: float
    shift: float


def polynomials_in(task: object) -> Values | None:
    """The polynomials that a task is about, and the units of their values.

    None where it is about others. A class of one's own below `Polynomial` is about others: it may
    compute values in another way.
    """
    scale = 1.0
    shift = 0.0
    while type(task) is Rescaled:
        shift = scale * task.shift + shift
        scale = scale * task.scale
        task = task.task
    return Values(task, scale, shift) if type(task) is Polynomial else None


def arms(lab: Lab) -> dict[str, Prompts]:
    """The same prompts four times: as they are, functions scaled, the query moved, and both.

    Functions are scaled by 3 and queries put at an end of the inputs' interval. Where both are
    drawn, each unit has a factor from `FACTORS`, log-uniform, and each query lies in the outer
    tenth next to that end.
    """
    inside = lab.units("algorithms/prompts", n_contexts=N_CONTEXTS)
    n = len(inside)
    draw = generator(lab.seed, "algorithms/places")

    # Queries: an end in turns, and a place next to it.
    ends = torch.tensor(lab.task.inputs.interval, dtype=torch.float64)
    at_end = ends[torch.arange(n) % 2]
    share = torch.rand(n, generator=draw, dtype=torch.float64)
    near_end = at_end + OUTER * (ends.mean() - at_end) * share

    # One factor for each unit, log-uniform.
    low, high = map(math.log, FACTORS)
    share = torch.rand(n // UNIT_SIZE, generator=draw, dtype=torch.float64)
    factors = (low + (high - low) * share).exp()
    each = factors.repeat_interleave(UNIT_SIZE)[:, None]

    as_drawn = inside.parameters
    at_own = inside.xs[:, -1, 0]
    changed = (
        _changed(lab, inside, SCALED * as_drawn, at_own),
        _changed(lab, inside, as_drawn, at_end),
        _changed(lab, inside, each * as_drawn, near_end),
    )
    return dict(zip(ARMS, (inside, *changed), strict=True))


def _changed(
    lab: Lab, prompts: Prompts, parameters: Tensor, queries: Float[Tensor, " batch"]
) -> Prompts:
    """Prompts of other functions, asked at other places."""
    xs = prompts.xs.clone()
    xs[:, -1, 0] = queries
    return Prompts(xs, lab.task.targets(parameters, xs), parameters, prompts.function)


def reshuffled(prompts: Prompts, seed: int) -> Prompts:
    """The same examples in another order: all one to a classical algorithm."""
    return prompts.reordered(generator(seed, "algorithms/order"))


def at_query(predictor: Predictor, prompts: Prompts) -> Float[Tensor, " batch"]:
    """A prediction for the query of each prompt."""
    return as_numbers(predictions(predictor, prompts))[:, -1]


def algorithms(task: Polynomial) -> dict[str, Predictor]:
    """Classical algorithms by name, Bayes with the true law of coefficients among them.

    `classical` has the Bayes predictor of a normal law: the true one where coefficients are normal,
    but for noise of 1e-4. Where they are uniform, the one of that law comes last, if a prompt has
    points enough (see `BayesUniformPrior`). No other law has one.
    """
    found = classical(task)
    law = task.coefficients
    if isinstance(law, Uniform) and task.n_points > task.n_determining:
        bayes = BayesUniformPrior(task.degrees, law.low, law.high, first=task.n_points - 1)
        found[bayes.name] = bayes
    return found


@measurement("algorithms/rivals", version=2)
def rivals(lab: Lab) -> DataArray:
    """Predictions for the query of each prompt that need no model: (arm, who, unit, prompt).

    Who: the truth; the mean of the law of functions there; every classical algorithm. Algorithms
    are shown values in the units in which coefficients have their law, and what they say is
    translated back.
    """
    values = polynomials_in(lab.task)
    assert values  # no other task is measured: the claim is excluded
    known = algorithms(values.task)
    found = []
    for prompts in arms(lab).values():
        truth = as_numbers(prompts.ys)[:, -1]
        mean = as_numbers(lab.task.expected(prompts.xs[:, -1:]))[:, 0]
        said = [truth, mean]
        plain = replace(prompts, ys=(prompts.ys - values.shift) / values.scale)
        for algorithm in known.values():
            said.append(values.scale * at_query(algorithm, plain) + values.shift)
        found.append(_stacked(lab, said))
    return _array(lab, found, (TRUTH, LAW_MEAN, *known), "at the query; float64")


@measurement("algorithms/own", version=2)
def own(lab: Lab) -> DataArray:
    """The model's predictions for each query of `rivals`: (arm, who, unit, prompt)."""
    found = []
    for said in at_queries(lab, arms(lab)):
        found.append(_stacked(lab, [said]))
    return _array(lab, found, (MODEL,), "at the query; the model in its own float32")


@measurement("algorithms/itself", version=2)
def itself(lab: Lab) -> DataArray:
    """What else the same training predicts for `rivals`' queries: (arm, who, unit, prompt).

    Who: the model with the examples of the context in another order; another seed of it, where
    there is one.
    """
    asked = arms(lab)
    sibling = lab.companions.get(Role(SEED))
    other_order = {arm: reshuffled(prompts, lab.seed) for arm, prompts in asked.items()}
    shuffled = at_queries(lab, other_order)
    found = []
    for of_self, prompts in zip(shuffled, asked.values(), strict=True):
        said = [of_self]
        if sibling:
            said.append(at_query(sibling, prompts))
        found.append(_stacked(lab, said))
    who = (SELF, SEED) if sibling else (SELF,)
    return _array(lab, found, who, "at the query; the models in their own float32")


def at_queries(lab: Lab, asked: Mapping[str, Prompts]) -> list[Float[Tensor, " batch"]]:
    """The model's prediction for the query of each prompt, arm by arm.

    At the edge prompts differ from those in distribution by their query only, so these contexts are
    read once.
    """
    inside, scaled, at_edge, drawn = (asked[arm] for arm in ARMS)
    # Contexts, and the prompts whose queries are asked.
    places = ((inside, inside), (scaled, scaled), (inside, at_edge), (drawn, drawn))
    sweeps = [Sweep(shown, at.xs[:, -1:], ("query",)) for shown, at in places]
    return [as_numbers(f)[:, 0].double() for f in lab.run_single(sweeps)]


def _stacked(lab: Lab, said: list[Tensor]) -> np.ndarray:
    """Predictions for the queries of one arm: (who, unit, prompt)."""
    rows = torch.stack([one.double() for one in said])
    return rows.view(len(said), lab.n_units, -1).numpy()


def _array(lab: Lab, values: list[np.ndarray], who: tuple[str, ...], note: str) -> DataArray:
    units = tuple(range(lab.n_units))
    prompts = tuple(range(UNIT_SIZE))
    axes = {"arm": ARMS, "who": who, "unit": units, "prompt": prompts}
    n_contexts = N_CONTEXTS if lab.task.paired else UNIT_SIZE
    return make_array(values, axes, note=f"{note}; {n_contexts} contexts a function")
