"""The largest attention weight of every head on prompts longer than those of training."""

import copy
import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import Intervention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.sweep import Sweep, run
from icl_interp.provenance import generator
from icl_interp.results import make_array

# Lengths, in trained lengths: both ends, and one drawn between each of these and the next.
OCTAVES = (1, 2, 4, 8)


def lengths(n_points: int, seed: int) -> list[int]:
    """Points of the prompts: as many as in training, one number drawn in each octave, and 8 times.

    >>> lengths(10, 0)[0], len(lengths(10, 0)), lengths(10, 0)[-1]
    (10, 5, 80)
    """
    stream = generator(seed, "dispersion/lengths")
    draws = torch.rand(len(OCTAVES) - 1, generator=stream)
    found = [n_points]
    for first, share in zip(OCTAVES, draws.tolist(), strict=False):
        factor = first * 2**share
        found.append(math.ceil(n_points * factor))
    longest = OCTAVES[-1] * n_points
    return [*found, longest]


def with_room(model: HookedTransformer, n_tokens: int) -> HookedTransformer:
    """The model where it reads prompts of so many tokens; else a copy that does.

    The model has no vectors of positions, or the same vector at each.
    """
    if model.cfg.n_ctx >= n_tokens:
        return model
    found = copy.deepcopy(model)
    found.cfg = replace(model.cfg, n_ctx=n_tokens)
    if model.cfg.positional_embedding_type == "standard":
        vector = model.pos_embed.W_pos[:1].detach()
        found.pos_embed.W_pos = torch.nn.Parameter(vector.repeat(n_tokens, 1))
    return found


def log_weights(
    lab: Lab, edits: dict[int, Intervention] | None = None
) -> tuple[Float[np.ndarray, "length head unit"], list[int]]:
    """Logarithm of the largest weight at the query of each prompt, and the keys that it sees.

    A unit is one function. Its prompts of several lengths begin alike.

    Args:
        lab: gives the model, its task, and the number of units.
        edits: an intervention for each number of points; none by default.
    """
    asked = lengths(lab.task.n_points, lab.seed)
    law = lab.task.with_points(asked[-1])
    stream = generator(lab.seed, "dispersion")
    prompts = law.sample(lab.n_units, stream, dtype=torch.float64)
    sweeps: list[Sweep] = []
    for n_points in asked:
        edit = [edits[n_points]] if edits else []
        probe = AttentionEntropy(per_prompt=True)
        shorter = prompts.first(n_points)
        sweeps.append(lab.ask(prompts=shorter, context=edit, query=edit, probes=[probe]))
    n_tokens = lab.encoding.n_tokens(asked[-1])
    longer = with_room(lab.model, n_tokens)
    run(longer, lab.encoding, sweeps)
    # (layer, head, the query, prompt) of each length.
    values = []
    n_keys = []
    for n_points, sweep in zip(asked, sweeps, strict=True):
        found = sweep.probes[0].results()
        largest_of_each = found["max_weight"].values[:, :, 0]
        visible = found["visible_keys"].values[0, 0, 0, 0]
        if not np.isfinite(visible):  # of weights that are no numbers
            visible = lab.encoding.n_tokens(n_points)
        logs = np.log(largest_of_each)
        values.append(logs.reshape(-1, lab.n_units))
        n_keys.append(int(visible))
    return np.stack(values), n_keys


@measurement("dispersion/largest weights")
def largest(lab: Lab) -> DataArray:
    """Logarithm of the largest weight by number of keys n, head and unit."""
    values, n_keys = log_weights(lab)
    note = f"{lab.n_units} functions; the first n is that of training"
    return by_head(lab, values, n_keys, note)


def by_head(lab: Lab, values: np.ndarray, n_keys: list[int], note: str = "") -> DataArray:
    """What `log_weights` gives, with its axes named."""
    heads = relevance.labels(lab)
    units = tuple(range(lab.n_units))
    axes = {"n": tuple(n_keys), "head": heads, "unit": units}
    return make_array(values, axes, note=note)
