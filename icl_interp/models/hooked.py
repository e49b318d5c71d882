"""What every model with hook points has in common, ours or an adapted one."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.hooks import (
    HookedRootModule,
    HookName,
    NumericCache,
    attached,
    changing_hooks,
    check_names,
    pairs_of,
    refuse_patching_by_position,
)
from icl_interp.models.tokens import Encoding


class HookedModel(HookedRootModule):
    """A model over tokens of numbers with hook points under TransformerLens' names.

    `HookedTransformer` is one, and so is what `icl_interp.adapt` makes of a module. Probes and
    interventions that use hook points alone work on any of them.

    Attributes:
        cfg: its sizes, in the words of `HookedTransformerConfig`.
        encoding: how it reads prompts, where it brings that itself.
        widest: of a number of tokens, how many numbers the widest activation of a prompt has.
    """

    cfg: Any
    encoding: Encoding | None = None
    widest: Callable[[int], int]
    # Not every model has these: a lens asks for the read-out, and sweeps for the way to read a
    # context once (`cfg.query_is_unseen`).
    unembed: Any
    remember: Any
    after: Any
    streams_after: Any
    resume_after: Any

    @property
    def numbers(self) -> Tensor:
        """A weight: tokens have its dtype and stand on its device."""
        return next(self.parameters())

    @property
    def norms(self) -> Any:
        """The norms that divide by a scale, by name; each has the hook point `hook_scale`."""
        return {}

    @property
    def no_entropy(self) -> str | None:
        """Why its attention weights have no entropy; None where they have."""
        return None

    def fixed_weights(self) -> AbstractContextManager[None]:
        """A context in which no weight changes."""
        return nullcontext()

    # What TransformerLens adds to a model: the same, but a name that matches nothing is an error.

    def check_hooks(self, requested: HookName | Sequence[HookName] | None) -> None:
        """Refuse a hook name that does not exist, and a filter that matches nothing.

        Raises:
            InputError: naming the nearest hook, or what has to be given.
        """
        check_names(requested, self.hook_dict)

    def run_with_cache(
        self, *args: Any, names_filter: Any = None, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        """The output, and every activation (or those `names_filter` selects) by hook name."""
        self.check_hooks(names_filter)
        if kwargs.get("incl_bwd"):
            raise InputError(
                "incl_bwd would need an output that is one number, but a prediction is a tensor "
                "and its loss is yours: use `with model.hooks(bwd_hooks=[(name, function)]):`, and "
                "call backward() on your loss inside"
            )
        return_cache_object = kwargs.pop("return_cache_object", True)
        out, cache = super().run_with_cache(*args, names_filter=names_filter, **kwargs)
        if not return_cache_object:
            return out, cache
        return out, NumericCache(
            cache, self, has_batch_dim=not kwargs.get("remove_batch_dim", False)
        )

    def hooks(
        self,
        fwd_hooks: Any = (),
        bwd_hooks: Any = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Any:
        """A context with functions attached to hook points.

        `run_with_hooks` is one forward pass in such a context.

        Like torch's `no_grad` it is the business of this thread: where another one runs the model
        meanwhile, nothing of it acts there. What is to act in every thread is attached with
        `add_hook`.
        """
        fwd_hooks = pairs_of(fwd_hooks, "fwd_hooks")
        bwd_hooks = pairs_of(bwd_hooks, "bwd_hooks")
        self.check_hooks([name for name, _ in fwd_hooks + bwd_hooks])
        return attached(self, fwd_hooks, bwd_hooks, not reset_hooks_end, clear_contexts)

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """One forward pass with functions attached to hook points."""
        refuse_patching_by_position()
        return super().run_with_hooks(*args, **kwargs)

    def add_hook(self, name: Any, *args: Any, **kwargs: Any) -> None:
        """Attach a function until `reset_hooks`."""
        self.check_hooks([name])
        with changing_hooks():
            super().add_hook(name, *args, **kwargs)
