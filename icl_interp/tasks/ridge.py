"""Ridge functions on a sphere or an ellipsoid: functions of one direction of x.

Their Lipschitz constant is known.

Source: Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), slides by A. Mokhtari, ITA 2024:
"Intuition Summary" (the ReLU-based class), "Results Part II" (linear functions of a low-dimensional
projection), "Softmax Attention Learns Low-Dimensional Structure in Nonlinear Functions"
(generalised linear models).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown, unknown, whole
from icl_interp.provenance import generator as stream
from icl_interp.tasks import covariance
from icl_interp.tasks.base import Task
from icl_interp.tasks.covariance import Rows, Vector
from icl_interp.tasks.vectors import Ellipsoid, Sphere, VectorLaw

LinkName = Literal["relu", "affine", "linear", "cosine", "phased_cosine", "quadratic"]
# Coefficients of a function besides its direction: l1, l2, b; l, b; the cosine and the sine of a
# phase.
_N_COEFFICIENTS = {"relu": 3, "affine": 2, "phased_cosine": 2}
_COSINES = ("cosine", "phased_cosine")
_ORTHONORMAL = 1e-6  # what B^T B may differ from the identity by: rows in a config are rounded


@dataclass(frozen=True, kw_only=True)
class RidgeFunction(Task):
    """f(x) = g(<q, u>) + c with u = Sigma^(-1/2) x and one random unit vector q a function.

    Labels may have noise.

    Links g(z), each with the Lipschitz constant L in u; l1, l2, l, b are independent draws from
    U(-L, L):

    * "relu": l1 (z)_+ + l2 (-z)_+ + b. The slides' class F_L^+, where Lip(f) = max(|l1|, |l2|).
    * "affine": l z + b, where Lip(f) = |l|.
    * "linear": L z. With L = 1 and `directions` the slides' F_B^lin, with `intercept` 2 their
      affine link w^T x + 2.
    * "cosine": (L / omega) cos(omega z) with omega = `frequency`, L itself by default: then cos(L
      z). L = 4 is the slides' cosine link.
    * "phased_cosine": (L / omega) cos(omega z + phi), phi uniform on the circle.
    * "quadratic": (L / 2) z^2, where |g'| <= L for |z| <= 1. L = 2 is the slides' quadratic link
      (w^T x)^2.

    L is the largest |g'| on -1 <= z <= 1, where inputs lie: f differs by at most L |u - u'| between
    two of them. A cosine reaches it where omega >= pi / 2. The noise is on the labels of the
    examples only: the last point, the query, has the value f(x) itself, so that the squared error
    there is the population loss of the slides.

    Attributes:
        inputs: a law of vectors: `Sphere`, or `Ellipsoid` for inputs that are not isotropic.
        link: the name of g.
        lipschitz: L.
        noise_std: sigma, standard deviation of the noise of each example's label.
        intercept: c, added to every value.
        frequency: omega, of the cosines.
        sigma: Sigma, d positive numbers (its diagonal) or d rows. By default that of `inputs`, so
            that the law of f is invariant under rotations of u: the condition of the slides'
            Lemma 1. Ones make q isotropic in the original coordinates, where the lemma fails on an
            `Ellipsoid`.
        directions: B, d rows of k numbers, with orthonormal columns: q = B a with a uniform on the
            sphere in k dimensions (`random_directions` makes one). By default q is uniform on the
            sphere in d dimensions.

    >>> from icl_interp.provenance import generator
    >>> task = RidgeFunction(
    ...     inputs=Sphere(3), link="relu", lipschitz=2.0, noise_std=0.1, n_points=21
    ... )
    >>> prompts = task.sample(4, generator(0, "doc"), n_contexts=2)
    >>> prompts.xs.shape, prompts.parameters.shape  # q, l1, l2, b
    (torch.Size([8, 21, 3]), torch.Size([8, 6]))
    """

    symmetric_noise: ClassVar[bool] = True  # normal, and drawn without regard to the function

    link: LinkName
    lipschitz: float = 1.0
    noise_std: float = 0.0
    intercept: float = 0.0
    frequency: float | None = None
    sigma: Vector | Rows | None = None
    directions: Rows | None = None

    def __post_init__(self) -> None:
        # The law of inputs first: their number of coordinates follows from it.
        self._check_law("inputs")
        if not isinstance(self.inputs, VectorLaw):
            raise InputError(
                f"inputs of a {type(self).__name__} are vectors of one law, for example Sphere(3) "
                f"or Ellipsoid((4.0, 1.0, 0.25)), but got {shown(self.inputs)}"
            )
        super().__post_init__()
        if not isinstance(self.link, str) or self.link not in get_args(LinkName):
            raise unknown("link", self.link, get_args(LinkName))
        self._check_number("lipschitz", "above 0")
        self._check_number("noise_std", "from 0 up")
        self._check_number("intercept", None)
        if self.frequency is not None:
            self._check_number("frequency", "above 0")
            if self.link not in _COSINES:
                raise InputError(
                    f"frequency is for the links {' and '.join(_COSINES)}, but link is "
                    f"{self.link!r}"
                )
        self._check_sigma()
        if self.directions is not None:
            self._check_directions()

    def _check_number(self, name: str, low: str | None) -> None:
        value = getattr(self, name)
        fits = covariance.are_numbers((value,))
        if fits and low == "above 0":
            fits = value > 0
        elif fits and low == "from 0 up":
            fits = value >= 0
        if not fits:
            wanted = f"a number {low}" if low else "a number"
            raise InputError(f"{name} must be {wanted}, but got {shown(value)}")

    def _check_sigma(self) -> None:
        if self.sigma is not None:
            checked = covariance.checked("sigma", self.sigma, self.dim)
            object.__setattr__(self, "sigma", checked)
        elif not isinstance(self.inputs, (Sphere, Ellipsoid)):
            raise InputError(
                f"sigma must be given, because that of {shown(self.inputs)} is not known: "
                f"{self.dim} positive numbers or {self.dim} rows of a symmetric positive definite "
                "matrix"
            )
        sigma = torch.tensor(self._own_sigma, dtype=torch.float64)
        # Of a diagonal its numbers: eigenvalues take as long as the cube of their number.
        variances = sigma if sigma.ndim == 1 else torch.linalg.eigvalsh(sigma)
        if not variances.min() > 1e-12 * variances.max():
            raise InputError(
                "sigma has no inverse in float64, because its variances differ by more than a "
                f"factor of 1e12: it is {shown(self._own_sigma, 200)}"
            )

    def _check_directions(self) -> None:
        rows = self.directions
        if isinstance(rows, (tuple, list)) and len(rows) == self.dim:
            numbers = all(map(covariance.are_numbers, rows))
            widths = {len(row) for row in rows} if numbers else set()
            if len(widths) == 1 and max(widths) <= self.dim:
                b = torch.tensor(rows, dtype=torch.float64)
                excess = b.T @ b - torch.eye(b.shape[1])
                if bool((excess.abs() <= _ORTHONORMAL).all()):
                    object.__setattr__(self, "directions", tuple(map(tuple, b.tolist())))
                    return
        raise InputError(
            f"directions must be {self.dim} rows of k <= {self.dim} numbers, a matrix with "
            f"orthonormal columns such as random_directions({self.dim}, 1), but got "
            f"{shown(rows, 200)}"
        )

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        assert isinstance(self.inputs, VectorLaw)
        return self.inputs.dim

    @property
    def rank(self) -> int:
        """k, dimensions of the space of directions."""
        if self.directions is None:
            return self.dim
        return len(self.directions[0])

    @property
    def n_determining(self) -> int:
        """k points, one more for an affine function and two more for the ReLU-based class."""
        more = {"affine": 1, "relu": 2}
        n = self.rank + more.get(self.link, 0)
        return min(n, self.n_points - 1)

    @property
    def omega(self) -> float:
        """The frequency of a cosine."""
        if self.frequency is None:
            return self.lipschitz
        return self.frequency

    @property
    def basis(self) -> Float[Tensor, "dim rank"]:
        """B in float64; the identity where directions are not given."""
        if self.directions is None:
            return torch.eye(self.dim, dtype=torch.float64)
        return torch.tensor(self.directions, dtype=torch.float64)

    @property
    def whitening(self) -> Float[Tensor, "dim dim"]:
        """Sigma^(-1/2), the symmetric root, in float64: u = Sigma^(-1/2) x."""
        variances, basis = torch.linalg.eigh(_matrix(self._own_sigma))
        return basis * variances.rsqrt() @ basis.T

    @property
    def _own_sigma(self) -> Vector | Rows:
        """Sigma, from the law of inputs where it is not given."""
        if self.sigma is not None:
            return self.sigma
        if isinstance(self.inputs, Sphere):
            return (float(self.inputs.radius) ** 2,) * self.dim
        assert isinstance(self.inputs, Ellipsoid)
        return self.inputs.sigma

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """q of each function, then its coefficients.

        These are l1, l2, b, or l, b, or the cosine and the sine of phi.
        """
        sphere = Sphere(self.rank)
        q = sphere.sample((n_functions, self.rank), generator, dtype)
        if self.directions is not None:
            q = q @ self.basis.T.to(dtype)
        if self.link == "phased_cosine":
            turns = torch.rand(n_functions, generator=generator, dtype=dtype)
            phase = 2 * math.pi * turns
            coefficients = torch.stack([phase.cos(), phase.sin()], -1)
        else:
            n_coefficients = _N_COEFFICIENTS.get(self.link, 0)
            shape = (n_functions, n_coefficients)
            uniform = torch.rand(shape, generator=generator, dtype=dtype)
            coefficients = self.lipschitz * (2 * uniform - 1)
        return torch.cat([q, coefficients], -1)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The function's own q, with coefficients of 0; None for "cosine" and "quadratic".

        For linear functions q is 0, too.
        """
        if self.link in ("cosine", "quadratic"):
            return None
        n_kept = 0 if self.link == "linear" else self.dim
        zeros = torch.zeros_like(parameters[:, n_kept:])
        return torch.cat([parameters[:, :n_kept], zeros], -1)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """c, where g has mean 0; for the other two links the mean over q at the length r of B^T u.

        E <a, v>^2 = r^2 / k and E cos(omega <a, v>) = 0F1(; k / 2; -(omega r)^2 / 4) for a uniform
        on the sphere in k dimensions and |v| = r.
        """
        if self.link not in ("cosine", "quadratic"):
            return torch.full_like(xs[..., :1], self.intercept)
        relevant = self._relevant(xs)
        lengths = torch.linalg.vector_norm(relevant, dim=-1, keepdim=True)
        if self.link == "quadratic":
            return self.intercept + self.lipschitz / 2 * lengths.square() / self.rank
        from scipy.special import hyp0f1  # only here: it loads slowly

        angles = self.omega * lengths.double().cpu().numpy()
        cosines = hyp0f1(self.rank / 2, -(angles**2) / 4)
        size = self.lipschitz / self.omega
        return self.intercept + size * torch.as_tensor(cosines).to(xs)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point"]:
        """g(<q, u>) + c, without noise."""
        q = parameters[:, : self.dim]
        coefficients = parameters[:, self.dim :, None].unbind(1)
        # Whitened first, so that a q of length 1 meets a u of length 1 in float32.
        products = self._whitened(xs) @ q[:, :, None]
        z = products[..., 0]
        return self._linked(z, coefficients) + self.intercept

    def _linked(
        self, z: Float[Tensor, "batch point"], coefficients: Sequence[Float[Tensor, "batch 1"]]
    ) -> Float[Tensor, "batch point"]:
        """g(z)."""
        size = self.lipschitz / self.omega  # of a cosine
        match self.link:
            case "relu":
                right, left, constant = coefficients
                return right * z.relu() + left * (-z).relu() + constant
            case "affine":
                slope, constant = coefficients
                return slope * z + constant
            case "linear":
                return self.lipschitz * z
            case "cosine":
                return size * (self.omega * z).cos()
            case "phased_cosine":
                # Cosine and sine of the phase: so f is linear in them, and -f is as likely as f.
                cosine, sine = coefficients
                angle = self.omega * z
                return size * (cosine * angle.cos() - sine * angle.sin())
            case "quadratic":
                return self.lipschitz / 2 * z.square()

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """The features that the function is linear in, else None.

        For linear functions they are B^T u, with a 1 for a constant; for "quadratic", products of
        two of these.
        """
        if self.link not in ("affine", "linear", "quadratic"):
            return None
        found = self._relevant(xs)
        if self.link == "quadratic":
            first, second = torch.triu_indices(self.rank, self.rank)
            found = found[..., first] * found[..., second]
        if self.link == "affine" or self.intercept:
            ones = torch.ones_like(found[..., :1])
            found = torch.cat([ones, found], -1)
        return found

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """Independent inputs; labels with noise, and the value of the last point without."""
        xs, ys = super().sample_points(parameters, n_points, generator, dtype)
        if self.noise_std:
            shape = (len(ys), n_points - 1, self.n_targets)
            normal = torch.randn(shape, generator=generator, dtype=dtype)
            labels = ys[:, :-1] + self.noise_std * normal
            ys = torch.cat([labels, ys[:, -1:]], 1)
        return xs, ys

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """Values scaled by `functions`, so L and the intercept, too; inputs scaled by `inputs`.

        Scaling the inputs leaves functions as they are.

        Sigma and the frequency stay what they were.
        """
        # By default they follow from L and from the law of inputs, which change here.
        frequency = self.frequency
        if functions != 1 and self.link in _COSINES:
            frequency = self.omega
        sigma = self.sigma
        if inputs != 1:
            sigma = self._own_sigma
        return replace(
            self,
            lipschitz=self.lipschitz * functions,
            intercept=self.intercept * functions,
            frequency=frequency,
            inputs=self.inputs.scaled(inputs),
            sigma=sigma,
        )

    def _whitened(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point dim"]:
        return xs @ self.whitening.to(xs)

    def _relevant(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point rank"]:
        """B^T u: all that a function can depend on."""
        projection = self.whitening @ self.basis
        return xs @ projection.to(xs)


def random_directions(n_dims: int, rank: int, seed: int = 0) -> Rows:
    """A matrix B of random orthonormal columns, uniform among these, for `RidgeFunction`.

    A config holds the numbers themselves: `yaml.safe_dump(icl_interp.provenance.encode(task))`
    writes them.

    Args:
        n_dims: d.
        rank: k, at most d.
        seed: of the draw.

    Returns:
        d rows of k numbers, to 12 decimals.

    Raises:
        InputError: a size or seed out of range.

    >>> b = torch.tensor(random_directions(5, 2), dtype=torch.float64)
    >>> bool(((b.T @ b - torch.eye(2)).abs() < 1e-10).all())
    True
    """
    whole(n_dims, "n_dims", 1)
    whole(rank, "rank", 1, n_dims)
    whole(seed, "seed", 0)
    draws = stream(seed, "tasks/directions")
    normal = torch.randn(n_dims, rank, generator=draws, dtype=torch.float64)
    factor = torch.linalg.qr(normal)
    # So it does not depend on the signs that QR chose.
    signs = factor.R.diagonal().sign()
    basis = factor.Q * signs
    return covariance.rounded(basis)


def _matrix(sigma: Vector | Rows) -> Float[Tensor, "dim dim"]:
    matrix = torch.tensor(sigma, dtype=torch.float64)
    if matrix.ndim == 1:
        return torch.diag(matrix)
    return matrix


KINDS: dict[str, type] = {RidgeFunction.__name__: RidgeFunction}
