"""The claim of `diversity`: on functions that it never saw a model predicts as ridge does."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.diversity.measurements.distances import (
    APART,
    NEW,
    POOL,
    RIDGE,
    SEEN,
    SIZE,
    distances,
    needs_pool,
)
from icl_interp.tasks.regression import LinearRegression

NEARER = 2.0  # factor of squared distances that tells ridge and the pool apart
# Shares of the mean square of ridge's predictions.
LIKE = 0.1
TOLD = 0.02
ROUNDING = 1e-8
TINY = float(np.finfo(float).tiny)
RATIO = "ratio"
NEAREST = "nearest"
SEPARATE = "apart"
WITHIN = "nearest, of apart"
UNIT = "of the mean square"


def _means(result: DataArray, functions: str, pair: str) -> np.ndarray:
    """Mean squared differences of a pair by unit."""
    return result.sel(functions=functions, pair=pair).values


def ratio(result: DataArray, functions: str = NEW) -> Interval:
    """log10 of the squared distance from ridge over that from the pool's Bayes predictor."""
    ridge = _means(result, functions, RIDGE)
    pool = _means(result, functions, POOL)
    size = _means(result, functions, SIZE)

    def statistic(of_ridge: np.ndarray, of_pool: np.ndarray, square: np.ndarray) -> np.ndarray:
        floor = np.maximum(ROUNDING * square, TINY)
        return np.log10((of_ridge + floor) / (of_pool + floor))

    return bootstrap(statistic, ridge, pool, size)


def share(result: DataArray, pair: str, functions: str = NEW) -> Interval:
    """A squared distance, of the mean square of what ridge says."""
    apart = _means(result, functions, pair)
    size = _means(result, functions, SIZE)
    return bootstrap(lambda d, s: d / np.maximum(s, TINY), apart, size)


def nearest(result: DataArray) -> Interval:
    """The smaller distance on new functions: whichever is smaller may differ from draw to draw."""
    ridge = _means(result, NEW, RIDGE)
    pool = _means(result, NEW, POOL)
    size = _means(result, NEW, SIZE)

    def statistic(of_ridge: np.ndarray, of_pool: np.ndarray, square: np.ndarray) -> np.ndarray:
        smaller = np.minimum(of_ridge, of_pool)
        return smaller / np.maximum(square, TINY)

    return bootstrap(statistic, ridge, pool, size)


def within(result: DataArray) -> Interval:
    """The smaller distance on new functions over that between both predictors."""
    ridge = _means(result, NEW, RIDGE)
    pool = _means(result, NEW, POOL)
    apart = _means(result, NEW, APART)

    def statistic(of_ridge: np.ndarray, of_pool: np.ndarray, between: np.ndarray) -> np.ndarray:
        return np.minimum(of_ridge, of_pool) / np.maximum(between, TINY)

    return bootstrap(statistic, ridge, pool, apart)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Which of both the model is nearer to on new functions, how near, and how far apart both are.

    How far apart ridge and the pool are is about the prompts, not about the model: it has no error.
    """
    result = results[distances]
    return {
        RATIO: ratio(result),
        SEPARATE: share(result, APART).value,
        NEAREST: nearest(result),
        WITHIN: within(result),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Both distances, on functions of the pool and on new ones."""
    result = results[distances]
    assert isinstance(facts.task, LinearRegression)
    rows = []
    for functions in (NEW, SEEN):
        for pair in (RIDGE, POOL, APART):
            rows.append(_row(result, pair, functions))
    # The first two rows are about the model on new functions.
    of_ridge = rows[0]["distance"]
    of_pool = rows[1]["distance"]
    return Remarks(
        scope="these weights, whole prompts of the trained length, functions from the law that "
        "the pool was drawn from",
        caveat="Over the mean square of ridge's predictions the distance from ridge is "
        f"{of_ridge:.2g}, and that from the Bayes predictor of the {facts.task.n_tasks} functions "
        f"{of_pool:.2g}.",
        details=tuple(rows),
    )


def _row(result: DataArray, pair: str, functions: str) -> dict[str, Any]:
    """A squared distance with its interval."""
    found = share(result, pair, functions)
    return {
        "functions": functions,
        "between": pair,
        "distance": found.value,
        "low": found.low,
        "high": found.high,
    }


NEW_FUNCTIONS_CLAIM = Claim(
    id="diversity.new_functions",
    kind="learning",
    question="algorithm",
    statement="On functions that it was not trained on the model predicts as ridge regression "
    "does.",
    denied="On functions that it was not trained on the model predicts as the Bayes predictor of "
    "its pool does.",
    quote=Quote(
        "Below this threshold, the pretrained transformer cannot solve unseen regression tasks, "
        "instead behaving like a Bayesian estimator with the non-diverse pretraining task "
        "distribution as the prior. Beyond this threshold, the transformer significantly "
        "outperforms this estimator; its behavior aligns with that of ridge regression",
        "Raventos, Paul, Chen & Ganguli (2023), abstract",
        "The abstract has no rule for what counts as alike, and is about a family of models. For "
        "one model we test which of the two predictors is nearer, by a factor of two in squared "
        "distance. If a model is far from both, or both predict the same on the prompts, nothing "
        "is decided. The factor and both bounds were set beforehand. Later it was "
        "added that the nearer one be nearer than the two are to each other, by this factor.",
    ),
    reads="outputs",
    criterion=Criterion(
        (
            Condition(
                RATIO,
                "squared distance from ridge over that from the pool's Bayes predictor",
                at_most(-math.log10(NEARER)),
                at_least(math.log10(NEARER)),
                unit="log10",
            ),
        ),
        (
            Precondition(
                SEPARATE,
                at_least(TOLD),
                "On new functions ridge and the pool's Bayes predictor predict nearly the same "
                f"(their distance is {{value:.2g}} {UNIT}, {TOLD:g} needed).",
            ),
            Precondition(
                NEAREST,
                at_most(LIKE),
                "The model is like neither predictor: the nearer one is at a distance of "
                f"{{value:.2g}} {UNIT} (at most {LIKE:g} allowed).",
            ),
            Precondition(
                WITHIN,
                at_most(1 / NEARER),
                "The model is like neither: its squared distance from the nearer of both is "
                "{value:.2g} of that between them "
                f"(at most {1 / NEARER:g} asked).",
            ),
        ),
        terms="The pool is the set of functions that the model was trained on. Distances are "
        "between predictions for the query. The penalty of ridge is the best one for the law that "
        "the pool was drawn from. The Bayes predictor weights the functions of the pool by how "
        "well they fit the examples.",
    ),
    measurements=(distances,),
    control=(distances,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_pool,
    figures=("pool_or_ridge",),
)
CLAIMS = (NEW_FUNCTIONS_CLAIM,)
