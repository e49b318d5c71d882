"""The classical algorithms that claims compare a model with, by name."""

from typing import Any

from icl_interp.baselines.base import Predictor
from icl_interp.baselines.bayes import BayesOverDegrees
from icl_interp.baselines.local import Averaging, KNearest, NadarayaWatson
from icl_interp.baselines.regression import GradientDescent, LeastSquares, Ridge

PENALTIES = (0.01, 0.1, 1.0)
STEPS = (1, 10, 100)
NEIGHBOURS = (1, 3)
WIDTHS = (1 / 6, 1 / 2, 2.0)  # of the kernel, in standard deviations of the inputs


def classical(task: Any) -> dict[str, Predictor]:
    """Algorithms for a task by name, each told the task's features and the laws it draws from.

    Averaging, nearest neighbours and kernel regression; for a task with features least squares, ridge and gradient
    descent; for polynomials the Bayes predictor over degrees. Where nothing fixes an algorithm's parameter, several
    values stand for it: a model that implements it with another one is close to one of these.

    Args:
        task: with `inputs` and `dim`, perhaps `features`; for the Bayes predictor `degrees` and `coefficients`.
    """
    # Distances grow with the root of the number of coordinates, so widths do.
    variance = task.dim * task.inputs.std**2
    regressions = [
        LeastSquares(task),
        *(Ridge(task, penalty) for penalty in PENALTIES),
        *(GradientDescent(task, steps) for steps in STEPS),
    ]
    algorithms: list[Any] = [
        *(regressions if getattr(task, "has_features", True) else ()),
        Averaging(),
        *(KNearest(k) for k in NEIGHBOURS),
        *(NadarayaWatson(1 / (2 * width**2 * variance)) for width in WIDTHS),
    ]
    if hasattr(task, "degrees"):
        algorithms.append(BayesOverDegrees(task.degrees, task.coefficients))
    return {algorithm.name: algorithm for algorithm in algorithms}
