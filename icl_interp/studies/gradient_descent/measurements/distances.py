"""How far a model's predictions are from as many steps of descent as it has layers.

Three families of descent are tuned to the model's own predictions on half of the functions and
compared with them on the other half. Beside them stand rivals: one step less, and least squares.
Then each block is put to its mean output, and what is left of the model is compared with one step
less.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import is_large
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent, GDPlusPlus, Moments, Step
from icl_interp.baselines.regression import LeastSquares
from icl_interp.baselines.tuned import Constant, PlusPlus, Varying
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.probes.sweep import Sweep
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array

DESCENT = "descent"
PRECONDITIONED = "preconditioned descent"
PLUS_PLUS = "GD++"
FAMILIES = (DESCENT, PRECONDITIONED, PLUS_PLUS)
# Comparisons of the whole model with other predictors, and of the model without a block.
RIVAL = "rival: "
DOWNHILL = "downhill only: "
WITHOUT = "without block "
LEAST_SQUARES = "least squares"
# Numbers of each function: squares of differences and labels, and the model's own prediction.
SQUARED = "squared distance"
OWN = "prediction"
LABEL = "squared label"
FEWEST = 512  # functions of a half, or so many for each number of a matrix that is tuned
FOR_EACH = 4
# Blocks of a large model are taken out only where the whole of it is as near as this to a family,
# in shares of the variance: a pass through such a model is dear, and of one that is far from every
# family nothing else decides.
WITHIN_REACH = 0.2

Queries = Float[Tensor, "batch target"]
Tune = Callable[[Prompts, Queries], Descent | GDPlusPlus]


class Halves(NamedTuple):
    """Prompts that families are tuned on, and prompts that they are judged on."""

    tuning: Prompts
    judging: Prompts


def family(name: str, n_steps: int, dim: int) -> Tune:
    """How a family of descent with so many steps is tuned to predictions.

    Source: von Oswald et al. (2023), Proposition 1 and appendix A.10 (GD++); Ahn et al. (2023),
    equation (8) (preconditioned: a matrix for all steps, and a size for each).
    """
    if name == DESCENT:
        return Constant(INPUTS, n_steps, name)
    if name == PRECONDITIONED:
        return Varying(INPUTS, n_steps, dim, name, "matrix")
    return PlusPlus(INPUTS, n_steps, name)


def row_of(name: str, n_steps: int, without: int | None = None) -> str:
    """The name of a comparison.

    >>> row_of("GD++", 3), row_of("descent", 1, without=0)
    ('GD++, 3 steps', 'without block 0: descent, 1 step')
    """
    removed = "" if without is None else f"{WITHOUT}{without}: "
    return f"{removed}{name}, {n_steps} step{'s' * (n_steps != 1)}"


def downhill(steps: Descent | GDPlusPlus) -> Descent | GDPlusPlus:
    """The same steps without what goes up: a step P g of a gradient g goes down where g'P g >= 0.

    >>> downhill(Descent(INPUTS, (0.5, -0.2))).steps
    (0.5, 0.0)
    """
    if isinstance(steps, GDPlusPlus):
        return replace(steps, sizes=tuple(_downward(size) for size in steps.sizes))
    return replace(steps, steps=tuple(_downward(step) for step in steps.steps))


def _downward(step: Step) -> Step:
    """A number that is 0 at least, or a matrix whose symmetric part has no eigenvalue below 0."""
    if not isinstance(step, Tensor) or step.ndim == 0:
        return max(float(step), 0.0)
    assert step.ndim == 2
    eigenvalues, basis = torch.linalg.eigh((step + step.T) / 2)
    upward = eigenvalues.clamp(max=0)
    return step - basis * upward @ basis.T


def compared(
    steps: Descent | GDPlusPlus | LeastSquares, judging: Prompts, own: Queries
) -> Float[np.ndarray, "number unit"]:
    """`SQUARED`, `OWN` and `LABEL` of each function of the half that judges.

    Args:
        steps: what the model is compared with.
        judging: prompts, one of each function.
        own: predictions of the model for their queries.
    """
    if isinstance(steps, LeastSquares):
        said = steps.at_query(judging)
    else:
        said = steps.predicted(Moments.of_query(INPUTS, judging))[:, 0]
    squared = (said - own).square()
    # About their mean, so that no digits cancel in the variance.
    centred = own - own.mean(0)
    label = judging.ys[:, -1].square()
    return torch.cat([squared, centred, label], 1).double().T.numpy()


@measurement("descent/distances", version=2)
def distances(lab: Lab) -> DataArray:
    """Differences from each family, whole and without each block: (comparison, number, unit).

    A unit is a function of the half that judges. With one step less, downhill only, and without a
    block the family is the one that was nearest to the whole model.
    """
    dim = lab.task.dim
    n_layers = lab.model.cfg.n_layers
    half = max(FEWEST, FOR_EACH * dim**2)
    drawn = lab.task.sample(2 * half, generator(lab.seed, "descent"), dtype=torch.float64)
    halves = Halves(drawn[:half], drawn[half:])
    note = f"{half} functions, families tuned on {half} others"

    # The whole model beside each family.
    (whole,) = _answers(lab, [lab.ask(prompts=drawn)])
    found = {}
    tuned = {}
    for name in FAMILIES:
        tuned[name] = family(name, n_layers, dim)(halves.tuning, whole[:half])
        found[row_of(name, n_layers)] = compared(tuned[name], halves.judging, whole[half:])
    sizes = _sizes(found)
    nearest = min(sizes, key=sizes.__getitem__)  # of some that tie the first

    # What else it may be: the end of descent, a step less, or steps that go up.
    others: dict[str, Descent | GDPlusPlus | LeastSquares] = {}
    others[RIVAL + LEAST_SQUARES] = LeastSquares(INPUTS)
    if n_layers > 1:
        fewer = family(nearest, n_layers - 1, dim)(halves.tuning, whole[:half])
        others[RIVAL + row_of(nearest, n_layers - 1)] = fewer
    others[DOWNHILL + row_of(nearest, n_layers)] = downhill(tuned[nearest])
    for name, other in others.items():
        found[name] = compared(other, halves.judging, whole[half:])

    # What is left without a block, beside a step less.
    if is_large(lab.model) and sizes[nearest] > WITHIN_REACH:
        note += "; no block is taken out, because the whole model is far from every family"
    elif n_layers > 1:
        for block, left in enumerate(_answers(lab, _without_blocks(lab, halves.tuning, drawn))):
            fewer = family(nearest, n_layers - 1, dim)(halves.tuning, left[:half])
            name = row_of(nearest, n_layers - 1, without=block)
            found[name] = compared(fewer, halves.judging, left[half:])
    axes = {"comparison": tuple(found), "number": (SQUARED, OWN, LABEL), "unit": tuple(range(half))}
    return make_array(np.stack(list(found.values())), axes, note=note)


def _without_blocks(lab: Lab, tuning: Prompts, asked: Prompts) -> list[Sweep]:
    """What each block's mean on the half that tunes leaves of the model, as sweeps."""
    tokens = lab.tokens(tuning).to(lab.single.unembed.W_U)
    sweeps = []
    for block in range(lab.model.cfg.n_layers):
        edit = MeanOutputs.measure(lab.single, tokens, sublayers(lab.single, layer=block))
        sweeps.append(lab.ask(prompts=asked, context=[edit], query=[edit]))
    return sweeps


def _answers(lab: Lab, sweeps: list[Sweep]) -> list[Queries]:
    return [said[:, 0].double() for said in lab.run_single(sweeps)]


def _sizes(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean squared distance of the whole model from each family, of its variance."""
    sizes = {}
    for name, (squared, own, _) in zip(FAMILIES, found.values(), strict=True):
        # What is less than a millionth of the variance is rounding.
        sizes[name] = round(squared.mean() / (own.var() or 1.0), 6)
    return sizes
