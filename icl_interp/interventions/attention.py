"""Edits of attention: its patterns, its scores, and what heads write."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, unknown
from icl_interp.interventions.base import Head, Hook, Intervention, by_layer, mean_activations, merge, reference
from icl_interp.models.transformer import HookedTransformer


@dataclass(frozen=True)
class SwapPattern(Intervention):
    """Replace attention patterns by their hardmax (one-hot at the largest weight) or by uniform weights.

    Uniform covers the keys a query sees. Assumes nothing about scores; values stay as they are.

    Attributes:
        to: "hardmax" or "uniform".
        heads: the (layer, head) pairs to swap; None for all.
    """

    to: Literal["hardmax", "uniform"]
    heads: tuple[Head, ...] | None = None

    def __post_init__(self) -> None:
        if self.to not in ("hardmax", "uniform"):
            raise unknown("pattern", self.to, ("hardmax", "uniform"))

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """Two a layer: the scores, which tell what is visible, and the pattern."""
        hooks: list[Hook] = []
        for layer, heads in by_layer(model, self.heads).items():
            hooks += self._swap(f"blocks.{layer}.attn.hook_", heads)
        return hooks

    def _swap(self, name: str, heads: list[int]) -> list[Hook]:
        visible: list[Tensor] = []

        def look(scores: Tensor, hook: object) -> None:
            visible[:] = [scores > -torch.inf]

        def swap(pattern: Tensor, hook: object) -> Tensor:
            seen = visible[0]
            if self.to == "hardmax":
                # Linear weights can be negative, and hidden keys weigh 0: they must not win.
                weights = _one_hot(pattern.masked_fill(~seen, -torch.inf))
            else:
                weights = seen.to(pattern) / seen.sum(-1, keepdim=True)
            return merge(pattern, 1, heads, weights)

        return [(name + "attn_scores", look), (name + "pattern", swap)]


@dataclass(frozen=True)
class PutPatterns(Intervention):
    """Attend as in other prompts: patterns that were kept replace the model's own. Values stay the prompt's own.

    Assumes that the other prompts have the same number of tokens, and that prompt i is to attend as the i-th of them.

    Attributes:
        patterns: by hook.
    """

    patterns: Mapping[str, Float[Tensor, "batch head query key"]]

    @classmethod
    def measure(
        cls, model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"], layers: Sequence[int] | None = None
    ) -> Self:
        """The patterns of these prompts, in all layers or those listed."""
        chosen = list(by_layer(model, None) if layers is None else by_layer(model, [(layer, 0) for layer in layers]))
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in chosen]
        with torch.no_grad():
            _, cache = model.run_with_cache(tokens, names_filter=names)
        return cls({name: cache[name] for name in names})

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One a layer."""

        def put(kept: Tensor) -> Callable[..., Tensor]:
            def edit(pattern: Tensor, hook: object) -> Tensor:
                if kept.shape != pattern.shape:
                    raise InputError(
                        f"patterns of shape {tuple(kept.shape)} (batch, head, query, key) cannot replace those of "
                        f"shape {tuple(pattern.shape)}: measure them on as many prompts of the same length"
                    )
                return kept.to(pattern)

            return edit

        return [(name, put(kept)) for name, kept in self.patterns.items()]


@dataclass(frozen=True)
class Temperature(Intervention):
    """Divide attention scores by a temperature: above 1 flattens a softmax, below 1 sharpens it.

    Does nothing to a hardmax. Hidden keys stay hidden.
    """

    value: float
    heads: tuple[Head, ...] | None = None

    def __post_init__(self) -> None:
        # Infinity would turn the -inf of hidden keys into NaN; its limit is SwapPattern("uniform").
        if not 0 < self.value < math.inf:
            raise InputError(f"a temperature must be positive and finite, but got {self.value}")

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One at every layer's scores."""
        return [
            (f"blocks.{layer}.attn.hook_attn_scores", lambda s, hook, h=heads: merge(s, 1, h, s / self.value))
            for layer, heads in by_layer(model, self.heads).items()
        ]


@dataclass(frozen=True)
class AblateHeads(Intervention):
    """Replace what heads write by nothing ("zero") or by its mean over reference prompts ("mean").

    Mean ablation keeps what a head writes whatever the prompt, and removes only what it tells about the prompt.

    Attributes:
        heads: the (layer, head) pairs to ablate.
        means: mean of `hook_z` by layer, `(token, head, d_head)`; empty for zero ablation.
    """

    heads: tuple[Head, ...]
    means: Mapping[int, Float[Tensor, "token head d_head"]]

    def __post_init__(self) -> None:
        for layer, _ in self.heads:
            if self.means and layer not in self.means:
                raise unknown("measured layer", layer, map(str, self.means))

    @classmethod
    def zero(cls, *heads: Head) -> Self:
        """Zero ablation."""
        return cls(heads, {})

    @classmethod
    def measure(cls, model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"], *heads: Head) -> Self:
        """Mean ablation, the mean taken over these prompts at each position."""
        layers = list(by_layer(model, heads))
        means = mean_activations(model, tokens, [f"blocks.{layer}.attn.hook_z" for layer in layers])
        return cls(heads, dict(zip(layers, means.values(), strict=True)))

    def only(self, *heads: Head) -> Self:
        """The same reference for other heads of the layers measured."""
        return replace(self, heads=heads)

    def at_query(self) -> Self:
        """The last position's means only."""
        return replace(self, means={layer: mean[-1:] for layer, mean in self.means.items()})

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One at every layer's head outputs."""

        def ablate(layer: int, heads: list[int]) -> Callable[..., Tensor]:
            mean = self.means.get(layer)
            return lambda z, hook: merge(z, 2, heads, torch.zeros_like(z) if mean is None else reference(mean, z))

        return [
            (f"blocks.{layer}.attn.hook_z", ablate(layer, heads))
            for layer, heads in by_layer(model, self.heads).items()
        ]


def _one_hot(pattern: Tensor) -> Tensor:
    return torch.zeros_like(pattern).scatter_(-1, pattern.argmax(-1, keepdim=True), 1.0)
