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
from icl_interp.probes.base import Probe
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve

BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths
FEW_UNITS = 32  # for the curve of means over many keys, which take memory
STATISTICS = ("deficit", "max weight", "deficit in x", "deficit in y", "variance from samples")


def _lengths(lab: Lab) -> list[int]:
    """Points of the prompts that are shown: from 3 to the trained length."""
    n = lab.task.n_points
    fewest = min(3, n)
    lengths = np.geomspace(fewest, n, 7).round()
    return sorted(set(lengths.astype(int).tolist()))


def _two_contexts(lab: Lab) -> Prompts:
    """Two contexts of one function in each unit, so that what is due to the samples can be told."""
    first = torch.arange(lab.n_units) * lab.unit_size
    rows = first[:, None] + torch.arange(2)
    return lab.prompts[rows.flatten()]


def _direct(lab: Lab) -> list[Sweep]:
    """Patterns and outputs of heads at prompts of each length."""
    shown = _two_contexts(lab)
    outputs = _hooks(lab, "hook_z")
    found = []
    for n_points in _lengths(lab):
        probes: list[Probe] = [AttentionEntropy()]
        for keys in _keys_by_kind(lab, n_points):
            if keys:
                probes.append(AttentionEntropy(keys=keys))
        probes.append(Activations(outputs))
        found.append(lab.ask(lab.inner, prompts=shown, n_points=n_points, probes=probes))
    return found


def _hooks(lab: Lab, name: str) -> list[str]:
    """A hook of attention in every layer."""
    n_layers = lab.model.cfg.n_layers
    return [f"blocks.{i}.attn.{name}" for i in range(n_layers)]


def _keys_by_kind(lab: Lab, n_points: int) -> list[list[int]]:
    """The tokens that show x, and those that show y; empty where no token is of this kind."""
    kinds = np.array(lab.encoding.kinds(n_points))
    xs = np.flatnonzero(kinds == "x")
    ys = np.flatnonzero(kinds == "y")
    return [xs.tolist(), ys.tolist()]


def _directly(lab: Lab, swept: Swept) -> np.ndarray:
    """(statistic, head), at prompts of one length."""
    *patterns, _ = swept.sweep.probes
    found = [one.results() for one in patterns]
    none = np.full(len(lab.heads), np.nan)

    def means(result: Mapping[str, Any], statistic: str) -> np.ndarray:
        over_prompts = result[statistic].sel(statistic="mean")
        return over_prompts.values.mean(-1).flatten()

    # Among all keys, then among those of each kind.
    among_all = found[0]
    rows = [means(among_all, "deficit"), means(among_all, "max_weight")]
    of_kinds = iter(found[1:])
    n_points = swept.sweep.n_points or lab.task.n_points
    for keys in _keys_by_kind(lab, n_points):
        row = none
        if keys:
            row = means(next(of_kinds), "deficit")
        rows.append(row)

    # Two contexts of a function stand together, where the sample has them.
    function = swept.prompts.function
    one_function = bool((function[::2] == function[1::2]).all())
    shares = []
    outputs = swept.probe(Activations)
    for z in outputs.recorded.values():
        z = z.transpose(1, 2).unflatten(0, (-1, 2))  # (function, context, head, query, d_head)
        within = z.var(1, unbiased=True).mean((0, 2, 3))
        total = z.flatten(0, 1).var(0).mean((1, 2))
        share = within / total.clamp(min=1e-300)
        if not one_function:
            share = torch.full_like(total, torch.nan)
        shares.append(share)
    of_samples = torch.cat(shares).numpy()
    return np.stack([*rows, of_samples])


def _scores(lab: Lab) -> Sweep:
    """The scores of every head at in-distribution queries."""
    scores = Activations(_hooks(lab, "hook_attn_scores"))
    return lab.ask(lab.inner, probes=[scores])


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
    columns = [_directly(lab, one) for one in direct]
    lengths = [lab.encoding.n_tokens(k) for k in _lengths(lab)]
    trained = lengths[-1]
    seen = scores.probe(Activations)
    for factor in BEYOND:
        n = factor * trained
        resampled = _resampled(lab, seen, n, FEW_UNITS)
        columns.append(resampled.mean(-1))
        lengths.append(n)
    heads = relevance.labels(lab)
    axes = {"statistic": STATISTICS, "head": heads, "n": tuple(lengths)}
    note = f"direct up to n = {trained} tokens, resampled scores beyond"
    return make_curve(np.stack(columns, -1), axes, note=note)


@measurement("heads/deficit", version=2, asks=_scores)
def deficit(lab: Lab, swept: Swept) -> DataArray:
    """Entropy deficit of heads by unit: at the trained length, at ten of them, in the limit.

    Scores are resampled from all keys that prompts of one function show to the same query. The
    functions of a pair are not mixed. The limit is exact for that law: with n keys drawn from a
    pool of N, log n - H tends to sum_i p_i log(p_i N), where p is the softmax over the pool and H
    the entropy of the pattern. "range" is that of the scores: the deficit is at most
    min(range, range^2 / 8).
    """
    seen = swept.probe(Activations)
    layers = []
    for scores in seen.recorded.values():
        pool = by_context(lab, scores)
        # No prompt shows the pooled scores, so no probe sees their pattern: the claim's softmax
        # (`needs_softmax`) does.
        now = _deficit(pool).mean((2, 3))
        of_others = pool[..., :-1].flatten(-2)
        limit = _deficit(of_others).mean(-1)
        seen_only = pool.where(pool > -torch.inf, torch.inf)
        extent = pool.amax(-1) - seen_only.amin(-1)
        layers.append(torch.stack([now, limit, extent.mean((2, 3))]))
    trained = lab.encoding.n_tokens(lab.task.n_points)
    later = _resampled(lab, seen, 10 * trained)
    now, limit, extent = torch.cat(layers, -1).numpy()
    # From (function, head) to (head, unit).
    rows = []
    for part in (now, later[0].T, limit, extent):
        by_unit = part.reshape(lab.n_units, -1, part.shape[-1])
        rows.append(by_unit.mean(1).T)
    lengths = ("trained", "10 x trained", "limit", "range")
    heads = relevance.labels(lab)
    units = tuple(range(lab.n_units))
    return make_array(rows, {"n": lengths, "head": heads, "unit": units})


def by_context(lab: Lab, scores: torch.Tensor) -> torch.Tensor:
    """Scores (batch, head, query, key) as (function, head, query, context, key)."""
    by_function = scores.unflatten(0, (_n_functions(lab), -1))
    return by_function.permute(0, 2, 3, 1, 4)


def _n_functions(lab: Lab) -> int:
    functions = lab.prompts.function.unique()
    return len(functions)


def _resampled(lab: Lab, seen: Activations, n: int, n_units: int | None = None) -> np.ndarray:
    """(statistic, head, function) for n keys: the query's own, the rest drawn from trained ones.

    Trained ones are those that prompts of the same function show. Of the first units only, where
    their number is given.
    """
    per_unit = _n_functions(lab) // lab.n_units
    most = None if n_units is None else n_units * per_unit
    shown_kinds = lab.encoding.kinds(lab.task.n_points)
    layers = []
    # Layer by layer, with the same draws: many keys take memory.
    for scores in seen.recorded.values():
        draw = generator(lab.seed, "heads/resampled", n)
        pool = by_context(lab, scores)[:most]
        more, kinds = resampled_scores(pool, shown_kinds, n, draw)
        pattern = softmax(more)
        rows = []
        for kind in ("x", "y"):
            keys = np.flatnonzero(np.array(kinds) == kind)
            rows.append(_deficit(more, pattern, keys.tolist()))
        deficit_of_all = _deficit(more, pattern)
        blank = torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
        statistics = torch.stack([deficit_of_all, pattern.amax(-1), *rows, blank])
        layers.append(statistics.mean(-1))
    return torch.cat(layers, -1).permute(0, 2, 1).numpy()


def _deficit(
    scores: Tensor, pattern: Tensor | None = None, keys: list[int] | None = None
) -> Tensor:
    """Entropy deficit of the pattern of some scores among the keys seen, or some of these.

    It is NaN where no key is seen.
    """
    visible = scores > -torch.inf  # counted first: scores of many keys take memory
    if keys is not None:
        visible = visible[..., keys]
    seen = visible.sum(-1)
    if pattern is None:
        pattern = softmax(scores)
    if not seen.numel() or int(seen.min()) == 0:
        return torch.full(pattern.shape[:-1], torch.nan, dtype=pattern.dtype)
    if keys is not None:
        pattern = among(pattern, keys)
    return entropy_deficit(pattern, seen.to(pattern.dtype))
