"""Laws of a single number: of inputs and of coefficients."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, is_real, shown


@runtime_checkable
class Distribution(Protocol):
    """The interface of a law of inputs or coefficients.

    `Uniform` and `Normal` have it, and so can a law that you register.
    """

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent draws of the given shape."""
        ...

    def scaled(self, factor: float) -> Any:
        """The law of `factor` times a draw."""
        ...

    @property
    def interval(self) -> tuple[float, float]:
        """The band called *in distribution*."""
        ...

    @property
    def mean(self) -> float:
        """E of a draw."""
        ...

    @property
    def std(self) -> float:
        """The root of its variance."""
        ...


def is_law(value: object) -> bool:
    """Whether it is a law, not the class of one."""
    return isinstance(value, Distribution) and not isinstance(value, type)


def still_said(thing: object, what: str, *about: str) -> bool:
    """Whether a statement of a class holds of this object.

    It does not where a subclass redefines a method that the statement is about.

    Args:
        thing: a task or a law.
        what: the attribute that says something, for example "symmetric".
        about: methods that it is said about, for example "sample".
    """
    classes = type(thing).__mro__

    def place(name: str) -> int:
        for i, cls in enumerate(classes):
            if name in vars(cls):
                return i
        return 0  # of the object's own

    return all(place(what) <= place(name) for name in about)


def is_symmetric(law: object) -> bool:
    """Whether a law is known to be symmetric about its mean.

    Such a law sets `symmetric = True`, as `Uniform` and `Normal` do.

    A subclass with a `sample` of its own must say so anew.
    """
    return getattr(law, "symmetric", False) is True and still_said(law, "symmetric", "sample")


@dataclass(frozen=True)
class Uniform:
    """U(low, high).

    >>> Uniform(-1, 1).scaled(3)
    Uniform(low=-3, high=3)
    """

    symmetric: ClassVar[bool] = True

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (is_real(self.low) and is_real(self.high) and self.low < self.high):
            got = f"({shown(self.low)}, {shown(self.high)})"
            raise InputError(f"Uniform needs two finite numbers, the lower first, but got {got}")

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent draws of the given shape."""
        shares = torch.rand(shape, generator=generator, dtype=dtype)
        return shares * (self.high - self.low) + self.low

    def scaled(self, factor: float) -> "Uniform":
        """The law of `factor` times a draw, for a positive factor."""
        return replace(self, low=self.low * factor, high=self.high * factor)

    @property
    def interval(self) -> tuple[float, float]:
        """Where all draws lie: the band called *in distribution*."""
        return self.low, self.high

    @property
    def mean(self) -> float:
        """The middle of the interval."""
        return (self.low + self.high) / 2

    @property
    def std(self) -> float:
        """Its length over the root of 12."""
        return (self.high - self.low) / math.sqrt(12)


@dataclass(frozen=True)
class Normal:
    """N(mean, std^2). `Normal(2)` is centred with standard deviation 2."""

    symmetric: ClassVar[bool] = True

    std: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        if not (is_real(self.std) and is_real(self.mean) and self.std > 0):
            got = f"std={shown(self.std)}, mean={shown(self.mean)}"
            raise InputError(
                f"Normal needs a finite mean and a positive, finite std, but got {got}"
            )

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent draws of the given shape."""
        normal = torch.randn(shape, generator=generator, dtype=dtype)
        return normal * self.std + self.mean

    def scaled(self, factor: float) -> "Normal":
        """The law of `factor` times a draw, for a positive factor."""
        return replace(self, std=self.std * factor, mean=self.mean * factor)

    @property
    def interval(self) -> tuple[float, float]:
        """Two standard deviations to each side: the band *in distribution* (95 % of draws)."""
        reach = 2 * self.std
        return self.mean - reach, self.mean + reach
