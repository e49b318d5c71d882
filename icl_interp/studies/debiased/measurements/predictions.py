"""How far predictions are from a debiased step of descent, in distribution and after two changes.

The size of the step is that which is nearest to the model's own predictions on half of the
functions. On the other half they are compared as they are, with a constant added to all labels of a
prompt, and with the signs of all scores turned: then a debiased step turns its sign, too.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Moments
from icl_interp.interventions.attention import Temperature
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.debiased.measurements.heads import as_claimed, heads_of
from icl_interp.theory.debiased import debiased_step

HALF = 512  # functions that the step is tuned on, and others that it is judged on
OFFSET = 2.0  # root mean square of the constant, in units of that of the labels
# Comparisons, each with the squared distance and the model's own prediction.
IN_DISTRIBUTION = "a debiased step"
WITH_OFFSET = "a constant added to labels"
TURNED = "scores with the other sign"
PLAIN = "a plain step"
PLAIN_OFFSET = "a plain step, a constant added to labels"
READ = "what heads read off the examples"
AS_CLAIMED = "heads with one |w|"
TRUTH = "f(x)"
COMPARISONS = (IN_DISTRIBUTION, WITH_OFFSET, TURNED, PLAIN, PLAIN_OFFSET, READ, AS_CLAIMED, TRUTH)
SQUARED = "squared distance"
OWN = "prediction"
LABEL = "squared label"

Said = Float[Tensor, " batch"]


def debiased(prompts: Prompts) -> Said:
    """The debiased step of size 1 at the query."""
    return debiased_step(prompts.xs[:, :-1], prompts.ys[:, :-1, 0], prompts.xs[:, -1])


def plain(prompts: Prompts) -> Said:
    """The plain step of size 1: the mean of y_i <x_i, query>."""
    seen = Moments.of_query(INPUTS, prompts)
    return seen.predicted(seen.moment)[:, 0, 0]


def tuned(step: Said, said: Said) -> float:
    """The size at which a step is nearest to predictions.

    >>> tuned(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0]))
    3.0
    """
    return float((step * said).sum() / step.square().sum())


def with_offset(prompts: Prompts, draw: torch.Generator) -> Prompts:
    """The same prompts with a constant, drawn for each, added to all labels but the query's."""
    size = OFFSET * prompts.ys.square().mean().sqrt()
    constants = size * torch.randn(len(prompts), 1, 1, generator=draw, dtype=torch.float64)
    ys = prompts.ys.clone()
    ys[:, :-1] += constants
    return replace(prompts, ys=ys)


@measurement("debiased/predictions")
def predictions(lab: Lab) -> DataArray:
    """Squared distances beside predictions: (comparison, number, unit).

    A unit is a function of the half that judges. Predictions are about their mean.
    """
    drawn = lab.task.sample(2 * HALF, generator(lab.seed, "debiased/step"), dtype=torch.float64)
    tuning = drawn[:HALF]
    judging = drawn[HALF:]
    shifted = with_offset(judging, generator(lab.seed, "debiased/offset"))
    opposite = Temperature(-1.0)
    sweeps = [
        lab.ask(prompts=tuning),
        lab.ask(prompts=judging),
        lab.ask(prompts=shifted),
        lab.ask(prompts=judging, context=[opposite], query=[opposite]),
    ]
    of_tuning, own, after_offset, after_turn = [said[:, 0, 0] for said in lab.run(sweeps)]

    # Both steps are tuned to the model on the first half.
    size = tuned(debiased(tuning), of_tuning)
    plain_size = tuned(plain(tuning), of_tuning)
    step = size * debiased(judging)
    found = heads_of(lab, judging)
    read = found.read
    claimed = as_claimed(found, judging)
    pairs = {
        IN_DISTRIBUTION: (own, step),
        WITH_OFFSET: (after_offset, size * debiased(shifted)),
        TURNED: (after_turn, -step),
        PLAIN: (own, plain_size * plain(judging)),
        PLAIN_OFFSET: (after_offset, plain_size * plain(shifted)),
        # A constant, such as a bias, is no reading.
        READ: (own - own.mean(), read - read.mean()),
        AS_CLAIMED: (own - own.mean(), claimed - claimed.mean()),
        TRUTH: (own, lab.task.targets(judging.parameters, judging.xs)[:, -1, 0]),
    }
    label = judging.ys[:, -1, 0].square()
    rows = []
    for said, other in pairs.values():
        squared = (said - other).square()
        rows.append(torch.stack([squared, own - own.mean(), label]))
    axes = {"comparison": COMPARISONS, "number": (SQUARED, OWN, LABEL), "unit": tuple(range(HALF))}
    note = f"{HALF} functions, a step of size {size:.3g} tuned on {HALF} others"
    return make_array(torch.stack(rows).double().numpy(), axes, note=note)
