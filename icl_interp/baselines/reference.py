"""References for predictors: the best prediction from the examples, and the one without any."""

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
    """Ridge regression towards the mean weights, with the best penalty for the noise.

    The penalty is the noise variance over the variance of the weights.

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
        """The fit to each prefix at the next point.

        Before the first point it is the value of the mean weights.
        """
        features = features_of(self.task, prompts.xs.double())
        centre = self.task.weights.mean * features.sum(-1, keepdim=True)
        centred = replace(prompts, ys=prompts.ys.double() - centre)
        ridge = Ridge(self.task, self.penalty)
        return centre + ridge.predict(centred)


BEST = "least squares"
BEST_UNDER_NOISE = BestRidge.name
NOTHING = "zero"
REFERENCES = {
    BEST: LeastSquares,
    BEST_UNDER_NOISE: BestRidge,
    NOTHING: Zero,
    LawMean.name: LawMean,
    MeanValue.name: MeanValue,
}


def of_task(task: Any) -> tuple[str, ...]:
    """Names of the references of a task: the best one only where it has features to regress on."""
    names = [NOTHING, without_examples(task).name]
    if task.has_features:
        names.insert(0, BEST_UNDER_NOISE if is_noisy(task) else BEST)
    return tuple(dict.fromkeys(names))  # the last two are one where the law is centred


def is_noisy(task: Any) -> bool:
    """Whether labels are linear in features plus noise, and the weights have a suitable law.

    Noise and law then determine the penalty of the best ridge regression.
    """
    if not isinstance(task, Features):
        return False
    if not isinstance(getattr(task, "weights", None), Law):
        return False
    return getattr(task, "noise_std", 0) > 0 and BestRidge(task).penalty > 0


def best_of(names: Iterable[str]) -> str | None:
    """The name of the best reference among the named predictors; None where none is a reference."""
    known = set(names)
    for name in (BEST_UNDER_NOISE, BEST):
        if name in known:
            return name
    return None


def note(task: Any) -> str:
    """A note on a task's references, shown beside their errors; empty for labels without noise."""
    if not is_noisy(task):
        return ""
    return (
        f"; labels have noise: {BEST_UNDER_NOISE} has the penalty noise variance / weight variance "
        f"= {BestRidge(task).penalty:g}, which is the posterior mean where weights are normal"
    )
