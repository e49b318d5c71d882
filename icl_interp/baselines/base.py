"""What a predictor and its parts are, and the predictor that knows nothing."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.prompts import Prompts


@runtime_checkable
class Features(Protocol):
    """Anything that turns inputs into features, such as a task."""

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """Features in which the functions are linear; None where there are none."""
        ...


@runtime_checkable
class Law(Protocol):
    """A law of numbers with its first two moments, such as `tasks.Uniform(-1, 1)`."""

    @property
    def mean(self) -> float:
        """E a."""
        ...

    @property
    def std(self) -> float:
        """The root of Var a."""
        ...


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts each point of a prompt from the points before it.

    Where the values are numbers, `(batch, point)` will do.
    """

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Predictions; NaN where there is none."""
        ...


def predictions(predictor: Predictor, prompts: Prompts) -> Float[Tensor, "batch point target"]:
    """What a predictor says, in float64 on the CPU; refused where its shape is not that of the values.

    Raises:
        InputError: no tensor, or another shape, which would broadcast against the values.
    """
    out = predictor.predict(prompts)
    if not isinstance(out, Tensor):
        raise InputError(
            f"predict(prompts) must return a torch tensor, shape {tuple(prompts.ys.shape)} here, "
            f"but {type(predictor).__name__} returned {shown(out)} ({type(out).__name__}): wrap it "
            "in torch.as_tensor"
        )
    out = out.double().cpu()
    if prompts.n_targets == 1 and out.ndim == 2:
        out = out[..., None]
    if out.shape != prompts.ys.shape:
        raise InputError(
            f"predict(prompts) must return a value for each point, shape {tuple(prompts.ys.shape)} "
            f"here, but {type(predictor).__name__} returned shape {tuple(out.shape)}"
        )
    return out


@dataclass(frozen=True)
class Zero:
    """Predicts 0: the reference that knows nothing."""

    name: str = "zero"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """Zeros."""
        return torch.zeros_like(prompts.ys, dtype=torch.float64)


@dataclass(frozen=True)
class Powers:
    """The features 1, x, ..., x^degree of inputs of one coordinate.

    >>> Powers(2).features(torch.tensor([[[3.0]]]))
    tensor([[[1., 3., 9.]]])
    """

    degree: int

    def __post_init__(self) -> None:
        whole("degree", self.degree, 0)

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """Powers of x, lowest first."""
        if xs.shape[-1] != 1:
            raise InputError(
                f"powers of x need inputs of one coordinate, but these have {xs.shape[-1]}"
            )
        return xs ** torch.arange(self.degree + 1, dtype=xs.dtype)


@dataclass(frozen=True)
class Inputs:
    """The inputs themselves as features, without an intercept: a linear fit for a task that has no features."""

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """x."""
        return xs


INPUTS = Inputs()


@dataclass(frozen=True)
class Signs:
    """The signs of the inputs, 1, 0 or -1: for algorithms that are told that nothing else counts.

    >>> Signs().features(torch.tensor([[[3.0, -0.5, 0.0]]]))
    tensor([[[ 1., -1.,  0.]]])
    """

    name: str = "signs"

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """sign(x)."""
        return xs.sign()


def features_of(
    source: Features, xs: Float[Tensor, "batch point dim"]
) -> Float[Tensor, "batch point feature"]:
    """The features of inputs.

    Raises:
        InputError: the source has none, so that nothing can be regressed on them, or none for each
            point.
    """
    features = source.features(xs)
    if features is None:
        raise InputError(
            f"the functions of a {type(source).__name__} are linear in no fixed features, so "
            "regression does not apply: give the task a features method if they are"
        )
    got = (
        f"shape {tuple(features.shape)}"
        if isinstance(features, Tensor)
        else f"a {type(features).__name__}"
    )
    if not isinstance(features, Tensor) or features.ndim != 3 or features.shape[:2] != xs.shape[:2]:
        raise InputError(
            f"{type(source).__name__}.features must return a torch tensor (batch, point, feature), "
            f"shape ({xs.shape[0]}, {xs.shape[1]}, number of features) here, but returned {got}"
        )
    return features


def positive(name: str, value: float, advice: str = "") -> None:
    """Refuse anything but a positive, finite number."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a positive number, but got {value!r}{advice}")


def whole(name: str, value: int, least: int) -> None:
    """Refuse anything but a whole number from `least` up."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number from {least} up, but got {value!r}")
