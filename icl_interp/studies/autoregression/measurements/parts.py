"""Which parts of a model are in use: layers and different heads.

Layers count if predictions depend on them, and heads if they differ from one another.

A layer that writes nothing is no layer, and two heads with one pattern are one head: what they
write adds up, or takes each other off. Claims that count layers or heads count these.
"""

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.interventions.outputs import sublayers
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import one_pattern
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.results import make_table
from icl_interp.studies.autoregression.measurements.unit import outputs, process_of

IDLE = 1e-4  # of the variance of predictions: what moves them by less is not in use
N_COMPARED = 16  # prompts on which patterns of heads are compared
LAYER = "layer"
ATTENTION = "attention"
BLOCK = "block"
HEADS = "heads"
Pattern = Float[Tensor, "batch head query key"]


def proportional(cfg: HookedTransformerConfig) -> bool:
    """Whether what a head writes is proportional to its scores.

    Then W_O makes up for their size and sign.
    """
    return cfg.score_fn == "linear"


def patterns(lab: Lab, layer: int, model: HookedTransformer | None = None) -> Pattern:
    """Attention patterns of the heads of a layer, on a few prompts.

    The model is the lab's where no other is given.
    """
    name = f"blocks.{layer}.attn.hook_pattern"
    seen = Activations([name])
    tokens = lab.tokens(lab.few[:N_COMPARED])
    probe(model or lab.model, tokens, [seen])
    return seen.recorded[name]


def heads_alike(lab: Lab, layer: int) -> list[one_pattern.Group]:
    """Heads of a layer that have one pattern, and so count as one head."""
    rows = patterns(lab, layer).transpose(0, 1).flatten(1)
    return one_pattern.groups(rows, proportional(lab.model.cfg))


def _moved(lab: Lab, intact: Tensor, variance: float, *edits: Intervention) -> float:
    """Squared change of the scored predictions under edits, over their variance."""
    with intervene(lab.model, *edits):
        after = outputs(lab.model, lab, lab.few)
    change = (after - intact)[:, lab.task.n_determining :]
    return float(change.square().sum(-1).mean()) / variance


def _heads(lab: Lab, layer: int, intact: Tensor, variance: float) -> int:
    """The number of different heads of a layer that move predictions.

    It is the number of all heads where it makes no difference how many these are.
    """
    n_heads = lab.model.cfg.n_heads
    task = process_of(lab)
    # Matrices that do not commute have no complex coordinates, which take two heads.
    if n_heads == 1 or task.matrices == "orthogonal":
        return n_heads
    n_used = 0
    for group in heads_alike(lab, layer):
        places = [(layer, head) for head in group]
        without = lab.head_means.only(*places)
        n_used += _moved(lab, intact, variance, without) > IDLE
    return n_used


@measurement("autoregression/parts in use")
def in_use(lab: Lab) -> DataFrame:
    """How far predictions move without each layer's parts, and how many heads move them.

    The parts are the attention and the block. Only different heads count.

    A row a layer. What is taken out writes its mean at each position; movements are squared, over
    the variance of predictions at the scored points. It runs the model itself, also where a known
    predictor stands in its place.
    """
    intact = outputs(lab.model, lab, lab.few)
    scored = intact[:, lab.task.n_determining :]
    of_points = scored.var(0, unbiased=False).sum(-1)
    tiny = torch.finfo(torch.float64).tiny
    variance = max(float(of_points.mean()), tiny)
    columns: dict[str, list[float]] = {LAYER: [], ATTENTION: [], BLOCK: [], HEADS: []}
    for layer in range(lab.model.cfg.n_layers):
        columns[LAYER].append(layer)
        # A block is all sublayers of a layer.
        for name, kind in ((ATTENTION, "attn"), (BLOCK, None)):
            taken_out = sublayers(lab.model, kind, layer)
            means = lab.sublayer_means.only(*taken_out)
            columns[name].append(_moved(lab, intact, variance, means))
        n_heads = _heads(lab, layer, intact, variance)
        columns[HEADS].append(n_heads)
    return make_table(columns)


def layers_in_use(table: DataFrame) -> int:
    """Layers that predictions depend on.

    They are all layers where predictions depend on none, and so are made elsewhere.
    """
    used = table[BLOCK].to_numpy(float) > IDLE
    return int(used.sum()) or len(table)


def first_layer_in_use(table: DataFrame) -> int:
    """The first layer whose attention predictions depend on.

    It is the first of all where they depend on none.
    """
    used = np.flatnonzero(table[ATTENTION].to_numpy(float) > IDLE)
    return int(used[0]) if len(used) else 0


def heads_in_use(table: DataFrame) -> int:
    """Different heads of the layer that has most of them, at least one."""
    most = table[HEADS].to_numpy(float).max()
    return max(1, int(most))
