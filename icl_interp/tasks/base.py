"""What every task is: a law of functions, a law of inputs, and a number of points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.prompts import Prompts
from icl_interp.tasks.distributions import Distribution


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Prompts of `n_points` points of a random function; the last point is the query.

    Attributes:
        inputs: the law of each coordinate of x.
        n_points: points of a prompt, the query included: the query sees `n_points - 1` pairs.
    """

    inputs: Distribution
    n_points: int

    def __post_init__(self) -> None:
        if self.n_points < 2:
            raise InputError(f"n_points counts the query too, so it must be at least 2, but got {self.n_points}")
        self._check_law("inputs")

    def _check_law(self, name: str) -> None:
        """Refuse anything but a distribution: a mapping without its kind, a bare number."""
        if not isinstance(getattr(self, name), Distribution):
            raise InputError(f"{name} must be a law, for example Uniform(-1, 1), but got {getattr(self, name)!r}")

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return 1

    @property
    @abstractmethod
    def n_determining(self) -> int:
        """How many points determine the function: earlier predictions are guesses and not scored."""

    @abstractmethod
    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Parameters of independent functions."""

    @abstractmethod
    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """f(x) for one function a row, also far outside the training range."""

    @abstractmethod
    def features(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point feature"]:
        """Features in which every function of the task is linear: what least squares regresses on."""

    def sample(
        self,
        n_functions: int,
        generator: torch.Generator,
        *,
        n_contexts: int = 1,
        n_points: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Prompts:
        """Fresh prompts: `n_functions` functions, each with `n_contexts` independent contexts, function-major."""
        parameters = self.sample_parameters(n_functions, generator, dtype)
        function: Int[Tensor, " batch"] = torch.arange(n_functions).repeat_interleave(n_contexts)
        parameters = parameters[function]
        shape = (n_functions * n_contexts, n_points or self.n_points, self.dim)
        xs = self.inputs.sample(shape, generator, dtype)
        return Prompts(xs, self.value(parameters, xs), parameters, function)

    def with_points(self, n_points: int) -> Self:
        """The same task with prompts of another length."""
        return replace(self, n_points=n_points)
