"""The classical algorithms that a model is compared with, by name."""

from collections.abc import Callable
from typing import Any

from icl_interp.baselines import reference, scikit
from icl_interp.baselines.base import Inputs, Predictor, Signs
from icl_interp.baselines.bayes import BayesOverDegrees
from icl_interp.baselines.local import Averaging, KNearest, NadarayaWatson
from icl_interp.baselines.network import TwoLayerNetwork
from icl_interp.baselines.regression import AveragingEstimator, GradientDescent, LeastSquares, Ridge
from icl_interp.errors import logger, unknown

log = logger(__name__)

PENALTIES = (0.01, 0.1, 1.0)
STEPS = (1, 10, 100)
NEIGHBOURS = (1, 3)
# Those of Garg et al.: `get_relevant_baselines`, src/models.py.
LASSO_PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
WIDTHS = (1 / 6, 1 / 2, 2.0)  # of the kernel, in standard deviations of the inputs


def classical(task: Any) -> dict[str, Predictor]:
    """Algorithms for a task by name, each told the task's features and the laws it draws from.

    Averaging, nearest neighbours and kernel regression; for a task with features least squares,
    ridge (with the penalty that suits the noise too, where labels have any) and gradient descent;
    for polynomials the Bayes predictor over degrees. Where nothing fixes an algorithm's parameter,
    several values stand for it: a model that implements it with another one is close to one of
    these.

    A task may ask for more in `compared_with`, a tuple of words in `MORE`; the tasks of Garg et al.
    (2022) name what that work compares them with. Of these algorithms, those that need scikit-learn
    are left out with a line in the log where it is not installed. They take longer than the others
    when they predict, because each point of each prompt gets a fit of its own; boosting and the
    two-layer network by far the longest.

    Args:
        task: with `inputs` and `dim`, perhaps `features`; for the Bayes predictor `degrees` and
            `coefficients`; perhaps `compared_with`, and what its words ask of a task.

    Raises:
        InputError: a word in `compared_with` that is not known.
    """
    algorithms: list[Any] = []
    if getattr(task, "has_features", True):
        algorithms.append(LeastSquares(task))
        if reference.is_noisy(task):
            algorithms.append(reference.BestRidge(task))
        for penalty in PENALTIES:
            algorithms.append(Ridge(task, penalty))
        for steps in STEPS:
            algorithms.append(GradientDescent(task, steps))
    algorithms.append(Averaging())
    algorithms += map(KNearest, NEIGHBOURS)
    # Distances grow with the root of the number of coordinates, so widths do.
    variance = task.dim * task.inputs.std**2
    for width in WIDTHS:
        algorithms.append(NadarayaWatson(1 / (2 * width**2 * variance)))
    if hasattr(task, "degrees"):
        algorithms.append(BayesOverDegrees(task.degrees, task.coefficients))
    # The task may ask for more by name.
    for word in _words(task):
        algorithms += MORE[word](task)
    return {algorithm.name: algorithm for algorithm in algorithms}


def _words(task: Any) -> list[str]:
    """What the task names in `compared_with`, but for what needs a package that is missing."""
    available = []
    missing = []
    for word in getattr(task, "compared_with", ()):
        if word not in MORE:
            raise unknown("word in compared_with", word, MORE)
        if word in OF_SCIKIT_LEARN and not scikit.installed():
            missing.append(word)
        else:
            available.append(word)
    if missing:
        log.warning(
            "%s left out, because scikit-learn is not installed: %s",
            " and ".join(missing),
            scikit.HOW_TO_INSTALL,
        )
    return available


def _averaging_estimator(task: Any) -> list[Any]:
    return [AveragingEstimator(Inputs())]


def _lasso(task: Any) -> list[Any]:
    return [scikit.Lasso(penalty, task) for penalty in LASSO_PENALTIES]


def _linear_fit(task: Any) -> list[Any]:
    return [LeastSquares(Inputs(), "least squares on the inputs")]


def _trees(task: Any) -> list[Any]:
    return [
        scikit.GreedyTree(),
        scikit.GreedyTree(task.depth),
        scikit.GreedyTree(task.depth, Signs()),
        scikit.GradientBoosting(),
    ]


def _two_layer_network(task: Any) -> list[Any]:
    return [TwoLayerNetwork(task.hidden)]


# What `compared_with` may name: algorithms for a task.
MORE: dict[str, Callable[[Any], list[Any]]] = {
    "averaging estimator": _averaging_estimator,
    "lasso": _lasso,
    "linear fit": _linear_fit,
    "trees": _trees,
    "two-layer network": _two_layer_network,
}
OF_SCIKIT_LEARN = ("lasso", "trees")
