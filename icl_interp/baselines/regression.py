"""Linear regression on features, fitted to every prefix: least squares, ridge, gradient descent."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines import prefixes
from icl_interp.baselines.base import Features, Powers, features_of, positive, whole
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class LeastSquares:
    """Least squares on the task's own features, fitted to each prefix.

    Where the fit is not unique, it is the one of least norm.

    Without noise it is exact from `task.n_determining` points on. Prefixes of deficient rank, few
    points or repeated ones, are left to LAPACK's gelsd.

    >>> from icl_interp.provenance import generator
    >>> from icl_interp.tasks.distributions import Uniform
    >>> from icl_interp.tasks.functions import Polynomial
    >>> task = Polynomial(
    ...     degrees=(3,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=9
    ... )
    >>> prompts = task.sample(5, generator(0, "doc"), dtype=torch.float64)
    >>> bool((LeastSquares(task).predict(prompts) - prompts.ys)[:, 5:].abs().max() < 1e-9)
    True
    """

    task: Features
    name: str = "least squares"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point."""
        features = features_of(self.task, prompts.xs.double())
        return prefixes.at_next_point(features, self.coefficients(prompts))

    def at_query(self, prompts: Prompts) -> Float[Tensor, "batch target"]:
        """The fit to all examples at the query, which shorter prompts need no fit for.

        >>> from icl_interp.provenance import generator
        >>> from icl_interp.tasks import LinearRegression
        >>> task = LinearRegression(n_dims=3, n_points=9)
        >>> prompts = task.sample(5, generator(0, "doc"))
        >>> whole = LeastSquares(task).predict(prompts)[:, -1]
        >>> bool((LeastSquares(task).at_query(prompts) - whole).abs().max() < 1e-9)
        True
        """
        features = features_of(self.task, prompts.xs.double())
        examples = prompts.ys[:, :-1].double()
        fit = torch.linalg.lstsq(features[:, :-1], examples, driver="gelsd").solution
        return (features[:, -1, :, None] * fit).sum(-2)

    def coefficients(self, prompts: Prompts) -> Float[Tensor, "batch point feature target"]:
        """The coefficients fitted to the points before each; 0 before the first point."""
        features = features_of(self.task, prompts.xs.double())
        ys = prompts.ys.double()
        n_features = features.shape[-1]
        n_columns = n_features + prompts.n_targets
        factors = prefixes.factors(features, ys, features.new_zeros(n_columns, n_columns))
        deficient = prefixes.is_deficient(factors, n_features)
        fitted = prefixes.solve(factors, n_features)
        fitted[:, 0] = 0
        for k in range(1, prompts.n_points):
            rows = deficient[:, k]
            if rows.any():
                solved = torch.linalg.lstsq(features[rows, :k], ys[rows, :k], driver="gelsd")
                fitted[rows, k] = solved.solution
        return fitted


@dataclass(frozen=True)
class AveragingEstimator:
    """<w, Phi> with w = sum_i y_i Phi_i / k over the k points seen.

    This w is unbiased for features from N(0, I).

    Source: Garg et al. (2022), `AveragingModel` of their src/models.py. `Averaging` is another
    algorithm: it predicts the mean of the labels.
    """

    task: Features
    name: str = "averaging estimator"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The estimate from each prefix at the next point; 0 before the first point."""
        features = features_of(self.task, prompts.xs.double())
        ys = prompts.ys.double()
        counts = torch.arange(1, prompts.n_points, dtype=ys.dtype)
        products = features[..., None] * ys[:, :, None]
        w = products[:, :-1].cumsum(1) / counts[:, None, None]
        return prefixes.at_next_point(features, _zero_first(w))


@dataclass(frozen=True)
class MaximumDegree:
    """Least squares with all powers of x up to `degree`, for functions whose degree is unknown."""

    degree: int

    def __post_init__(self) -> None:
        whole("degree", self.degree, 0)

    @property
    def name(self) -> str:
        """With its degree."""
        return f"least squares, degree {self.degree}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point.

        Where the fit is not unique, it is the one of least norm.
        """
        return LeastSquares(Powers(self.degree)).predict(prompts)


@dataclass(frozen=True)
class Ridge:
    """argmin_w |Phi w - y|^2 + penalty |w|^2 on the task's features, fitted to each prefix.

    With noise of variance s^2 and coefficients from N(0, c^2) the posterior mean has
    penalty = s^2 / c^2.
    """

    task: Features
    penalty: float

    def __post_init__(self) -> None:
        positive("penalty", self.penalty, "; without a penalty, use LeastSquares")

    @property
    def name(self) -> str:
        """With its penalty."""
        return f"ridge, penalty {self.penalty:g}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point."""
        features = features_of(self.task, prompts.xs.double())
        n_features = features.shape[-1]
        zero = features.new_zeros(n_features, prompts.n_targets)
        prior = prefixes.prior_rows(zero, math.sqrt(self.penalty))
        factors = prefixes.factors(features, prompts.ys.double(), prior)
        return prefixes.at_next_point(features, prefixes.solve(factors, n_features))


@dataclass(frozen=True)
class GradientDescent:
    """`steps` steps of gradient descent from w = 0 on each prefix's squared loss |Phi w - y|^2 / 2.

    Every step uses all points of the prefix.

    The step size is `learning_rate` / largest eigenvalue of the prefix's Gram matrix Phi' Phi: 1 is
    the largest without oscillation, from 2 on it diverges.
    """

    task: Features
    steps: int
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        whole("steps", self.steps, 0)
        if not 0 < self.learning_rate < 2:
            raise InputError(
                "learning_rate must lie between 0 and 2, where it diverges, but got "
                f"{self.learning_rate}"
            )

    @property
    def name(self) -> str:
        """With its number of steps."""
        return f"gradient descent, {self.steps} step{'s' * (self.steps != 1)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The iterate of each prefix at the next point; 0 before the first point."""
        features = features_of(self.task, prompts.xs.double())
        ys = prompts.ys.double()
        n = features.shape[-1]
        seen = features[:, :-1]
        gram = (seen[..., None] * seen[..., None, :]).cumsum(1)
        moment = (seen[..., None] * ys[:, :-1, None]).cumsum(1)
        largest = torch.linalg.eigvalsh(gram)[..., -1, None]
        rate = torch.where(largest > 0, self.learning_rate / largest, 0.0)
        # One step, w -> w - rate (gram w - moment), as a matrix on (w, 1): all steps are its power.
        identity = torch.eye(n + prompts.n_targets, dtype=features.dtype)
        step = identity.repeat(*gram.shape[:2], 1, 1)
        step[..., :n, :n] -= rate[..., None] * gram
        step[..., :n, n:] = rate[..., None] * moment
        all_steps = torch.linalg.matrix_power(step, self.steps)
        w = all_steps[..., :n, n:]
        return prefixes.at_next_point(features, _zero_first(w))


def _zero_first(
    w: Float[Tensor, "batch seen feature target"],
) -> Float[Tensor, "batch point feature target"]:
    """Coefficients for every point: 0 for the first, which has no point before it."""
    return torch.cat([torch.zeros_like(w[:, :1]), w], 1)
