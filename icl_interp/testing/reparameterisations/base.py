"""What an edit is: another set of weights that computes the same function of every prompt.

A model's function does not fix its weights. What an analysis says about the function must therefore
be the same for all weights that compute it; what it says about the weights themselves may differ,
and each edit names that.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.folding import Weights
from icl_interp.models.transformer import HookedTransformer

Family = Literal[
    "width",
    "unread",
    "basis",
    "norm gains",
    "heads",
    "idle heads",
    "values",
    "biases",
    "layers",
    "shape",
    "mlp",
    "targets",
]
# What weights of one function may differ in. A claim about one of these may get another verdict
# after an edit.
Aspect = Literal[
    "certificate",  # half-width of the interval that the last norm keeps the output in
    # Overlap of their maps and outputs, and what random rotations of the stream make of it.
    "overlap of heads",
    "weight maps",  # W_V W_O and W_Q W_K^T as they stand, without the norm before them
    # Regularised regression on the stream, which is not invariant under a change of coordinates.
    "affine lens",
    "order of heads",  # which head is called the first
    # Which heads a layer has, idle ones among them: rows of a list, and shares of all that are
    # listed.
    "list of heads",
    "balance",  # how large one factor of a product is beside the other
    # How much of something a single head makes up, and whether it matters by itself.
    "shares of heads",
    "depth",  # how many layers there are, and which is the last
    "single layer",  # whether it is one layer, as theorems about one layer ask
    "single head",  # whether a layer has one head
    "zero reference",  # what the prediction 0, or the size of the targets, is compared with
    "kind of task",  # the class of the task
]
Config = HookedTransformerConfig


@dataclass(frozen=True)
class Edit:
    """Another set of weights for the same function.

    Attributes:
        name: what is done, in a few words.
        family: which part of the model it is about.
        refusal: why it would not leave the function of a model with this config, or has nothing to
            change; None where it applies.
        change: edits a copy of the weights in place and returns the config that they have then.
            Random choices come from the generator.
        may_change: what a claim may be about whose verdict need not stay.
        may_refuse: what a claim may be about that need not apply any more, as one about layers of a
            single head. Where it still applies, its verdict must stay.
        sized: whether `change` draws a size, and takes `sizes`, which draws it, by name.
    """

    name: str
    family: Family
    refusal: Callable[[Config], str | None]
    change: Callable[..., Config]
    may_change: tuple[Aspect, ...] = ()
    may_refuse: tuple[Aspect, ...] = ()
    sized: bool = False

    def applies(self, cfg: Config) -> str | None:
        """Why it does not apply to models of this config; None where it does.

        Positions that act on scores tie heads, their order and their coordinates to places: no edit
        is written for them.
        """
        if cfg.positions_in_scores:
            return f"its {cfg.positional_embedding_type} positions act on scores"
        return self.refusal(cfg)

    def apply(
        self,
        model: HookedTransformer,
        generator: torch.Generator,
        sizes: torch.Generator | None = None,
    ) -> HookedTransformer:
        """The edited model, in float64; the given one stays as it is.

        Args:
            model: is edited.
            generator: makes all random choices.
            sizes: makes that of the size instead, where the edit has one: models that differ in one
                respect keep a common shape if they get the same size.

        Raises:
            InputError: the edit does not apply; the message says why.
        """
        if reason := self.applies(model.cfg):
            raise InputError(
                f"the edit {self.name!r} does not leave the function of this model: {reason}"
            )
        weights = weights_of(model)
        named = {"sizes": sizes} if self.sized else {}
        return made(weights, self.change(weights, freed(model.cfg), generator, **named), model)


Sizes = tuple[float, float]  # what a size is drawn between, evenly on the logarithm
SMALL: Sizes = (0.01, 0.1)
LARGE: Sizes = (10.0, 100.0)


def sized(
    name: str,
    family: Family,
    refusal: Callable[[Config], str | None],
    change: Callable[[Weights, Config, torch.Generator, float], Config],
    may_change: tuple[Aspect, ...] = (),
    may_refuse: tuple[Aspect, ...] = (),
    *,
    small: Sizes = SMALL,
    large: Sizes = LARGE,
) -> tuple[Edit, Edit]:
    """An edit that has a size, at a large one and at a small one: each is drawn from the generator.

    What an analysis overlooks at one size may mislead it at another.

    Args:
        name: as `Edit` has it; the size is added.
        family: as `Edit` has it.
        refusal: as `Edit` has it.
        change: as `Edit` has it, with the size as last argument.
        may_change: as `Edit` has it.
        may_refuse: as `Edit` has it.
        small: what the small size is drawn between.
        large: what the large size is drawn between.
    """

    def of_size(between: Sizes) -> Callable[..., Config]:
        low, high = map(math.log, between)

        def drawn(
            weights: Weights,
            cfg: Config,
            draw: torch.Generator,
            sizes: torch.Generator | None = None,
        ) -> Config:
            share = float(torch.rand((), generator=sizes or draw, dtype=torch.float64))
            return change(weights, cfg, draw, math.exp(low + share * (high - low)))

        return drawn

    return (
        Edit(f"{name} (large)", family, refusal, of_size(large), may_change, may_refuse, True),
        Edit(f"{name} (small)", family, refusal, of_size(small), may_change, may_refuse, True),
    )


def weights_of(model: HookedTransformer) -> Weights:
    """A copy of a model's weights, in float64 on the CPU."""
    return {
        name: weight.detach().to("cpu", torch.float64, copy=True)
        for name, weight in model.state_dict().items()
    }


def made(weights: Weights, cfg: Config, like: HookedTransformer | None = None) -> HookedTransformer:
    """The model with these weights, in float64.

    Args:
        weights: by name.
        cfg: their shape.
        like: a model whose class it gets, with what an object of that class has beside its weights:
            a path of its own, for one. A plain `HookedTransformer` by default.

    Raises:
        InputError: that class cannot be made of a config alone.
    """
    kind = HookedTransformer if like is None else type(like)
    try:
        model = kind(cfg)
    except TypeError as error:
        raise InputError(
            f"an edited model of the class {kind.__name__} is made by {kind.__name__}(cfg), but "
            f"that fails: {error}"
        ) from error
    if like is not None:
        _take_over(model, like)
    model.double().eval().load_state_dict(weights)
    return model


def _take_over(model: HookedTransformer, like: HookedTransformer) -> None:
    """Copy to a model what another one of its class was given after it was made."""
    mine = vars(model)
    for name, value in vars(like).items():
        if name not in mine:
            setattr(model, name, copy.deepcopy(value))
    for kind in ("_parameters", "_buffers", "_modules"):
        for name, value in vars(like)[kind].items():
            if name not in mine[kind]:
                mine[kind][name] = copy.deepcopy(value)


def freed(cfg: Config) -> Config:
    """The config of a model whose weights are all free.

    Those that a unit (`cfg.unit`) does not learn may have been edited, too, biases that are left
    out, and the read-in of tokens as they are.
    """
    return replace(cfg, unit=None, read_in="learned", no_bias=None)


def differ(before: HookedTransformer, after: HookedTransformer) -> bool:
    """Whether an edit changed anything: a bias that is 0 already cannot be dropped."""
    mine = weights_of(before)
    theirs = weights_of(after)
    if freed(before.cfg) != freed(after.cfg) or mine.keys() != theirs.keys():
        return True
    # Weights of unlike shapes are not equal either.
    return not all(torch.equal(weight, theirs[name]) for name, weight in mine.items())


# ---- parts of a model ----------------------------------------------------------------------------


def has_attention(cfg: Config) -> str | None:
    """Refuses models without attention."""
    return "this model has no attention (mlp_only)" if cfg.mlp_only else None


def resized(cfg: Config, **sizes: Any) -> Config:
    """The config with other sizes; widths of heads and MLP stay unless they are named."""
    return replace(cfg, **sizes)


def size_of(*weights: Tensor) -> float:
    """The root mean square of some weights; 1 where all are 0, so that it can be a factor."""
    numbers = torch.cat([one.flatten() for one in weights])
    return float(numbers.square().mean().sqrt()) or 1.0


# ---- random matrices -----------------------------------------------------------------------------


def orthogonal(n: int, draw: torch.Generator) -> Float[Tensor, "n n"]:
    """A random orthogonal matrix by the Haar measure.

    For n = 1 it is -1, since 1 would change nothing.
    """
    if n == 1:
        return -torch.ones(1, 1, dtype=torch.float64)
    q, r = torch.linalg.qr(torch.randn(n, n, generator=draw, dtype=torch.float64))
    return q * r.diagonal().sign()


def keeping_ones(n: int, draw: torch.Generator) -> Float[Tensor, "n n"]:
    """A random orthogonal matrix that keeps (1, ..., 1), so that it commutes with centring."""
    columns = torch.randn(n, n, generator=draw, dtype=torch.float64)
    columns[:, 0] = 1
    basis = torch.linalg.qr(columns).Q
    inner = torch.eye(n, dtype=torch.float64)
    inner[1:, 1:] = orthogonal(n - 1, draw)
    return basis @ inner @ basis.T


class Invertible(NamedTuple):
    """A matrix and its inverse."""

    matrix: Float[Tensor, "n n"]
    inverse: Float[Tensor, "n n"]


def well_conditioned(n: int, draw: torch.Generator, stretch: float = 2.0) -> Invertible:
    """A random matrix with singular values between 1 / stretch and stretch; orthogonal for 1."""
    left = orthogonal(n, draw)
    right = orthogonal(n, draw)
    if n == 1:
        left = -left  # two signs would cancel
    sizes = stretch ** (2 * torch.rand(n, generator=draw, dtype=torch.float64) - 1)
    return Invertible(left * sizes @ right, right.T / sizes @ left.T)
