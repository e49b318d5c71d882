"""How far heads put their attention on one token, in distribution and as the query grows."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.probes.attention import TARGETS, TIE, AttentionEntropy, AttentionTargets
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.measurements import between, far

CONCENTRATED = 0.05  # delta up to which a pattern counts as its hardmax (total variation distance)
FAR_CONDITIONS = (-1e5, -1e4, 1e4, 1e5)  # queries, in units of `Lab.x_unit`
DRAWN = ("drawn, x < 0", "drawn, x > 0")  # places drawn from 1e4 to 1e5, one for each pair of units
LATER = ("later, x < 0", "later, x > 0")
# Factor on the increment of a score gap, from one decade to the next, above which it still grows.
GROWS = 10**0.2
ROUNDING = 1e-9  # increments of score gaps that are none


def _near_and_far(lab: Lab) -> dict[str, Sweep]:
    """Patterns of all heads in distribution, far out and at drawn places; score gaps far out."""
    queries = _far_queries(lab)
    before = 1e3 * lab.x_unit
    sizes = _drawn_sizes(lab)
    places = lab.drawn(lab.prompts, sizes)
    near = AttentionEntropy(per_prompt=True)
    out = AttentionEntropy(per_prompt=True)
    drawn = AttentionEntropy(per_prompt=True)
    n_layers = lab.model.cfg.n_layers
    scores = [f"blocks.{i}.attn.hook_attn_scores" for i in range(n_layers)]
    gaps = Activations(scores, keep=score_gap)
    return {
        "near": lab.ask(probes=[near]),
        "far": lab.ask(queries, probes=[out]),
        "drawn": lab.ask_at(places, probes=[drawn]),
        "gaps": lab.ask([-before, before, *queries], probes=[gaps]),
    }


def _far_queries(lab: Lab) -> list[float]:
    """The queries of `FAR_CONDITIONS`."""
    return [lab.x_unit * x for x in FAR_CONDITIONS]


@measurement("heads/concentration", version=3, asks=_near_and_far)
def concentration(lab: Lab, swept: Mapping[str, Swept]) -> DataArray:
    """Share of each unit's contexts in which a head's pattern at the last query is concentrated.

    Conditions: in distribution; each far query; a drawn one for each sign, from 1e4 to 1e5 and
    along the ray of the unit (`Bench.rays`); and "later" for each sign: the context is concentrated
    at 1e5, or the gap between its largest score and the next one still grows there. The pattern
    then turns into a hardmax at some larger |x|: where the gap reaches log 19 (n - 1), with n keys,
    delta is at most 0.05. "prompts" holds the number of prompts in a unit.
    """
    deltas = []
    for place in ("near", "far", "drawn"):
        probe = swept[place].probe(AttentionEntropy)
        found = probe.results()
        deltas.append(found["delta"].values)  # (layer, head, condition, prompt)
    now = np.concatenate(deltas, 2) <= CONCENTRATED

    # Conditions 1 and 4 are the queries at -1e5 and 1e5.
    at_ends = now[:, :, [1, 4]]
    gaps = swept["gaps"].probe(Activations)
    grows = [_grows(recorded) for recorded in gaps.recorded.values()]
    later = at_ends | np.stack(grows)
    hits = np.concatenate([now, later], 2)

    # From (layer, head, condition, prompt) to (head, condition, unit).
    prompts_first = torch.from_numpy(hits).double().movedim(-1, 0)
    shares = lab.by_unit(prompts_first)
    values = np.moveaxis(shares, 0, -1)
    n_heads = len(lab.heads)
    values = values.reshape(n_heads, -1, lab.n_units)
    sizes = np.full_like(values[:, :1], lab.unit_size)
    values = np.concatenate([values, sizes], 1)
    queries = _far_queries(lab)
    heads = relevance.labels(lab)
    conditions = ("in distribution", *queries, *DRAWN, *LATER, "prompts")
    units = tuple(range(lab.n_units))
    axes = {"head": heads, "condition": conditions, "unit": units}
    return make_array(values, axes, note=f"delta <= {CONCENTRATED}")


def _drawn_sizes(lab: Lab) -> Float[np.ndarray, "unit place"]:
    """A size from 1e4 to 1e5 units in each direction, log-uniform.

    It lies in either half decade equally often.
    """
    units = np.arange(lab.n_units)
    half_decade = units // 2 % 2  # units of a pair share a place
    sizes = []
    for sign in (-1, 1):
        places = between.stratum(1e4, 1e5, sign)
        sizes.append(lab.drawn_sizes[units, places[half_decade]])
    return np.stack(sizes, 1)


def score_gap(scores: Float[torch.Tensor, "*batch key"]) -> Float[torch.Tensor, "*batch"]:
    """How far the largest score lies above the largest one that does not tie with it.

    It is 0 where all scores tie.

    >>> score_gap(torch.tensor([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]]))
    tensor([2., 0.])
    """
    top = scores.amax(-1, keepdim=True)
    ties = scores >= top - TIE
    below = scores.masked_fill(ties, -torch.inf).amax(-1)
    gap = top[..., 0] - below
    return torch.where(below.isinf(), 0.0, gap)


def _grows(gaps: Float[torch.Tensor, "batch head query"]) -> Bool[np.ndarray, "head sign batch"]:
    """Whether score gaps at 1e3, 1e4 and 1e5 grow without an end, for both signs.

    The queries of `gaps` are -1e3, 1e3, -1e5, -1e4, 1e4, 1e5. A gap that nears a limit has
    increments that shrink from one decade to the next.
    """
    outwards = gaps[..., [[0, 3, 2], [1, 4, 5]]]  # (batch, head, sign, size)
    decades = outwards.diff(dim=-1)
    earlier, last = decades.unbind(-1)
    least = GROWS * earlier.abs()
    is_rise = last > ROUNDING
    grows = is_rise & (last >= least)
    return grows.permute(1, 2, 0).numpy()


def _as_query_grows(lab: Lab) -> Sweep:
    """Patterns of all heads, and what they attend to."""
    xs = lab.x_unit * np.sort(far.DECADES)
    targets = AttentionTargets(lab.encoding.kinds(lab.task.n_points))
    return lab.ask(xs, probes=[AttentionEntropy(), targets])


@measurement("heads/delta", asks=_as_query_grows)
def delta(lab: Lab, swept: Swept) -> DataArray:
    """Mean delta of every head as the query grows, and what it attends to most."""
    xs = lab.x_unit * np.sort(far.DECADES)
    entropy = swept.probe(AttentionEntropy).results()
    targets = swept.probe(AttentionTargets).results()
    mean = entropy["delta"].sel(statistic="mean").values
    shares = np.moveaxis(targets["share"].values, -1, 0)
    statistics = ("delta", *TARGETS)
    heads = relevance.labels(lab)
    values = np.concatenate([mean[None], shares])
    values = values.reshape(len(statistics), len(heads), len(xs))
    axes = {"statistic": statistics, "head": heads, "x": tuple(xs)}
    return make_curve(values, axes)


def _swapped(lab: Lab) -> dict[str, Sweep]:
    """f near and far, as it is and with every head's pattern swapped."""
    far_out = 1e4 * lab.x_unit
    xs = [*lab.inner, -far_out, far_out]
    hardmax = SwapPattern("hardmax")
    uniform = SwapPattern("uniform")
    flattened = Temperature(1e6)
    return {
        "intact": lab.ask(xs),
        "one-hot": lab.ask(xs, query=[hardmax]),
        "uniform": lab.ask(xs, query=[uniform]),
        "flattened": lab.ask(xs, query=[flattened]),
    }


@measurement("heads/far swap", asks=_swapped)
def far_swap(lab: Lab, arms: Mapping[str, Swept]) -> DataArray:
    """Squared change of f with every pattern at the query swapped; "intact": f's own square.

    Of vectors the squared lengths, because u, the unit that they are measured in, is the root of
    summed variances.
    """
    intact = arms["intact"]
    values = []
    for name, arm in arms.items():
        change = arm.f
        if name != "intact":
            change = change - intact.f
        square = change.square().sum(-1)
        values.append(lab.by_unit(square))
    units = tuple(range(lab.n_units))
    xs = tuple(intact.xs)
    axes = {"arm": tuple(arms), "unit": units, "x": xs}
    return make_curve(values, axes, note="swapped at the query only; the context is read as it is")
