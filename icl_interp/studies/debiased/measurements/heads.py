"""What each softmax head of one layer scores, and what it reads off the examples.

A head that scores x_i by w <x_i, x_q> has the query-key map w I. What softmax sees are scores about
their mean over the examples of a prompt. What a head adds to the prediction for an example is
linear in (x_i, y_i) in a model without norms and MLP. Heads that attend alike in every prompt are
one head, and their values add up.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.probes.one_pattern import summed
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array

N_FUNCTIONS = 512
# Numbers of each head and function: means over the examples of a prompt.
SCORE = "squared score"
INPUT = "squared product of inputs"
BOTH = "score times product of inputs"
VALUE = "squared value"
LEFT = "squared value, labels taken off"
WEIGHT = "weight of labels"
NUMBERS = (SCORE, INPUT, BOTH, VALUE, LEFT, WEIGHT)
ATTENTION = "blocks.0.attn."
HOOKS = (f"{ATTENTION}hook_attn_scores", f"{ATTENTION}hook_pattern", f"{ATTENTION}hook_v")

Rows = Float[Tensor, "head batch example"]


class Heads(NamedTuple):
    """Heads that attend differently, at the query of some prompts.

    Attributes:
        names: numbers of the heads that are one, joined by "+".
        scores: before softmax.
        patterns: after it.
        values: what each adds to the prediction for an example that has all of its weight.
    """

    names: list[str]
    scores: Rows
    patterns: Rows
    values: Rows

    @property
    def read(self) -> Float[Tensor, " batch"]:
        """What all heads together add to the prediction."""
        return (self.patterns * self.values).sum((0, 2))


def heads_of(lab: Lab, prompts: Prompts) -> Heads:
    """The heads of the only layer, those that attend alike as one."""
    model = lab.model
    seen = Activations(HOOKS)
    probe(model, lab.tokens(prompts), [seen])
    scores, patterns, v = seen.recorded.values()
    # What the query attends to: the examples before it.
    scores = scores[:, :, -1, :-1].transpose(0, 1)
    patterns = patterns[:, :, -1, :-1].transpose(0, 1)
    written = model.blocks[0].attn.writing[0] @ model.unembed.W_U[:, 0]
    values = torch.einsum("bihd,hd->hbi", v[:, :-1], written.to(v))
    groups, added = summed(patterns.flatten(1), values, scaled=False)
    names = []
    first = []
    for group in groups:
        names.append("+".join(map(str, group)))
        first.append(group[0])
    return Heads(names, scores[first], patterns[first], added)


def centred(values: Float[Tensor, "*batch example"]) -> Float[Tensor, "*batch example"]:
    """Values about their mean over the examples of a prompt."""
    return values - values.mean(-1, keepdim=True)


def weights_of_labels(values: Rows, prompts: Prompts) -> Float[Tensor, " head"]:
    """The coefficient of y_i in each head's values, by least squares on (x_i, y_i)."""
    tokens = torch.cat([prompts.xs, prompts.ys], -1).double()
    examples = tokens[:, :-1]
    features = examples - examples.mean(1, keepdim=True)
    rows = features.flatten(0, 1)
    targets = centred(values).flatten(1)
    found = torch.linalg.lstsq(rows, targets.T)
    return found.solution[-1]


def products(prompts: Prompts) -> Float[Tensor, "batch example"]:
    """<x_i, x_q> about its mean over the examples of a prompt."""
    examples = prompts.xs[:, :-1]
    query = prompts.xs[:, -1]
    found = torch.einsum("bid,bd->bi", examples, query)
    return centred(found)


def as_claimed(found: Heads, prompts: Prompts) -> Float[Tensor, " batch"]:
    """What the heads would read with scores +w or -w times <x_i, x_q>, and labels alone.

    Each keeps the sign of its own w, and its own weight of labels. |w| is the mean over heads,
    which count by the size of that weight.
    """
    inputs = products(prompts)
    both = centred(found.scores) * inputs
    w = both.sum((1, 2)) / inputs.square().sum()
    weights = weights_of_labels(found.values, prompts)
    total = weights.abs().sum().clamp(min=torch.finfo(w.dtype).tiny)
    size = (weights.abs() * w.abs()).sum() / total
    scores = size * w.sign()[:, None, None] * inputs
    labels = prompts.ys[:, :-1, 0].double()
    averages = (scores.softmax(-1) * labels).sum(-1)
    return weights @ averages


@measurement("debiased/heads")
def heads(lab: Lab) -> DataArray:
    """How each head scores examples and what it reads off them: (head, number, unit).

    A unit is a function. The weight of labels is the same for all units.
    """
    drawn = lab.task.sample(N_FUNCTIONS, generator(lab.seed, "debiased"), dtype=torch.float64)
    found = heads_of(lab, drawn)

    # What softmax sees of scores, beside products of inputs.
    scores = centred(found.scores)
    inputs = products(drawn)

    # What is left of values without labels.
    values = centred(found.values)
    weights = weights_of_labels(found.values, drawn)
    by_head = weights[:, None, None]
    labels = by_head * centred(drawn.ys[:, :-1, 0])
    left = values - labels
    numbers = {
        SCORE: scores.square(),
        INPUT: inputs.square().expand_as(scores),
        BOTH: scores * inputs,
        VALUE: values.square(),
        LEFT: left.square(),
        WEIGHT: by_head.expand_as(scores),
    }
    every = torch.stack(list(numbers.values()), 1)
    means = every.mean(-1)
    axes = {"head": found.names, "number": NUMBERS, "unit": tuple(range(N_FUNCTIONS))}
    note = f"{N_FUNCTIONS} functions, one prompt each"
    return make_array(means.numpy(), axes, note=note)
