"""What every predictor is compared with: the best that the examples allow, and what needs no example."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import Features, Law, Zero, features_of
from icl_interp.baselines.law import LawMean, MeanValue, without_examples
from icl_interp.baselines.regression import LeastSquares, Ridge
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class BestRidge:
    """Ridge with the penalty that suits the noise: noise variance / weight variance, about the mean of the weights.

    Of all predictors that are linear in the labels it has the smallest expected error. For Gaussian
    weights it is the posterior mean, and no predictor at all has a smaller one. Least squares is no
    such reference under noise: after as many points as there are weights its expected error is
    infinite.

    Attributes:
        task: with `features`, `noise_std` and `weights`, the law of each weight.

    >>> from icl_interp.tasks import LinearRegression
    >>> BestRidge(LinearRegression(n_dims=3, n_points=5, noise_std=0.5)).penalty
    0.25
    """

    task: Any
    name: str = "best ridge"

    @property
    def penalty(self) -> float:
        """Noise variance / weight variance."""
        return (self.task.noise_std / self.task.weights.std) ** 2

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; before the first point the value of the mean weights."""
        features = features_of(self.task, prompts.xs.double())
        centre = self.task.weights.mean * features.sum(-1, keepdim=True)
        found = Ridge(self.task, self.penalty).predict(
            replace(prompts, ys=prompts.ys.double() - centre)
        )
        return centre + found


BEST, BEST_UNDER_NOISE, NOTHING = "least squares", BestRidge.name, "zero"
REFERENCES = {
    BEST: LeastSquares,
    BEST_UNDER_NOISE: BestRidge,
    NOTHING: Zero,
    LawMean.name: LawMean,
    MeanValue.name: MeanValue,
}


def of_task(task: Any) -> tuple[str, ...]:
    """Names of the references of a task: the best one only where it has features to regress on."""
    best = ((BEST_UNDER_NOISE if is_noisy(task) else BEST),) if task.has_features else ()
    names = (*best, NOTHING, without_examples(task).name)
    return tuple(dict.fromkeys(names))  # the last two are one where the law is centred


def is_noisy(task: Any) -> bool:
    """Whether labels are linear in features but for noise, and weights have a law that tells which ridge suits it."""
    linear = isinstance(task, Features) and isinstance(getattr(task, "weights", None), Law)
    return linear and getattr(task, "noise_std", 0) > 0 and BestRidge(task).penalty > 0


def best_of(names: Iterable[str]) -> str | None:
    """Which of some predictors, by name, is the best reference among them; None where there is none."""
    known = set(names)
    return next((name for name in (BEST_UNDER_NOISE, BEST) if name in known), None)


def note(task: Any) -> str:
    """What is said of the references of a task beside their errors: nothing where labels have no noise."""
    if not is_noisy(task):
        return ""
    return (
        f"; labels have noise: {BEST_UNDER_NOISE} has the penalty noise variance / weight variance "
        f"= {BestRidge(task).penalty:g}, which is the posterior mean where weights are normal"
    )
