"""What the first layer of a model puts beside each state: whether it makes the augmented tokens (0, s_t, s_{t-1}).

Lemma 1 makes them with attention that sees positions only: one head looks at its own token, one at the token before. So
the patterns of the first layer are replaced by their means over prompts, which no prompt tells anything, and these are
cut to the two tokens of the lemma, or to the own token alone. All heads are cut in the same way, so that it does not
matter how the layer's work is shared among heads.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import PutPatterns
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.probes.pattern import AttentionPattern
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.maps import TINY, needs_paths

FIRST = "blocks.0.attn.hook_pattern"
POSITIONS, LEMMA, OWN = "by position", "by position, own token and the one before", "by position, own token alone"
ARMS = (POSITIONS, LEMMA, OWN)
INTACT = "as it is"
BEFORE, ALIKE = "weight at the token before", "alike in all prompts"
Pattern = Float[Tensor, "head query key"]


def needs_layers_on_states(facts: Facts) -> str | None:
    """Why no first layer has anything to make augmented tokens of, or for."""
    if reason := needs_paths(facts):
        return reason
    if facts.encoding != "states":
        return f"The claim is about plain states, which the first layer may augment; these are {facts.encoding} already"
    if facts.config.n_layers < 2:
        return "The claim is about a first layer that others follow; this model has one layer"
    if facts.config.attention_dir != "causal":
        return "The claim is about causal attention, since else the token after a state shows what is to be predicted"
    return None


def mean_pattern(lab: Lab, prompts: Prompts) -> tuple[Pattern, Pattern]:
    """The first layer's pattern: its mean over prompts, and the mean of its square."""
    results = probe(lab.model, prompts, [AttentionPattern()], lab.encoding)
    mean, std = (
        torch.from_numpy(results[f"attention_pattern.{name}"].sel(layer=0).values.copy()) for name in ("weight", "std")
    )
    return mean, mean.square() + std.square()


def cut(pattern: Pattern) -> dict[str, Pattern]:
    """The mean pattern in each of `ARMS`."""
    n = pattern.shape[-1]
    own, one_before = torch.eye(n, dtype=pattern.dtype), torch.diag(torch.ones(n - 1, dtype=pattern.dtype), -1)
    return {POSITIONS: pattern, LEMMA: pattern * (own + one_before), OWN: pattern * own}


@measurement("autoregression/first layer")
def first_layer(lab: Lab) -> DataArray:
    """What becomes of predictions with other patterns in the first layer: (arm, number, unit).

    Numbers: "moved", the squared change of the prediction; "error", its squared error. Both over the variance of the
    next state over prompts, means over the scored points of two prompts of a unit.
    """
    prompts, first = lab.few, lab.task.n_determining
    mean, _ = mean_pattern(lab, prompts)
    truth = prompts.ys[:, first:]
    size = max(float(truth.var(0, unbiased=False).sum(-1).mean()), TINY)
    before = _predictions(lab, prompts, None)[:, first:]
    rows = []
    for pattern in (None, *cut(mean).values()):
        after = before if pattern is None else _predictions(lab, prompts, pattern)[:, first:]
        numbers = [(after - before), (after - truth)]
        rows.append([lab.by_unit(number.square().sum(-1).mean(-1) / size, prompts) for number in numbers])
    axes = {"arm": (INTACT, *ARMS), "number": ("moved", "error"), "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"{len(prompts)} prompts, points {first + 1} to {prompts.n_points}; float64")


@measurement("autoregression/first pattern")
def first_pattern(lab: Lab) -> DataArray:
    """Where heads of the first layer look, from the second token on: (head, number).

    Numbers: "weight at the token before", the share of the squares of a head's mean weights that lies there; "alike in
    all prompts", the squares of the mean weights over the means of their squares, 1 where the pattern is made of
    positions alone.
    """
    mean, square = (part[:, 1:] for part in mean_pattern(lab, lab.few))
    there = mean.diagonal(0, 1, 2).square().sum(-1)  # row t - 1 is the query t, column t - 1 the token before it
    of_mean, of_all = mean.square().sum((1, 2)), square.sum((1, 2))
    values = torch.stack([there / of_mean.clamp(min=TINY), of_mean / of_all.clamp(min=TINY)], -1)
    axes = {"head": tuple(f"0.{h}" for h in range(lab.model.cfg.n_heads)), "number": (BEFORE, ALIKE)}
    return make_array(values.numpy(), axes)


def _predictions(lab: Lab, prompts: Prompts, pattern: Pattern | None) -> Float[Tensor, "batch point target"]:
    """Of every point, with a pattern in the first layer that is the same for all prompts."""
    parts = []
    for rows in lab.chunks(prompts):
        tokens = lab.tokens(prompts[rows])
        edits: list[Intervention] = []
        if pattern is not None:
            edits = [PutPatterns({FIRST: pattern.to(tokens).expand(len(tokens), -1, -1, -1)})]
        with torch.no_grad(), intervene(lab.model, *edits):
            parts.append(lab.model(tokens).cpu())
    return torch.cat(parts)
