"""Predictors of scikit-learn, fitted to each prefix: Lasso, a greedy tree, boosted trees.

scikit-learn is imported here only, when something is predicted. Each point of each prompt is a fit
of its own; boosting, which fits a hundred trees, takes by far the longest.
"""

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import INPUTS, Features, features_of, positive, whole
from icl_interp.errors import InputError, logger
from icl_interp.prompts import Prompts

HOW_TO_INSTALL = "pip install scikit-learn"
# Coordinate descent ends when the duality gap is below this share of |y|^2. With scikit-learn's own
# 1e-4 coefficients of a small penalty would be off by a few percent.
GAP, WIDE_GAP = 1e-10, 1e-4
MAX_ITERATIONS = 100_000
log = logger(__name__)


@contextmanager
def needed(wanted_by: str) -> Iterator[None]:
    """A context for imports of scikit-learn, which takes long and so waits until it is needed.

    Args:
        wanted_by: what needs it, for the message.

    Raises:
        InputError: scikit-learn is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"{wanted_by} needs scikit-learn, which is not installed: {HOW_TO_INSTALL}"
        ) from error


def installed() -> bool:
    """Whether scikit-learn is there; it is not imported for that."""
    return importlib.util.find_spec("sklearn") is not None


@dataclass(frozen=True)
class Lasso:
    """argmin_w |y - Phi w|^2 / (2 k) + penalty |w|_1 over the k points seen, without an intercept.

    Source: Garg et al. (2022), for sparse linear functions; `get_relevant_baselines` of their
    src/models.py tries penalties of 1, 0.1, 0.01, 0.001 and 0.0001. scikit-learn finds the minimum
    by coordinate descent. With a penalty that is tiny beside the labels some fits end at
    `MAX_ITERATIONS`, most of them with a gap of some 1e-6 of |y|^2. Of those that end above
    scikit-learn's own 1e-4 a line in the log tells how many there are.

    Attributes:
        penalty: in units of a label times a feature. From max_j |sum_i y_i Phi_ij| / k on, w is 0.
        task: the features Phi, by default the inputs.
    """

    penalty: float
    task: Features = INPUTS

    def __post_init__(self) -> None:
        positive("penalty", self.penalty, "; without a penalty, use LeastSquares")

    @property
    def name(self) -> str:
        """With its penalty."""
        return f"lasso, penalty {self.penalty:g}{_on(self.task)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point.

        Raises:
            InputError: scikit-learn is not installed.
        """
        # Coordinates are taken in turn, and yet scikit-learn draws from numpy's global generator
        # without a seed.
        settings = {
            "fit_intercept": False,
            "tol": GAP,
            "max_iter": MAX_ITERATIONS,
            "random_state": 0,
        }
        return _by_prefixes(
            self, prompts, lambda sklearn: sklearn.Lasso(alpha=self.penalty, **settings)
        )


@dataclass(frozen=True)
class GreedyTree:
    """A regression tree grown greedily: each split lowers the squared error on seen points most.

    Source: Garg et al. (2022), for decision trees; scikit-learn's `DecisionTreeRegressor`.

    Attributes:
        depth: tests on the way to a leaf at most; None: until every leaf holds equal labels.
        task: the features that are tested, by default the inputs; `Signs()` tells the algorithm
            that signs decide.
        seed: which of equally good splits is taken.
    """

    depth: int | None = None
    task: Features = INPUTS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.depth is not None:
            whole("depth", self.depth, 1)
        whole("seed", self.seed, 0)

    @property
    def name(self) -> str:
        """With its depth."""
        return f"greedy tree{_depth(self.depth)}{_on(self.task)}"

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The mean label of the leaf that each point reaches in the tree of its prefix.

        Before the first point the prediction is 0.

        Raises:
            InputError: scikit-learn is not installed.
        """
        settings = {"max_depth": self.depth, "random_state": self.seed}
        return _by_prefixes(
            self, prompts, lambda sklearn: sklearn.DecisionTreeRegressor(**settings)
        )


@dataclass(frozen=True)
class GradientBoosting:
    """The mean label plus `n_trees` small greedy trees, each fitted to what those before it leave.

    Source: Garg et al. (2022), for decision trees, where it is XGBoost; this is scikit-learn's
    `GradientBoostingRegressor` with its own defaults, which has no penalty on the numbers at
    leaves.

    Attributes:
        n_trees: how many; the time of a fit is proportional to it.
        depth: of each tree.
        learning_rate: what each tree's prediction is multiplied by.
        task: the features that are tested, by default the inputs; `Signs()` tells the algorithm
            that signs decide.
        seed: which of equally good splits is taken.
    """

    n_trees: int = 100
    depth: int = 3
    learning_rate: float = 0.1
    task: Features = INPUTS
    seed: int = 0

    def __post_init__(self) -> None:
        whole("n_trees", self.n_trees, 1)
        whole("depth", self.depth, 1)
        positive("learning_rate", self.learning_rate)
        whole("seed", self.seed, 0)

    @property
    def name(self) -> str:
        """With the number and the depth of its trees."""
        return (
            f"boosting, {self.n_trees} "
            f"tree{'s' * (self.n_trees != 1)}{_depth(self.depth)}{_on(self.task)}"
        )

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point target"]:
        """The fit to each prefix at the next point; 0 before the first point.

        Raises:
            InputError: scikit-learn is not installed.
        """
        settings = {
            "n_estimators": self.n_trees,
            "max_depth": self.depth,
            "learning_rate": self.learning_rate,
        }
        settings["random_state"] = self.seed
        return _by_prefixes(
            self, prompts, lambda sklearn: sklearn.GradientBoostingRegressor(**settings)
        )


class _Estimators:
    """The classes of scikit-learn that are used, imported when one is first asked for."""

    def __init__(self, wanted_by: str) -> None:
        with needed(wanted_by):
            from sklearn import config_context
            from sklearn.ensemble import GradientBoostingRegressor
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.linear_model import Lasso
            from sklearn.tree import DecisionTreeRegressor
        self.config_context = config_context
        self.ConvergenceWarning = ConvergenceWarning
        self.GradientBoostingRegressor = GradientBoostingRegressor
        self.Lasso = Lasso
        self.DecisionTreeRegressor = DecisionTreeRegressor


class FittingTools(NamedTuple):
    """What a fit of an estimator of the user's own needs of scikit-learn.

    Attributes:
        clone: gives an unfitted copy of an estimator.
        config_context: settings of scikit-learn for a block.
    """

    clone: Callable[..., Any]
    config_context: Callable[..., Any]


def fitting_tools(wanted_by: str) -> FittingTools:
    """The tools to fit an estimator.

    Args:
        wanted_by: what needs them, for the message.

    Raises:
        InputError: scikit-learn is not installed.
    """
    with needed(wanted_by):
        from sklearn import config_context
        from sklearn.base import clone
    return FittingTools(clone, config_context)


class ProbeTools(NamedTuple):
    """What a learned probe needs of scikit-learn.

    Attributes:
        ridge: makes a ridge regression of standardised features, which chooses its penalty among
            those given by leaving out each row, for every target by itself.
        folds: splits rows by their groups.
    """

    ridge: Callable[[Any], Any]
    folds: Callable[..., Any]


def probe_tools(wanted_by: str) -> ProbeTools:
    """The tools to fit a learned probe.

    Args:
        wanted_by: what needs them, for the message.

    Raises:
        InputError: scikit-learn is not installed.
    """
    with needed(wanted_by):
        from sklearn.linear_model import RidgeCV
        from sklearn.model_selection import GroupKFold
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    def ridge(penalties: Any) -> Any:
        return make_pipeline(StandardScaler(), RidgeCV(penalties, alpha_per_target=True))

    return ProbeTools(ridge, GroupKFold)


def _by_prefixes(
    predictor: Lasso | GreedyTree | GradientBoosting,
    prompts: Prompts,
    make: Callable[[_Estimators], Any],
) -> Float[Tensor, "batch point target"]:
    """Predictions of fresh estimators, one a target, for every point from the points before it."""
    sklearn = _Estimators(type(predictor).__name__)
    features = features_of(predictor.task, prompts.xs.double()).cpu().numpy()
    ys = prompts.ys.double().cpu().numpy()
    out = torch.zeros(ys.shape, dtype=torch.float64)
    wide = 0
    with (
        sklearn.config_context(
            skip_parameter_validation=True
        ),  # ours are checked, and there are many fits
        warnings.catch_warnings(
            action="ignore", category=sklearn.ConvergenceWarning
        ),  # `wide` counts what matters
    ):
        for row in range(len(ys)):
            for k, target in itertools.product(
                range(1, prompts.n_points), range(prompts.n_targets)
            ):
                fit = make(sklearn).fit(features[row, :k], ys[row, :k, target])
                out[row, k, target] = float(fit.predict(features[row, k, None])[0])
                square = (ys[row, :k, target] ** 2).sum()
                wide += getattr(fit, "dual_gap_", 0.0) * k > WIDE_GAP * square
    if wide:
        log.warning("%s: %d fits of these prompts ended far from the minimum", predictor.name, wide)
    return out


def _on(source: Features) -> str:
    """What a name says of features that are not the inputs."""
    name = getattr(source, "name", None)
    return f", on {name}" if name else ""


def _depth(depth: int | None) -> str:
    return "" if depth is None else f", depth {depth}"
