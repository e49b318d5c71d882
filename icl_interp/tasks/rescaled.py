"""A task in other units: the values of another task, times a number and plus a number.

A model that has learned f answers scale f + shift as well, if its tokens show f (`models.rescaled`)
and its read-out is changed alike. Nothing that is said about how it learns may depend on that.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, real, shown, whole
from icl_interp.tasks import checks
from icl_interp.tasks.base import Scalable, Task
from icl_interp.tasks.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class Rescaled(Task):
    """Functions scale f + shift, with f from another task. `Rescaled.of` makes one.

    Where f is linear in fixed features that hold no constant, a shift adds one: least squares then
    has to find it, and one more point determines the function.

    Attributes:
        task: gives f. Its inputs and number of points are those of this task.
        scale: what values are multiplied by, not 0.
        shift: what is added to each coordinate of a value then.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks import Polynomial, Uniform
    >>> task = Polynomial(
    ...     degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=4
    ... )
    >>> rescaled = Rescaled.of(task, scale=3.0, shift=1.0)
    >>> mine, other = (one.sample(2, generator(0, "doc")) for one in (task, rescaled))
    >>> torch.allclose(other.ys, 3 * mine.ys + 1), bool((other.xs == mine.xs).all())
    (True, True)
    """

    symmetric_noise: ClassVar[bool] = True  # that of the other task, which has pairs itself

    task: Task
    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise InputError(
                f"task must be a task such as Polynomial(...), but got {shown(self.task)}"
            )
        if self.task.autoregressive:
            raise InputError(
                f"values of a {type(self.task).__name__} are the next inputs, so they cannot be "
                "rescaled by themselves"
            )
        for name in ("scale", "shift"):
            real(getattr(self, name), name)
        if self.task.n_tasks is not None:
            raise InputError(
                "a pool belongs to the Rescaled task itself: give n_tasks and pool_seed to it and "
                "not to the task inside, or use Rescaled.of(task)"
            )
        if self.scale == 0:
            raise InputError("scale must not be 0: every value would be the same number")
        self._check_law("inputs")
        whole(self.n_points, "n_points", 2)
        # The task inside has the same inputs and as many points.
        own = {"inputs": self.inputs, "n_points": self.n_points}
        if own != {name: getattr(self.task, name) for name in own}:
            object.__setattr__(self, "task", replace(self.task, **own))
        super().__post_init__()

    @classmethod
    def of(cls, task: Task, scale: float = 1.0, shift: float = 0.0) -> Self:
        """The task whose values are scale f + shift, with f, inputs and number of points of `task`.

        A pool of functions is that of `task`, in the new units.

        Raises:
            InputError: values of the task are its next inputs, or numbers that are not finite, or a
                scale of 0.
        """
        return cls(
            task=task.fresh(),
            scale=scale,
            shift=shift,
            inputs=task.inputs,
            n_points=task.n_points,
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
        """As many points as determine f, and one for a constant that least squares has to find."""
        return min(self.task.n_determining + self._adds_constant, self.n_points - 1)

    @property
    def _adds_constant(self) -> bool:
        """Whether values are shifted and no feature of f is a constant."""
        features = self.task.features(self._tried_inputs(8))
        if features is None or self.shift == 0:
            return False
        columns = features[0]
        return not bool(((columns == columns[0]).all(0) & (columns[0] != 0)).any())

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Parameters of f."""
        return self.task.sample_parameters(n_functions, generator, dtype)

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The other task's centre, where its functions come in pairs."""
        return self.task.mean_parameters(parameters) if self.task.paired else None

    @property
    def says_symmetric_noise(self) -> bool:
        """Whether the other task's class says so."""
        return super().says_symmetric_noise and self.task.says_symmetric_noise

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """scale f(x) + shift."""
        return self._in_units(self.task.targets(parameters, xs))

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """The other task's points, noise included, with values in these units."""
        xs, ys = checks.sampled(self.task, parameters, n_points, generator, dtype)
        return xs, self._in_units(ys)

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """Those of f; with a shift also 1, where that is none of them."""
        found = self.task.features(xs)
        if found is None or not self._adds_constant:
            return found
        return torch.cat([torch.ones_like(found[..., :1]), found], -1)

    def scaled(self, functions: float = 1.0, inputs: float = 1.0) -> Self:
        """The same units of the other task with f and inputs scaled, each by its own factor.

        Raises:
            InputError: the other task cannot be scaled.
        """
        if not isinstance(self.task, Scalable):
            raise InputError(
                f"a {type(self.task).__name__} has no scaled(functions, inputs), so it cannot be "
                "scaled"
            )
        inner = self.task.scaled(functions, inputs)
        return replace(self, task=inner, inputs=inner.inputs)

    def _in_units(self, values: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch target"]:
        return self.scale * values + self.shift

    def _mean_and_error(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> tuple[Float[Tensor, "batch point target"], Float[Tensor, "batch point target"]]:
        inner = replace(self.task, n_tasks=self.n_tasks, pool_seed=self.pool_seed)
        mean, error = inner._mean_and_error(xs)
        return self._in_units(mean), abs(self.scale) * error
