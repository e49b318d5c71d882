"""What every task is: a law of functions, a law of inputs, and a number of points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.prompts import Prompts
from icl_interp.tasks.distributions import Distribution, is_law


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
        if not is_law(getattr(self, name)):
            raise InputError(
                f"{name} must be a law, for example Uniform(-1, 1), but got {getattr(self, name)!r} (a law of your own "
                "needs sample, scaled, interval, mean and std)"
            )

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

    def features(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point feature"] | None:
        """Features in which every function of the task is linear: what least squares regresses on.

        None, as here, for functions that are linear in no fixed features, such as networks: then nothing is compared
        with least squares.
        """
        return None

    @property
    def has_features(self) -> bool:
        """Whether there are `features` for least squares."""
        return self.features(torch.zeros(1, 1, self.dim, dtype=torch.float64)) is not None

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
        ys = self.value(parameters, xs)
        if ys.shape != xs.shape[:2]:  # a column too many would broadcast against predictions, and nobody would notice
            raise InputError(
                f"{type(self).__name__}.value must return a number for each point, shape {tuple(xs.shape[:2])} here, "
                f"but returned shape {tuple(ys.shape)}"
            )
        return checked(self, Prompts(xs, ys, parameters, function))

    def with_points(self, n_points: int) -> Self:
        """The same task with prompts of another length."""
        return replace(self, n_points=n_points)


@runtime_checkable
class Scalable(Protocol):
    """A task whose functions and inputs can be scaled: what a shift asks for."""

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Task:
        """The task with functions and inputs scaled, each by its own factor."""
        ...


def checked(task: Task, prompts: Prompts) -> Prompts:
    """The prompts, if an error can be computed on them: the sum of some million squares must be a number.

    Raises:
        InputError: numbers that are NaN, infinite or too large for their dtype.
    """
    limit = 1e-3 * torch.finfo(prompts.ys.dtype).max ** 0.5
    for name, values in (("inputs", prompts.xs), ("values", prompts.ys)):
        largest = values.abs().amax().item()
        if not largest <= limit:
            raise InputError(
                f"{name} of this {type(task).__name__} reach {largest:.2g}, and squares of numbers beyond {limit:.0e} "
                f"overflow in {str(prompts.ys.dtype).removeprefix('torch.')}: choose laws of a smaller range"
            )
    return prompts
