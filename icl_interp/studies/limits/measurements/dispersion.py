"""How evenly heads spread their attention as the prompt grows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.scores import softmax
from icl_interp.probes.attention import AttentionEntropy, among, entropy_deficit, resampled_scores
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve

BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths
FEW_UNITS = 32  # for the curve of means over many keys, which take memory


def _lengths(lab: Lab) -> list[int]:
    """Points of the prompts that are shown: from 3 to the trained length."""
    n = lab.task.n_points
    return sorted({int(k) for k in np.geomspace(min(3, n), n, 7).round()})


def _two_contexts(lab: Lab) -> Prompts:
    """Two contexts of one function in each unit, so that what is due to the samples can be told."""
    return lab.prompts[
        (torch.arange(lab.n_units)[:, None] * lab.unit_size + torch.arange(2)).flatten()
    ]


def _direct(lab: Lab) -> list[Sweep]:
    """Patterns and outputs of heads at prompts of each length."""
    shown = _two_contexts(lab)
    names = [f"blocks.{i}.attn.hook_z" for i in range(lab.model.cfg.n_layers)]
    found = []
    for n_points in _lengths(lab):
        among = [None, *(keys for keys in _keys_by_kind(lab, n_points) if keys)]
        probes = [*(AttentionEntropy(keys=keys) for keys in among), Activations(names)]
        found.append(lab.ask(lab.inner, prompts=shown, n_points=n_points, probes=probes))
    return found


def _keys_by_kind(lab: Lab, n_points: int) -> list[list[int]]:
    """The tokens that show x, and those that show y; empty where no token is of this kind."""
    kinds = np.array(lab.encoding.kinds(n_points))
    return [np.flatnonzero(kinds == kind).tolist() for kind in ("x", "y")]


def _directly(lab: Lab, swept: Swept) -> np.ndarray:
    """(statistic, head), at prompts of one length."""
    *patterns, _ = swept.sweep.probes
    found = [one.results() for one in patterns]
    none = np.full(len(lab.heads), np.nan)

    def means(result: Mapping[str, Any], statistic: str) -> np.ndarray:
        return result[statistic].sel(statistic="mean").values.mean(-1).flatten()

    # Among all keys, then among those of each kind.
    rows = [means(found[0], "deficit"), means(found[0], "max_weight")]
    of_kinds = iter(found[1:])
    for keys in _keys_by_kind(lab, swept.sweep.n_points or lab.task.n_points):
        rows.append(means(next(of_kinds), "deficit") if keys else none)

    # Two contexts of a function stand together, where the sample has them.
    function = swept.prompts.function
    one_function = bool((function[::2] == function[1::2]).all())
    shares = []
    for z in swept.probe(Activations).recorded.values():
        z = z.transpose(1, 2).unflatten(0, (-1, 2))  # (function, context, head, query, d_head)
        within = z.var(1, unbiased=True).mean((0, 2, 3))
        total = z.flatten(0, 1).var(0).mean((1, 2))
        share = within / total.clamp(min=1e-300)
        shares.append(share if one_function else torch.full_like(total, torch.nan))
    return np.stack([*rows, torch.cat(shares).numpy()])


def _scores(lab: Lab) -> Sweep:
    """The scores of every head at in-distribution queries."""
    names = [f"blocks.{i}.attn.hook_attn_scores" for i in range(lab.model.cfg.n_layers)]
    return lab.ask(lab.inner, probes=[Activations(names)])


@measurement("heads/dispersion", version=2, asks=lambda lab: [*_direct(lab), _scores(lab)])
def dispersion(lab: Lab, swept: Sequence[Swept]) -> DataArray:
    """Entropy deficit log n - H and more, of every head at a query, as the prompt grows.

    The length is that of the prompt, in tokens. Measured directly for prompts of 3 points up to the
    trained length; beyond it by resampling the scores of that query at trained positions (exact in
    layer 0, where a key's score depends on its own token only; a counterfactual deeper).

    Statistics: deficit; max weight; deficit within x tokens and within y tokens; and the share of
    the head output's variance that is due to the samples, not the function (direct lengths only).
    The last one compares two contexts of one function, the first of each pair; it is NaN where the
    sample has one context of each function.
    """
    *direct, scores = swept
    n_points = _lengths(lab)
    lengths = [lab.encoding.n_tokens(k) for k in n_points]
    columns = [_directly(lab, one) for one in direct]
    seen = scores.probe(Activations)
    columns += [
        _resampled(lab, seen, factor * lengths[-1], FEW_UNITS).mean(-1) for factor in BEYOND
    ]
    lengths += [factor * lengths[-1] for factor in BEYOND]
    axes = {
        "statistic": (
            "deficit",
            "max weight",
            "deficit in x",
            "deficit in y",
            "variance from samples",
        ),
        "head": relevance.labels(lab),
        "n": tuple(lengths),
    }
    note = f"direct up to n = {lengths[len(n_points) - 1]} tokens, resampled scores beyond"
    return make_curve(np.stack(columns, -1), axes, note=note)


@measurement("heads/deficit", version=2, asks=_scores)
def deficit(lab: Lab, swept: Swept) -> DataArray:
    """Entropy deficit of heads by unit: at the trained length, at ten of them, in the limit.

    It is given at the trained length, at ten of them, and in the limit. Resampled from all keys
    that prompts of one function show to the same query; the functions of a pair are not mixed. The
    limit is exact for that law: with n keys drawn from a pool of N, log n - H tends to sum_i p_i
    log(p_i N), p the softmax over the pool. range is that of the scores: the deficit is at most
    min(range, range^2 / 8).
    """
    seen = swept.probe(Activations)
    trained, layers = lab.encoding.n_tokens(lab.task.n_points), []
    for scores in seen.recorded.values():
        pool = by_context(lab, scores)
        # No prompt shows the pooled scores, so no probe sees their pattern: the claim's softmax
        # (`needs_softmax`) does.
        now, limit = _deficit(pool).mean((2, 3)), _deficit(pool[..., :-1].flatten(-2)).mean(-1)
        lowest = pool.where(pool > -torch.inf, torch.inf).amin(-1)
        layers.append(torch.stack([now, limit, (pool.amax(-1) - lowest).mean((2, 3))]))
    parts = [
        *torch.cat(layers, -1).numpy(),
        _resampled(lab, seen, 10 * trained)[0].T,
    ]  # each (function, head)
    now, limit, extent, later = (
        part.reshape(lab.n_units, -1, part.shape[-1]).mean(1).T for part in parts
    )
    rows = [now, later, limit, extent]
    axes = {
        "n": ("trained", "10 x trained", "limit", "range"),
        "head": relevance.labels(lab),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(rows, axes)


def by_context(lab: Lab, scores: torch.Tensor) -> torch.Tensor:
    """Scores (batch, head, query, key) as (function, head, query, context, key)."""
    return scores.unflatten(0, (len(lab.prompts.function.unique()), -1)).permute(0, 2, 3, 1, 4)


def _resampled(lab: Lab, seen: Activations, n: int, n_units: int | None = None) -> np.ndarray:
    """(statistic, head, function) for n keys: the query's own, the rest drawn from trained ones.

    Trained ones are those that prompts of the same function show. Of the first units only, where
    their number is given.
    """
    per_unit = len(lab.prompts.function.unique()) // lab.n_units
    layers, most = [], None if n_units is None else n_units * per_unit
    for (
        scores
    ) in seen.recorded.values():  # layer by layer, with the same draws: many keys take memory
        draw = generator(lab.seed, "heads/resampled", n)
        more, kinds = resampled_scores(
            by_context(lab, scores)[:most], lab.encoding.kinds(lab.task.n_points), n, draw
        )
        pattern = softmax(more)
        within = [
            _deficit(more, pattern, np.flatnonzero(np.array(kinds) == kind).tolist())
            for kind in ("x", "y")
        ]
        blank = torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
        layers.append(
            torch.stack([_deficit(more, pattern), pattern.amax(-1), *within, blank]).mean(-1)
        )
    return torch.cat(layers, -1).permute(0, 2, 1).numpy()


def _deficit(
    scores: Tensor, pattern: Tensor | None = None, keys: list[int] | None = None
) -> Tensor:
    """Entropy deficit of the pattern of some scores among the keys seen, or some of these.

    It is NaN where no key is seen.
    """
    visible = scores > -torch.inf  # counted first: scores of many keys take memory
    seen = (visible if keys is None else visible[..., keys]).sum(-1)
    pattern = softmax(scores) if pattern is None else pattern
    if not seen.numel() or int(seen.min()) == 0:
        return torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
    return entropy_deficit(
        pattern if keys is None else among(pattern, keys), seen.to(pattern.dtype)
    )
