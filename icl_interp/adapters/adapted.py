"""`Adapted`: a module with hook points, which probes and interventions run on."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.adapters.spots import NormSpot, Spot, routed
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import HookName, HookPoint, check_names, listened
from icl_interp.models.tokens import Encoding
from icl_interp.prompts import Prompts

# How hook points are named when a module is adapted, by what their names end with.
GIVEN_BY = {
    "hook_resid_pre": "residual=[...]",
    "hook_resid_post": "residual=[...]",
    "hook_scale": "norms=[...]",
    "hook_pattern": "patterns=[...]",
    "hook_attn_scores": "scores=[...]",
}
# How hook points of a kind of sublayer are called, after their block.
OF_SUBLAYERS = {
    "attn": ("attn.", "hook_attn_out", "hook_q_input", "hook_k_input", "hook_v_input"),
    "mlp": ("mlp.", "hook_mlp_in", "hook_mlp_out"),
}


class Lacks(InputError, AttributeError):
    """Something that an adapted module does not have, or that nobody named."""


@dataclass(frozen=True)
class Sizes:
    """What is known of an adapted module, in the words of `HookedTransformerConfig`.

    Attributes:
        n_layers: steps of the residual stream that were named, or patterns.
        d_in: numbers in a token. d_out: numbers predicted at a token.
        n_params: of its weights. widest: numbers in the widest activation that was seen, a token.
        attention_dir: "causal" where predictions did not depend on later tokens in a trial.
        device: where its weights were.
        width: of the residual stream. heads: of a pattern. None where nobody named one.
        has_norms: whether norms were named.
    """

    n_layers: int
    d_in: int
    d_out: int
    n_params: int
    widest: int
    attention_dir: str
    device: str
    width: int | None = None
    heads: int | None = None
    has_norms: bool = False

    # Whether a norm stands before a sublayer nobody says, so what it reads is asked for by name.
    sublayers_read_normed = True
    # Contexts are not kept: each query is run with the whole of its prompt.
    query_is_unseen = False
    # What was named of attention and MLPs, `Adapted.sublayer_kinds` says.
    mlp_only = False
    attn_only = False
    keys = None
    position_weights = None

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        if self.width is None:
            raise InputError(
                "nobody named the residual stream of this adapted module: residual=[...]"
            )
        return self.width

    @property
    def n_heads(self) -> int:
        """Heads of each pattern."""
        if self.heads is None:
            raise InputError(
                "nobody named attention heads of this adapted module: give patterns=[...], or "
                "points={'blocks.0.attn.hook_z': ...} with an axis of heads"
            )
        return self.heads

    @property
    def no_scale(self) -> str | None:
        """Why no scale is known; None where one is."""
        if self.has_norms:
            return None
        return "nobody named the norms of this adapted module: give norms=[...]; there is none"

    def __getattr__(self, name: str) -> NoReturn:
        raise _lacking(name)


def _lacking(name: str) -> Lacks:
    return Lacks(
        f"an adapted module has no {name}: it is known by the hook points that were named, not by "
        "its weights"
    )


class Branch(nn.Module):
    """Holds hook points by the parts of their names; blocks may be gone through in their order."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, number: int) -> Any:
        return list(self)[number]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise _lacking(name) from None


class Adapted(HookedModel):
    """A module that stays what it is, seen through hook points.

    `icl_interp.adapt` makes it. Without a listener it is the module itself: nothing is attached.
    With one, runs pass through the hook points that are listened to, in the thread that runs it.

    Args:
        module: what runs. encoding: how it reads prompts.
        spots: its hook points. readout: names of the submodules that make predictions of the
            stream, in their order.
        call: runs the module on tokens. task: what its prompts are drawn from.

    Attributes:
        module: the module.
        cfg: its sizes, once they are known.
    """

    cfg: Sizes
    encoding: Encoding
    unembed: Callable[[Tensor], Tensor]

    def __init__(
        self,
        module: nn.Module,
        encoding: Encoding,
        spots: Sequence[Spot],
        readout: Sequence[str] = (),
        call: Callable[..., Any] | None = None,
        task: Any = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.encoding = encoding
        self.spots = list(spots)
        self.readout = tuple(readout)
        self.call = call
        self.task = task
        self.distributions = True
        self.hook_dict = {spot.name: spot.point for spot in spots}
        self.mod_dict = dict(self.hook_dict)
        for spot in spots:
            self._hang(spot.name, spot.point)
        self._aside = threading.local()
        if readout:
            self.unembed = self.read_out

    def _hang(self, name: str, point: HookPoint) -> None:
        """Put a hook point where its name says, so that names of modules lead to it."""
        branch: nn.Module = self
        *parts, last = name.split(".")
        for part in parts:
            if part not in branch._modules:
                branch.add_module(part, Branch())
            branch = branch._modules[part]  # pyright: ignore[reportAssignmentType]
        branch.add_module(last, point)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            raise _lacking(name) from None

    def __getstate__(self) -> dict[str, Any]:
        held = dict(self.__dict__)
        for name in ("_aside", "unembed"):  # of this object, and of no copy
            held.pop(name, None)
        return held

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._aside = threading.local()
        if self.readout:
            self.unembed = self.read_out

    def forward(
        self, tokens: Float[Tensor, "batch token d_in"], positions: Sequence[int] | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Predictions at every token, or at some positions only.

        Raises:
            InputError: the module returns something else; a hook point that is listened to was not
                reached; or an edit at a place that can only be read.
        """
        heard = [spot for spot in self.spots if listened(spot.point)]
        if not heard:
            out = self._run(tokens)
        else:
            self._aside.now = [False]
            with routed(self.module, heard, self._aside.now) as reached:
                out = self._run(tokens)
            for spot in heard:
                self._check_reached(spot, reached[spot.name])
        return out if positions is None else out[:, list(positions)]

    def _run(self, tokens: Tensor) -> Tensor:
        out = self.module(tokens) if self.call is None else self.call(self.module, tokens)
        if isinstance(out, Tensor) and out.shape == tokens.shape[:2]:
            out = out[..., None]
        if not isinstance(out, Tensor) or out.shape[:2] != tokens.shape[:2] or out.ndim != 3:
            what = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise InputError(
                "an adapted module must predict at every token, (batch, token, d_out), but of "
                f"tokens {tuple(tokens.shape)} it made {what}: give call=lambda module, tokens: "
                "... that returns such predictions"
            )
        return out

    def _check_reached(self, spot: Spot, n: int) -> None:
        """Refuse a run that did not pass through a hook point as it did in the trial."""
        call = spot.place.call
        if n == 1 and call is None:
            return
        if call is not None and n > call:
            return
        if n == 0:
            raise InputError(
                f"{spot.name} was not reached: the module does not call {spot.place.module!r} (a "
                "fused kernel may take its place, as in torch.nn.MultiheadAttention and compiled "
                "modules); name another submodule, or give an eager version of it"
            )
        if call is None:
            raise InputError(
                f"{spot.name}: the module calls {spot.place.module!r} {n} times in a run; say "
                f"which call is meant, Place({spot.place.module!r}, call=0)"
            )
        raise InputError(
            f"{spot.name}: the module calls {spot.place.module!r} {n} times in a run, so there is "
            f"no call {call}"
        )

    def read_out(self, stream: Tensor) -> Tensor:
        """The prediction that a stream holds, by the submodules of the read-out."""
        aside = getattr(self._aside, "now", [False])
        before, aside[0] = aside[0], True
        try:
            for name in self.readout:
                stream = self.module.get_submodule(name)(stream)
        finally:
            aside[0] = before
        return stream

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of every point from the points before it; NaN where it makes none."""
        return store.predict(self, self.encoding, prompts)

    @property
    def numbers(self) -> Tensor:
        """The first weight: tokens have its dtype and stand on its device."""
        return next(self.module.parameters())

    @property
    def norms(self) -> dict[str, NormSpot]:
        """The norms that were named."""
        return {
            spot.name.removesuffix(".hook_scale"): spot
            for spot in self.spots
            if isinstance(spot, NormSpot)
        }

    @property
    def no_entropy(self) -> str | None:
        """Why its attention weights have no entropy, as far as a trial tells."""
        if self.distributions:
            return None
        return "its attention weights do not add up to 1, so they have no entropy"

    @property
    def sublayer_kinds(self) -> tuple[str, ...]:
        """The kinds of sublayers that hook points were named of: "attn" and "mlp".

        Both where there is none, so that the hook points which a tool asks for are missed by name.
        """
        parts = [name.split(".", 2)[2] for name in self.hook_dict if name.startswith("blocks.")]
        found = []
        for kind, beginnings in OF_SUBLAYERS.items():
            if any(part.startswith(beginnings) for part in parts):
                found.append(kind)
        return tuple(found) or tuple(OF_SUBLAYERS)

    def widest(self, n_tokens: int) -> int:
        """Numbers in the widest activation of a prompt, told from a trial."""
        return n_tokens * max(self.cfg.widest, (self.cfg.heads or 0) * n_tokens)

    def _with_gradients(
        self, args: tuple[Any, ...], names_filter: Any, number: Any, kwargs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        out, cache = super()._with_gradients(args, names_filter, number, kwargs)
        for name in self.hook_dict:
            if name in cache and f"{name}_grad" not in cache:
                raise InputError(
                    f"no gradient reaches {name}: the module does not go on with what is there, "
                    "or not by functions that torch differentiates"
                )
        return out, cache

    def check_hooks(self, requested: HookName | Sequence[HookName] | None) -> None:
        """Refuse a hook that nobody named, and say how it is given.

        Raises:
            InputError: naming it.
        """
        names = [requested] if isinstance(requested, str) else requested
        if isinstance(names, (list, tuple)):
            for name in names:
                if isinstance(name, str) and name not in self.hook_dict:
                    raise self._unnamed(name)
        check_names(requested, self.hook_dict)

    def _unnamed(self, name: str) -> Lacks:
        how = GIVEN_BY.get(name.rpartition(".")[2], f"points={{{name!r}: ...}}")
        known = ", ".join(list(self.hook_dict)[:5]) or "none"
        return Lacks(
            f"this adapted module has no {name}: nothing was named that plays its part; give "
            f"{how} to icl_interp.adapt (it has "
            f"{known}{', ...' if len(self.hook_dict) > 5 else ''})"
        )
