"""What a layer of softmax attention misses where linear attention misses nothing.

The layer of linear attention has as many heads.

A layer that was trained badly misses much as well, and tells nothing of softmax. So its weights are
trained on, and the error that is left then is put beside the one before.

Source of the optimiser: Liu & Nocedal (1989), On the limited memory BFGS method for large scale
optimization.
"""

import torch
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.provenance import generator
from icl_interp.results import make_array, table_of_numbers
from icl_interp.studies.autoregression.measurements.maps import TINY, commute, needs_paths
from icl_interp.studies.autoregression.measurements.unit import plain, process_in, real_heads_needed

MISSED = "squared error"
ALL = "squared distance from the mean"
GAIN = "error after more training, over that before"
N_TRAINED = 256  # prompts
N_STEPS = 30  # of L-BFGS


def needs_softmax_layer(facts: Facts) -> str | None:
    """Why there is no softmax attention with a linear counterpart that is free of error.

    The counterpart must be known to predict without an error.
    """
    if reason := needs_paths(facts):
        return reason
    cfg = facts.config
    task = process_in(facts)
    if cfg.score_fn != "softmax":
        return f"The claim is about softmax attention; this model's is {cfg.score_fn}"
    if facts.encoding != "states" or cfg.n_layers != 1:
        on = "plain" if facts.encoding == "states" else facts.encoding
        return (
            f"The claim is about one layer on plain states; this model has {cfg.n_layers} on {on} "
            "states"
        )
    # Linear attention predicts without an error on such paths, if it has enough heads.
    if not commute(task):
        return (
            "The claim is about matrices W that commute (unitary, conjugate_pairs or rotations); "
            "this model's task has orthogonal ones"
        )
    if task.start is not None or task.noise_std:
        return (
            "The claim is about paths from s_0 = 1 without noise; the paths of this model's task "
            "are others"
        )
    needed = real_heads_needed(task)
    if cfg.n_heads < needed:
        return (
            f"The claim is about {needed} heads or more for this task; this model has {cfg.n_heads}"
        )
    return None


@measurement("autoregression/missed")
def missed(lab: Lab) -> DataArray:
    """Squared error of the model and of the law's mean E[W] s: (who, unit).

    Errors are means over the scored points.
    """
    prompts = lab.few
    first = lab.task.n_determining
    truth = prompts.ys[:, first:].double()
    # In float64: heads that nearly cancel leave little of float32's digits.
    said = {
        MISSED: lab.predict(prompts, double=True).double().cpu(),
        ALL: lab.task.expected(prompts.xs).double(),
    }
    rows = []
    for predicted in said.values():
        squares = (predicted[:, first:] - truth).square().sum(-1)
        rows.append(lab.by_unit(squares.mean(-1), prompts))
    axes = {"who": tuple(said), "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes)


@measurement("autoregression/trained on")
def trained_on(lab: Lab) -> DataFrame:
    """The error of the plain layer after some steps of L-BFGS, over that before.

    The steps start at the model's weights.

    Both errors are those on the prompts of these steps, drawn apart: what is learned by heart
    counts as a gain too.
    """
    task = lab.task
    model = plain(lab.model).requires_grad_(True)
    if hasattr(model, "pos_embed"):  # vectors of zeros are none, and must not become some
        model.pos_embed.requires_grad_(False)
    draw = generator(lab.seed, "autoregression/trained on")
    prompts = task.sample(N_TRAINED, draw, dtype=torch.float64)
    tokens = lab.tokens(prompts)
    truth = prompts.ys.to(lab.device)
    first = task.n_determining
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    steps = torch.optim.LBFGS(trained, max_iter=N_STEPS, line_search_fn="strong_wolfe")
    found: list[float] = []

    def loss() -> Tensor:
        steps.zero_grad()
        missed_by = (model(tokens) - truth)[:, first:]
        error = missed_by.square().sum(-1).mean()
        error.backward()
        found.append(float(error.detach()))
        return error

    with torch.enable_grad():
        steps.step(loss)
    # The line search may end at a worse point than one it has seen.
    gain = min(found) / max(found[0], TINY)
    return table_of_numbers({GAIN: gain}, note=f"{N_STEPS} steps, {N_TRAINED} prompts")
