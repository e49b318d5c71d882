"""Mean products of features and labels over every prefix, and descent on them.

With S = (1/k) sum phi_i phi_i' and h = (1/k) sum phi_i y_i over the k points seen, the mean squared
error (1/2k) sum (y_i - <w, phi_i>)^2 has the gradient S w - h. Every algorithm of this file uses a
prompt through S and h alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines import prefixes
from icl_interp.baselines.base import Features, features_of, positive, whole
from icl_interp.errors import InputError, shown
from icl_interp.prompts import Prompts

Gram = Float[Tensor, "batch point feature feature"]
Weights = Float[Tensor, "batch point feature target"]
Number = float | Float[Tensor, ""]
Step = Number | Float[Tensor, " feature"] | Float[Tensor, "feature feature"]


@dataclass(frozen=True, eq=False)
class Moments:
    """What the points before each point tell; zeros before the first point.

    Attributes:
        features: of each point.
        gram: S, the mean of phi phi'.
        moment: h, the mean of phi y.
    """

    features: Float[Tensor, "batch point feature"]
    gram: Gram
    moment: Weights

    @classmethod
    def of(cls, task: Features, prompts: Prompts) -> "Moments":
        """The moments of every prefix, in float64."""
        features = features_of(task, prompts.xs.double())
        ys = prompts.ys.double()
        counts = torch.arange(prompts.n_points, dtype=ys.dtype, device=ys.device)
        counts = counts.clamp(min=1)[:, None, None]
        gram = _before(features[..., None] * features[..., None, :]) / counts
        moment = _before(features[..., None] * ys[:, :, None]) / counts
        return cls(features, gram, moment)

    @classmethod
    def of_query(cls, task: Features, prompts: Prompts) -> "Moments":
        """Those of all examples alone: what is predicted then is the query, in one point."""
        features = features_of(task, prompts.xs.double())
        ys = prompts.ys.double()[:, :-1]
        seen = features[:, :-1]
        gram = seen.mT @ seen / seen.shape[1]
        moment = seen.mT @ ys / seen.shape[1]
        return cls(features[:, -1:], gram[:, None], moment[:, None])

    def predicted(self, w: Weights) -> Float[Tensor, "batch point target"]:
        """<w, phi> at each point."""
        return prefixes.at_next_point(self.features, w)

    def diagonalised(self) -> "Diagonal":
        """The same in the eigenbasis of S of each prefix."""
        spectrum, basis = torch.linalg.eigh(self.gram)
        query = basis.mT @ self.features[..., None]
        return Diagonal(spectrum[..., None], basis.mT @ self.moment, query)


class Diagonal(NamedTuple):
    """Moments along the eigenvectors of S.

    Attributes:
        spectrum: eigenvalues of S.
        moment: h.
        query: features of the next point.
    """

    spectrum: Float[Tensor, "batch point feature 1"]
    moment: Weights
    query: Float[Tensor, "batch point feature 1"]


def _before(products: Tensor) -> Tensor:
    """Sums over the points before each point."""
    sums = products[:, :-1].cumsum(1)
    return torch.cat([torch.zeros_like(products[:, :1]), sums], 1)


def applied(step: Step, gradient: Weights) -> Weights:
    """A step's number, diagonal or matrix times a gradient."""
    if not isinstance(step, Tensor) or step.ndim == 0:
        return step * gradient
    if step.ndim == 1:
        return step[:, None] * gradient
    return step @ gradient


@dataclass(frozen=True, eq=False)
class Descent:
    """Steps w <- w + P (h - S w) from w = 0, with a P of its own in every step.

    P is a number (a step size), a vector (a diagonal) or a matrix. All prefixes have the same ones.
    `GradientDescent` chooses its step size by the curvature of each prefix instead.

    Source: von Oswald et al. (2023), "Transformers learn in-context by gradient descent",
    Proposition 1 and section 3; preconditioned: Ahn, Cheng, Daneshmand & Sra (2023), "Transformers
    learn to implement preconditioned gradient descent for in-context learning", equation (8).

    Attributes:
        task: the features.
        steps: P of each step.
        name: in tables.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks.regression import LinearRegression
    >>> task = LinearRegression(n_dims=2, n_points=5)
    >>> prompts = task.sample(3, generator(0, "doc"), dtype=torch.float64)
    >>> by_number, by_matrix = Descent(task, (0.5,) * 3), Descent(task, (torch.eye(2) / 2,) * 3)
    >>> by_matrix = Descent(task, (torch.eye(2, dtype=torch.float64) / 2,) * 3)
    >>> torch.allclose(by_number.predict(prompts), by_matrix.predict(prompts))
    True
    """

    task: Features
    steps: tuple[Step, ...]
    name: str = "descent"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The last iterate of each prefix at the next point; 0 before the first point."""
        return self.predicted(Moments.of(self.task, prompts))

    def predicted(self, seen: Moments) -> Float[Tensor, "batch point target"]:
        """The same, from moments."""
        w = torch.zeros_like(seen.moment)
        for step in self.steps:
            w = w + applied(step, seen.moment - seen.gram @ w)
        return seen.predicted(w)


@dataclass(frozen=True, eq=False)
class GDPlusPlus:
    """Descent that also makes its inputs better conditioned between steps (GD++).

    In each step the labels lose what the step explains, y_i <- y_i - size <h, phi_i>, and the
    inputs become phi_i <- (I - shrink S) phi_i, the query's as well. h and S are those of the
    inputs and labels as they are then. The prediction is the sum of what the query's label would
    lose.

    Source: von Oswald et al. (2023), equation (6) and appendix A.10.

    Attributes:
        task: the features.
        sizes: of each step.
        shrinks: of each step, as many.
        name: in tables.
    """

    task: Features
    sizes: tuple[Number, ...]
    shrinks: tuple[Number, ...]
    name: str = "GD++"

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.shrinks):
            raise InputError(
                "GD++ needs as many shrinks as sizes, one a step, but got "
                f"{len(self.shrinks)} and {len(self.sizes)}"
            )

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction from each prefix at the next point; 0 before the first point."""
        return self.predicted(Moments.of(self.task, prompts))

    def predicted(self, seen: Moments) -> Float[Tensor, "batch point target"]:
        """The same, from moments."""
        return self.filtered(seen.diagonalised())

    def filtered(self, seen: "Diagonal") -> Float[Tensor, "batch point target"]:
        """The same, along eigenvectors of S, which all steps keep."""
        spectrum = seen.spectrum
        moment = seen.moment
        query = seen.query
        out = torch.zeros_like(moment[:, :, 0])
        for size, shrink in zip(self.sizes, self.shrinks, strict=True):
            out = out + size * (query * moment).sum(-2)
            # All inputs are multiplied by `better`, so S by its square.
            better = 1 - shrink * spectrum
            moment = better * (moment - size * spectrum * moment)
            query = better * query
            spectrum = better.square() * spectrum
        return out


@dataclass(frozen=True)
class NewtonInverse:
    """w = M h with M from Newton's iteration for the inverse of S, M <- 2 M - M S M.

    It starts at M = start S. The error I - M S is squared in every iterate. On directions without
    points M stays 0, so the limit is the least squares solution of least norm.

    Source: Schulz (1933); Fu, Chen, Jia & Sharan (2023), "Transformers learn higher-order
    optimization methods for in-context learning", equation (2).

    Attributes:
        task: the features.
        steps: iterations.
        start: None: 1 / (largest eigenvalue of S)^2 of each prefix. A number is the same for all
            prefixes; from 2 / (largest eigenvalue)^2 on the iteration diverges.
    """

    task: Features
    steps: int
    start: Number | None = None

    def __post_init__(self) -> None:
        whole("steps", self.steps, 0)
        if isinstance(self.start, (int, float)):
            positive("start", self.start)

    @property
    def name(self) -> str:
        """With its number of iterations."""
        return f"Newton's inverse, {self.steps} iteration{'s' * (self.steps != 1)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The iterate of each prefix at the next point; 0 before the first point."""
        return self.predicted(Moments.of(self.task, prompts))

    def predicted(self, seen: Moments) -> Float[Tensor, "batch point target"]:
        """The same, from moments."""
        gram = seen.gram
        if self.start is None:
            largest = torch.linalg.eigvalsh(gram)[..., -1, None, None]
            inverse = torch.where(largest > 0, gram / largest.square(), 0.0)
        else:
            inverse = self.start * gram
        for _ in range(self.steps):
            inverse = 2 * inverse - inverse @ gram @ inverse
        return seen.predicted(inverse @ seen.moment)


@dataclass(frozen=True)
class ConjugateGradients:
    """`steps` steps of conjugate gradients for S w = h from w = 0, for each target by itself.

    After as many steps as there are features it is least squares, up to rounding. It is the one
    algorithm here whose w is not linear in the labels.

    Source: Hestenes & Stiefel (1952), "Methods of conjugate gradients for solving linear systems".
    """

    task: Features
    steps: int

    def __post_init__(self) -> None:
        whole("steps", self.steps, 0)

    @property
    def name(self) -> str:
        """With its number of steps."""
        return f"conjugate gradients, {self.steps} step{'s' * (self.steps != 1)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The iterate of each prefix at the next point; 0 before the first point."""
        seen = Moments.of(self.task, prompts)
        w = torch.zeros_like(seen.moment)
        left = seen.moment
        direction = left
        size = left.square().sum(-2, keepdim=True)
        # Below this a residual is rounding: no step is made along it.
        least = 1e-26 * size
        for _ in range(self.steps):
            bent = seen.gram @ direction
            curvature = (direction * bent).sum(-2, keepdim=True)
            going = (size > least) & (curvature > 0)
            rate = torch.where(going, size / torch.where(going, curvature, 1.0), 0.0)
            w = w + rate * direction
            left = left - rate * bent
            next_size = left.square().sum(-2, keepdim=True)
            turn = torch.where(going, next_size / torch.where(going, size, 1.0), 0.0)
            direction = left + turn * direction
            size = next_size
        return seen.predicted(w)


@dataclass(frozen=True)
class OnlineDescent:
    """One step of descent a point, in order: w <- forgetting w + size (y - <w, phi>) phi.

    Source: Widrow & Hoff (1960), "Adaptive switching circuits" (least mean squares). With
    forgetting < 1 earlier points count less.

    Attributes:
        task: the features.
        size: of a step.
        forgetting: what w keeps at each point, above 0 and at most 1.
        name: in tables.
    """

    task: Features
    size: float
    forgetting: float = 1.0
    name: str = "online descent"

    def __post_init__(self) -> None:
        positive("size", self.size)
        if not 0 < self.forgetting <= 1:
            raise InputError(
                "forgetting must be above 0 and at most 1, where nothing is forgotten, but got "
                f"{shown(self.forgetting)}"
            )

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The prediction of each point before its label is seen; 0 at the first."""
        features = features_of(self.task, prompts.xs.double())
        ys = prompts.ys.double()
        w = features[:, 0, :, None] * torch.zeros_like(ys[:, 0, None])
        out = []
        for k in range(prompts.n_points):
            phi = features[:, k, :, None]
            said = (phi * w).sum(1)
            out.append(said)
            w = self.forgetting * w + self.size * phi * (ys[:, k] - said)[:, None]
        return torch.stack(out, 1)
