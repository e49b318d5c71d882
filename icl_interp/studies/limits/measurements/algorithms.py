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
MODEL, SELF, SEED = "model", "itself, context reshuffled", "another seed"
TRUTH, LAW_MEAN = "truth", "law's mean"
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
    """The polynomials that a task is about, and the units of their values; None where it is about others.

    A class of one's own below `Polynomial` is about others: it may compute values in another way.
    """
    scale, shift = 1.0, 0.0
    while type(task) is Rescaled:
        task, scale, shift = task.task, scale * task.scale, scale * task.shift + shift
    return Values(task, scale, shift) if type(task) is Polynomial else None


def arms(lab: Lab) -> dict[str, Prompts]:
    """The same prompts four times: as they are, with functions scaled, with the query moved, and with both.

    Functions are scaled by 3 and queries put at an end of the inputs' interval. Where both are
    drawn, each unit has a factor from `FACTORS`, log-uniform, and each query lies in the outer
    tenth next to that end.
    """
    inside = lab.units("algorithms/prompts", n_contexts=N_CONTEXTS)
    n, ends = len(inside), torch.tensor(lab.task.inputs.interval, dtype=torch.float64)
    draw = generator(lab.seed, "algorithms/places")
    at_end = ends[torch.arange(n) % 2]
    inwards = OUTER * (ends.mean() - at_end) * torch.rand(n, generator=draw, dtype=torch.float64)
    low, high = map(math.log, FACTORS)
    factors = (
        low + (high - low) * torch.rand(n // UNIT_SIZE, generator=draw, dtype=torch.float64)
    ).exp()
    each = factors.repeat_interleave(UNIT_SIZE)[:, None]
    changes = (
        (inside.parameters, None),
        (SCALED * inside.parameters, None),
        (inside.parameters, at_end),
        (each * inside.parameters, at_end + inwards),
    )
    found = {}
    for arm, (parameters, queries) in zip(ARMS, changes, strict=True):
        xs = inside.xs.clone()
        if queries is not None:
            xs[:, -1, 0] = queries
        found[arm] = Prompts(xs, lab.task.targets(parameters, xs), parameters, inside.function)
    return {**found, ARMS[0]: inside}


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
    found, law = classical(task), task.coefficients
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
        mean = as_numbers(lab.task.expected(prompts.xs[:, -1:]))[:, 0]
        plain = replace(prompts, ys=(prompts.ys - values.shift) / values.scale)
        said = [
            values.scale * at_query(algorithm, plain) + values.shift for algorithm in known.values()
        ]
        found.append(_stacked(lab, [as_numbers(prompts.ys)[:, -1], mean, *said]))
    return _array(lab, found, (TRUTH, LAW_MEAN, *known), "at the query; float64")


@measurement("algorithms/own", version=2)
def own(lab: Lab) -> DataArray:
    """The model's predictions for the query of each prompt of `rivals`: (arm, who, unit, prompt)."""
    found = [_stacked(lab, [said]) for said in at_queries(lab, arms(lab))]
    return _array(lab, found, (MODEL,), "at the query; the model in its own float32")


@measurement("algorithms/itself", version=2)
def itself(lab: Lab) -> DataArray:
    """What else the same training predicts for the query of each prompt of `rivals`: (arm, who, unit, prompt).

    Who: the model with the examples of the context in another order; another seed of it, where
    there is one.
    """
    asked, sibling = arms(lab), lab.companions.get(Role(SEED))
    other_order = {arm: reshuffled(prompts, lab.seed) for arm, prompts in asked.items()}
    said = [
        at_queries(lab, other_order),
        *([[at_query(sibling, p) for p in asked.values()]] if sibling else []),
    ]
    found = [_stacked(lab, list(one)) for one in zip(*said, strict=True)]
    return _array(
        lab,
        found,
        (SELF, *([SEED] if sibling else [])),
        "at the query; the models in their own float32",
    )


def at_queries(lab: Lab, asked: Mapping[str, Prompts]) -> list[Float[Tensor, " batch"]]:
    """The model's prediction for the query of each prompt, arm by arm.

    At the edge prompts differ from those in distribution by their query only, so these contexts are
    read once.
    """
    inside, scaled, at_edge, drawn = (asked[arm] for arm in ARMS)
    places = ((inside, inside), (scaled, scaled), (inside, at_edge), (drawn, drawn))
    sweeps = [Sweep(p, q.xs[:, -1:], ("query",)) for p, q in places]
    return [as_numbers(f)[:, 0].double() for f in lab.run_single(sweeps)]


def _stacked(lab: Lab, said: list[Tensor]) -> np.ndarray:
    return torch.stack([one.double() for one in said]).view(len(said), lab.n_units, -1).numpy()


def _array(lab: Lab, values: list[np.ndarray], who: tuple[str, ...], note: str) -> DataArray:
    axes = {
        "arm": ARMS,
        "who": who,
        "unit": tuple(range(lab.n_units)),
        "prompt": tuple(range(UNIT_SIZE)),
    }
    shown = f"{N_CONTEXTS if lab.task.paired else UNIT_SIZE} contexts a function"
    return make_array(values, axes, note=f"{note}; {shown}")
