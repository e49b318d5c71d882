"""Laws of whole vectors: their coordinates are not independent.

They stand where a law of each coordinate may stand.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, counted, shown, whole
from icl_interp.tasks import covariance
from icl_interp.tasks.covariance import Rows, Vector
from icl_interp.tasks.distributions import Distribution


@runtime_checkable
class VectorLaw(Distribution, Protocol):
    """A law of vectors with `dim` coordinates.

    Shapes of samples end with `dim`; moments are those of a coordinate.
    """

    @property
    def dim(self) -> int:
        """Coordinates of a draw."""
        ...

    @property
    def on_first_axis(self) -> float:
        """The positive number t for which (t, 0, ..., 0) is a possible draw."""
        ...


@dataclass(frozen=True)
class Sphere:
    """The uniform law on the sphere of this radius in `dim` dimensions: E x x^T = radius^2 / dim I.

    Inputs of Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024) have this law or that of
    `Ellipsoid`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> draws = Sphere(3, radius=2.0).sample((5, 3), generator, torch.float64)
    >>> bool(((draws.norm(dim=-1) - 2).abs() < 1e-12).all())
    True
    """

    symmetric: ClassVar[bool] = True

    dim: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        whole(self.dim, "dim", 1)
        if not covariance.are_numbers((self.radius,)) or self.radius <= 0:
            raise InputError(f"radius must be a positive number, but got {shown(self.radius)}")

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent vectors; the last number of the shape is `dim`."""
        return self.radius * _directions(shape, self.dim, generator, dtype)

    def scaled(self, factor: float) -> "Sphere":
        """The law of `factor` times a draw, for a positive factor."""
        return replace(self, radius=self.radius * factor)

    @property
    def interval(self) -> tuple[float, float]:
        """Where each coordinate lies."""
        return -self.radius, self.radius

    @property
    def mean(self) -> float:
        """0, by symmetry."""
        return 0.0

    @property
    def std(self) -> float:
        """Of a coordinate: the squares of `dim` of them add up to radius^2."""
        return self.radius / math.sqrt(self.dim)

    @property
    def on_first_axis(self) -> float:
        """The radius."""
        return self.radius


@dataclass(frozen=True)
class Ellipsoid:
    """The law of Sigma^(1/2) u with u uniform on the unit sphere: E x x^T = Sigma / d.

    Attributes:
        sigma: Sigma, d positive numbers (its diagonal) or d rows of a symmetric positive definite
            matrix.

    >>> Ellipsoid((4.0, 1.0)).on_first_axis, Ellipsoid((4.0, 1.0)).interval
    (2.0, (-2.0, 2.0))
    """

    symmetric: ClassVar[bool] = True

    sigma: Vector | Rows

    def __post_init__(self) -> None:
        if not isinstance(self.sigma, (tuple, list)) or not self.sigma:
            raise InputError(
                "sigma must be positive numbers, or rows of a symmetric positive definite matrix, "
                f"but got {shown(self.sigma, 200)}"
            )
        checked = covariance.checked("sigma", self.sigma, len(self.sigma))
        object.__setattr__(self, "sigma", checked)

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "..."]:
        """Independent vectors; the last number of the shape is `dim`."""
        directions = _directions(shape, self.dim, generator, dtype)
        root = covariance.root(self.sigma, dtype)
        return directions * root if root.ndim == 1 else directions @ root

    def scaled(self, factor: float) -> "Ellipsoid":
        """The law of `factor` times a draw, for a positive factor."""
        if not factor > 0:
            raise InputError(
                f"an Ellipsoid is scaled by a positive number, but got {shown(factor)}: use its "
                "size"
            )
        matrix = self._matrix * factor * factor
        rows = matrix.tolist()
        return replace(self, sigma=tuple(rows) if matrix.ndim == 1 else tuple(map(tuple, rows)))

    @property
    def dim(self) -> int:
        """Coordinates of a draw."""
        return len(self.sigma)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the coordinate of the largest variance lies, and so every coordinate."""
        end = math.sqrt(float(self._variances.max()))
        return -end, end

    @property
    def mean(self) -> float:
        """0, by symmetry."""
        return 0.0

    @property
    def std(self) -> float:
        """The root of the mean variance of a coordinate, tr Sigma / d^2."""
        return math.sqrt(float(self._variances.sum())) / self.dim

    @property
    def on_first_axis(self) -> float:
        """1 / sqrt((Sigma^-1)_11): x lies on the ellipsoid where x^T Sigma^-1 x = 1."""
        matrix = self._matrix
        if matrix.ndim == 1:
            return math.sqrt(float(matrix[0]))
        root = torch.linalg.cholesky(matrix)
        first = torch.eye(self.dim, 1, dtype=torch.float64)
        whitened = torch.linalg.solve_triangular(root, first, upper=False)
        return 1 / float(torch.linalg.vector_norm(whitened))

    @property
    def _matrix(self) -> Tensor:
        return torch.tensor(self.sigma, dtype=torch.float64)

    @property
    def _variances(self) -> Tensor:
        matrix = self._matrix
        return matrix if matrix.ndim == 1 else matrix.diagonal()


def inner(law: Distribution) -> tuple[float, float]:
    """Two numbers x for which (x, 0, ..., 0) is an input in distribution.

    Of a law of coordinates they lie a quarter from each end of its interval, of a law of vectors on
    its surface.

    >>> from icl_interp.tasks.distributions import Uniform
    >>> inner(Uniform(-1, 1)), inner(Sphere(4))
    ((-0.5, 0.5), (-1.0, 1.0))
    """
    if isinstance(law, VectorLaw):
        return -law.on_first_axis, law.on_first_axis
    low, high = law.interval
    return 0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high


def rays(inputs: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
    """Directions in which inputs lie: each divided by its length.

    A single coordinate and 0 give the first axis.

    A far query along the ray of an in-distribution input is that input many times as large. Of
    numbers only the sign would be left, and both signs are asked about anyway.

    >>> rays(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), rays(torch.tensor([[-2.0]]))
    (tensor([[0.6000, 0.8000],
            [1.0000, 0.0000]]), tensor([[1.]]))
    """
    first = torch.zeros_like(inputs)
    first[:, 0] = 1
    size = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True)
    if inputs.shape[1] == 1:
        return first
    divisor = torch.where(size > 0, size, 1.0)
    return torch.where(size > 0, inputs / divisor, first)


def _directions(
    shape: tuple[int, ...], dim: int, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "*batch dim"]:
    """Independent directions: normal vectors, made as long as 1."""
    if not shape or shape[-1] != dim:
        raise InputError(
            f"a law of vectors of {counted(dim, 'coordinate')} gives shapes that end with {dim}, "
            f"but {shape} was asked"
        )
    normal = torch.randn(shape, generator=generator, dtype=dtype)
    return normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)


KINDS: dict[str, type] = {cls.__name__: cls for cls in (Sphere, Ellipsoid)}
