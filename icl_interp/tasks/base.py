"""What every task is: a law of functions, a law of inputs, and a number of points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, counted, is_real, shown, whole
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator as stream
from icl_interp.tasks import checks, pairs, pool
from icl_interp.tasks.distributions import Distribution, is_law, still_said
from icl_interp.tasks.vectors import VectorLaw

TRIED = 16  # functions on which a property of a law is tried
MANY = 4096  # functions that E[f(x)] is a mean over, where there is no closed form
# Numbers held at once meanwhile, functions times points times parameters: they stay in a CPU's
# cache.
HELD = 2**17


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Prompts of `n_points` points of a random function; the last point is the query.

    Attributes:
        inputs: the law of each coordinate of x, or that of the whole vector (`Sphere`,
            `Ellipsoid`).
        n_points: points of a prompt, the query included: the query sees `n_points - 1` pairs.
        n_tasks: size of a finite pool of functions: every prompt has one of these, equally likely.
            None, as by default: every function is drawn anew. `fresh()` is the task without the
            pool, so `task` asks about its functions and `task.fresh()` about new ones.
        pool_seed: of the draw of the pool.
        autoregressive: of the class: y at each point is the x of the next one, so that a prompt is
            a path. Its points cannot change places, and prompts may show states only (`States`).
        symmetric_noise: of the class: what labels differ from values by, if by anything, is added
            to them, has a law that is symmetric about 0, and depends on the function no more than
            inputs do. A class with a `sample_points` of its own that adds noise must say so anew,
            or its functions are not drawn in pairs.
    """

    autoregressive: ClassVar[bool] = False
    symmetric_noise: ClassVar[bool] = True

    inputs: Distribution
    n_points: int
    n_tasks: int | None = field(default=None, metadata={"later": True})
    pool_seed: int = field(default=0, metadata={"later": True})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        checks.check_fields(cls)

    def __post_init__(self) -> None:
        if is_real(self.n_points) and self.n_points < 2:
            raise InputError(
                "n_points counts the query too, so it must be at least 2, but got "
                f"{shown(self.n_points)}"
            )
        whole(self.n_points, "n_points", 2)
        checks.check_sizes(self)
        self._check_law("inputs")
        self._check_dim("inputs", self.dim)
        pool.check(self)
        if self.n_tasks is not None and type(self).sample is not Task.sample:
            raise InputError(
                f"{type(self).__name__} draws prompts by a sample() of its own, which may pay no "
                "heed to a pool: override sample_parameters and sample_points, or leave out n_tasks"
            )

    def _check_law(self, name: str) -> None:
        """Refuse anything but a distribution: a mapping without its kind, a bare number."""
        law = getattr(self, name)
        if not is_law(law):
            raise InputError(
                f"{name} must be a law, for example Uniform(-1, 1), but got {shown(law)} (a law of "
                "your own needs sample, scaled, interval, mean and std)"
            )

    def _check_dim(self, name: str, dim: int) -> None:
        """Refuse a law of vectors of another number of coordinates."""
        law = getattr(self, name)
        if isinstance(law, VectorLaw) and law.dim != dim:
            raise InputError(
                f"{name} of a {type(self).__name__} have {counted(dim, 'coordinate')} here, but "
                f"{law} is a law of vectors of {law.dim}: use one of {dim}, for example "
                f"Sphere({dim})"
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
        """The name of the encoding with which models read this task unless another is given."""
        return "states" if self.autoregressive else "interleaved"

    @property
    @abstractmethod
    def n_determining(self) -> int:
        """The number of points that determine the function; earlier predictions are not scored."""

    @abstractmethod
    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Parameters of independent functions of the law: `draw_parameters` is what samples use."""

    @property
    def pool(self) -> Float[Tensor, "function parameter"]:
        """Parameters of the `n_tasks` functions of the pool, in float64.

        A function of the law, `n_tasks` and `pool_seed` alone, so that a run that is resumed or
        loaded has the same one.

        Raises:
            InputError: the task has no pool.

        >>> from icl_interp.tasks import LinearRegression
        >>> task = LinearRegression(n_dims=3, n_points=8, n_tasks=16, pool_seed=1)
        >>> task.pool.shape, task.fresh().n_tasks
        (torch.Size([16, 3]), None)
        """
        return pool.parameters(self)

    def draw_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """Parameters of the functions of a sample: of the pool, or of the law where there is none.

        Functions of a pool are drawn with replacement.
        """
        if self.n_tasks is None:
            return self.sample_parameters(n_functions, generator, dtype)
        return pool.draw(self, n_functions, generator, dtype)

    def fresh(self) -> Self:
        """The same law without the pool: functions that training has not seen."""
        return replace(self, n_tasks=None, pool_seed=0)

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
        values = self.value(parameters, xs)
        duty = "value must return a value for each point"
        return checks.shaped(self, values, duty, xs.shape[:2])

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """Features in which every function of the task is linear: what least squares regresses on.

        None, as here, for functions that are linear in no fixed features, such as networks: then
        nothing is compared with least squares.
        """
        return None

    @property
    def has_features(self) -> bool:
        """Whether there are `features` for least squares."""
        point = torch.zeros(1, 1, self.dim, dtype=torch.float64)
        return self.features(point) is not None

    def mean_parameters(
        self, parameters: Float[Tensor, "function parameter"]
    ) -> Float[Tensor, "function parameter"] | None:
        """The centre about which the law of functions is symmetric.

        Parameters a and 2 centre - a are equally likely.

        The value must be affine in the parameters that differ from the centre. Those that it is not
        affine in, the hidden weights of a network say, are their own centre, and so is a
        coefficient above the function's degree.

        Args:
            parameters: of functions that were drawn, one a row.

        Returns:
            The centre of each row. None, as here, where the law is not symmetric, or holds one
            function only.
        """
        return None

    @property
    def says_symmetric_noise(self) -> bool:
        """Whether `symmetric_noise` holds of this task's points: no subclass draws them anew."""
        return self.symmetric_noise and still_said(
            self, "symmetric_noise", "sample_points", "sample"
        )

    @property
    def paired(self) -> bool:
        """Whether functions can be drawn in antithetic pairs that follow the law of the task.

        The law of functions has a centre, values are reflected with it, and so is the noise of
        labels. No for paths, whose inputs depend on the function. A subclass that draws parameters
        or points in its own way must give `mean_parameters` anew, and `symmetric_noise` where
        labels have noise. What a class says is tried on some functions (`tasks.pairs`).
        """
        return self._no_pairs is None

    @property
    def _no_pairs(self) -> str | None:
        """Why there are no pairs, in words; None where there are."""
        if self.n_tasks is not None:
            return "a finite pool holds no partner of a function"
        if self.autoregressive:
            return "values of a path are its next inputs, which partners share"
        if not still_said(self, "mean_parameters", "sample_parameters", "sample_points", "sample"):
            return (
                "their law is not known to be symmetric (mean_parameters is said of another way to "
                "draw)"
            )
        return pairs.why_none(cast(Any, self))

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"] | None:
        """E[f(x)] over the law of functions in closed form; None, as here, where there is none.

        `expected` takes it, and is a thousand times slower without it. A subclass that draws
        parameters or computes values in its own way must give it anew.
        """
        return None

    def expected(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point target"]:
        """E[f(x)] over the law of functions: the best guess without any example.

        The law includes the mixture over degrees.

        Of a pool it is the mean over its functions. Else it is in closed form where the task has
        one, or the mean over 4,096 functions of a fixed stream: of their values at x or, in a task
        of pairs, of the values of their centres, which have the same mean and spread less.

        >>> from icl_interp.tasks import Polynomial, Uniform
        >>> task = Polynomial(
        ...     degrees=(0, 1), inputs=Uniform(-1, 1), coefficients=Uniform(0, 2), n_points=4
        ... )
        >>> x = torch.tensor([[[3.0]]])
        >>> task.expected(x)  # 1 + x for half of the functions, 1 for the others
        tensor([[[2.5000]]])
        """
        mean, _ = self._mean_and_error(xs)
        return mean.to(xs.dtype)

    @property
    def centred(self) -> bool:
        """Whether E[f(x)] is 0 at 64 inputs: exactly, or within 4 standard errors.

        It is exact where E[f(x)] has a closed form.
        """
        mean, error = self._mean_and_error(self._tried_inputs(64))
        return bool((mean.abs() <= 4 * error).all())

    @property
    def single_function(self) -> bool:
        """Whether every function is the same one: tried on some."""
        if self.n_tasks is None:
            parameters = self.sample_parameters(TRIED, stream(0, "tasks/single"), torch.float64)
        else:
            parameters = self.pool[:TRIED]
        xs = self._tried_inputs(64).expand(len(parameters), -1, -1)
        values = self.targets(parameters, xs)
        first = values[0]
        same = (values - first).abs() <= 1e-12 * first.abs()
        return bool(same.all())

    def _tried_inputs(self, n: int) -> Float[Tensor, "1 point dim"]:
        return self.inputs.sample((1, n, self.dim), stream(0, "tasks/tried inputs"), torch.float64)

    def _mean_and_error(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> tuple[Float[Tensor, "batch point target"], Float[Tensor, "batch point target"]]:
        """E[f(x)] in float64, and its standard error: 0 in closed form and of a pool."""
        if self.n_tasks is None and still_said(
            self, "closed_mean", "sample_parameters", "value", "targets"
        ):
            closed = self.closed_mean(xs.double())
            if closed is not None:
                closed = checks.shaped(
                    self, closed, "closed_mean must return the mean at each point", xs.shape[:2]
                )
                return closed, torch.zeros_like(closed)
        # The functions, each once, with the share of all that it stands for.
        if self.n_tasks is None:
            parameters = self.sample_parameters(MANY, stream(0, "tasks/expected"), torch.float64)
        else:
            parameters = self.pool
        n = len(parameters)
        centres = self.mean_parameters(parameters) if self.paired else None
        if centres is not None:
            parameters = centres
        if parameters.shape[1]:  # few centres, where these differ in degree
            parameters, counts = parameters.unique(dim=0, return_counts=True)
        else:  # one function without parameters
            parameters = parameters[:1]
            counts = torch.tensor([n])
        parameters = parameters.to(xs.device)
        shares = (counts.double() / n).to(xs.device)

        # Means of values and of their squares, of so many points and functions at once as memory
        # holds.
        width = max(self.dim, min(parameters.shape[1], 256))  # of what a value is computed from
        parts = []
        for points in xs.double().flatten(0, 1).split(max(1, HELD // width)):
            step = max(1, HELD // (width * len(points)))
            shape = (2, len(points), self.n_targets)
            powers = torch.zeros(shape, dtype=torch.float64, device=xs.device)
            for some, share in zip(parameters.split(step), shares.split(step), strict=True):
                values = self.targets(some, points.expand(len(some), -1, -1))
                for power in (1, 2):
                    powers[power - 1] += torch.tensordot(share, values**power, 1)
            parts.append(powers)
        mean, square = torch.cat(parts, 1).view(2, *xs.shape[:2], self.n_targets)
        variance = (square - mean.square()).clamp(min=0)
        spread = 0.0 if self.n_tasks is not None else 1.0  # of a pool it is the mean itself
        return mean, spread * (variance / n).sqrt()

    def sample_pairs(
        self,
        n_pairs: int,
        generator: torch.Generator,
        *,
        n_contexts: int = 1,
        n_points: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Prompts:
        """Fresh prompts of antithetic pairs of functions A and B, pair by pair.

        A's contexts come first, then those of its partner B.

        B has the parameters 2 centre - a (`mean_parameters`), A's inputs, context by context, and
        A's noise negated, so that y_B = 2 m(x) - y_A with m the function at the centre. Each
        partner alone follows the law of `sample`. What is odd about the centre cancels in the mean
        of a pair, so pairs, not functions, are independent.

        Source: Hammersley & Morton (1956), antithetic variates.

        Args:
            n_pairs: pairs; `Prompts.function` counts functions, 2 i and 2 i + 1 in pair i.
            generator: of the draws.
            n_contexts: contexts of each function.
            n_points: of each prompt; the task's own by default.
            dtype: of the numbers.

        Returns:
            `2 * n_pairs * n_contexts` prompts.

        Raises:
            InputError: the task is not `paired`.

        >>> from icl_interp.provenance import generator
        >>> from icl_interp.tasks import Polynomial, Uniform
        >>> task = Polynomial(
        ...     degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=4
        ... )
        >>> prompts = task.sample_pairs(2, generator(0, "doc"), n_contexts=2)
        >>> prompts.function.tolist(), bool((prompts.ys[:2] == -prompts.ys[2:4]).all())
        ([0, 0, 1, 1, 2, 2, 3, 3], True)
        """
        if self._no_pairs:
            raise self._without_pairs(self._no_pairs)
        own = self.sample_parameters(n_pairs, generator, dtype)
        centre = self.mean_parameters(own)
        assert centre is not None  # it is paired
        row = torch.arange(n_pairs).repeat_interleave(n_contexts)
        a = own[row]
        b = (2 * centre - own)[row]
        xs, ys = checks.sampled(self, a, n_points or self.n_points, generator, dtype)

        # The partner's labels have A's noise negated: 2 m - y_A; without noise exactly the value.
        values = self.targets(a, xs)
        noise = ys - values
        largest = ys.abs().amax() + values.abs().amax()
        rounding = 1e3 * torch.finfo(ys.dtype).eps * largest
        if (noise.abs() > rounding).any() and not self.says_symmetric_noise:
            # So rare that no function that was tried had any.
            raise self._without_pairs(pairs.UNSAID)
        partner = self.targets(b, xs) - noise

        def in_pairs(first: Tensor, second: Tensor) -> Tensor:
            contexts = (n_pairs, n_contexts)
            both = [first.unflatten(0, contexts), second.unflatten(0, contexts)]
            return torch.stack(both, 1).flatten(0, 2)

        function = in_pairs(2 * row, 2 * row + 1)
        prompts = Prompts(in_pairs(xs, xs), in_pairs(ys, partner), in_pairs(a, b), function)
        return checks.checked(self, prompts)

    def _without_pairs(self, reason: str) -> InputError:
        return InputError(
            f"functions of this {type(self).__name__} come in no antithetic pairs, because "
            f"{reason}: use sample(), or give the task what is missing"
        )

    def sample(
        self,
        n_functions: int,
        generator: torch.Generator,
        *,
        n_contexts: int = 1,
        n_points: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Prompts:
        """Fresh prompts of `n_functions` functions, each with `n_contexts` independent contexts.

        The contexts of one function follow each other.

        Raises:
            InputError: what draws is no generator, or a number is none.
        """
        checks.draws(generator)
        whole(n_functions, "n_functions", 0)
        whole(n_contexts, "n_contexts", 1)
        function = torch.arange(n_functions).repeat_interleave(n_contexts)
        parameters = self.draw_parameters(n_functions, generator, dtype)[function]
        xs, ys = checks.sampled(self, parameters, n_points or self.n_points, generator, dtype)
        if self.autoregressive and not torch.equal(ys[:, :-1], xs[:, 1:]):
            raise InputError(
                f"{type(self).__name__} is autoregressive, so the value at each point must be the "
                "input of the next one: override sample_points so that it returns a path"
            )
        return checks.checked(self, Prompts(xs, ys, parameters, function))

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
