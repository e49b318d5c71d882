"""Edits of a running model: small, composable, and gone when the `with` block ends.

An intervention is a list of functions at hook points. `intervene` attaches several in the order given (each sees what
the one before left) and detaches them at the end, also after an exception. Each says what it assumes.

Several read a reference first, such as a norm's mean scale on in-distribution prompts: `X.measure(model, tokens)`.
References are kept by position; `.at_query()` keeps the last position's only, which is what alternative last tokens
(`HookedTransformer.after`) need.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, unknown
from icl_interp.models.hooks import check_names
from icl_interp.models.transformer import HookedTransformer

Hook = tuple[str, Callable[..., Tensor | None]]
Head = tuple[int, int]  # (layer, head)


# Called with the model and the interventions before these are attached; what it returns ends after they are gone.
OBSERVERS: list[Callable[[HookedTransformer, Sequence["Intervention"]], AbstractContextManager[None]]] = []


class Intervention(ABC):
    """Something that can be attached to a model."""

    @abstractmethod
    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """Functions and the hook points they go to."""


@contextmanager
def intervene(model: HookedTransformer, *interventions: Intervention) -> Iterator[HookedTransformer]:
    """Run a model under interventions.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)).eval()
    >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, SwapPattern("uniform")):
    ...     inside = model(tokens)
    >>> torch.equal(inside, before), torch.equal(model(tokens), before)
    (False, True)
    """
    hooks = [hook for intervention in interventions for hook in intervention.hooks(model)]
    check_names([name for name, _ in hooks], model.hook_dict)
    with ExitStack() as stack:
        for observe in OBSERVERS:
            stack.enter_context(observe(model, interventions))
        stack.enter_context(model.hooks(fwd_hooks=hooks))
        yield model


@dataclass(frozen=True)
class FreezeNorms(Intervention):
    """Divide by fixed scales instead of the input's own: the norm becomes an affine map.

    Assumes that the scales are those of inputs on which the model is to keep working: the in-distribution ones.

    Attributes:
        scales: for each norm, the scale at each position, `(token, 1)`.
    """

    scales: Mapping[str, Float[Tensor, "token 1"]]

    @classmethod
    def measure(
        cls, model: HookedTransformer, tokens: Float[Tensor, "batch token d_in"], norms: Sequence[str] | None = None
    ) -> Self:
        """Scales at their mean over prompts, for all norms or those named ("blocks.0.ln1", ..., "ln_final")."""
        for name in norms or ():
            if name not in model.norms:
                raise unknown("norm", name, model.norms)
        wanted = list(norms or model.norms)
        if not wanted:
            raise InputError(f"{model.cfg.no_scale} to freeze")
        with torch.no_grad():
            _, cache = model.run_with_cache(tokens, names_filter=[f"{name}.hook_scale" for name in wanted])
        return cls({name: cache[f"{name}.hook_scale"].mean(0) for name in wanted})

    def at_query(self) -> Self:
        """The last position's scales only."""
        return replace(self, scales={name: scale[-1:] for name, scale in self.scales.items()})

    def only(self, *norms: str) -> Self:
        """Some of the norms measured only."""
        for name in norms:
            if name not in self.scales:
                raise unknown("measured norm", name, self.scales)
        return replace(self, scales={name: self.scales[name] for name in norms})

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One at every norm's scale."""

        def freeze(scale: Tensor) -> Callable[..., Tensor]:
            return lambda t, hook: _reference(scale, t)

        return [(f"{name}.hook_scale", freeze(scale)) for name, scale in self.scales.items()]


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
        for layer, heads in _by_layer(model, self.heads).items():
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
            return _merge(pattern, 1, heads, weights)

        return [(name + "attn_scores", look), (name + "pattern", swap)]


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
            (f"blocks.{layer}.attn.hook_attn_scores", lambda s, hook, h=heads: _merge(s, 1, h, s / self.value))
            for layer, heads in _by_layer(model, self.heads).items()
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
        layers = list(_by_layer(model, heads))
        names = [f"blocks.{layer}.attn.hook_z" for layer in layers]
        with torch.no_grad():
            _, cache = model.run_with_cache(tokens, names_filter=names)
        return cls(heads, {layer: cache[name].mean(0) for layer, name in zip(layers, names, strict=True)})

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
            return lambda z, hook: _merge(z, 2, heads, torch.zeros_like(z) if mean is None else _reference(mean, z))

        return [
            (f"blocks.{layer}.attn.hook_z", ablate(layer, heads))
            for layer, heads in _by_layer(model, self.heads).items()
        ]


@dataclass(frozen=True)
class InsertNorm(Intervention):
    """Normalise a vector of the stream (centre it, divide by its standard deviation) where the model does not.

    Assumes that what reads the stream there can live with unit variance: a test of what a norm alone brings about.

    Attributes:
        hook: where, for example "blocks.2.hook_resid_post".
    """

    hook: str
    eps: float = 1e-5

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One, at `hook`."""
        return [(self.hook, lambda x, hook: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps))]


@dataclass(frozen=True)
class At(Intervention):
    """Another intervention, at some token positions only (queries, for scores and patterns).

    >>> At((-1,), SwapPattern("uniform")).positions
    (-1,)
    """

    positions: tuple[int, ...]
    inner: Intervention

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """The inner ones, each with its effect elsewhere undone."""

        def restrict(name: str, function: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
            # Scores and patterns are (batch, head, query, key); everything else is (batch, token, ...).
            axis = 2 if name.endswith(("hook_attn_scores", "hook_pattern")) else 1

            def edit(t: Tensor, hook: object) -> Tensor | None:
                if any(not -t.shape[axis] <= position < t.shape[axis] for position in self.positions):
                    raise InputError(f"positions {self.positions} are not all within the {t.shape[axis]} tokens")
                edited = function(t.clone(), hook=hook)
                return None if edited is None else _merge(t, axis, list(self.positions), edited)

            return edit

        return [(name, restrict(name, function)) for name, function in self.inner.hooks(model)]


def _by_layer(model: HookedTransformer, heads: Sequence[Head] | None) -> dict[int, list[int]]:
    """Heads grouped by layer; all of them for None."""
    cfg = model.cfg
    if cfg.mlp_only:
        raise InputError("this model has no attention heads")
    if heads is None:
        return {layer: list(range(cfg.n_heads)) for layer in range(cfg.n_layers)}
    grouped: dict[int, list[int]] = {}
    for layer, head in heads:
        if not (0 <= layer < cfg.n_layers and 0 <= head < cfg.n_heads):
            raise InputError(
                f"there is no head ({layer}, {head}): the model has {cfg.n_layers} layers of {cfg.n_heads} heads"
            )
        grouped.setdefault(layer, []).append(head)
    return grouped


def _reference(rows: Tensor, t: Tensor) -> Tensor:
    """What was measured, a row a position, in the shape of the activation `t` it replaces."""
    if len(rows) != 1 and t.shape[1] > len(rows):
        raise InputError(
            f"the reference covers {len(rows)} positions, but there are {t.shape[1]} tokens: measure on longer prompts"
        )
    return rows[: t.shape[1]].to(t).expand_as(t)


def _merge(original: Tensor, axis: int, places: list[int], edited: Tensor) -> Tensor:
    """`original` with `edited` at some places of one axis; a new tensor, so caches of the original stay true."""
    merged = original.clone()
    index = (slice(None),) * axis + (places,)
    merged[index] = edited[index]
    return merged


def _one_hot(pattern: Tensor) -> Tensor:
    return torch.zeros_like(pattern).scatter_(-1, pattern.argmax(-1, keepdim=True), 1.0)
