"""Descent and regressions whose parameters are chosen: those nearest to given answers.

Each tuner takes prompts, and answers at their queries. What it returns is compared on other
prompts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import optimize
from torch import Tensor

from icl_interp.baselines.base import Features, Predictor
from icl_interp.baselines.moments import Descent, GDPlusPlus, Moments, NewtonInverse, OnlineDescent
from icl_interp.baselines.regression import Ridge
from icl_interp.prompts import Prompts

# In units of what prompts set: 1 / curvature, 1 / its square, 1 / squared length, the trace of S.
SIZES = np.geomspace(0.05, 2.0, 25)
STARTS = np.geomspace(0.01, 2.0, 17)
ONLINE_SIZES = (0.25, 0.5, 0.75, 1.0, 1.5)
FORGETTING = (1.0, 0.98, 0.95, 0.9, 0.8)
PENALTIES = np.geomspace(1e-3, 10, 13)
SHRINKS = (0.05, 0.2, 0.6)  # of GD++, over the size of the step, where a search begins
MOST_ITERATIONS = 150  # of a search for parameters

Answers = Float[Tensor, "batch target"]
Tune = Callable[[Prompts, Answers], Predictor]


def missed(predictor: Predictor, prompts: Prompts, answers: Answers) -> float:
    """Mean squared distance from answers at the queries."""
    return float((predictor.predict(prompts)[:, -1] - answers).square().sum(-1).mean())


def nearest_of(candidates: Sequence[Predictor]) -> Tune:
    """Chooses the nearest of some predictors."""

    def tune(prompts: Prompts, answers: Answers) -> Predictor:
        return _best(candidates, lambda one: missed(one, prompts, answers))

    return tune


def _best(candidates: Iterable[Any], loss: Callable[[Any], float]) -> Any:
    """The candidate of the least loss; one whose loss is NaN never is."""
    return min(candidates, key=lambda one: float(np.nan_to_num(loss(one), nan=np.inf)))


def ridge_by_penalty(source: Features) -> Tune:
    """Chooses the penalty of ridge regression.

    Those that are tried are in units of the trace of the Gram matrix of a full prompt.
    """

    def tune(prompts: Prompts, answers: Answers) -> Predictor:
        seen = Moments.of_query(source, prompts)
        identity = torch.eye(seen.gram.shape[-1], dtype=torch.float64)

        def loss(penalty: float) -> float:
            w = torch.linalg.solve(seen.gram + penalty / n * identity, seen.moment)
            return float((seen.predicted(w)[:, 0] - answers).square().sum(-1).mean())

        n = prompts.n_points - 1
        scale = n * _curvature(seen)
        return Ridge(source, _best((PENALTIES * scale).tolist(), loss))

    return tune


def online_by_size(source: Features) -> Tune:
    """Chooses size and forgetting of online descent, of a few of each."""

    def tune(prompts: Prompts, answers: Answers) -> Predictor:
        seen = Moments.of_query(source, prompts)
        length = _curvature(seen) * seen.gram.shape[-1]
        candidates = []
        for size in ONLINE_SIZES:
            candidates += [OnlineDescent(source, size / length, keep) for keep in FORGETTING]
        return _best(candidates, lambda one: missed(one, prompts, answers))

    return tune


def _curvature(seen: Moments) -> float:
    """The mean eigenvalue of S."""
    return float(seen.gram.diagonal(dim1=-2, dim2=-1).mean())


@dataclass(frozen=True)
class Constant:
    """Chooses the one step size of descent: the best of a grid, then by a search from there."""

    source: Features
    n_steps: int
    name: str

    def __call__(self, prompts: Prompts, answers: Answers) -> Descent:
        """The descent that is nearest to the answers."""
        seen = Moments.of_query(self.source, prompts)
        unit = 1 / _curvature(seen)

        def descent(size: Any) -> Descent:
            return Descent(self.source, (size,) * self.n_steps, self.name)

        def loss(parameters: Tensor) -> Tensor:
            return _missed(descent(unit * parameters[0]).predicted(seen), answers)

        first = _best(SIZES, lambda size: float(loss(torch.tensor([size]))))
        found = searched(loss, torch.tensor([first], dtype=torch.float64))
        return descent(unit * float(found[0]))


@dataclass(frozen=True)
class Start:
    """Chooses where Newton's iteration starts, for all prompts alike."""

    source: Features
    n_steps: int

    def __call__(self, prompts: Prompts, answers: Answers) -> NewtonInverse:
        """The iteration that is nearest to the answers."""
        seen = Moments.of_query(self.source, prompts)
        unit = _curvature(seen) ** -2

        def loss(parameters: Tensor) -> Tensor:
            newton = NewtonInverse(self.source, self.n_steps, unit * parameters[0])
            return _missed(newton.predicted(seen), answers)

        first = _best(STARTS, lambda start: float(loss(torch.tensor([start]))))
        found = searched(loss, torch.tensor([first], dtype=torch.float64))
        return NewtonInverse(self.source, self.n_steps, max(unit * float(found[0]), 1e-12))


@dataclass(frozen=True)
class Varying:
    """Chooses a size for every step of descent, and a diagonal or a matrix that all share."""

    source: Features
    n_steps: int
    n_features: int
    name: str
    shape: str = "number"

    def __call__(self, prompts: Prompts, answers: Answers) -> Descent:
        """The descent that is nearest to the answers."""
        seen = Moments.of_query(self.source, prompts)
        size = Constant(self.source, self.n_steps, self.name)(prompts, answers).steps[0]
        # Sizes that start alike would stay alike: steps can change places.
        sizes = float(size) * _spread(self.n_steps)
        shared = {
            "number": torch.zeros(0, dtype=torch.float64),
            "diagonal": torch.ones(self.n_features, dtype=torch.float64),
            "matrix": torch.eye(self.n_features, dtype=torch.float64).flatten(),
        }[self.shape]

        def loss(parameters: Tensor) -> Tensor:
            return _missed(self._made(parameters).predicted(seen), answers)

        return self._made(searched(loss, torch.cat([sizes, shared])))

    def _made(self, parameters: Tensor) -> Descent:
        sizes = parameters[: self.n_steps]
        shared: Tensor = parameters[self.n_steps :]
        if self.shape == "matrix":
            shared = shared.unflatten(0, (self.n_features, self.n_features))
        steps = tuple(size if self.shape == "number" else size * shared for size in sizes)
        return Descent(self.source, steps, self.name)


@dataclass(frozen=True)
class PlusPlus:
    """Chooses both sizes of every step of GD++.

    A search may end in a local minimum, so it begins at several places: with sizes that rise or
    fall from step to step, and with each of `SHRINKS`.
    """

    source: Features
    n_steps: int
    name: str

    def __call__(self, prompts: Prompts, answers: Answers) -> GDPlusPlus:
        """The GD++ that is nearest to the answers."""
        seen = Moments.of_query(self.source, prompts).diagonalised()
        size = Constant(self.source, self.n_steps, self.name)(prompts, answers).steps[0]
        rising = float(size) * _spread(self.n_steps)
        orders = (rising, rising.flip(0)) if self.n_steps > 1 else (rising,)

        def made(parameters: Tensor) -> GDPlusPlus:
            both = parameters.unflatten(0, (2, self.n_steps))
            return GDPlusPlus(self.source, tuple(both[0]), tuple(both[1]), self.name)

        def loss(parameters: Tensor) -> Tensor:
            return _missed(made(parameters).filtered(seen), answers)

        found = []
        for sizes in orders:
            found += [searched(loss, torch.cat([sizes, shrink * sizes])) for shrink in SHRINKS]
        return made(_best(found, lambda parameters: float(loss(parameters))))


def _spread(n: int) -> Float[Tensor, " step"]:
    """Factors about 1, all different where there are several."""
    if n == 1:
        return torch.ones(1, dtype=torch.float64)
    return torch.linspace(0.5, 1.5, n, dtype=torch.float64)


def _missed(found: Float[Tensor, "batch 1 target"], answers: Answers) -> Tensor:
    return (found[:, 0] - answers).square().sum(-1).mean()


def searched(
    loss: Callable[[Tensor], Tensor], start: Float[Tensor, " parameter"]
) -> Float[Tensor, " parameter"]:
    """Parameters of the least loss near a start: L-BFGS of scipy, with torch's gradients.

    Parameters are searched in units of their largest start. Where the search ends higher than it
    began (a loss that overflows, say), the start stays.
    """
    unit = float(start.abs().max()) or 1.0

    def value_and_slope(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        given = torch.tensor(parameters, dtype=torch.float64, requires_grad=True)
        value = loss(unit * given)
        if not bool(torch.isfinite(value)):
            return 1e30, np.zeros_like(parameters)
        (slope,) = torch.autograd.grad(value, given)
        return float(value.detach()), slope.numpy()

    first = start.numpy() / unit
    found = optimize.minimize(
        value_and_slope,
        first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_ITERATIONS, "ftol": 1e-15, "gtol": 1e-12},
    )
    better = found.fun < value_and_slope(first)[0]
    return unit * torch.as_tensor(found.x if better else first).double()
