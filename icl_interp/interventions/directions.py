"""Edits along directions of an activation: move along one, or take several out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.interventions.base import Hook, Intervention
from icl_interp.models.hooked import HookedModel

# Activations with an axis of heads before the last one.
OF_HEADS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")
NOT_VECTORS = ("hook_attn_scores", "hook_pattern", "hook_scale")
SHAPES = {1: "(width,)", 2: "(direction, width)"}
Change = Callable[..., Tensor]
SMALL = 1e-10  # singular values below this share of the largest are directions given twice


@dataclass(frozen=True)
class Steer(Intervention):
    """Add a multiple of a direction to an activation, at every token: h + by * direction.

    The direction is added as it is, not scaled to length 1. `At((-1,), Steer(...))` acts at the
    last token alone.

    Assumes that the activation moved so is still one that later layers read as they do others;
    compare with the spread of the activation along the direction.

    Source: Turner et al. (2023), "Activation addition: steering language models without
    optimization"; Li, Patel, Viegas, Pfister & Wattenberg (2023), "Inference-time intervention".

    Attributes:
        direction: `(d_model,)`, or as wide as the activation.
        by: how much of it; one number, or one a prompt, `(prompt,)`.
        at: the hook, for example "blocks.1.hook_resid_post".
        head: which one, where the activation has an axis of heads.

    Raises:
        InputError: a direction that is no finite vector; a hook whose activation is no vector, or
            one of heads without `head`; in a run, another width or another number of prompts.

    What is added can be taken off again:

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).double().eval()
    >>> tokens = torch.linspace(-1, 1, 5).double()[None, :, None]
    >>> before, up = model(tokens), torch.ones(8).double()
    >>> hook = "blocks.0.hook_resid_pre"
    >>> with intervene(model, Steer(up, 2.0, hook), Steer(-up, 2.0, hook)):
    ...     torch.allclose(model(tokens), before)
    True
    """

    direction: Tensor
    by: float | Float[Tensor, " prompt"]
    at: str
    head: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", _finite(self.direction, "a direction", 1))
        by = torch.as_tensor(self.by)
        if by.ndim > 1 or not torch.isfinite(by).all():
            raise InputError(
                f"by must be a finite number, or one for each prompt, but got {shown(self.by)}"
            )

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One."""
        return [(self.at, _edit(model, self.at, self.head, self._moved))]

    def _moved(self, t: Tensor) -> Tensor:
        _check_width(self.at, t, self.direction)
        by = torch.as_tensor(self.by).to(t)
        direction = self.direction.to(t)
        if by.ndim == 0:
            return t + by * direction
        n_given = len(by)
        n_prompts = len(t)
        if n_given != n_prompts:
            raise InputError(
                f"Steer has a number for each of {n_given} prompts, but the run has {n_prompts}"
            )
        moved = by[:, None, None] * direction
        return t + moved


@dataclass(frozen=True)
class ProjectOut(Intervention):
    """Take what an activation holds along some directions away, at every token.

    h - (h - about) Q Q^T with an orthonormal basis Q of the directions: along them the activation
    is that of `about` afterwards, whatever the prompt; across them it is unchanged.

    Assumes that the value of `about` along the directions is one that later layers know: 0 may be
    none, the mean over prompts (`mean_activations`) is nearer.

    Source: Ravfogel, Elazar, Gonen, Twiton & Goldberg (2020), "Null it out"; Belrose et al. (2023),
    "LEACE", for what a projection can and cannot erase.

    Attributes:
        directions: rows, `(direction, width)`, or a single vector; of any length.
        at: the hook, for example "blocks.1.hook_resid_post".
        head: which one, where the activation has an axis of heads.
        about: where the activation is put along the directions, `(width,)`; 0 by default.

    Raises:
        InputError: as for `Steer`; directions that are all 0.

    Twice is as much as once:

    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, init_std=1.0)
    >>> model = HookedTransformer(config).double().eval()
    >>> tokens = torch.linspace(-1, 1, 5).double()[None, :, None]
    >>> edit = ProjectOut(torch.ones(8).double(), "blocks.0.hook_resid_post")
    >>> with intervene(model, edit):
    ...     once = model(tokens)
    ...     with intervene(model, edit):
    ...         torch.allclose(model(tokens), once)
    True
    """

    directions: Tensor
    at: str
    head: int | None = None
    about: Tensor | None = None

    def __post_init__(self) -> None:
        rows = _finite(self.directions, "directions", 2)
        object.__setattr__(self, "directions", rows)
        if self.about is not None:
            object.__setattr__(self, "about", _finite(self.about, "about", 1))
        if not rows.any():
            raise InputError("directions to project out must not all be 0")

    @property
    def basis(self) -> Float[Tensor, "width rank"]:
        """Orthonormal columns that span the directions."""
        rows = torch.atleast_2d(self.directions)
        _, sizes, right = torch.linalg.svd(rows, full_matrices=False)
        own = sizes > SMALL * sizes[0]
        return right[own].mT

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One."""
        clear = partial(self._cleared, self.basis)
        return [(self.at, _edit(model, self.at, self.head, clear))]

    def _cleared(self, basis: Tensor, t: Tensor) -> Tensor:
        _check_width(self.at, t, basis)
        basis = basis.to(t)
        centred = t
        if self.about is not None:
            centred = t - self.about.to(t)
        along = centred @ basis
        return t - along @ basis.mT


def _edit(model: HookedModel, at: str, head: int | None, change: Change) -> Change:
    """A function of an activation that changes all of it, or one head's part."""
    model.check_hooks([at])
    kind = at.rpartition(".")[2]
    if kind in NOT_VECTORS:
        raise InputError(f"{at} holds numbers, not vectors, so it has no directions")
    of_heads = kind in OF_HEADS
    if of_heads and head is None:
        raise InputError(f"{at} has an axis of heads: name one with head=")
    if head is not None and not of_heads:
        raise InputError(f"{at} has no axis of heads: leave head= out")
    if head is not None:
        n_heads = model.cfg.n_heads
        if not 0 <= head < n_heads:
            raise InputError(f"there is no head {shown(head)} at {at}: the model has {n_heads}")

    def edit(t: Tensor, hook: object) -> Tensor:
        if head is None:
            return change(t)
        edited = t.clone()
        own = t[:, :, head]
        edited[:, :, head] = change(own)
        return edited

    return edit


def _finite(given: object, what: str, most: int) -> Tensor:
    """A tensor of finite numbers with 1 up to `most` axes, in float64."""
    shape = SHAPES[most]
    if not isinstance(given, Tensor):
        raise InputError(f"{what} must be a tensor {shape}, but got {shown(given)}")
    if given.ndim not in range(1, most + 1) or not given.numel():
        got = tuple(given.shape)
        raise InputError(f"{what} must be a tensor {shape}, but got one of shape {got}")
    if not torch.isfinite(given).all():
        raise InputError(f"{what} must be finite numbers, but some are NaN or infinite")
    values = given.detach()
    return values.double()


def _check_width(at: str, t: Tensor, direction: Tensor) -> None:
    width = t.shape[-1]
    given = len(direction)
    if width != given:
        raise InputError(
            f"a direction of {given} coordinates does not fit {at}, whose vectors have {width}"
        )
