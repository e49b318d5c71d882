"""How concentrated attention is: entropy, effective number of keys, largest weight, per head and position kind."""

from functools import partial
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.reductions import Moments
from icl_interp.results import Result, make_array

# Weights this close to the largest (relatively) tie with it.
TIE = 1e-6
_UNITS = {"entropy": "nats", "deficit": "nats", "effective_keys": "keys", "visible_keys": "keys"}


class PatternStatistics(NamedTuple):
    """How concentrated each row of an attention pattern is; every field is float64 `(*batch, query)`.

    With a row's weights a_j over the n keys it sees (hidden keys weigh 0):

    Attributes:
        entropy: H = -sum_j a_j log a_j, in nats.
        normalised_entropy: H / log n, from 0 to 1; NaN where n = 1. Never enough alone: it tends to 1 for any bounded
            scores as n grows, however uneven the weights stay.
        deficit: D = log n - H, in nats: the Kullback-Leibler divergence from uniform weights.
        effective_keys: exp(H), from 1 to n.
        max_weight: max_j a_j.
        delta: 1 - the weight on all keys that tie for the largest: the total variation distance to hardmax.
        visible_keys: n.

    Source: Shannon (1948) for H. The two ends that these tell apart, hardmax and uniform weights: Naim & Asher (2025),
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
    def of(cls, pattern: Float[Tensor, "*batch query key"], visible: Int[Tensor, "*batch query"]) -> Self:
        """The statistics of a pattern of which each query sees `visible` keys."""
        p, n = pattern.double(), visible.double()
        entropy = torch.special.entr(p).sum(-1)
        most = p.amax(-1)
        tied = p >= most[..., None] * (1 - TIE)
        delta = p.masked_fill(tied, 0.0).sum(-1)
        # One visible key: 0 / 0.
        return cls(entropy, entropy / n.log(), n.log() - entropy, entropy.exp(), most, delta, n)


class AttentionEntropy(Probe):
    """`PatternStatistics` of every head, over prompts and the queries of each position kind.

    A kind names the query: "x", "y", or "query" for the last one. Queries that see one key only (the first, if causal)
    are left out: their weights say nothing about a head. What is visible is counted from the scores (-inf: hidden), so
    causal, bidirectional and alternative last tokens are all served.

    Results, Matrix (layer, head, position, statistic) each, the statistics being "mean" and "std":
        entropy, normalised_entropy, deficit, effective_keys, max_weight, delta, visible_keys.
        All NaN for a kind whose queries see one key only.
    """

    name: ClassVar[str] = "attention_entropy"

    def refusal(self, model: HookedTransformer) -> str | None:
        """Models without attention, or whose attention weights are not a distribution."""
        if model.cfg.mlp_only:
            return "this model has no attention"
        if model.cfg.score_fn == "linear":
            return "linear scores are no distribution over keys (they can be negative), so they have no entropy"
        if not model.cfg.weights_add_up:
            return f"{model.cfg.score_fn} weights need not add up to 1, so they are no distribution and have no entropy"
        return None

    def hooks(self, model: HookedTransformer, positions: Positions) -> list[Hook]:
        """Two a layer: the scores, which tell what is visible, and the pattern."""
        self._positions = positions
        self._moments = [{kind: Moments() for kind in positions} for _ in range(model.cfg.n_layers)]
        self._heads = tuple(range(model.cfg.n_heads))
        self._visible: dict[int, Tensor] = {}
        hooks: list[Hook] = []
        for layer in range(model.cfg.n_layers):
            name = f"blocks.{layer}.attn.hook_"
            hooks.append((name + "attn_scores", partial(self._count, layer)))
            hooks.append((name + "pattern", partial(self._read, layer)))
        return hooks

    def _count(self, layer: int, scores: Float[Tensor, "batch head query key"], hook: object) -> None:
        self._visible[layer] = (scores > -torch.inf).sum(-1)

    def _read(self, layer: int, pattern: Float[Tensor, "batch head query key"], hook: object) -> None:
        visible = self._visible.pop(layer)
        quantities = torch.stack(PatternStatistics.of(pattern, visible), -1)
        for kind, places in self._positions.items():
            # (batch, head, query, quantity) -> (batch query, head, quantity)
            rows = quantities[:, :, list(places)].transpose(1, 2).flatten(0, 1)
            several = (rows[..., -1:] > 1).expand_as(rows)
            self._moments[layer][kind].update(rows, where=several)

    def results(self) -> dict[str, Result]:
        """One matrix a statistic."""
        # (layer, position, head, quantity, statistic)
        values = torch.stack([torch.stack([m.result for m in kinds.values()]) for kinds in self._moments]).cpu()
        axes = {
            "layer": tuple(range(len(self._moments))),
            "head": self._heads,
            "position": tuple(self._positions),
            "statistic": ("mean", "std"),
        }
        note = "over prompts and the queries of each kind that see more than one key"
        return {
            quantity: make_array(values[..., i, :].transpose(1, 2).numpy(), axes, _UNITS.get(quantity, ""), note)
            for i, quantity in enumerate(PatternStatistics._fields)
        }
