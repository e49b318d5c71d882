"""What an intervention is, how several are attached, and what those that follow share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, several, shown, whole
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import hooked_modules, token_axis
from icl_interp.models.transformer import HookedTransformer, chunks, model_in, tokens_in

Hook = tuple[str, Callable[..., Tensor | None]]
Head = tuple[int, int]  # (layer, head)
# Called with the model and the interventions before these are attached; what it returns ends after
# they are gone.
# `testing.effects.observed` asks in this way which interventions moved a result. They are attached
# deep inside measurements, which cannot be told of it, so who watches stands in the context.
Observer = Callable[[HookedModel, Sequence["Intervention"]], AbstractContextManager[None]]
OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar(
    "who watches interventions of this thread", default=()
)


class Intervention(ABC):
    """Something that can be attached to a model: functions by the hook point that they edit.

    A function gets an activation and its hook, and returns a new tensor, or None to leave it; it
    never edits the old one in place. Wrong settings are refused where it is made, a wrong model by
    `hooks`, wrong prompts in the run.

    One factor undoes the other, and powers of 2 leave no rounding behind:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> class Scale(Intervention):
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...
    ...     def hooks(self, model):
    ...         return [("hook_embed", lambda t, hook: self.factor * t)]
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, Scale(4.0), Scale(0.25)):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    @abstractmethod
    def hooks(self, model: HookedModel) -> list[Hook]:
        """Functions and the hook points they go to.

        Raises:
            InputError: the model does not have what is to be edited, such as a head.
        """

    def at_query(self) -> "Intervention":
        """The part of the intervention that acts on a last token read apart from its context.

        Sweeps read queries in this way.

        Where an intervention acts on every token alike, the part is the intervention itself. What
        is kept by position keeps the last one only.

        Raises:
            InputError: it acts on other tokens only.
        """
        return self


@contextmanager
def intervene(model: HookedModel, *interventions: Intervention) -> Iterator[HookedModel]:
    """Run a model under interventions.

    They are attached in the order given, and detached at the end, also after an exception.

    They act in the thread that opens this context only, as torch's `no_grad` does: other threads
    run the model intact.

    Args:
        model: what runs; a `Checkpoint` stands for its model.
        interventions: each sees what the one before left.

    Yields:
        The model.

    Raises:
        InputError: the model does not have a hook, or whatever else an intervention needs; then
            none is attached.

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> from icl_interp.interventions import SwapPattern
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, SwapPattern("uniform")):
    ...     inside = model(tokens)
    >>> torch.equal(inside, before), torch.equal(model(tokens), before)
    (False, True)
    """
    model = model_in(model)
    for one in interventions:
        if not isinstance(one, Intervention):
            raise InputError(
                f"an intervention is needed, but got {shown(one)}: pass them one after another, "
                "not as a list"
            )
    hooks = _hooks_of(model, interventions)
    model.check_hooks([name for name, _ in hooks])
    with ExitStack() as stack:
        for observe in OBSERVERS.get():
            stack.enter_context(observe(model, interventions))
        stack.enter_context(model.hooks(fwd_hooks=hooks))
        yield model


def _hooks_of(model: HookedModel, interventions: Sequence[Intervention]) -> list[Hook]:
    hooks = []
    for one in interventions:
        hooks += one.hooks(model)
    return hooks


def is_hooked(model: HookedModel) -> bool:
    """Whether hooks of the model's points, or torch's own, are attached to it for this thread."""
    return bool(hooked_modules(model))


def first_block(model: HookedModel, interventions: Sequence[Intervention]) -> int:
    """The first block that interventions touch.

    It is the last block where they touch none, and -1 where they touch what comes before the
    blocks.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.interventions.attention import SwapPattern
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=3, d_model=8, n_heads=2))
    >>> first_block(model, [SwapPattern("uniform", ((1, 0), (2, 1)))])
    1
    """
    # A class of one's own may do more than its blocks.
    if type(model).forward is not HookedTransformer.forward:
        return -1
    n_layers = model.cfg.n_layers
    first = n_layers - 1
    for name, _ in _hooks_of(model, interventions):
        first = min(first, _block(name, n_layers))
    return first


def _block(name: str, n_layers: int) -> int:
    if name.startswith("blocks."):
        return int(name.split(".")[1])
    # The final norm comes after all blocks; everything else before them.
    return n_layers - 1 if name.startswith("ln_final") else -1


@dataclass(frozen=True)
class At(Intervention):
    """Another intervention, at some token positions only (queries, for scores and patterns).

    Attributes:
        positions: of tokens; negative ones count from the last.
        inner: what acts there. It sees whole activations; what it changes elsewhere is undone.

    Raises:
        InputError: in a run of prompts that do not have all the positions.

    Causal attention: tokens before the first of the positions cannot tell.

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> from icl_interp.interventions import SwapPattern
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 5)[None, :, None]
    >>> before = model(tokens)
    >>> with intervene(model, At((-1,), SwapPattern("uniform"))):
    ...     inside = model(tokens)
    >>> torch.allclose(inside[:, :-1], before[:, :-1], atol=1e-5)
    True
    >>> torch.allclose(inside[:, -1], before[:, -1])
    False
    """

    positions: tuple[int, ...]
    inner: Intervention

    def __post_init__(self) -> None:
        positions = []
        for position in several(self.positions, "positions"):
            positions.append(whole(position, "a position", -(2**31)))
        object.__setattr__(self, "positions", tuple(positions))

    def hooks(self, model: HookedModel) -> list[Hook]:
        """The inner ones, each with its effect elsewhere undone."""

        def restrict(
            name: str, function: Callable[..., Tensor | None]
        ) -> Callable[..., Tensor | None]:
            axis = token_axis(name)

            def edit(t: Tensor, hook: object) -> Tensor | None:
                n_tokens = t.shape[axis]
                for position in self.positions:
                    if not -n_tokens <= position < n_tokens:
                        raise InputError(
                            f"positions {self.positions} are not all within the {n_tokens} tokens"
                        )
                edited = function(t.clone(), hook=hook)
                if edited is None:
                    return None
                return merge(t, axis, list(self.positions), edited)

            return edit

        hooks: list[Hook] = []
        for name, function in self.inner.hooks(model):
            hooks.append((name, restrict(name, function)))
        return hooks

    def at_query(self) -> Intervention:
        """The inner one at the last token, where that is one of the positions."""
        if -1 not in self.positions:
            raise InputError(
                "at the query there is the last token alone, but this acts at positions "
                f"{self.positions}: count from the last (-1), or intervene on the context"
            )
        return self.inner.at_query()


def pairs_of(heads: Any) -> tuple[Head, ...]:
    """Heads as (layer, head) pairs.

    Raises:
        InputError: they are no such pairs.

    >>> pairs_of([(0, 1), (2, 0)])
    ((0, 1), (2, 0))
    """
    found = several(heads, "heads")
    for one in found:
        if not isinstance(one, (tuple, list)) or len(one) != 2:
            raise InputError(
                f"heads are pairs (layer, head), such as ((0, 1), (2, 0)), but got {shown(found)}"
            )
    pairs = []
    for layer, head in found:
        layer = whole(layer, "a layer", -(2**31))
        head = whole(head, "a head", -(2**31))
        pairs.append((layer, head))
    return tuple(pairs)


def by_layer(model: HookedModel, heads: Sequence[Head] | None) -> dict[int, list[int]]:
    """Heads grouped by layer; all of them for None."""
    cfg = model.cfg
    if cfg.mlp_only:
        raise InputError("this model has no attention heads")
    if heads is None:
        every = range(cfg.n_heads)
        return {layer: list(every) for layer in range(cfg.n_layers)}
    grouped: dict[int, list[int]] = {}
    for layer, head in pairs_of(heads):
        if not (0 <= layer < cfg.n_layers and 0 <= head < cfg.n_heads):
            raise InputError(
                f"there is no head ({layer}, {head}): the model has {cfg.n_layers} layers of "
                f"{cfg.n_heads} heads"
            )
        grouped.setdefault(layer, []).append(head)
    return grouped


def reference(rows: Tensor, t: Tensor) -> Tensor:
    """What was measured, a row a position, in the shape of the activation `t` it replaces."""
    if len(rows) != 1 and t.shape[1] > len(rows):
        raise InputError(
            f"the reference covers {len(rows)} positions, but there are {t.shape[1]} tokens: "
            "measure on longer prompts"
        )
    covering = rows[: t.shape[1]]
    return covering.to(t).expand_as(t)


@torch.no_grad()
def mean_activations(
    model: HookedModel, tokens: Float[Tensor, "batch token d_in"], names: Sequence[str]
) -> dict[str, Float[Tensor, "token ..."]]:
    """The mean over prompts of the activations at some hooks, at each position.

    Mean ablation and frozen norms use it as their reference.

    Prompts are read in parts, so memory does not grow with their number.

    Args:
        model: what reads the prompts; with a `Checkpoint` they may be given as prompts.
        tokens: of the prompts.
        names: of the hooks.

    Returns:
        By hook, the activation's mean over its first axis: `(token, d_model)` for the stream and
        what sublayers write, `(token, head, d_head)` for `hook_z`, `(head, query, key)` for
        patterns.

    Raises:
        InputError: the model has no hook of a name, or there is no prompt.

    The mean of one prompt is the prompt's own:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens, hook = torch.linspace(-1, 1, 5)[None, :, None], "blocks.0.hook_resid_post"
    >>> _, cache = model.run_with_cache(tokens)
    >>> torch.allclose(mean_activations(model, tokens, [hook])[hook], cache[hook][0], atol=1e-5)
    True
    """
    hooked = model_in(model)
    tokens = tokens_in(tokens, model)
    names = several(names, "names of hooks")
    if not len(tokens):
        raise InputError(
            f"a mean needs at least one prompt, but the tokens have shape {tuple(tokens.shape)}"
        )
    totals: dict[str, Tensor] = {}
    for rows in chunks(hooked, len(tokens), tokens.shape[1]):
        _, cache = hooked.run_with_cache(tokens[rows], names_filter=list(names))
        for name in names:
            part = cache[name].sum(0)
            totals[name] = totals[name] + part if name in totals else part
    return {name: total / len(tokens) for name, total in totals.items()}


def merge(original: Tensor, axis: int, places: list[int], edited: Tensor) -> Tensor:
    """`original` with `edited` at some places of one axis.

    The result is a new tensor, so that caches of the original stay unchanged.
    """
    merged = original.clone()
    index = (slice(None),) * axis + (places,)
    merged[index] = edited[index]
    return merged
