"""How far a model's predictions are from as many steps of descent as it has layers.

Three families of descent are tuned to the model's own predictions on half of the functions and
compared with them on the other half. Then each block is put to its mean output, and what is left of
the model is compared with one step less.
"""

from collections.abc import Callable, Mapping
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
from icl_interp.baselines.moments import Descent, GDPlusPlus, Moments
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
WITHOUT = "without block "
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


def compared(
    tune: Tune, halves: Halves, tuned_to: Queries, own: Queries
) -> Float[np.ndarray, "number unit"]:
    """`SQUARED`, `OWN` and `LABEL` of each function of the half that judges.

    Args:
        tune: chooses the member of a family.
        halves: prompts, one of each function.
        tuned_to: predictions of the model on the half that tunes.
        own: its predictions on the other half.
    """
    rival = tune(halves.tuning, tuned_to)
    said = rival.predicted(Moments.of_query(INPUTS, halves.judging))[:, 0]
    squared = (said - own).square()
    # About their mean, so that no digits cancel in the variance.
    centred = own - own.mean(0)
    label = halves.judging.ys[:, -1].square()
    return torch.cat([squared, centred, label], 1).double().T.numpy()


@measurement("descent/distances")
def distances(lab: Lab) -> DataArray:
    """Differences from each family, whole and without each block: (comparison, number, unit).

    A unit is a function of the half that judges. Without a block the family is the one that was
    nearest to the whole model.
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
    for name in FAMILIES:
        tune = family(name, n_layers, dim)
        found[row_of(name, n_layers)] = compared(tune, halves, whole[:half], whole[half:])
    sizes = _sizes(found)
    nearest = min(sizes, key=sizes.__getitem__)  # of some that tie the first

    # What is left without a block, beside a step less.
    if is_large(lab.model) and sizes[nearest] > WITHIN_REACH:
        note += "; no block is taken out, because the whole model is far from every family"
    elif n_layers > 1:
        for block, left in enumerate(_answers(lab, _without_blocks(lab, halves.tuning, drawn))):
            tune = family(nearest, n_layers - 1, dim)
            name = row_of(nearest, n_layers - 1, without=block)
            found[name] = compared(tune, halves, left[:half], left[half:])
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
