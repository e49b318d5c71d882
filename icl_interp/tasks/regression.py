"""Linear regression in context: y = <w, x>, with every shift that the study `linear_attention` asks about."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, is_real, real, shown, whole
from icl_interp.tasks import covariance
from icl_interp.tasks.base import Task
from icl_interp.tasks.covariance import Rows, Vector
from icl_interp.tasks.distributions import Distribution, Normal, Uniform, is_law, is_symmetric
from icl_interp.tasks.garg import skewed_covariance


@dataclass(frozen=True)
class Exponential:
    """The exponential law with this mean.

    >>> moment(Exponential(), 3)
    6.0
    """

    mean: float = 1.0

    def __post_init__(self) -> None:
        if not is_real(self.mean) or self.mean <= 0:
            raise InputError(
                f"Exponential needs a positive, finite mean, but got {shown(self.mean)}"
            )

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent draws of the given shape."""
        return torch.empty(shape, dtype=dtype).exponential_(generator=generator) * self.mean


@dataclass(frozen=True)
class LogNormal:
    """median * e^(std z) with z ~ N(0, 1).

    >>> moment(LogNormal(std=1.0), 2) == math.exp(2)
    True
    """

    std: float
    median: float = 1.0

    def __post_init__(self) -> None:
        if not (is_real(self.std) and is_real(self.median) and self.std > 0 and self.median > 0):
            got = f"std={shown(self.std)}, median={shown(self.median)}"
            raise InputError(f"LogNormal needs a positive, finite std and median, but got {got}")

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent draws of the given shape."""
        return (
            torch.exp(torch.randn(shape, generator=generator, dtype=dtype) * self.std) * self.median
        )


PositiveLaw = Exponential | LogNormal | Uniform
STANDARD = Normal(1.0)
SKEWED = "skewed"  # the word for a covariance in a config


def moment(law: PositiveLaw, order: int) -> float:
    """E[v^order] of a draw v: what the theory of random covariances needs of its law.

    Raises:
        InputError: it is too large for float64.
    """
    try:
        match law:
            case Exponential(mean):
                found = math.factorial(order) * mean**order
            case LogNormal(std, median):
                found = median**order * math.exp((order * std) ** 2 / 2)
            case Uniform(low, high):
                found = (high ** (order + 1) - low ** (order + 1)) / ((order + 1) * (high - low))
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(
            f"the moment of order {order} of {law} is beyond float64: choose a law of a smaller "
            "range"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class LinearRegression(Task):
    """y = <w, x> + noise with x ~ N(0, Lambda) and w ~ N(0, I): w is new in each function, x and noise in each prompt.

    Source: Zhang, Frei & Bartlett (2023), sections 3 and 4; the orthant, Garg et al. (2022), as
    Wu's slides cite it. A prompt of n_points points has the paper's N (in training) or M (at
    test) = n_points - 1 labelled examples.

    Attributes:
        n_dims: d, coordinates of x and of w.
        covariance: Lambda. None is the identity; d numbers are its diagonal, d rows the whole
            matrix; a positive law, for example Exponential(1), draws a fresh diagonal for every
            prompt. In a config the word skewed stands for the rows of `skewed_covariance(n_dims)`,
            with eigenvalues proportional to 1 / i^2.
        covariance_scale: c, Lambda is multiplied by it: c = 1, 4, 9 in the paper's figure.
        inputs: the law of each coordinate of Lambda^(-1/2) x; the theory is about Normal(1).
        weights: the law of each coordinate of w, or d numbers: then every function is that one.
        noise_std: standard deviation of the noise of every label, the query's too.
        query: what the last x is, where that differs from the others: a law of each of its
            coordinates (Lambda then has no part in it), or d numbers.
        single_orthant: each prompt has its own random signs, which every x but the query takes on.

    >>> from icl_interp.provenance import generator
    >>> task = LinearRegression(n_dims=3, covariance=Exponential(1), n_points=11)
    >>> prompts = task.sample(4, generator(0, "doc"), n_contexts=2)
    >>> prompts.xs.shape, prompts.parameters.shape
    (torch.Size([8, 11, 3]), torch.Size([8, 3]))
    """

    symmetric_noise: ClassVar[bool] = True  # normal, and drawn without regard to the function
    compared_with: ClassVar[tuple[str, ...]] = ("averaging estimator",)

    n_dims: int
    inputs: Distribution = STANDARD
    covariance: Vector | Rows | PositiveLaw | None = None
    covariance_scale: float = 1.0
    weights: Distribution | Vector = STANDARD
    noise_std: float = 0.0
    query: Distribution | Vector | None = None
    single_orthant: bool = False

    def __post_init__(self) -> None:
        whole(self.n_dims, "n_dims", 1)
        super().__post_init__()
        if not is_real(self.covariance_scale) or self.covariance_scale <= 0:
            raise InputError(
                "covariance_scale must be a positive number, but got "
                f"{shown(self.covariance_scale)}"
            )
        real(self.noise_std, "noise_std", 0)
        if not isinstance(self.single_orthant, bool):
            raise InputError(
                f"single_orthant must be true or false, but got {shown(self.single_orthant)}"
            )
        for name in ("weights", "query"):
            self._check_law_or_vector(name, optional=name == "query")
        self._check_covariance()

    def _check_law_or_vector(self, name: str, optional: bool) -> None:
        value = getattr(self, name)
        if is_law(value) or (value is None and optional):
            self._check_dim(name, self.n_dims)
            return
        if not covariance.are_numbers(value) or len(value) != self.n_dims:
            raise InputError(
                f"{name} must be a law, for example Normal(1), or {self.n_dims} numbers (n_dims), "
                f"but got {shown(value)}"
            )
        if not any(value) and not self.noise_std:
            what = "every label" if name == "weights" else "the query's label"
            raise InputError(
                f"{name} must not all be 0: without noise {what} would be 0, whatever a model does"
            )
        object.__setattr__(self, name, tuple(value))

    def _check_covariance(self) -> None:
        value: Any = self.covariance
        if isinstance(value, str) and value == SKEWED:
            if (
                self.n_dims > covariance.MAX_ROWS
            ):  # before they are made, which takes as long as their cube
                raise InputError(covariance.too_many_rows(self.n_dims))
            value = skewed_covariance(self.n_dims)
        if value is None or isinstance(value, (Exponential, LogNormal)):
            return
        if isinstance(value, (Uniform, Normal)):
            if isinstance(value, Normal) or value.low < 0:
                raise InputError(
                    "a covariance is drawn from a positive law, for example Exponential(1), not "
                    f"{value}"
                )
            return
        or_else = (
            f", {SKEWED} for those of icl_interp.tasks.skewed_covariance({self.n_dims}), a "
            "positive law such as Exponential(1), or nothing for the identity"
        )
        object.__setattr__(
            self, "covariance", covariance.checked("covariance", value, self.n_dims, or_else)
        )

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return self.n_dims

    @property
    def n_determining(self) -> int:
        """d points determine w; of a shorter prompt the query alone is scored."""
        return min(self.n_dims, self.n_points - 1)

    @property
    def random_covariance(self) -> bool:
        """Whether every prompt draws its own Lambda."""
        return isinstance(self.covariance, PositiveLaw)

    @property
    def covariance_matrix(self) -> Float[Tensor, "dim dim"]:
        """Cov(x) in float64, the scale and the law of `inputs` included: Lambda of the theory.

        Raises:
            InputError: it is drawn for every prompt, or inputs are not Gaussian with mean 0.
        """
        if self.random_covariance:
            raise InputError(
                f"Lambda is drawn from {self.covariance} for every prompt: use spectrum_moments()"
            )
        root = self._root(torch.float64)
        root = torch.diag(root) if root.ndim == 1 else root
        return self._input_variance() * root @ root

    def spectrum_moments(self) -> Float[Tensor, "3 dim"]:
        """E[v], E[v^2], E[v^3] of each diagonal entry v of a Lambda that is diagonal, in float64.

        Raises:
            InputError: Lambda is not diagonal, or inputs are not Gaussian with mean 0.
        """
        if not isinstance(self.covariance, PositiveLaw):
            matrix = self.covariance_matrix
            if not torch.equal(matrix, torch.diag(matrix.diagonal())):
                raise InputError("Lambda is not diagonal: use covariance_matrix")
            return torch.stack([matrix.diagonal() ** order for order in (1, 2, 3)])
        scale = self._input_variance() * self.covariance_scale
        moments = [moment(self.covariance, order) * scale**order for order in (1, 2, 3)]
        return torch.tensor(moments, dtype=torch.float64)[:, None].repeat(1, self.n_dims)

    def _input_variance(self) -> float:
        if not isinstance(self.inputs, Normal) or self.inputs.mean != 0:
            raise InputError(
                "the theory is about inputs of a centred normal law, but this task has "
                f"{self.inputs}"
            )
        return self.inputs.std**2

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """w of each function."""
        if isinstance(self.weights, tuple):
            return torch.tensor(self.weights, dtype=dtype).repeat(n_functions, 1)
        return self.weights.sample((n_functions, self.n_dims), generator, dtype)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The mean of w; None where every function is one."""
        if isinstance(self.weights, tuple) or not is_symmetric(self.weights):
            return None
        return torch.full_like(parameters, self.weights.mean)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """<E w, x>."""
        mean = (
            self.weights if isinstance(self.weights, tuple) else (self.weights.mean,) * self.n_dims
        )
        return self.targets(
            torch.tensor(mean, dtype=xs.dtype, device=xs.device).expand(len(xs), -1), xs
        )

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """<w, x>, without noise."""
        return (xs @ parameters[:, :, None])[..., 0]

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """x itself: there is no intercept."""
        return xs

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """Inputs with this covariance, and labels with this noise."""
        xs = self._sample_inputs(len(parameters), n_points, generator, dtype)
        ys = self.targets(parameters, xs)
        if self.noise_std:
            ys = ys + self.noise_std * torch.randn(ys.shape, generator=generator, dtype=dtype)
        return xs, ys

    def _sample_inputs(
        self, batch: int, n_points: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "batch point dim"]:
        xs = self.inputs.sample((batch, n_points, self.n_dims), generator, dtype)
        if isinstance(self.covariance, PositiveLaw):
            diagonal = self.covariance_scale * self.covariance.sample(
                (batch, 1, self.n_dims), generator, dtype
            )
            xs = xs * diagonal.sqrt()
        else:
            root = self._root(dtype)
            xs = xs * root if root.ndim == 1 else xs @ root
        if self.single_orthant:
            signs = torch.randint(0, 2, (batch, 1, self.n_dims), generator=generator).mul(2).sub(1)
            xs[:, :-1] = xs[:, :-1].abs() * signs
        if isinstance(self.query, tuple):
            xs[:, -1] = torch.tensor(self.query, dtype=dtype)
        elif self.query is not None:
            xs[:, -1] = self.query.sample((batch, self.n_dims), generator, dtype)
        return xs

    def _root(self, dtype: torch.dtype) -> Float[Tensor, " dim"] | Float[Tensor, "dim dim"]:
        """The symmetric root of a fixed Lambda: its diagonal where that is all."""
        value = (1.0,) * self.n_dims if self.covariance is None else self.covariance
        assert isinstance(value, tuple)  # whoever asks has seen that it is fixed
        return covariance.root(value, dtype, self.covariance_scale)

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """Task shift and covariate shift: the same task with weights and inputs scaled, each by its own factor."""
        task = self if inputs == 1 else self.with_inputs_scaled(inputs)
        if isinstance(self.weights, tuple):
            return replace(task, weights=tuple(functions * w for w in self.weights))
        return replace(task, weights=self.weights.scaled(functions))

    def with_inputs_scaled(self, c: float) -> Self:
        """Covariate shift: the same task with every x scaled by `c`, so Lambda by c^2 (a query of its own stays)."""
        return replace(self, covariance_scale=self.covariance_scale * c**2)

    def with_query(self, query: Distribution | Vector | None) -> Self:
        """Query shift: the same task with another last x."""
        return replace(self, query=query)


KINDS: dict[str, type] = {cls.__name__: cls for cls in (LinearRegression, Exponential, LogNormal)}
