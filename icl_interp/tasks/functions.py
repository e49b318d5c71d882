"""Functions of one number: polynomials, and continuous functions that polynomials approximate."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown, unknown
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Distribution, Normal, Uniform, is_symmetric

MAX_DEGREE = 10**6  # a function has a number for each degree up to it


@dataclass(frozen=True, kw_only=True)
class Polynomial(Task):
    """a_0 + a_1 x + ... + a_n x^n with independent coefficients.

    n is drawn uniformly from `degrees` for each function.

    Source: Naim & Asher (2025), section 3.2, equation (2). `degrees=(1,)` are affine functions;
    `degrees=(1, 3, 5)` is their mixture with gaps.

    >>> from icl_interp.provenance import generator
    >>> task = Polynomial(
    ...     degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20
    ... )
    >>> prompts = task.sample(3, generator(0, "doc"), n_contexts=2)
    >>> prompts.xs.shape, prompts.ys.shape, prompts.parameters.shape
    (torch.Size([6, 20, 1]), torch.Size([6, 20, 1]), torch.Size([6, 2]))
    """

    degrees: tuple[int, ...]
    coefficients: Distribution

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_law("coefficients")
        if not isinstance(self.degrees, (tuple, list)):
            raise InputError(
                "degrees must be a list of whole numbers, for example (1,), but got "
                f"{shown(self.degrees)}"
            )
        object.__setattr__(self, "degrees", tuple(self.degrees))
        if not self.degrees or not all(map(_is_degree, self.degrees)):
            raise InputError(
                "degrees must be whole numbers from 0 up, at least one, but got "
                f"{shown(self.degrees)}"
            )
        if max(self.degrees) > MAX_DEGREE:
            raise InputError(
                f"degrees must be at most {MAX_DEGREE:,}, but got {shown(max(self.degrees))}"
            )

    @property
    def max_degree(self) -> int:
        """The largest degree that can come."""
        return max(self.degrees)

    @property
    def n_determining(self) -> int:
        """n + 1 points determine a polynomial of degree n."""
        return self.max_degree + 1

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Coefficients, lowest degree first; those above a function's own degree are zero."""
        n_powers = self.max_degree + 1
        values = self.coefficients.sample((n_functions, n_powers), generator, dtype)
        choice = torch.randint(len(self.degrees), (n_functions,), generator=generator)
        degree = torch.tensor(self.degrees)[choice]
        present = torch.arange(n_powers) <= degree[:, None]
        return values * present

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The mean of each coefficient up to the function's own degree, 0 above it."""
        if not is_symmetric(self.coefficients):
            return None
        power = torch.arange(self.max_degree + 1, device=parameters.device)
        # A coefficient is almost never drawn as 0.
        highest = ((parameters != 0) * power).amax(-1)
        degrees = torch.tensor(sorted(set(self.degrees)), device=parameters.device)
        place = torch.searchsorted(degrees, highest)
        degree = degrees[place]
        present = power <= degree[:, None]
        return self.coefficients.mean * present.to(parameters.dtype)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """The polynomial whose k-th coefficient is E[a] P(degree >= k)."""
        shares = []
        n_degrees = len(self.degrees)
        for k in range(self.max_degree + 1):
            n_reaching = sum(degree >= k for degree in self.degrees)
            shares.append(n_reaching / n_degrees)
        present = torch.tensor(shares, dtype=xs.dtype, device=xs.device)
        coefficients = self.coefficients.mean * present
        return self.targets(coefficients.expand(len(xs), -1), xs)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """The polynomial by Horner's rule."""
        x = xs[..., 0]
        total = torch.zeros_like(x)
        for coefficient in parameters.unbind(-1)[::-1]:
            total = total * x + coefficient[:, None]
        return total

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """1, x, ..., x^n for the largest degree n."""
        powers = torch.arange(self.max_degree + 1, dtype=xs.dtype)
        return xs[..., 0, None] ** powers

    def with_degrees(self, degrees: tuple[int, ...]) -> Self:
        """The same task on other degrees."""
        return replace(self, degrees=degrees)

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The task with coefficients and inputs scaled, each by its own factor.

        From U(-1, 1) `scaled(sigma)` gives the test distribution U(-sigma, sigma) of Tables 1 to 3.
        A seed's draws are scaled too, so that tasks that differ in these factors only have the same
        functions, times a number.
        """
        coefficients = self.coefficients.scaled(functions)
        return replace(self, coefficients=coefficients, inputs=self.inputs.scaled(inputs))


def _is_degree(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return value >= 0


FunctionName = Literal["exp", "sin", "log1p", "abs"]
CONTINUOUS = {"exp": torch.exp, "sin": torch.sin, "log1p": torch.log1p, "abs": torch.abs}


@dataclass(frozen=True, kw_only=True)
class Continuous(Task):
    """One fixed function: exp(x), sin(x), ln(1+x) or |x|, times a random amplitude if given.

    Source: Naim & Asher (2025), section 4.2, Figures 1 and 6. A model trained on polynomials is
    asked to follow a function outside its family. `amplitude=None` keeps the function itself: then
    every prompt shares it.
    """

    function: FunctionName
    amplitude: Distribution | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.amplitude is not None:
            self._check_law("amplitude")
        if not isinstance(self.function, str) or self.function not in CONTINUOUS:
            raise unknown("function", self.function, CONTINUOUS)
        reaches_pole = not isinstance(self.inputs, Uniform) or self.inputs.low <= -1
        if self.function == "log1p" and reaches_pole:
            raise InputError(
                f"log1p needs inputs above -1, for example Uniform(0, 1), but got {self.inputs}"
            )
        # Each of these functions is largest at an end of an interval, or bounded.
        ends = torch.tensor(self.inputs.interval, dtype=torch.float64)
        function = CONTINUOUS[self.function]
        values = function(ends)
        if not values.isfinite().all():
            raise InputError(
                f"{self.function} is not finite on {self.inputs}: choose a smaller range of inputs"
            )

    @property
    def n_determining(self) -> int:
        """One point fixes the amplitude.

        A fixed function needs none, but a first guess is not held against a model.
        """
        return 1

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """The amplitude of each function."""
        if self.amplitude is None:
            return torch.ones(n_functions, 1, dtype=dtype)
        return self.amplitude.sample((n_functions, 1), generator, dtype)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The mean amplitude; None for the fixed function."""
        if self.amplitude is None or not is_symmetric(self.amplitude):
            return None
        return torch.full_like(parameters, self.amplitude.mean)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """The function times its mean amplitude."""
        mean = 1.0
        if self.amplitude is not None:
            mean = self.amplitude.mean
        amplitudes = torch.full((len(xs), 1), mean, dtype=xs.dtype, device=xs.device)
        return self.targets(amplitudes, xs)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """amplitude * function(x); NaN where the function is not defined."""
        function = CONTINUOUS[self.function]
        values = function(xs[..., 0])
        return parameters[:, :1] * values

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """The function itself."""
        function = CONTINUOUS[self.function]
        return function(xs)


KINDS: dict[str, type] = {cls.__name__: cls for cls in (Polynomial, Continuous, Uniform, Normal)}
