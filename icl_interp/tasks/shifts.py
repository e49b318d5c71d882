"""Named test distributions: the shifts of Garg et al. (2022) for every task.

A model is trained on one law of prompts and asked about another. `shifted(task, "skewed")` is a
task like any other: `icl_interp.evaluate(model, shifted(task, "skewed"))`.

Source: Garg, Tsipras, Liang & Valiant (2022), section 4; `get_eval_args` of their src/eval.py and
the `gen_*` functions of src/eval.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, real, shown, unknown
from icl_interp.provenance import generator as stream
from icl_interp.tasks import checks
from icl_interp.tasks.base import Scalable, Task
from icl_interp.tasks.registry import register

Arrangement = Literal["as drawn", "quadrants", "orthogonal", "half-subspace", "skewed"]
FACTORS = {"1/3": 1 / 3, "1/2": 1 / 2, "2": 2.0, "3": 3.0}


@register
@dataclass(frozen=True, kw_only=True)
class Arranged(Task):
    """Functions of another task at inputs that are arranged otherwise. `Arranged.of` makes one.

    * "quadrants": the signs of the coordinates are the same in all examples of a prompt, drawn anew
      for each prompt. The query stays as drawn.
    * "orthogonal": the query is orthogonal to all examples, and sqrt(d) long. So a prompt has at
      most d points. The best prediction is 0 then where functions are linear and their law is
      symmetric.
    * "half-subspace": inputs lie in a subspace of half of the dimensions, the same in all prompts.
    * "skewed": the covariance of inputs has eigenvalues proportional to 1 / i^2.
    * "as drawn": inputs as they are, for added noise alone.

    The last two multiply inputs by a symmetric matrix with a basis that `seed` draws and a trace of
    its square of d. `LinearRegression` has the skewed ones as `covariance`, too.

    Attributes:
        task: gives functions and inputs.
        arrangement: one of the words above.
        noise: standard deviation of normal noise that is added to labels.
        seed: of the basis.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks import LinearRegression
    >>> task = Arranged.of(LinearRegression(n_dims=4, n_points=9), "quadrants")
    >>> xs = task.sample(3, generator(0, "doc")).xs[:, :-1]
    >>> bool((xs.sign() == xs.sign()[:, :1]).all())
    True
    """

    symmetric_noise: ClassVar[bool] = True  # that of the other task, and normal noise

    task: Task
    arrangement: Arrangement = "as drawn"
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise InputError(
                f"task must be a task such as LinearRegression(...), but got {shown(self.task)}"
            )
        if self.arrangement not in get_args(Arrangement):
            raise unknown("arrangement", self.arrangement, get_args(Arrangement))
        real(self.noise, "noise", 0)
        if self.task.autoregressive:
            raise InputError(
                f"inputs of a {type(self.task).__name__} follow from each other, so they cannot be "
                "arranged otherwise"
            )
        if self.task.n_tasks is not None:
            raise InputError(
                "a pool belongs to the Arranged task itself: give n_tasks and pool_seed to it and "
                "not to the task inside, or use Arranged.of(task, ...)"
            )
        if self.arrangement == "orthogonal" and self.n_points > self.dim:
            raise InputError(
                f"no query is orthogonal to {self.n_points - 1} examples of {self.dim} "
                f"coordinates: use n_points={max(2, self.dim)} at most (Arranged.of does)"
            )
        super().__post_init__()

    @classmethod
    def of(
        cls, task: Task, arrangement: Arrangement = "as drawn", noise: float = 0.0, seed: int = 0
    ) -> Self:
        """The arrangement of a task, with its pool and its number of points, or as many as can be.

        Raises:
            InputError: an arrangement that is not known, or a task whose inputs cannot be arranged.
        """
        n_points = task.n_points
        if arrangement != "as drawn" and task.dim < 2:
            raise InputError(
                f"inputs of one coordinate cannot be arranged as {arrangement!r}: this needs two "
                "at least"
            )
        if arrangement == "orthogonal":
            n_points = min(n_points, task.dim)
        return cls(
            task=task.fresh().with_points(n_points),
            arrangement=arrangement,
            noise=noise,
            seed=seed,
            inputs=task.inputs,
            n_points=n_points,
            n_tasks=task.n_tasks,
            pool_seed=task.pool_seed,
        )

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return self.task.dim

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        return self.task.n_targets

    @property
    def default_encoding(self) -> str:
        """The other task's."""
        return self.task.default_encoding

    @property
    def n_determining(self) -> int:
        """The other task's, or the query alone where prompts are shorter."""
        return min(self.task.n_determining, self.n_points - 1)

    @property
    def noise_std(self) -> float:
        """Standard deviation of all noise in labels."""
        return math.hypot(self.noise, getattr(self.task, "noise_std", 0.0))

    @property
    def weights(self) -> Any:
        """The law of weights of the other task; None where it has none."""
        return getattr(self.task, "weights", None)

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """The other task's functions."""
        return self.task.sample_parameters(n_functions, generator, dtype)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The other task's centre, where its functions come in pairs."""
        return self.task.mean_parameters(parameters) if self.task.paired else None

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """The other task's value."""
        return self.task.targets(parameters, xs)

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """The other task's."""
        return self.task.features(xs)

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """Points of the other task whose inputs are arranged, with the noise that they had."""
        xs, ys = checks.sampled(self.task, parameters, n_points, generator, dtype)
        had = ys - self.task.targets(parameters, xs)
        xs = self._arranged(xs, generator)
        ys = self.task.targets(parameters, xs) + had
        if self.noise:
            ys = ys + self.noise * torch.randn(ys.shape, generator=generator, dtype=dtype)
        return xs, ys

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The same arrangement of the other task, scaled.

        Raises:
            InputError: the other task cannot be scaled.
        """
        inner = _scalable(self.task).scaled(functions, inputs)
        return replace(self, task=inner, inputs=inner.inputs)

    def with_points(self, n_points: int) -> Self:
        """The same task with prompts of another length, the task inside as well."""
        return replace(self, n_points=n_points, task=self.task.with_points(n_points))

    def _arranged(
        self, xs: Float[Tensor, "batch point dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch point dim"]:
        if self.arrangement == "as drawn":
            return xs
        if self.arrangement == "quadrants":
            signs = torch.randint(0, 2, (len(xs), 1, self.dim), generator=generator)
            examples = xs[:, :-1].abs() * (2 * signs - 1)
            return torch.cat([examples, xs[:, -1:]], 1)
        if self.arrangement == "orthogonal":
            return torch.cat([xs[:, :-1], _orthogonal(xs)], 1)
        return xs @ self._map().to(xs)

    def _map(self) -> Float[Tensor, "dim dim"]:
        """The symmetric matrix that inputs are multiplied by, in float64."""
        d = self.dim
        order = torch.arange(1, d + 1, dtype=torch.float64)
        roots = 1 / order
        if self.arrangement == "half-subspace":
            roots = (order <= d // 2).double()
        roots = roots * (d / roots.square().sum()).sqrt()
        drawn = torch.randn(
            d, d, generator=stream(self.seed, "tasks/shift basis"), dtype=torch.float64
        )
        basis = torch.linalg.qr(drawn).Q
        return basis @ torch.diag(roots) @ basis.T


def _orthogonal(xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch 1 dim"]:
    """The last input without its part in the span of the others, made sqrt(d) long."""
    examples, query = xs[:, :-1].double(), xs[:, -1:].double()
    _, sizes, axes = torch.linalg.svd(examples, full_matrices=False)
    axes = axes * (sizes > 1e-10 * sizes[:, :1])[..., None]
    left = query - query @ axes.mT @ axes
    return (left * xs.shape[-1] ** 0.5 / left.norm(dim=-1, keepdim=True)).to(xs)


def _scalable(task: Task) -> Any:
    if not isinstance(task, Scalable):
        raise InputError(
            f"a {type(task).__name__} has no scaled(functions, inputs), so it cannot be scaled"
        )
    return task


def _noisy(task: Task) -> Task:
    """Noise of variance 1 in labels."""
    if hasattr(task, "noise_std") and not isinstance(task, Arranged):
        return replace(task, noise_std=1.0)  # pyright: ignore[reportCallIssue]
    return Arranged.of(task, noise=1.0)


def _arranging(arrangement: Arrangement) -> Callable[[Task], Task]:
    return lambda task: Arranged.of(task, arrangement)


def _scaling(which: str, factor: float) -> Callable[[Task], Task]:
    return lambda task: _scalable(task).scaled(**{which: factor})


SHIFTS: dict[str, Callable[[Task], Task]] = {
    "quadrants": _arranging("quadrants"),
    "orthogonal": _arranging("orthogonal"),
    "half-subspace": _arranging("half-subspace"),
    "skewed": _arranging("skewed"),
    **{f"x*{word}": _scaling("inputs", factor) for word, factor in FACTORS.items()},
    **{f"y*{word}": _scaling("functions", factor) for word, factor in FACTORS.items()},
    "noisy": _noisy,
}


def shifted(task: Task, shift: str) -> Task:
    """The task under a named shift: one of `SHIFTS`.

    Beside the arrangements of `Arranged` these are x*1/3, x*1/2, x*2, x*3 (all inputs scaled),
    y*1/3, y*1/2, y*2, y*3 (all functions scaled), and noisy (noise of variance 1 in labels).

    Raises:
        InputError: no such shift, or one that the task does not allow.

    >>> from icl_interp.tasks import LinearRegression
    >>> task = LinearRegression(n_dims=4, n_points=9)
    >>> shifted(task, "orthogonal").n_points, shifted(task, "x*2").covariance_scale
    (4, 4.0)
    """
    if shift not in SHIFTS:
        raise unknown("shift", shift, SHIFTS)
    return SHIFTS[shift](task)


def possible(task: Task) -> dict[str, Task]:
    """Every shift that the task allows, by name.

    >>> from icl_interp.tasks import Polynomial, Uniform
    >>> one = Uniform(-1, 1)
    >>> list(possible(Polynomial(degrees=(1,), inputs=one, coefficients=one, n_points=5)))[-2:]
    ['y*3', 'noisy']
    """
    found = {}
    for name in SHIFTS:
        try:
            found[name] = shifted(task, name)
        except InputError:
            continue
    return found
