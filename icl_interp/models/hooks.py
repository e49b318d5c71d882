"""The only import of transformer_lens: hook points, and a cache that knows what it must refuse.

TransformerLens keeps `HookedRootModule`, `HookPoint` and `ActivationCache` as its supported way to
hook any module (versions 3.9 to 4). Importing any part of it takes seconds, so nothing imports this
file before a model is needed.
"""

import difflib
import heapq
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from torch import Tensor, nn
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule, patching
from transformer_lens.hook_points import HookPoint as _HookPoint

from icl_interp.errors import LISTED, InputError, shown

__all__ = [
    "READS",
    "ActivationCache",
    "FactoredMatrix",
    "HookPoint",
    "HookedRootModule",
    "NumericCache",
    "at",
    "attached",
    "changing_hooks",
    "check_names",
    "check_unhooked",
    "edited",
    "hooked_modules",
    "listened",
    "only_reads",
    "pairs_of",
    "patching",
    "refuse_patching_by_position",
    "token_axis",
]

HookName = str | Callable[[str], bool]  # a name, or a filter of names
Functions = Sequence[tuple[HookName, Callable[..., Any]]]
# What each head and MLP reads: copies of the stream, which a cache holds where they are named.
READS = ("hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")
NAMED = 5  # names of hooks that a message lists at most
# Held while functions are attached, detached or looked at: torch's own bookkeeping is not made for
# several threads.
_LOCK = threading.RLock()

# Each of these reads the residual stream as a sum of components.
_ADDITIVE = (
    "accumulated_resid",
    "decompose_resid",
    "get_full_resid_decomposition",
    "stack_head_results",
    "stack_neuron_results",
    "logit_attrs",
    "apply_ln_to_stack",
)
_OF_HEADS = ("stack_head_results", "compute_head_results", "get_full_resid_decomposition")
_OF_PARTS = (*_OF_HEADS, "stack_neuron_results", "apply_ln_to_stack")
# What multiplies activations by W_O or W_out.
_OF_WEIGHTS = (*_OF_HEADS, "stack_neuron_results")
_GUARDED = {*_ADDITIVE, *_OF_HEADS}


class Opened:
    """A context of hooks; its hooks act in the thread that opened it, for as long as it is open."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_open = True

    @property
    def is_here(self) -> bool:
        """Whether it is open, in the thread that asks."""
        return self.is_open and threading.get_ident() == self.thread

    def __deepcopy__(self, memo: object) -> "Opened":
        return self  # a copy of a model that is made inside loses its hooks when the context ends


class HookPoint(_HookPoint):
    """TransformerLens' `HookPoint`, which knows which hooks belong to a context of one thread.

    It costs nothing to clear where nothing is attached: a whole model is cleared often.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[int, Opened] = {}  # by the id of a hook that a context attached

    def remove_hooks(
        self, dir: str = "fwd", including_permanent: bool = False, level: int | None = None
    ) -> None:
        """Remove hooks, except those of contexts of other threads; see TransformerLens."""
        if not (self.fwd_hooks or self.bwd_hooks) and dir in ("fwd", "bwd", "both"):
            return
        with _LOCK:
            # TransformerLens' own removes all that it finds, so it finds ours only.
            self.fwd_hooks, fwd_of_others = self._split(self.fwd_hooks)
            self.bwd_hooks, bwd_of_others = self._split(self.bwd_hooks)
            super().remove_hooks(
                dir,  # pyright: ignore[reportArgumentType]
                including_permanent,
                level,
            )
            self.fwd_hooks = fwd_of_others + self.fwd_hooks
            self.bwd_hooks = bwd_of_others + self.bwd_hooks

    def _split(self, handles: list[Any]) -> tuple[list[Any], list[Any]]:
        """Hooks that act in this thread, and those of contexts of others."""
        ours = []
        of_others = []
        for handle in handles:
            place = ours if self._is_ours(handle.hook.id) else of_others
            place.append(handle)
        return ours, of_others

    def _is_ours(self, hook_id: int) -> bool:
        """Whether a hook is for every thread, or for the one that asks."""
        opened = self.opened.get(hook_id)
        return opened is None or opened.is_here

    def attach(
        self, function: Callable[..., Any], dir: Literal["fwd", "bwd"], level: int, opened: Opened
    ) -> Any:
        """Attach a function that runs only in the thread of a context.

        Returns what `detach` takes.
        """
        handle = self.add_hook(_belonging_to(opened, function, dir), dir=dir, level=level)
        handle.user_hook = function
        self.opened[handle.hook.id] = opened
        return handle

    def detach(self, handle: Any) -> None:
        """Remove what `attach` attached, if it is still there."""
        handle.hook.remove()
        self.opened.pop(handle.hook.id, None)
        self.fwd_hooks = [one for one in self.fwd_hooks if one is not handle]
        self.bwd_hooks = [one for one in self.bwd_hooks if one is not handle]


def _belonging_to(opened: Opened, function: Callable[..., Any], dir: str) -> Callable[..., Any]:
    """The function, where a model runs in the thread of a context; nothing elsewhere."""

    def forward(t: Tensor, hook: Any) -> Any:
        return function(t, hook=hook) if opened.is_here else None

    def backward(t: Tensor, hook: Any) -> Any:
        # A gradient may be asked for after the context. On a GPU torch computes it in threads of
        # its own.
        here = threading.get_ident() == opened.thread or getattr(t, "is_cuda", False)
        return function(t, hook=hook) if here else None

    return forward if dir == "fwd" else backward


@contextmanager
def attached(
    model: HookedRootModule,
    fwd_hooks: Functions,
    bwd_hooks: Functions,
    stay: bool,
    clear_contexts: bool,
) -> Iterator[HookedRootModule]:
    """A context in which functions are attached to hook points, for the thread that opens it.

    TransformerLens' own takes away what stands at its depth of nesting, which two threads would
    share.

    Args:
        model: whose hook points.
        fwd_hooks: names or filters of names, with a function each.
        bwd_hooks: the same, for gradients.
        stay: whether they stay when the context ends, and serve every thread.
        clear_contexts: whether to clear what functions kept in `hook.ctx`, at the end.
    """
    opened = Opened()
    held: list[tuple[HookPoint, Any]] = []
    directions: tuple[tuple[Literal["fwd", "bwd"], Functions], ...] = (
        ("fwd", fwd_hooks),
        ("bwd", bwd_hooks),
    )
    try:
        with _LOCK:
            model.context_level += 1
            level = model.context_level
            for direction, functions in directions:
                for wanted, function in functions:
                    for point in _points(model, wanted):
                        if stay:
                            point.add_hook(function, dir=direction, level=level)
                        else:
                            handle = point.attach(function, direction, level, opened)
                            held.append((point, handle))
        yield model
    finally:
        # Hooks that a copy of the model has kept do nothing from now on.
        with _LOCK:
            opened.is_open = False
            for point, handle in held:
                point.detach(handle)
            model.context_level -= 1
        model.is_caching = False
        if clear_contexts:
            model.clear_contexts()


def changing_hooks() -> AbstractContextManager[bool]:
    """A context for code that attaches or detaches hooks itself.

    It keeps other threads from doing the same at that moment.
    """
    return _LOCK


def _points(model: HookedRootModule, wanted: HookName) -> list[Any]:
    """The hook points of a name or filter."""
    if isinstance(wanted, str):
        return [model.hook_dict[wanted]]
    return [point for name, point in model.hook_dict.items() if wanted(name)]


class NumericCache(ActivationCache):
    """TransformerLens' `ActivationCache` for numeric prompts.

    Its helpers work as they are wherever the residual stream is a sum of components. In a post-norm
    model it is not (each block rescales what came before), so those helpers are refused by name
    instead of returning wrong numbers. Those that ask for what heads write are refused where there
    are no heads, and where a norm stands between heads and stream.
    """

    def __getattribute__(self, name: str) -> Any:
        if name not in _GUARDED:
            return super().__getattribute__(name)
        # What the helper assumes of a model, one by one.
        cfg = object.__getattribute__(self, "model").cfg
        if name in _ADDITIVE and not cfg.stream_is_a_sum:
            raise InputError(
                f"{name} needs a residual stream that is the sum of its components, but this model "
                f"normalises after each sublayer (norm_position={cfg.norm_position!r}); read "
                "hook_resid_mid and hook_resid_post instead"
            )
        if name in _OF_PARTS and not cfg.heads_write_to_stream:
            raise InputError(
                f"{name} needs parts that write to the stream as they are and a final norm, but "
                "this model normalises what each sublayer writes (norm_position='output'); read "
                "hook_attn_out and hook_mlp_out, which add up to the stream"
            )
        if name in _OF_WEIGHTS and cfg.residual_scale != 1:
            raise InputError(
                f"{name} computes with W_O and W_out as they are, but this model adds "
                f"{cfg.residual_scale:g} times what they write (residual_scale); cache "
                "hook_result, which has that factor"
            )
        if name == "apply_ln_to_stack" and cfg.normalization_type and not cfg.has_final_norm:
            raise InputError(
                "apply_ln_to_stack divides components by the scale of a final norm, but this model "
                "has none (final_norm=False); read the components without apply_ln"
            )
        if name == "apply_ln_to_stack" and cfg.normalization_type == "Tanh":
            raise InputError(
                "apply_ln_to_stack divides components by the norm's scale, but this model's Tanh "
                "norms have none and do not act on each component by itself; read the components "
                "without apply_ln"
            )
        if name in _OF_HEADS and cfg.mlp_only:
            raise InputError(f"{name} needs attention heads, but this model has none (mlp_only)")
        return super().__getattribute__(name)


def token_axis(name: str) -> int:
    """The axis of a hook's activation that runs over tokens; for scores and patterns, queries."""
    return 2 if name.endswith(("hook_attn_scores", "hook_pattern")) else 1


def listened(module: nn.Module) -> bool:
    """Whether any hook is attached to this module itself, for this thread.

    Forward, backward and native torch hooks count.

    `HookPoint.has_hooks` would miss native `register_forward_hook`s, so torch's own dictionaries
    are read.
    """
    if not any(_native(module)):
        return False
    if not isinstance(module, HookPoint):
        return True
    with _LOCK:
        return any(module._is_ours(hook_id) for hooks in _native(module) for hook_id in hooks)


def _native(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """Torch's dictionaries of what is attached to a module, by the id of a hook."""
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        getattr(module, "_backward_pre_hooks", {}),
    )


def hooked_modules(model: nn.Module) -> list[str]:
    """Names of the modules of a model to which anything is attached, for this thread.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8))
    >>> with model.hooks(fwd_hooks=[("hook_embed", lambda t, hook: 2 * t)]):
    ...     inside = hooked_modules(model)
    >>> inside, hooked_modules(model)
    (['hook_embed'], [])
    """
    names = []
    for name, module in model.named_modules():
        if listened(module):
            names.append(name or "the model itself")
    return names


def check_unhooked(model: object, who: str) -> None:
    """Refuse a model that has hooks, because its results would be reported as the intact model's.

    Args:
        model: any model; what is none is let through.
        who: measures it, for the message.

    Raises:
        InputError: naming what has hooks.
    """
    names = hooked_modules(model) if isinstance(model, nn.Module) else []
    if names:
        raise InputError(
            f"{who} measures a model as it is, but hooks or interventions are attached to this "
            f"one, at {_listed(names)}: leave the `with` block, or remove them "
            "(model.reset_hooks(); handle.remove() for torch's own)"
        )


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def pairs_of(hooks: object, name: str) -> list[tuple[HookName, Callable[..., Any]]]:
    """Hooks as a list of pairs.

    Raises:
        InputError: anything but a list of pairs of a name, or a filter of names, and a function.
    """
    what = f"{name} must be a list of pairs (hook name, function), for example [('hook_embed', f)]"
    if isinstance(hooks, (str, dict)) or not isinstance(hooks, Iterable):
        raise InputError(f"{what}, but got {shown(hooks)}")
    found = list(hooks)
    for pair in found:
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and callable(pair[1])):
            raise InputError(f"{what}, but one of them is {shown(pair)}")
    return [(wanted, function) for wanted, function in found]


def only_reads(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that never edits, so that `edited` passes over it; gives the function."""
    function.only_reads = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def edited(module: nn.Module) -> bool:
    """Whether a function that may edit activations is attached to this module, for this thread."""
    if not (module._forward_hooks or module._forward_pre_hooks):
        return False
    if not isinstance(module, HookPoint):
        return True
    with _LOCK:
        functions = {handle.hook.id: handle.user_hook for handle in module.fwd_hooks}
        for hook_id in (*module._forward_hooks, *module._forward_pre_hooks):
            reads = getattr(functions.get(hook_id), "only_reads", False)
            if module._is_ours(hook_id) and not reads:
                return True
    return False


def at(hook: HookPoint, shared: Tensor) -> Tensor:
    """`hook(shared)` for a tensor that shares memory with a weight or another activation.

    A listener gets a copy, so that one that edits in place changes this activation only.
    """
    return hook(shared.clone() if listened(hook) else shared)


def refuse_patching_by_position() -> None:
    """Refuse a run inside TransformerLens' activation patching where it lists positions by itself.

    It takes the last axis of its input for the positions, which for numeric tokens is d_in: it
    would patch the first d_in tokens only. With an `index_df`, or without positions among the axes,
    it is right. Nothing that it hands to the model tells these apart, so its own arguments are
    read, on the stack: the other way would be to replace a function of that library.

    Raises:
        InputError: naming `interventions.patch`.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if (
            frame.f_code.co_name == "generic_activation_patch"
            and frame.f_globals.get("__name__") == patching.__name__
        ):
            if any("pos" in axis for axis in frame.f_locals.get("index_axis_names") or ()):
                raise InputError(
                    "TransformerLens' patching takes the last axis of its input for positions, but "
                    "tokens of numbers have shape (batch, token, d_in), so it would patch the "
                    "first tokens only: use icl_interp.interventions.patch(model, clean, "
                    "corrupted, metric, activation), or pass index_df"
                )
            return
        frame = frame.f_back


def check_names(requested: HookName | Sequence[HookName] | None, available: Iterable[str]) -> None:
    """Refuse a hook name that does not exist, and a filter that matches nothing.

    Both would do nothing without a word.

    Raises:
        InputError: naming the nearest hook.
    """
    names = list(available)
    if requested is None:
        return
    if callable(requested):
        if not any(requested(name) for name in names):
            raise InputError(
                f"the hook filter matches none of the {len(names)} hooks; names look like "
                f"{names[:3]}"
            )
        return
    for name in [requested] if isinstance(requested, str) else requested:
        if callable(name):
            check_names(name, names)
        elif name not in names:
            raise unknown_hook(name, names)


def unknown_hook(name: object, names: Sequence[str]) -> InputError:
    """The error for a hook that a model does not have.

    It names the few nearest hooks, since a model has hundreds.

    >>> names = ["hook_embed", "blocks.0.attn.hook_q", "blocks.0.hook_mlp_out"]
    >>> print(unknown_hook("blocks.0.hook_q_rot", names))
    unknown hook 'blocks.0.hook_q_rot': did you mean 'blocks.0.attn.hook_q'? (other names: \
blocks.0.hook_mlp_out, hook_embed; list(model.hook_dict) has all 3)
    """
    text = name[:LISTED] if isinstance(name, str) else shown(name)
    asked = text.rpartition(".")[2]

    def nearness(known: str) -> tuple[bool, float]:
        last = known.rpartition(".")[2]
        # What another library calls hook_q_rot stands here at hook_q of the same block.
        extends = asked.startswith(f"{last}_") and known.split(".")[:2] == text.split(".")[:2]
        return extends, difflib.SequenceMatcher(None, text, known).ratio()

    nearest = heapq.nlargest(NAMED, names, key=nearness)
    extends, ratio = nearness(nearest[0]) if nearest else (False, 0.0)
    hint = ""
    others = nearest
    if extends or ratio >= 0.5:
        hint = f"did you mean {nearest[0]!r}? "
        others = nearest[1:]
    return InputError(
        f"unknown hook {shown(name)}: {hint}(other names: {', '.join(others)}; "
        f"list(model.hook_dict) has all {len(names)})"
    )
