"""How concentrated attention is, on what it is largest, and its entropy in longer prompts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import edited
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.probes.by_kind import ByKind
from icl_interp.results import Result, make_array, make_arrays

# Weights this close to the largest (relatively) tie with it.
TIE = 1e-6
CACHED = 2**18  # weights at once
Pattern = Float[Tensor, "*batch key"]
PerRow = Float[Tensor, "*batch"]
PerHead = Float[Tensor, "batch head query key"]
_UNITS = {"entropy": "nats", "deficit": "nats", "effective_keys": "keys", "visible_keys": "keys"}


def entropy(pattern: Pattern) -> PerRow:
    """H = -sum_j a_j log a_j of each row of weights a, in nats.

    Hidden keys weigh 0 and count for nothing.

    Source: Shannon (1948), theorem 2.

    >>> round(float(entropy(torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]))), 4)  # log 4
    1.3863
    """
    # Twice as fast as torch.special.entr. A weight below the smallest normal number adds nothing
    # either way.
    smallest = torch.finfo(pattern.dtype).tiny
    positive = pattern.clamp(min=smallest)
    logs = positive.log()
    return -torch.linalg.vecdot(pattern, logs)


def entropy_deficit(pattern: Pattern, visible: PerRow | None = None) -> PerRow:
    """D = log n - H of each row over the n keys that it sees, in nats.

    A row sees all keys, unless `visible` says how many.

    D is the Kullback-Leibler divergence of the row from uniform weights: 0 for these, log n for a
    one-hot row.

    Source: Kullback & Leibler (1951), "On information and sufficiency".

    >>> bool(entropy_deficit(torch.full((8,), 0.125)).abs() < 1e-6)
    True
    """
    if visible is None:
        visible = torch.as_tensor(pattern.shape[-1], dtype=pattern.dtype)
    return visible.log() - entropy(pattern)


def scaled_to_one(pattern: Pattern) -> Pattern:
    """Weights of each row over their sum; NaN where one is below 0 or their sum is 0.

    Hidden keys weigh 0, so this is the sum over the visible ones.

    Source: normalises the weights of Sander et al. (2024), equation (2) with softmax scores.

    >>> scaled_to_one(torch.tensor([0.1, 0.3, 0.0])).tolist()
    [0.25, 0.75, 0.0]
    """
    total = pattern.sum(-1, keepdim=True)
    possible = (pattern >= 0).all(-1, keepdim=True) & (total > 0)
    return torch.where(possible, pattern / total, torch.nan)


def among(pattern: Pattern, keys: Sequence[int]) -> Float[Tensor, "*batch chosen"]:
    """The weights of each row on some keys, scaled to add up to 1.

    They are all 0 where these keys have no weight.

    >>> among(torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]]), [1, 2])
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    part = pattern[..., list(keys)]
    smallest = torch.finfo(part.dtype).tiny
    total = part.sum(-1, keepdim=True)
    return part / total.clamp(min=smallest)


def hardmax_distance(pattern: Pattern, visible: PerRow | None = None) -> PerRow:
    """delta = 1 - the weight on all keys that tie for the largest.

    It is the total variation distance to the hardmax.

    Where more than half of the n keys that a row sees tie, there is no largest but evenness: delta
    is 1. So a uniform row is as far from a hardmax as can be.

    >>> hardmax_distance(torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]]))
    tensor([0., 1.])
    """
    if visible is None:
        return _distance(pattern, pattern.amax(-1), pattern.shape[-1])
    return _distance(pattern, pattern.amax(-1), visible)


def _distance(pattern: Pattern, most: PerRow, visible: PerRow | int) -> PerRow:
    """`hardmax_distance` of rows whose largest weights are known."""
    bound = most[..., None] * (1 - TIE)
    below = _as_numbers(torch.lt, pattern, bound)
    n_tie = pattern.shape[-1] - below.sum(-1)
    even = n_tie > visible / 2
    distance = torch.linalg.vecdot(pattern, below)
    # A row with a NaN keeps it: nothing is larger than a NaN, and all of such a row would tie.
    return distance.masked_fill(even & ~most.isnan(), 1.0)


def _as_numbers(compare: Callable[..., Tensor], values: Pattern, bound: Tensor | float) -> Pattern:
    """A comparison as 0 and 1 in the dtype of the values, which is faster than a mask."""
    values = values.detach()
    if isinstance(bound, Tensor):
        bound = bound.detach()
    return compare(values, bound, out=torch.empty_like(values))


class PatternStatistics(NamedTuple):
    """How concentrated each row of an attention pattern is.

    Every field is `(*batch, query)`, in the pattern's dtype.

    With a row's weights a_j over the n keys it sees (hidden keys weigh 0):

    Attributes:
        entropy: H, `entropy`, in nats.
        normalised_entropy: H / log n, from 0 to 1; NaN where n = 1. Never enough alone: it tends to
            1 for any bounded scores as n grows, however uneven the weights stay.
        deficit: log n - H, `entropy_deficit`, in nats.
        effective_keys: exp(H), from 1 to n.
        max_weight: max_j a_j.
        delta: `hardmax_distance`.
        visible_keys: n.

    Source: the two ends that these tell apart, hardmax and uniform weights: Naim & Asher (2025),
    appendix G.2.

    >>> p = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    >>> s = PatternStatistics.of(p, torch.tensor([4]))
    >>> [round(float(v), 4) for v in s]
    [0.6931, 0.5, 0.6931, 2.0, 0.5, 0.0, 4.0]
    """

    entropy: Float[Tensor, "*batch query"]
    normalised_entropy: Float[Tensor, "*batch query"]
    deficit: Float[Tensor, "*batch query"]
    effective_keys: Float[Tensor, "*batch query"]
    max_weight: Float[Tensor, "*batch query"]
    delta: Float[Tensor, "*batch query"]
    visible_keys: Float[Tensor, "*batch query"]

    @classmethod
    def of(
        cls,
        pattern: Float[Tensor, "*batch query key"],
        visible: Int[Tensor, "*batch query"] | Float[Tensor, "*batch query"],
    ) -> Self:
        """The statistics of a pattern of which each query sees `visible` keys."""
        n = visible.to(pattern.dtype).expand(pattern.shape[:-1])
        h = entropy(pattern)
        most = pattern.amax(-1)
        delta = _distance(pattern, most, n)
        logs = n.log()
        # One visible key: 0 / 0.
        normalised = h / logs
        return cls(h, normalised, logs - h, h.exp(), most, delta, n)


class AttentionEntropy(Probe):
    """`PatternStatistics` of every head, over prompts and the queries of each position kind.

    A kind names the query: "x", "y", or "query" for the last one. Queries that see one key only
    (the first, if causal) are left out: their weights say nothing about a head. What is visible is
    counted from the scores (-inf: hidden), so causal, bidirectional and alternative last tokens are
    all served. Where an intervention puts weight on hidden keys, these count as visible.

    Of a model with `position_weights` the pattern is the softmax times P, a learned matrix of
    positions (Sander et al. (2024), equation (2)). Such weights need not add up to 1, so each
    query's are first divided by their sum over the keys that it sees. Entries of P below 0 make
    no distribution: they give NaN, and so does a sum of 0.

    Args:
        per_prompt: keep a value for each prompt instead of mean and standard deviation.
        keys: places of the keys that count; the weights on these are scaled to add up to 1
            (`among`). Default: all.

    Results:
        entropy, normalised_entropy, deficit, effective_keys, max_weight, delta, visible_keys:
            Matrix (layer, head, position, statistic) each, the statistics being "mean" and "std",
            or with `per_prompt` (layer, head, position, prompt). All NaN for a kind whose queries
            see one key only.

    Raises:
        InputError: a model without attention, or whose weights need not add up to 1 (raised by
            `probe` and `observe`).

    Attention without queries is even, so it has the largest entropy, log n:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> _ = torch.nn.init.zeros_(model.blocks[0].attn.W_Q)
    >>> results = probe(model, torch.randn(4, 6, 1), [AttentionEntropy()])
    >>> entropy = results["attention_entropy.entropy"]
    >>> entropy.sel(position="query", statistic="mean").values.round(4)  # log 6
    array([[1.7918, 1.7918]])
    """

    name: ClassVar[str] = "attention_entropy"

    def __init__(self, per_prompt: bool = False, keys: Sequence[int] | None = None) -> None:
        self.per_prompt = per_prompt
        self.keys = keys

    def refusal(self, model: HookedModel) -> str | None:
        """Models without attention, or whose attention weights are not a distribution."""
        return model.no_entropy

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """Two a layer: the scores, which tell what is visible, and the pattern."""
        self._model = model
        self._positions = positions
        self._kept: list[ByKind] = []
        self._heads = range(model.cfg.n_heads)
        self._visible: dict[int, Tensor] = {}
        hooks: list[Hook] = []
        for layer in range(model.cfg.n_layers):
            self._kept.append(ByKind(positions, self.per_prompt))
            name = f"blocks.{layer}.attn.hook_"
            hooks.append((name + "attn_scores", partial(self._count, layer)))
            hooks.append((name + "pattern", partial(self._read, layer)))
        return hooks

    def _count(self, layer: int, scores: PerHead, hook: object) -> None:
        counted = scores if self.keys is None else scores[..., list(self.keys)]
        n_visible = []
        for part in counted.split(_at_once(counted)):
            seen = _as_numbers(torch.gt, part, -torch.inf)
            n_visible.append(seen.sum(-1))
        self._visible[layer] = torch.cat(n_visible)

    def _read(self, layer: int, pattern: PerHead, hook: object) -> None:
        visible = self._visible.pop(layer)
        if self._model.cfg.position_weights:
            pattern = scaled_to_one(pattern)
        if self.keys is not None:
            pattern = among(pattern, self.keys)
        point = self._model.hook_dict[f"blocks.{layer}.attn.hook_pattern"]
        if edited(point):  # scores do not tell what such a pattern looks at
            looked_at = (pattern != 0).sum(-1)
            looked_at = looked_at.to(visible)
            visible = visible.maximum(looked_at)
        step = _at_once(pattern)
        quantities = []
        for rows, n_visible in zip(pattern.split(step), visible.split(step), strict=True):
            statistics = PatternStatistics.of(rows, n_visible)
            quantities.append(torch.stack(statistics, 1))
        rows = torch.cat(quantities).transpose(1, 3)  # (batch, query, head, quantity)
        sees_some = rows[..., -1:] > 1
        self._kept[layer].update(rows, where=sees_some)

    def results(self) -> dict[str, Result]:
        """One matrix a statistic."""
        # (layer, position, head, quantity, statistic)
        values = torch.stack([kept.result for kept in self._kept]).cpu()
        axes = {
            "layer": tuple(range(len(self._kept))),
            "head": self._heads,
            "position": tuple(self._positions),
            **self._kept[0].axis(),
        }
        note = "over the queries of each kind that see more than one key"
        parts = {}
        for i, quantity in enumerate(PatternStatistics._fields):
            of_quantity = values[..., i, :].transpose(1, 2)
            parts[quantity] = of_quantity.numpy()
        return {**make_arrays(parts, axes, _UNITS, note)}


TARGETS = ("itself", "the first token", "an x", "a y", "a pair")


def _at_once(pattern: PerHead) -> int:
    """The number of prompts whose weights stay in the processor's cache.

    Every statistic passes over the weights a few times.
    """
    n_weights = pattern[0].numel()
    return max(1, CACHED // max(1, n_weights))


class AttentionTargets(Probe):
    """How often a head's largest weight at the last token is on a token of each kind.

    It is about queries only: the kind "query" of whole prompts, and alternative last tokens.

    Args:
        kinds: what each token of the prompt shows, "x", "y" or "xy", as `Encoding.kinds` tells.

    Results:
        share: Matrix (layer, head, position, target). Targets are "itself", "the first token", "an
            x" (another than itself), "a y" and "a pair"; the first token is also an x or a pair. Of
            equal weights the first one counts.

    Raises:
        InputError: kinds that are none; a model without attention (raised by `probe` and
            `observe`); or in a run, prompts of another length.

    The last token attends to itself, to an x, to a y or to a pair, so these shares add up to 1:

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2))
    >>> tokens, kinds = torch.randn(8, 5, 1), ("x", "y", "x", "y", "x")
    >>> results = probe(model, tokens, [AttentionTargets(kinds)])
    >>> share = results["attention_targets.share"].sel(position="query")
    >>> share.sel(target=["itself", "an x", "a y", "a pair"]).sum("target").values
    array([[1., 1.]])
    """

    name: ClassVar[str] = "attention_targets"

    def __init__(self, kinds: Sequence[str]) -> None:
        if isinstance(kinds, str) or not all(isinstance(kind, str) for kind in kinds):
            raise InputError(
                "kinds must be a list of what each token shows ('x', 'y' or 'xy'), as "
                f"encoding.kinds(n_points) gives, but got {shown(kinds)}"
            )
        self.kinds = np.array(kinds)

    def refusal(self, model: HookedModel) -> str | None:
        """Models without attention."""
        return "this model has no attention" if model.cfg.mlp_only else None

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """The pattern of every layer."""
        self._positions = {}
        for kind, places in positions.items():
            if kind not in ("x", "y", "xy", "token"):
                self._positions[kind] = places
        self._kept: list[ByKind] = []
        self._heads = range(model.cfg.n_heads)
        hooks: list[Hook] = []
        for layer in range(model.cfg.n_layers):
            self._kept.append(ByKind(self._positions))
            hooks.append((f"blocks.{layer}.attn.hook_pattern", partial(self._read, layer)))
        return hooks

    def _read(self, layer: int, pattern: PerHead, hook: object) -> None:
        if pattern.shape[-1] != len(self.kinds):
            raise InputError(
                f"AttentionTargets was told what {len(self.kinds)} tokens show, but these prompts "
                f"have {pattern.shape[-1]}: pass encoding.kinds(n_points) of these prompts"
            )
        best = pattern.argmax(-1)

        def shows(kind: str) -> Tensor:
            of_kind = torch.from_numpy(self.kinds == kind)
            return of_kind.to(best.device)[best]

        itself = best == len(self.kinds) - 1
        first = best == 0
        other_x = shows("x") & ~itself
        targets = [itself, first, other_x, shows("y"), shows("xy")]  # as in TARGETS
        hits = torch.stack(targets, -1)
        self._kept[layer].update(hits.transpose(1, 2).double())

    def results(self) -> dict[str, Result]:
        """The shares."""
        of_layers = [kept.result[..., 0] for kept in self._kept]
        shares = torch.stack(of_layers).transpose(1, 2)
        axes = {
            "layer": tuple(range(len(self._kept))),
            "head": self._heads,
            "position": tuple(self._positions),
            "target": TARGETS,
        }
        return {"share": make_array(shares.cpu().numpy(), axes)}


def resampled_scores(
    scores: Float[Tensor, "*batch context key"],
    kinds: Sequence[str],
    n: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "*batch n"], tuple[str, ...]]:
    """Scores of a query over n keys: its own, and others drawn from several contexts.

    The contexts all belong to the same query.

    What a longer prompt would show, as far as the trained lengths tell: exact in the first layer,
    where the score of a key depends on its own token only, and a counterfactual deeper. Kinds of
    token keep their proportion.

    Args:
        scores: of the keys of each context at that query, the query's own key last.
        kinds: what each key shows, the query's own last.
        n: keys, the query's own included.
        generator: of the draws.

    Returns:
        The scores and the kind of each key, "own" first.

    >>> draws = torch.Generator().manual_seed(0)
    >>> s, kinds = resampled_scores(torch.tensor([[1.0, 2.0, 0.0]]), ("x", "y", "x"), 5, draws)
    >>> s.tolist(), kinds
    ([0.0, 1.0, 1.0, 2.0, 2.0], ('own', 'x', 'x', 'y', 'y'))
    """
    others = np.array(kinds[:-1])
    names, counts = np.unique(others, return_counts=True)
    # Kinds have the shares that they have in the contexts; what rounding leaves goes to the first.
    sizes = ((n - 1) * counts / counts.sum()).astype(int)
    sizes[0] += n - 1 - sizes.sum()
    parts = [scores[..., 0, -1:]]
    kind_of = ["own"]
    for kind, size in zip(names.tolist(), sizes.tolist(), strict=True):
        places = np.flatnonzero(others == kind)
        pool = scores[..., torch.from_numpy(places)].flatten(-2)
        drawn = torch.randint(pool.shape[-1], (size,), generator=generator)
        parts.append(pool[..., drawn])
        kind_of += [kind] * size
    return torch.cat(parts, -1), tuple(kind_of)
