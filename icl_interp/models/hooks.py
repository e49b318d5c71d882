"""The only import of transformer_lens: hook points, and a cache that knows what it must refuse.

TransformerLens keeps `HookedRootModule`, `HookPoint` and `ActivationCache` as its supported way to hook any module
(versions 3.9 to 4). Importing any part of it takes seconds, so nothing imports this file before a model is needed.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule, patching
from transformer_lens.hook_points import HookPoint as _HookPoint

from icl_interp.errors import InputError, unknown

__all__ = [
    "ActivationCache",
    "FactoredMatrix",
    "HookPoint",
    "HookedRootModule",
    "NumericCache",
    "at",
    "check_names",
    "listened",
    "patching",
    "refuse_patching_by_position",
    "token_axis",
]

HookName = str | Callable[[str], bool]  # a name, or a filter of names

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


class HookPoint(_HookPoint):
    """TransformerLens' `HookPoint`, which costs nothing to clear where nothing is attached.

    Every context of hooks clears all points of a model when it ends, and an analysis opens a thousand of them.
    """

    def remove_hooks(self, dir: str = "fwd", including_permanent: bool = False, level: int | None = None) -> None:
        """Remove what is attached; see TransformerLens."""
        if self.fwd_hooks or self.bwd_hooks or dir not in ("fwd", "bwd", "both"):
            super().remove_hooks(dir, including_permanent, level)  # pyright: ignore[reportArgumentType]


class NumericCache(ActivationCache):
    """TransformerLens' `ActivationCache` for numeric prompts.

    Its helpers work as they are wherever the residual stream is a sum of components. In a post-norm model it is not
    (each block rescales what came before), so those helpers are refused by name instead of returning wrong numbers.
    Those that ask for what heads write are refused where there are no heads.
    """

    def __getattribute__(self, name: str) -> Any:
        if name in _ADDITIVE and object.__getattribute__(self, "model").cfg.norm_position == "post":
            raise InputError(
                f"{name} needs a residual stream that is the sum of its components, but this model normalises after "
                "each sublayer (norm_position='post'); read hook_resid_mid and hook_resid_post instead"
            )
        if name == "apply_ln_to_stack" and object.__getattribute__(self, "model").cfg.normalization_type == "Tanh":
            raise InputError(
                "apply_ln_to_stack divides components by the norm's scale, but this model's Tanh norms have none and "
                "do not act on each component by itself; read the components without apply_ln"
            )
        if name in _OF_HEADS and object.__getattribute__(self, "model").cfg.mlp_only:
            raise InputError(f"{name} needs attention heads, but this model has none (mlp_only)")
        return super().__getattribute__(name)


def token_axis(name: str) -> int:
    """Which axis of a hook's activation runs over tokens; for scores and patterns, over the queries."""
    return 2 if name.endswith(("hook_attn_scores", "hook_pattern")) else 1


def listened(module: nn.Module) -> bool:
    """Whether any forward, backward or native torch hook is attached to this very module.

    `HookPoint.has_hooks` would miss native `register_forward_hook`s, so torch's own dictionaries are read.
    """
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or getattr(module, "_backward_pre_hooks", None)
    )


def at(hook: HookPoint, shared: Tensor) -> Tensor:
    """`hook(shared)` for a tensor that shares memory with a weight or another activation.

    A listener gets a copy, so that one that edits in place changes this activation only.
    """
    return hook(shared.clone() if listened(hook) else shared)


def refuse_patching_by_position() -> None:
    """Refuse a run inside TransformerLens' activation patching where it lists positions by itself.

    It takes the last axis of its input for the positions, which for numeric tokens is d_in: it would patch the first
    d_in tokens only. Nothing that it hands to the model tells, so its own arguments are read. With an `index_df`, or
    without positions among the axes, it is right.

    Raises:
        InputError: naming `interventions.patch`.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "generic_activation_patch" and frame.f_globals.get("__name__") == patching.__name__:
            if any("pos" in axis for axis in frame.f_locals.get("index_axis_names") or ()):
                raise InputError(
                    "TransformerLens' patching takes the last axis of its input for positions, but tokens of numbers "
                    "have shape (batch, token, d_in), so it would patch the first tokens only: use "
                    "icl_interp.interventions.patch(model, clean, corrupted, metric, activation), or pass index_df"
                )
            return
        frame = frame.f_back


def check_names(requested: HookName | Sequence[HookName] | None, available: Iterable[str]) -> None:
    """Refuse a hook name that does not exist, and a filter that matches nothing: both would silently do nothing.

    Raises:
        InputError: naming the nearest hook.
    """
    names = list(available)
    if requested is None:
        return
    if callable(requested):
        if not any(requested(name) for name in names):
            raise InputError(f"the hook filter matches none of the {len(names)} hooks; names look like {names[:3]}")
        return
    for name in [requested] if isinstance(requested, str) else requested:
        if callable(name):
            check_names(name, names)
        elif name not in names:
            raise unknown("hook", name, names)
