"""What every model with hook points has in common, ours or an adapted one."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
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
        no_sum: of an adapted module, why its stream is no sum of what was named; None where it is
            one, as far as a trial tells.
        widest: of a number of tokens, how many numbers the widest activation of a prompt has.
    """

    cfg: Any
    encoding: Encoding | None = None
    no_sum: str | None = None
    widest: Callable[[int], int]
    # Not every model has these: a lens asks for the read-out, runs that differ late for the way to
    # begin at a block, and sweeps for the way to read a context once (`cfg.query_is_unseen`).
    unembed: Any
    resume: Any
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

    @property
    def sublayer_kinds(self) -> tuple[str, ...]:
        """What blocks consist of, "attn" and "mlp" in their order; if adapted, what was named."""
        there = {"attn": not self.cfg.mlp_only, "mlp": not self.cfg.attn_only}
        return tuple(kind for kind, exists in there.items() if exists)

    @property
    def usual_names(self) -> Callable[[str], bool] | None:
        """Which activations `run_with_cache` keeps where nobody says; None for all."""
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
        self,
        *args: Any,
        names_filter: Any = None,
        incl_bwd: bool = False,
        number: Callable[[Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Any]:
        """The output, and activations by hook name.

        Args:
            args: tokens, and what else `forward` takes.
            names_filter: a name, names, or a function that says of a name whether it is kept. By
                default all are, but for what single heads and MLPs of a `HookedTransformer` read
                (`hook_q_input`, ...), as in TransformerLens.
            incl_bwd: whether to keep gradients of a number as well, under the hook's name with
                "_grad" behind it. No gradient is left at the weights.
            number: that number, made of the output. It must be given with `incl_bwd`, because a
                prediction is a tensor.
            kwargs: others of TransformerLens, such as `device` and `remove_batch_dim`.

        Raises:
            InputError: a name or filter that matches no hook, or gradients of what is no number.

        >>> from icl_interp import HookedTransformer, HookedTransformerConfig
        >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
        >>> model, tokens = HookedTransformer(config), torch.linspace(-1, 1, 5)[None, :, None]
        >>> last = lambda out: out[:, -1].sum()
        >>> _, cache = model.run_with_cache(tokens, incl_bwd=True, number=last)
        >>> gradient = cache["blocks.0.hook_resid_post_grad"]
        >>> bool((gradient[:, :-1] == 0).all()), bool((gradient[:, -1] != 0).any())
        (True, True)
        """
        if names_filter is None:
            names_filter = self.usual_names
        self.check_hooks(names_filter)
        return_cache_object = kwargs.pop("return_cache_object", True)
        has_batch_dim = not kwargs.get("remove_batch_dim", False)
        if incl_bwd:
            out, cache = self._with_gradients(args, names_filter, number, kwargs)
        else:
            if number is not None:
                raise InputError("number is what gradients are of: pass incl_bwd=True with it")
            out, cache = super().run_with_cache(*args, names_filter=names_filter, **kwargs)
        if not return_cache_object:
            return out, cache
        return out, NumericCache(cache, self, has_batch_dim=has_batch_dim)

    def _with_gradients(
        self,
        args: tuple[Any, ...],
        names_filter: Any,
        number: Callable[[Tensor], Tensor] | None,
        kwargs: dict[str, Any],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Output, activations and gradients of `number`, which `run_with_cache` describes."""
        if number is None:
            raise InputError(
                "incl_bwd needs a number whose gradients are kept, because a prediction is a "
                "tensor: pass number=, for example number=lambda out: out[:, -1].square().mean()"
            )
        # Of TransformerLens' settings some are for the cache, some for the hooks, and some for us.
        settings: dict[str, Any] = {}
        for name in ("device", "remove_batch_dim", "pos_slice"):
            settings[name] = kwargs.pop(name, False if name == "remove_batch_dim" else None)
        ends: dict[str, bool] = {}
        for name, usual in (("reset_hooks_end", True), ("clear_contexts", False)):
            ends[name] = kwargs.pop(name, usual)
        cache, forward, backward = self.get_caching_hooks(names_filter, True, **settings)
        tokens, *others = args
        self._check_gradients([name for name, _ in forward], tokens)
        # Gradients flow back to the tokens. They are not added to those of the weights.
        tokens = tokens.detach().requires_grad_()
        ways = [tokens, *self._sources()]
        with torch.enable_grad(), self.hooks(forward, backward, **ends):
            out = self(tokens, *others, **kwargs)
            value = number(out)
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise InputError(
                    "number must make one number of the output, for example lambda out: out[:, "
                    f"-1].square().mean(), but it returned a {type(value).__name__}"
                    + (f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else "")
                )
            torch.autograd.grad(value.sum(), ways, allow_unused=True)
        return out.detach(), cache

    def _check_gradients(self, names: Collection[str], tokens: Any) -> None:
        """Refuse gradients at some hooks, or tokens."""

    def _sources(self) -> list[Tensor]:
        """Weights that activations begin with, beside tokens: gradients flow back to these, too."""
        return []

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
