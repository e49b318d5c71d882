"""What every task is: a law of functions, a law of inputs, and a number of points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.prompts import Prompts
from icl_interp.tasks.distributions import Distribution, is_law
from icl_interp.tasks.vectors import VectorLaw


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Prompts of `n_points` points of a random function; the last point is the query.

    Attributes:
        inputs: the law of each coordinate of x, or that of the whole vector (`Sphere`, `Ellipsoid`).
        n_points: points of a prompt, the query included: the query sees `n_points - 1` pairs.
        autoregressive: of the class: y at each point is the x of the next one, so that a prompt is a path. Its points
            cannot change places, and prompts may show states only (`States`).
    """

    autoregressive: ClassVar[bool] = False

    inputs: Distribution
    n_points: int

    def __post_init__(self) -> None:
        if self.n_points < 2:
            raise InputError(f"n_points counts the query too, so it must be at least 2, but got {self.n_points}")
        self._check_law("inputs")
        self._check_dim("inputs", self.dim)

    def _check_law(self, name: str) -> None:
        """Refuse anything but a distribution: a mapping without its kind, a bare number."""
        if not is_law(getattr(self, name)):
            raise InputError(
                f"{name} must be a law, for example Uniform(-1, 1), but got {getattr(self, name)!r} (a law of your own "
                "needs sample, scaled, interval, mean and std)"
            )

    def _check_dim(self, name: str, dim: int) -> None:
        """Refuse a law of vectors of another number of coordinates."""
        law = getattr(self, name)
        if isinstance(law, VectorLaw) and law.dim != dim:
            raise InputError(
                f"{name} of a {type(self).__name__} have {dim} coordinates here, but {law} is a law of vectors of "
                f"{law.dim}"
            )

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return 1

    @property
    def n_targets(self) -> int:
        """Coordinates of a value y = f(x)."""
        return 1

    @property
    def default_encoding(self) -> str:
        """How models read prompts of this task, where nothing else is said: the name of an encoding."""
        return "states" if self.autoregressive else "interleaved"

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
    ) -> Float[Tensor, "batch point"] | Float[Tensor, "batch point target"]:
        """f(x) for one function a row, also far outside the training range.

        Where values are numbers, the last axis may be left out. `targets` gives it always.
        """

    def targets(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """`value`, with an axis for the coordinates of a value.

        Raises:
            InputError: `value` returned another shape.
        """
        ys, wanted = self.value(parameters, xs), (*xs.shape[:2], self.n_targets)
        if self.n_targets == 1 and ys.ndim == 2:
            ys = ys[..., None]
        if ys.shape != wanted:  # a column too many would broadcast against predictions, and nobody would notice
            raise InputError(
                f"{type(self).__name__}.value must return a value for each point, shape {wanted} here (the last axis "
                f"is n_targets={self.n_targets}), but returned shape {tuple(ys.shape)}"
            )
        return ys

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
        function = torch.arange(n_functions).repeat_interleave(n_contexts)
        parameters = self.sample_parameters(n_functions, generator, dtype)[function]
        xs, ys = self.sample_points(parameters, n_points or self.n_points, generator, dtype)
        if self.autoregressive and not torch.equal(ys[:, :-1], xs[:, 1:]):
            raise InputError(
                f"{type(self).__name__} is autoregressive, so the value at each point must be the input of the next "
                "one: override sample_points so that it returns a path"
            )
        return checked(self, Prompts(xs, ys, parameters, function))

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """The points (xs, ys) of one prompt a row: here independent inputs and the values there."""
        xs = self.inputs.sample((len(parameters), n_points, self.dim), generator, dtype)
        return xs, self.targets(parameters, xs)

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
