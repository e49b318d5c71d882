"""What stands for the first n examples of a prompt, and the step to one more, by n.

The figures of Dherin et al. (2025) compare predictions with examples and under their update, and
show how large the steps of the implicit weights are, both by the number of examples.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.results import make_array
from icl_interp.studies.implicit_update.measurements.updates import (
    LABEL,
    Hidden,
    Scale,
    Stream,
    sample,
    slope,
    some,
    state,
    update,
)

WITH = "prediction with examples"
UNDER = "prediction under the update"
SIZE = "size of the next step"


def lengths(n_examples: int) -> list[int]:
    """Numbers of examples that leave one for a step: powers of two, and the last one.

    >>> lengths(20)
    [1, 2, 4, 8, 16, 19]
    """
    powers = 2 ** np.arange(n_examples.bit_length())
    before = powers[powers < n_examples]
    return sorted({*before.tolist(), n_examples - 1})


def size(scale: Scale, step: Hidden, query: Stream) -> Float[Tensor, " batch"]:
    """The length of a step as a matrix, prompt by prompt, where units count by their effect.

    The step is of rank one: its column, times the row of an update at the query.
    """
    column = step[:, scale.matter].square() @ scale.weights
    row = scale.row(query).square().sum(-1)
    return (column * row).sqrt()


@measurement("implicit update/by length")
@torch.no_grad()
def by_length(lab: Lab) -> DataArray:
    """Predictions after n examples, the label, and the next step: (examples, number, unit)."""
    prompts = sample(lab)
    asked = lengths(prompts.n_points - 1)
    alone = some(prompts, 0)
    query = state(lab, alone)
    # States and updates after n and n + 1 examples.
    whole = {}
    after = {}
    for n in sorted({*asked, *(n + 1 for n in asked)}):
        whole[n] = state(lab, some(prompts, n))
        after[n] = update(lab, whole[n], query)
    # Predictions for the query alone under each update, and what they depend on.
    slopes = []
    under = {}
    for n in asked:
        derivative, found = slope(lab, after[n], alone)
        slopes.append(derivative)
        under[n] = found.said.detach()
    scale = Scale.of(torch.stack(slopes), lab.model.blocks[-1].mlp.W_in)

    label = prompts.ys[:, -1, 0].to(query.said)
    values = []
    for n in asked:
        step = after[n + 1].column - after[n].column
        moved = size(scale, step, query.read)
        values.append(torch.stack([whole[n].said[:, 0], under[n][:, 0], label, moved]))
    axes = {
        "examples": asked,
        "number": (WITH, UNDER, LABEL, SIZE),
        "unit": tuple(range(lab.n_units)),
    }
    note = f"{lab.n_units} functions, a prompt of each"
    return make_array(torch.stack(values).cpu().numpy(), axes, note=note)
