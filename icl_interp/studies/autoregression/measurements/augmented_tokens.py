"""What the first layer of a model puts beside each state.

Does it make the augmented tokens (0, s_t, s_{t-1})?

Lemma 1 makes them with attention that sees positions only: one head looks at its own token, one at
the token before. So the patterns of the first layer are replaced by their means over prompts, which
no prompt tells anything, and these are cut to the two tokens of the lemma, or to the own token
alone. All heads are cut in the same way, so that it does not matter how the layer's work is shared
among heads. What the layer writes keeps its mean over prompts at each position: tokens that are cut
off go to their means, not to 0. The first layer is the first whose attention is in use.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import Hook, Intervention, intervene, mean_activations
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.pattern import AttentionPattern
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.maps import TINY, needs_paths
from icl_interp.studies.autoregression.measurements.parts import first_layer_in_use, in_use
from icl_interp.studies.autoregression.measurements.unit import Shift, outputs

POSITIONS = "by position"
LEMMA = "by position, own token and the one before"
OWN = "by position, own token alone"
ARMS = (POSITIONS, LEMMA, OWN)
INTACT = "as it is"
NUMBERS = ("moved", "error", "share")
BEFORE = "weight at the token before"
ALIKE = "alike in all prompts"
Pattern = Float[Tensor, "head query key"]


def needs_layers_on_states(facts: Facts) -> str | None:
    """Why no first layer has anything to make augmented tokens of, or for."""
    if reason := needs_paths(facts):
        return reason
    if facts.encoding != "states":
        return (
            "The claim is about plain states, which the first layer may augment; this model's are "
            f"{facts.encoding} already"
        )
    if facts.config.n_layers < 2:
        return (
            "The claim is about a first layer that is followed by others; this model has one layer"
        )
    if facts.config.attention_dir != "causal":
        return (
            "The claim is about causal attention, since otherwise the token after a state shows "
            "what is to be predicted"
        )
    return None


def mean_pattern(lab: Lab, prompts: Prompts, layer: int) -> tuple[Pattern, Pattern]:
    """A layer's pattern: its mean over prompts, and the mean of its square."""
    results = probe(lab.model, prompts, [AttentionPattern()], lab.encoding)
    found = []
    for name in ("weight", "std"):
        of_layer = results[f"attention_pattern.{name}"].sel(layer=layer)
        found.append(torch.from_numpy(of_layer.values.copy()))
    mean, std = found
    return mean, mean.square() + std.square()


def cut(pattern: Pattern) -> dict[str, Pattern]:
    """The mean pattern in each of `ARMS`."""
    n = pattern.shape[-1]
    own = torch.eye(n, dtype=pattern.dtype)
    ones = torch.ones(n - 1, dtype=pattern.dtype)
    one_before = torch.diag(ones, -1)
    named = own + one_before
    return {POSITIONS: pattern, LEMMA: pattern * named, OWN: pattern * own}


@measurement("autoregression/first layer", version=2, needs=(in_use,))
def first_layer(lab: Lab, parts: DataFrame) -> DataArray:
    """Predictions with other patterns in the first layer: (arm, number, point, unit).

    Numbers: "moved", the squared change of the prediction; "error", its squared error; both over
    the variance of the next state over prompts; and "share", the squared change over the variance
    of the model's own predictions. At each scored point, means over two prompts of a unit.
    """
    layer = first_layer_in_use(parts)
    prompts = lab.few
    first = lab.task.n_determining
    mean, _ = mean_pattern(lab, prompts, layer)
    truth = prompts.ys[:, first:]
    before = outputs(lab.model, lab, prompts)[:, first:]
    of_truth = _variance(truth)
    of_model = _variance(before)
    predicted = [before]
    for pattern in cut(mean).values():
        predicted.append(_predictions(lab, layer, pattern)[:, first:])
    # The rows of an arm are those of `NUMBERS`.
    rows = []
    for after in predicted:
        change = (after - before).square().sum(-1)
        error = (after - truth).square().sum(-1)
        shares = (change / of_truth, error / of_truth, change / of_model)
        rows.append([lab.by_unit(share, prompts).T for share in shares])
    points = tuple(range(first, prompts.n_points))
    axes = {
        "arm": (INTACT, *ARMS),
        "number": NUMBERS,
        "point": points,
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(rows, axes, note=f"{len(prompts)} prompts; layer {layer}; float64")


@measurement("autoregression/first pattern", version=2, needs=(in_use,))
def first_pattern(lab: Lab, parts: DataFrame) -> DataArray:
    """Where heads of the first layer look, from the second token on: (head, number).

    Numbers: "weight at the token before", the share of the squares of a head's mean weights that
    lies there; "alike in all prompts", the squares of the mean weights over the means of their
    squares, 1 where the pattern is made of positions alone.
    """
    layer = first_layer_in_use(parts)
    mean, square = mean_pattern(lab, lab.few, layer)
    mean = mean[:, 1:]
    # Row t - 1 is the query t, and column t - 1 the token before it.
    there = mean.diagonal(0, 1, 2).square().sum(-1)
    of_mean = mean.square().sum((1, 2))
    of_all = square[:, 1:].sum((1, 2))
    before = there / of_mean.clamp(min=TINY)
    alike = of_mean / of_all.clamp(min=TINY)
    values = torch.stack([before, alike], -1)
    heads = tuple(f"{layer}.{h}" for h in range(lab.model.cfg.n_heads))
    axes = {"head": heads, "number": (BEFORE, ALIKE)}
    return make_array(values.numpy(), axes)


def _variance(states: Float[Tensor, "batch point target"]) -> Float[Tensor, " point"]:
    """The variance over prompts, summed over coordinates; never 0, as it divides."""
    of_each = states.var(0, unbiased=False)
    return of_each.sum(-1).clamp(min=TINY)


def _predictions(lab: Lab, layer: int, pattern: Pattern) -> Float[Tensor, "batch point target"]:
    """Predictions of every point, with one pattern for all prompts in a layer.

    What the layer writes keeps its mean.
    """
    model = lab.model
    prompts = lab.few
    name = f"blocks.{layer}.hook_attn_out"
    put = PutMeanPattern(f"blocks.{layer}.attn.hook_pattern", pattern)
    tokens = lab.tokens(prompts)
    before = mean_activations(model, tokens, [name])[name]
    with intervene(model, put):
        after = mean_activations(model, tokens, [name])[name]
    with intervene(model, put, Shift(name, before - after)):
        return outputs(model, lab, prompts)


@dataclass(frozen=True)
class PutMeanPattern(Intervention):
    """Attend in all prompts by one pattern.

    Attributes:
        name: of the hook.
        pattern: `(head, query, key)`.
    """

    name: str
    pattern: Pattern

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One."""
        return [(self.name, lambda t, hook: self.pattern.to(t).expand_as(t))]
