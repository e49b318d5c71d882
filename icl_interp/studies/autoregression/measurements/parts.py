"""Which parts of a model are in use: layers that predictions depend on, and heads that differ from one another.

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
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.results import make_table
from icl_interp.studies.autoregression.measurements.unit import outputs, process_of

IDLE = 1e-4  # of the variance of predictions: what moves them by less is not in use
N_COMPARED = 16  # prompts on which patterns of heads are compared
ONE_PATTERN = 1e-9  # squared distance of two patterns, over their squares, up to which they are one
LAYER, ATTENTION, BLOCK, HEADS = "layer", "attention", "block", "heads"
Group = tuple[int, ...]  # heads with one pattern
Pattern = Float[Tensor, "batch head query key"]


def proportional(cfg: HookedTransformerConfig) -> bool:
    """Whether what a head writes is proportional to its scores, so that W_O makes up for their size and sign."""
    return cfg.score_fn == "linear"


def patterns(lab: Lab, layer: int, model: HookedTransformer | None = None) -> Pattern:
    """Attention patterns of the heads of a layer, on a few prompts; of the lab's model where no other is given."""
    name = f"blocks.{layer}.attn.hook_pattern"
    seen = Activations([name])
    probe(model or lab.model, lab.tokens(lab.few[:N_COMPARED]), [seen])
    return seen.recorded[name]


def factors(rows: Float[Tensor, "head number"], scaled: bool) -> Float[Tensor, "head head"]:
    """c with row i = c row j, in column j; NaN where row i is another one.

    Args:
        rows: one a head.
        scaled: whether any factor will do; else rows must be the same.
    """
    squares = rows.square().sum(1)
    products = rows @ rows.T
    best = products / squares.clamp(min=torch.finfo(rows.dtype).tiny)
    c = best if scaled else torch.ones_like(products)
    missed = squares[:, None] - 2 * c * products + c**2 * squares
    return torch.where(
        missed <= ONE_PATTERN * torch.maximum(squares[:, None], squares), c, torch.nan
    )


def groups(rows: Float[Tensor, "head number"], scaled: bool) -> list[Group]:
    """Heads whose rows are one, in the order of the first of them.

    >>> groups(torch.tensor([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0]]), scaled=True)
    [(0, 2), (1,)]
    >>> groups(torch.tensor([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0]]), scaled=False)
    [(0,), (1,), (2,)]
    """
    same, found = ~factors(rows, scaled).isnan(), list[Group]()
    left = list(range(len(rows)))
    while left:
        group = tuple(h for h in left if h == left[0] or bool(same[h, left[0]]))
        found.append(group)
        left = [h for h in left if h not in group]
    return found


def heads_alike(lab: Lab, layer: int) -> list[Group]:
    """Heads of a layer that have one pattern, and so count as one head."""
    rows = patterns(lab, layer).transpose(0, 1).flatten(1)
    return groups(rows, proportional(lab.model.cfg))


def _moved(lab: Lab, intact: Tensor, variance: float, *edits: Intervention) -> float:
    """Squared change of the scored predictions under edits, over their variance."""
    with intervene(lab.model, *edits):
        after = outputs(lab.model, lab, lab.few)
    change = (after - intact)[:, lab.task.n_determining :]
    return float(change.square().sum(-1).mean()) / variance


def _heads(lab: Lab, layer: int, intact: Tensor, variance: float) -> int:
    """Different heads of a layer that move predictions; all heads where it makes no difference how many these are."""
    n_heads, task = lab.model.cfg.n_heads, process_of(lab)
    if (
        n_heads == 1 or task.matrices == "orthogonal"
    ):  # complex coordinates, which take two heads, are not asked
        return n_heads
    groups = [
        lab.head_means.only(*((layer, head) for head in group)) for group in heads_alike(lab, layer)
    ]
    return sum(_moved(lab, intact, variance, group) > IDLE for group in groups)


@measurement("autoregression/parts in use")
def in_use(lab: Lab) -> DataFrame:
    """How far predictions move without each layer's attention and block, and how many different heads move them.

    A row a layer. What is taken out writes its mean at each position; movements are squared, over
    the variance of predictions at the scored points. It runs the model itself, also where a known
    predictor stands in its place.
    """
    intact = outputs(lab.model, lab, lab.few)
    scored = intact[:, lab.task.n_determining :]
    variance = max(
        float(scored.var(0, unbiased=False).sum(-1).mean()), torch.finfo(torch.float64).tiny
    )
    rows = []
    for layer in range(lab.model.cfg.n_layers):
        taken_out = (sublayers(lab.model, kind, layer) for kind in ("attn", None))
        attention, block = (
            _moved(lab, intact, variance, lab.sublayer_means.only(*names)) for names in taken_out
        )
        rows.append((layer, attention, block, _heads(lab, layer, intact, variance)))
    names = (LAYER, ATTENTION, BLOCK, HEADS)
    return make_table(
        {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    )


def layers_in_use(table: DataFrame) -> int:
    """Layers that predictions depend on; all of them where predictions depend on none, and so are made elsewhere."""
    return int((table[BLOCK].to_numpy(float) > IDLE).sum()) or len(table)


def first_layer_in_use(table: DataFrame) -> int:
    """The first layer whose attention predictions depend on; the first of all where they depend on none."""
    used = np.flatnonzero(table[ATTENTION].to_numpy(float) > IDLE)
    return int(used[0]) if len(used) else 0


def heads_in_use(table: DataFrame) -> int:
    """Different heads of the layer that has most of them, at least one."""
    return max(1, int(table[HEADS].to_numpy(float).max()))
