"""Edits of attention: its patterns, its scores, and what heads write."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NoReturn, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, several, unknown
from icl_interp.interventions.base import (
    Head,
    Hook,
    Intervention,
    by_layer,
    mean_activations,
    merge,
    pairs_of,
    reference,
)
from icl_interp.interventions.put import PutActivations
from icl_interp.models.hooked import HookedModel
from icl_interp.models.scores import hardmax
from icl_interp.models.transformer import model_in


@dataclass(frozen=True)
class SwapPattern(Intervention):
    """Replace attention patterns by their hardmax or by uniform weights.

    The hardmax is one-hot at the largest weight.

    Uniform covers the keys a query sees. Hardmax takes the first of several keys that weigh the
    same, as `models.scores.hardmax` does. Assumes nothing about scores; values stay as they are.

    Attributes:
        to: "hardmax" or "uniform".
        heads: the (layer, head) pairs to swap; None for all.

    Raises:
        InputError: `to` is another word, or the model has no such head.

    A model whose patterns are one-hot already keeps its output:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> cfg = HookedTransformerConfig(n_layers=1, d_model=8, score_fn="hardmax", init_std=1.0)
    >>> model, tokens = HookedTransformer(cfg).eval(), torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, SwapPattern("hardmax")):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    to: Literal["hardmax", "uniform"]
    heads: tuple[Head, ...] | None = None

    def __post_init__(self) -> None:
        if self.heads is not None:
            object.__setattr__(self, "heads", pairs_of(self.heads))
        if self.to not in ("hardmax", "uniform"):
            raise unknown("pattern", self.to, ("hardmax", "uniform"))

    def hooks(self, model: HookedModel) -> list[Hook]:
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
                # Detached, because hardmax hands softmax's gradient back, for training: an edit
                # keeps its own, which is 0 almost everywhere.
                weights = hardmax(pattern.detach().masked_fill(~seen, -torch.inf))
            else:
                weights = seen.to(pattern) / seen.sum(-1, keepdim=True)
            return merge(pattern, 1, heads, weights)

        return [(name + "attn_scores", look), (name + "pattern", swap)]


@dataclass(frozen=True)
class PutPatterns(Intervention):
    """Attend as in other prompts: patterns that were kept replace the model's own.

    Values stay the prompt's own.

    Assumes that the other prompts have the same number of tokens, and that prompt i is to attend as
    the i-th of them. It is `PutActivations` of patterns, measured by layer.

    Source: Elhage et al. (2021), *A mathematical framework for transformer circuits*, which runs a
    model with the patterns forced that it had recorded.

    Attributes:
        patterns: by hook ("blocks.0.attn.hook_pattern"), `(batch, head, query, key)`.

    Raises:
        InputError: in a run of another number of prompts, or of prompts of another length.

    The prompts' own patterns change nothing:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 10).reshape(2, 5, 1)
    >>> before = model(tokens)
    >>> with intervene(model, PutPatterns.measure(model, tokens)):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    patterns: Mapping[str, Float[Tensor, "batch head query key"]]

    @classmethod
    def measure(
        cls,
        model: HookedModel,
        tokens: Float[Tensor, "batch token d_in"],
        layers: Sequence[int] | None = None,
    ) -> Self:
        """The patterns of these prompts, in all layers or those listed.

        Raises:
            InputError: the model has no such layer, or no attention.
        """
        layers = None if layers is None else several(layers, "layers")
        first_heads = None if layers is None else [(layer, 0) for layer in layers]
        chosen = by_layer(model_in(model), first_heads)
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in chosen]
        return cls(PutActivations.measure(model, tokens, names).values)

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One a layer."""
        return PutActivations(self.patterns).hooks(model)

    def at_query(self) -> NoReturn:
        """Refused: patterns cover all tokens of a prompt.

        Raises:
            InputError: always.
        """
        PutActivations(self.patterns).at_query()


@dataclass(frozen=True)
class Temperature(Intervention):
    """Divide attention scores by a temperature: above 1 flattens a softmax, below 1 sharpens it.

    A negative one turns the signs of the scores. A positive one does nothing to a hardmax. Hidden
    keys stay hidden. Dividing a head's W_Q and b_Q by the temperature does the same.

    Attributes:
        value: the temperature, finite and not 0.
        heads: the (layer, head) pairs whose scores are divided; None for all.

    Raises:
        InputError: the temperature is 0 or not finite, or the model has no such head.

    Uniform weights have no scores to divide:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens, uniform = torch.linspace(-1, 1, 5)[None, :, None], SwapPattern("uniform")
    >>> with intervene(model, uniform):
    ...     flat = model(tokens)
    >>> with intervene(model, Temperature(2.0), uniform):
    ...     torch.allclose(model(tokens), flat, atol=1e-5)
    True
    """

    value: float
    heads: tuple[Head, ...] | None = None

    def __post_init__(self) -> None:
        if self.heads is not None:
            object.__setattr__(self, "heads", pairs_of(self.heads))
        # Infinity would turn the -inf of hidden keys into NaN; its limit is SwapPattern("uniform").
        if self.value == 0 or not math.isfinite(self.value):
            raise InputError(f"a temperature must be finite and not 0, but got {self.value}")

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One at every layer's scores."""
        hooks: list[Hook] = []
        for layer, heads in by_layer(model, self.heads).items():
            hooks.append((f"blocks.{layer}.attn.hook_attn_scores", partial(self._divide, heads)))
        return hooks

    def _divide(self, heads: list[int], scores: Tensor, hook: object) -> Tensor:
        divided = scores / self.value
        # -inf over a negative number would show a hidden key.
        shown = divided.where(scores > -math.inf, scores)
        return merge(scores, 1, heads, shown)


@dataclass(frozen=True)
class AblateHeads(Intervention):
    """Replace what heads write by nothing ("zero") or by its mean over reference prompts ("mean").

    Mean ablation keeps what a head writes whatever the prompt, and removes only what it tells about
    the prompt. It assumes that the reference prompts are like those on which the model is to keep
    working, and as long.

    Source: Michel, Levy & Neubig (2019), *Are sixteen heads really better than one?*, for zero
    ablation of heads; Wang, Variengien, Conmy, Shlegeris & Steinhardt (2022), *Interpretability in
    the wild*, for mean ablation.

    Attributes:
        heads: the (layer, head) pairs to ablate.
        means: mean of `hook_z` by layer, `(token, head, d_head)`; empty for zero ablation.

    Raises:
        InputError: a head's layer was not measured, the model has no such head, or (in a run)
            prompts are longer than those the means were taken over.

    Without all heads of a layer, its bias b_O alone is left:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2)).eval()
    >>> with torch.no_grad():
    ...     b_O = model.blocks[0].attn.b_O.copy_(torch.arange(8.0))
    >>> with intervene(model, AblateHeads.zero((0, 0), (0, 1))):
    ...     _, cache = model.run_with_cache(torch.ones(3, 5, 1))
    >>> torch.allclose(cache["blocks.0.hook_attn_out"], b_O.expand(3, 5, 8))
    True
    """

    heads: tuple[Head, ...]
    means: Mapping[int, Float[Tensor, "token head d_head"]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", pairs_of(self.heads))
        for layer, _ in self.heads:
            if self.means and layer not in self.means:
                raise unknown("measured layer", layer, map(str, self.means))

    @classmethod
    def zero(cls, *heads: Head) -> Self:
        """Zero ablation."""
        return cls(heads, {})

    @classmethod
    def measure(
        cls, model: HookedModel, tokens: Float[Tensor, "batch token d_in"], *heads: Head
    ) -> Self:
        """Mean ablation, the mean taken over these prompts at each position.

        Raises:
            InputError: the model has no such head, or there is no prompt.
        """
        layers = list(by_layer(model_in(model), heads))
        names = [f"blocks.{layer}.attn.hook_z" for layer in layers]
        means = mean_activations(model, tokens, names)
        return cls(heads, dict(zip(layers, means.values(), strict=True)))

    def only(self, *heads: Head) -> Self:
        """The same reference for other heads of the layers measured.

        Raises:
            InputError: a head's layer was not measured.
        """
        return replace(self, heads=heads)

    def at_query(self) -> Self:
        """The last position's means only."""
        return replace(self, means={layer: mean[-1:] for layer, mean in self.means.items()})

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One at every layer's head outputs."""

        def ablate(layer: int, heads: list[int]) -> Callable[..., Tensor]:
            mean = self.means.get(layer)
            return lambda z, hook: merge(
                z, 2, heads, torch.zeros_like(z) if mean is None else reference(mean, z)
            )

        hooks: list[Hook] = []
        for layer, heads in by_layer(model, self.heads).items():
            hooks.append((f"blocks.{layer}.attn.hook_z", ablate(layer, heads)))
        return hooks
