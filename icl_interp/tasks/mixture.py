"""Mixtures: the function of each prompt follows one of several tasks, and which is not told."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from icl_interp.errors import InputError, shown
from icl_interp.tasks import checks
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Normal, still_said
from icl_interp.tasks.registry import register
from icl_interp.tasks.regression import LinearRegression


@register
@dataclass(frozen=True, kw_only=True)
class Mixture(Task):
    """Each function is one of the first task with probability `shares[0]`, and so on.

    `Mixture.of` makes one. Inputs, noise and covariances are those of the task that a function is
    of. A pool (`n_tasks`) is one of the mixture: its functions are of all tasks.

    Source: Panwar, Ahuja & Goyal (2024), "In-context learning through the Bayesian prism";
    Yadlowsky, Doshi & Tripuraneni (2023), "Pretraining data mixtures enable narrow model selection
    capabilities in transformer models".

    Attributes:
        tasks: two or more, with inputs and values of the same number of coordinates.
        shares: of each task; they add up to 1. Equal ones by default.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks import LinearRegression, SparseLinearRegression
    >>> dense = LinearRegression(n_dims=5, n_points=8)
    >>> task = Mixture.of(dense, SparseLinearRegression(n_dims=5, sparsity=1, n_points=8))
    >>> prompts = task.sample(4, generator(0, "doc"))
    >>> prompts.xs.shape, prompts.parameters.shape  # which task, then its own parameters
    (torch.Size([4, 8, 5]), torch.Size([4, 6]))
    """

    tasks: tuple[Task, ...]
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        named = isinstance(self.tasks, tuple) and all(isinstance(t, Task) for t in self.tasks)
        if not named or len(self.tasks) < 2:
            raise InputError(
                f"tasks of a mixture must be two tasks or more, but got {shown(self.tasks)}"
            )
        self._check_tasks()
        if not self.shares:
            object.__setattr__(self, "shares", (1 / len(self.tasks),) * len(self.tasks))
        self._check_shares()
        super().__post_init__()

    def _check_tasks(self) -> None:
        """Refuse tasks that cannot stand in one prompt, and bring all to one length."""
        first = self.tasks[0]
        for task in self.tasks:
            if task.autoregressive or task.n_tasks is not None:
                raise InputError(
                    f"a {type(task).__name__} cannot be part of a mixture: it is autoregressive or "
                    "has a pool of its own (give n_tasks to the mixture)"
                )
            if (task.dim, task.n_targets) != (first.dim, first.n_targets):
                raise InputError(
                    "tasks of a mixture need inputs and values of the same number of coordinates, "
                    f"but got {first.dim} and {first.n_targets}, {task.dim} and {task.n_targets}"
                )
        same = tuple(task.with_points(self.n_points) for task in self.tasks)
        object.__setattr__(self, "tasks", same)

    def _check_shares(self) -> None:
        shares = self.shares
        right = len(shares) == len(self.tasks) and min(shares) > 0
        if not right or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise InputError(
                f"shares must be {len(self.tasks)} positive numbers that add up to 1, but got "
                f"{shown(self.shares)}"
            )

    @classmethod
    def of(cls, *tasks: Task, shares: tuple[float, ...] = ()) -> "Mixture":
        """The mixture of some tasks, with inputs and number of points of the first."""
        if not tasks:
            raise InputError("a mixture needs two tasks or more, but got none")
        first = tasks[0]
        return cls(tasks=tasks, shares=shares, inputs=first.inputs, n_points=first.n_points)

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        return self.tasks[0].dim

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        return self.tasks[0].n_targets

    @property
    def has_normal_weights(self) -> bool:
        """Whether its tasks are linear regressions that differ in normal weights and noise alone.

        Then only labels tell tasks apart, and the Bayes predictor has a closed form.
        """
        first = self.tasks[0]
        if type(first) is not LinearRegression:
            return False
        for task in self.tasks:
            if type(task) is not LinearRegression or not isinstance(task.weights, Normal):
                return False
            if replace(task, weights=first.weights, noise_std=first.noise_std) != first:
                return False
        return True

    @property
    def n_determining(self) -> int:
        """As many points as determine a function of any of the tasks, whichever it is of."""
        return max(task.n_determining for task in self.tasks)

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Float[Tensor, "function parameter"]:
        """The number of the task, from 0, then its parameters, with zeros behind them."""
        shares = torch.tensor(self.shares, dtype=torch.float64)
        edges = shares.cumsum(0)[:-1]
        level = torch.rand(n_functions, generator=generator, dtype=torch.float64)
        which = torch.searchsorted(edges, level)
        # Every task draws for every function, so that the draws of one do not move another's.
        parts = [which[:, None].to(dtype)]
        for i, task in enumerate(self.tasks):
            own = task.sample_parameters(n_functions, generator, dtype)
            mine = which == i
            kept = own * mine[:, None]
            parts.append(kept)
        return _overlaid(parts)

    def value(
        self, parameters: Float[Tensor, "batch parameter"], xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"]:
        """The value of the task that each function is of."""
        out = xs.new_zeros(*xs.shape[:2], self.n_targets)
        which = parameters[:, 0]
        for i, task in enumerate(self.tasks):
            rows = which == i
            if rows.any():
                mine = parameters[rows]
                own = self._own(task, mine)
                out[rows] = task.targets(own, xs[rows])
        return out

    def closed_mean(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point target"] | None:
        """The mean over tasks, by share; None where a task has no closed form of its own."""
        total = xs.new_zeros(*xs.shape[:2], self.n_targets)
        for share, task in zip(self.shares, self.tasks, strict=True):
            said = still_said(task, "closed_mean", "sample_parameters", "value", "targets")
            mean = task.closed_mean(xs) if said else None
            if mean is None:
                return None
            total += share * mean
        return total

    def sample_points(
        self,
        parameters: Float[Tensor, "batch parameter"],
        n_points: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> tuple[Float[Tensor, "batch point dim"], Float[Tensor, "batch point target"]]:
        """Points of the task that each function is of, with its inputs and noise."""
        xs = torch.zeros(len(parameters), n_points, self.dim, dtype=dtype)
        ys = torch.zeros(len(parameters), n_points, self.n_targets, dtype=dtype)
        which = parameters[:, 0]
        for i, task in enumerate(self.tasks):
            rows = which == i
            if rows.any():
                mine = parameters[rows]
                own = self._own(task, mine)
                xs[rows], ys[rows] = checks.sampled(task, own, n_points, generator, dtype)
        return xs, ys

    def features(
        self, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point feature"] | None:
        """Those of the tasks, where all have the same."""
        found = [task.features(xs) for task in self.tasks]
        first = found[0]
        for each in found:
            if first is None or each is None or not torch.equal(each, first):
                return None
        return first

    def _own(
        self, task: Task, parameters: Float[Tensor, "batch parameter"]
    ) -> Float[Tensor, "batch own"]:
        """The parameters that the task itself draws: those of others may be more."""
        draw = torch.Generator().manual_seed(0)
        drawn = task.sample_parameters(1, draw, torch.float64)
        end = 1 + drawn.shape[1]
        return parameters[:, 1:end]


def _overlaid(parts: list[Tensor]) -> Float[Tensor, "function parameter"]:
    """The first part, then the sum of the others, each with zeros behind it."""
    first, *others = parts
    width = max(part.shape[1] for part in others)
    out = first.new_zeros(len(first), width)
    for part in others:
        missing = width - part.shape[1]
        out += pad(part, (0, missing))
    return torch.cat([first, out], 1)
