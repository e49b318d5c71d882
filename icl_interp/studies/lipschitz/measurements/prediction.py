"""The prediction that a model makes, and whether the window read off its scores makes it.

Predictions are those of whole prompts, by `forward`: short ways round the context may not give
them.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.analyses.tie import tie
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.studies.lipschitz.measurements.unit import kernel
from icl_interp.theory import lipschitz as theory


def predicted(
    lab: Lab, model: HookedTransformer, prompts: Prompts, *interventions: Intervention
) -> Float[Tensor, "batch target"]:
    """Predictions for the query of each prompt, from whole prompts, in float64.

    Args:
        lab: encodes the prompts.
        model: what predicts, `lab.model` or `lab.single`.
        prompts: whole ones.
        interventions: at all tokens.
    """
    last = lab.encoding.n_tokens(prompts.n_points) - 1
    found = []
    with torch.no_grad(), intervene(model, *interventions):
        for rows in lab.chunks(prompts):
            tokens = lab.tokens(prompts[rows]).to(model.unembed.W_U)
            found.append(model(tokens, range(last, last + 1))[:, 0].double().cpu())
    return torch.cat(found)


@measurement("lipschitz/tie", needs=(kernel,))
def tied_window(lab: Lab, table: DataArray) -> DataArray:
    """Whether the window predicts what the model does, and the head is used: `analyses.tie`.

    The reading is the average of the labels with weights softmax_i(x_i^T M x_q), M as it was read
    off the head's scores. The head is taken out by its mean output at each position.
    """
    prompts = lab.few
    matrix = torch.from_numpy(table.sel(matrix="M").values.copy())
    average = theory.prediction(
        prompts.xs[:, :-1], prompts.ys[:, :-1, 0], prompts.xs[:, -1], matrix
    )
    own = predicted(lab, lab.model, prompts)
    without = predicted(lab, lab.model, prompts, lab.head_means)
    return tie(lab, own, average[:, None], without, prompts)
