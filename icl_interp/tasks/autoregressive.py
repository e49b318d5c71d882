"""Paths s_{t+1} = W s_t with a new matrix W in each sequence, which is learned in context.

W keeps lengths.

Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), "How do Transformers perform in-context
autoregressive learning?", sections 3, 5.2, 5.3 and 6.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from icl_interp.errors import InputError, counted, shown, unknown, whole
from icl_interp.tasks import covariance
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Distribution, Normal, is_law

MatrixName = Literal["unitary", "conjugate_pairs", "rotations", "orthogonal"]
_COMPLEX = ("unitary", "conjugate_pairs")  # each coordinate is complex, held as a pair of numbers
_PAIRED = ("conjugate_pairs", "rotations")  # one angle for two coordinates


@dataclass(frozen=True, kw_only=True)
class AutoregressiveProcess(Task):
    """s_{t+1} = W s_t + noise: the x of point t is s_t and its y is s_{t+1}.

    Each function is one W.

    Laws of W, theta being independent and uniform on [0, 2 pi / mu]:

    * "unitary": diagonal on C^d with entries e^(i theta). A complex coordinate is held as two
      numbers, its real part and then its imaginary part, so that a state has 2 d.
    * "conjugate_pairs": the same with entries 1, 3, 5, ... (counted from 0) the conjugates of those
      before them. It is what an orthogonal matrix is in the basis of its eigenvectors; d is even.
    * "rotations": the same matrices in real coordinates, blocks ((cos, -sin), (sin, cos)); d is
      even, a state has d numbers. They are also those of "unitary" with d / 2.
    * "orthogonal": Haar measure on all orthogonal matrices, determinants 1 and -1. They do not
      commute.

    The law of W is that of -W for mu = 1 (a path of -W is (-1)^t times that of W, for the same
    start, without noise). For every mu the law of theta is that of 2 pi / mu - theta. Antithetic
    pairs of `sample_pairs` have the same inputs, which two paths cannot have: there are none
    (`paired` is False), and functions are sampled one by one.

    Attributes:
        n_dims: d.
        matrices: the law of W.
        mu: what angles are divided by, 1 or more; 1 for "orthogonal".
        start: the law of s_0, new in each prompt: of its coordinates, or of the vector. By default
            s_0 = 1 in all (1 + 0 i in complex coordinates, (1, 0) in each block of a rotation). Of
            "conjugate_pairs" it is the law of the first of each pair of coordinates, so of d
            numbers.
        noise_std: standard deviation of each number of the noise, which enters the path at every
            step, the last too. Conjugate coordinates have conjugate noise.
        tiles: how often each state stands in a point, one copy beside the other.
        inputs: what numbers of a state are like, for analyses that ask for typical inputs; nothing
            is drawn from it. By default centred and normal with the mean square of a number of s_0.

    >>> from icl_interp.provenance import generator
    >>> task = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=5)
    >>> prompts = task.sample(2, generator(0, "doc"))
    >>> prompts.xs.shape, bool((prompts.ys[:, :-1] == prompts.xs[:, 1:]).all())
    (torch.Size([2, 5, 6]), True)
    """

    autoregressive: ClassVar[bool] = True

    n_dims: int
    matrices: MatrixName = "orthogonal"
    mu: float = 1.0
    start: Distribution | None = None
    noise_std: float = 0.0
    tiles: int = 1
    inputs: Distribution | None = None  # None: set below

    def __post_init__(self) -> None:
        for name in ("n_dims", "tiles"):
            whole(getattr(self, name), name, 1)

        # The law of W.
        if not isinstance(self.matrices, str) or self.matrices not in get_args(MatrixName):
            raise unknown("law of matrices", self.matrices, get_args(MatrixName))
        if self.matrices in _PAIRED and self.n_dims % 2:
            raise InputError(
                f"n_dims must be even for {self.matrices}, which come in pairs, but got "
                f"{self.n_dims}"
            )
        if not covariance.are_numbers((self.mu,)) or self.mu < 1:
            raise InputError(
                "mu, what angles are divided by, must be a number from 1 up, but got "
                f"{shown(self.mu)}"
            )
        if self.mu != 1 and self.matrices == "orthogonal":
            raise InputError(
                f"mu must be 1 for orthogonal matrices, which are drawn whole, but got {self.mu}"
            )

        # What else is drawn.
        if not covariance.are_numbers((self.noise_std,)) or self.noise_std < 0:
            raise InputError(
                f"noise_std must be a number from 0 up, but got {shown(self.noise_std)}"
            )
        if self.start is not None:
            self._check_law("start")
            self._check_dim("start", self._n_drawn)
        if self.inputs is None:
            size = math.sqrt(self._mean_square)
            object.__setattr__(self, "inputs", Normal(size))
        super().__post_init__()

    @property
    def state_dim(self) -> int:
        """Numbers of one copy of a state."""
        if self.matrices in _COMPLEX:
            return 2 * self.n_dims
        return self.n_dims

    @property
    def dim(self) -> int:
        """Numbers of a point: those of a state, times the copies."""
        return self.tiles * self.state_dim

    @property
    def n_targets(self) -> int:
        """As many: the next state."""
        return self.dim

    @property
    def n_determining(self) -> int:
        """One step shows all angles; a whole matrix takes d."""
        if self.matrices == "orthogonal":
            return min(self.n_dims, self.n_points - 1)
        return 1

    @property
    def n_angles(self) -> int:
        """Angles of a function; 0 where matrices are drawn whole."""
        if self.matrices == "orthogonal":
            return 0
        if self.matrices in _PAIRED:
            return self.n_dims // 2
        return self.n_dims

    @property
    def _n_drawn(self) -> int:
        """Numbers of s_0 and of the noise that are free."""
        return self.n_dims if self.matrices == "conjugate_pairs" else self.state_dim

    @property
    def _mean_square(self) -> float:
        """Of a number of s_0."""
        if is_law(self.start):
            assert self.start is not None
            return self.start.mean**2 + self.start.std**2
        return 1.0 if self.matrices == "orthogonal" else 0.5

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Cosines, then sines, of a function's angles; or the entries of W, row by row."""
        if self.matrices == "orthogonal":
            shape = (n_functions, self.n_dims, self.n_dims)
            normal = torch.randn(shape, generator=generator, dtype=dtype)
            factor = torch.linalg.qr(normal)
            # QR's own signs are no part of Haar measure.
            diagonal = factor.R.diagonal(dim1=1, dim2=2)
            signs = torch.where(diagonal < 0, -1.0, 1.0).to(dtype)
            matrices = factor.Q * signs[:, None]
            return matrices.flatten(1)
        shares = torch.rand((n_functions, self.n_angles), generator=generator, dtype=dtype)
        theta = 2 * math.pi / self.mu * shares
        return torch.cat([theta.cos(), theta.sin()], 1)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """0, because -W is as likely as W, where mu = 1; else None."""
        if self.mu != 1:
            return None
        return torch.zeros_like(parameters)

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """(E W) x, with E e^(i theta) = e^(i pi / mu) sin(pi / mu) / (pi / mu), or 0 for mu = 1."""
        if self.mu == 1:
            return torch.zeros_like(xs)
        middle = math.pi / self.mu
        size = math.sin(middle) / middle
        mean = [size * math.cos(middle), size * math.sin(middle)]
        of_one_angle = torch.tensor(mean, dtype=xs.dtype, device=xs.device)
        parameters = of_one_angle.repeat_interleave(self.n_angles)
        return self.value(parameters.expand(len(xs), -1), xs)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """W x, copy by copy, without noise."""
        states = xs.unflatten(-1, (self.tiles, self.state_dim))
        if self.matrices == "orthogonal":
            matrices = parameters.unflatten(-1, (self.n_dims, self.n_dims))
            after = states @ matrices[:, None].mT
            return after.flatten(-2)
        cos, sin = parameters[:, None, None].chunk(2, -1)
        if self.matrices == "conjugate_pairs":
            cos = cos.repeat_interleave(2, -1)
            sin = torch.stack([sin, -sin], -1).flatten(-2)
        first, second = states.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([cos * first - sin * second, sin * first + cos * second], -1)
        return turned.flatten(-3)

    def matrix(
        self, parameters: Float[Tensor, "batch parameter"]
    ) -> Float[Tensor, "batch state state"]:
        """W in the numbers of one copy of a state."""
        one = replace(self, tiles=1)
        eye = torch.eye(self.state_dim, dtype=parameters.dtype, device=parameters.device)
        units = eye.expand(len(parameters), -1, -1)
        return one.value(parameters, units).mT

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"]:
        """The state itself, one copy."""
        return xs[..., : self.state_dim]

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """Paths from s_0 on; the last y is the state after the last x."""
        path = [self._starts(len(parameters), generator, dtype)]
        noise = None
        if self.noise_std:
            shape = (len(parameters), n_points, self._n_drawn)
            normal = torch.randn(shape, generator=generator, dtype=dtype)
            noise = self._completed(self.noise_std * normal)
        for t in range(n_points):
            after = self.value(parameters, path[-1])
            if noise is not None:
                after = after + noise[:, t : t + 1]
            path.append(after)
        return torch.cat(path[:-1], 1), torch.cat(path[1:], 1)

    def _starts(
        self, batch: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "batch 1 dim"]:
        if self.start is not None:
            drawn = self.start.sample((batch, 1, self._n_drawn), generator, dtype)
            return self._completed(drawn)
        one = [1.0] if self.matrices == "orthogonal" else [1.0, 0.0]
        state = torch.tensor(one, dtype=dtype).repeat(self.dim // len(one))
        return state.expand(batch, 1, -1)

    def _completed(
        self, drawn: Float[Tensor, "batch point free"]
    ) -> Float[Tensor, "batch point dim"]:
        """With conjugates beside the numbers that were drawn, and in all copies."""
        if self.matrices == "conjugate_pairs":
            pairs = drawn.unflatten(-1, (-1, 2))
            signs = torch.tensor([1.0, -1.0], dtype=drawn.dtype)
            both = torch.stack([pairs, pairs * signs], -2)
            drawn = both.flatten(-3)
        return drawn.repeat(1, 1, self.tiles)

    def with_mu(self, mu: float) -> Self:
        """Another law of W: the same task with angles divided by `mu`."""
        return replace(self, mu=mu)


def complex_states(states: Float[Tensor, "*batch dim"]) -> Complex[Tensor, "*batch half"]:
    """Complex coordinates from pairs of numbers, the real part first.

    The theory and complex heads read these.

    Args:
        states: of an `AutoregressiveProcess` with "unitary" or "conjugate_pairs", or blocks of
            "rotations".

    Raises:
        InputError: an odd number of coordinates.

    >>> complex_states(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([1.+2.j, 3.+4.j])
    """
    n = states.shape[-1]
    if n % 2:
        raise InputError(
            f"complex coordinates are pairs of numbers, but states have {counted(n, 'coordinate')}"
        )
    pairs = states.unflatten(-1, (-1, 2))
    return torch.view_as_complex(pairs.contiguous())


KINDS: dict[str, type] = {AutoregressiveProcess.__name__: AutoregressiveProcess}
