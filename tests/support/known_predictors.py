"""Predictors of known truth, written in numpy, with the verdicts that they must get."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icl_interp.tasks import LinearRegression, Polynomial, Uniform

AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20)
REGRESSION = LinearRegression(n_dims=3, n_points=20)
YES, NO, OPEN = "supported", "contradicted", "inconclusive"
ERASED = "limits.context_erased"
LINE = "limits.linear_asymptote"
LEVEL = "limits.boundary_immediate"
HELPLESS = "limits.no_icl_at_high_norm"
ORDER = "linear_attention.order_free"


def with_intercept(xs):
    """The columns 1 and x."""
    return np.concatenate([np.ones_like(xs[..., :1]), xs], -1)


def ridge(penalty, intercept=True):
    """Ridge regression in closed form; the intercept is not penalised."""

    def predict(xs, ys, x_query):
        features = with_intercept(xs) if intercept else xs
        query = with_intercept(x_query) if intercept else x_query
        weights = penalty * np.eye(features.shape[-1])
        if intercept:
            weights[0, 0] = 0.0
        squares = features.transpose(0, 2, 1) @ features + weights
        moments = (features * ys[..., None]).sum(1)
        return (np.linalg.solve(squares, moments[..., None])[..., 0] * query).sum(-1)

    return predict


def distances(xs, x_query):
    """Squared distances of the examples from the query."""
    return ((xs - x_query[:, None]) ** 2).sum(-1)


def neighbours(k):
    """The mean label of the k nearest examples."""

    def predict(xs, ys, x_query):
        nearest = distances(xs, x_query).argsort(-1, kind="stable")[:, :k]
        return np.take_along_axis(ys, nearest, 1).mean(1)

    return predict


def kernel_average(width):
    """Labels averaged with a normal kernel; far out the nearest one is left."""

    def predict(xs, ys, x_query):
        logs = -distances(xs, x_query) / (2 * width**2)
        weights = np.exp(logs - logs.max(1, keepdims=True))
        return (weights * ys).sum(1) / weights.sum(1)

    return predict


def gaussian_process(scale, noise=1e-4):
    """The mean of a Gaussian process with mean 0: far out it is 0."""

    def predict(xs, ys, x_query):
        between = ((xs[:, :, None] - xs[:, None]) ** 2).sum(-1)
        gram = np.exp(-between / (2 * scale**2)) + noise * np.eye(xs.shape[1])
        weights = np.linalg.solve(gram, ys[..., None])[..., 0]
        return (weights * np.exp(-distances(xs, x_query) / (2 * scale**2))).sum(1)

    return predict


def mean_of(*parts):
    """An ensemble: the mean of several predictors."""

    def predict(xs, ys, x_query):
        return np.mean([part(xs, ys, x_query) for part in parts], axis=0)

    return predict


def plus_line(predictor, slope):
    """A predictor and a line that no context moves."""

    def predict(xs, ys, x_query):
        return predictor(xs, ys, x_query) + slope * x_query[:, 0]

    return predict


def clipped(predictor, at=100.0):
    """A tabular model's preprocessing: inputs are clipped at 100 standard deviations."""

    def predict(xs, ys, x_query):
        mean = xs.mean(1)
        limit = at * xs.std(1)
        return predictor(xs, ys, np.clip(x_query, mean - limit, mean + limit))

    return predict


def recent(rate):
    """A mean of labels that weighs late examples more: the order of the examples matters."""

    def predict(xs, ys, x_query):
        weights = np.exp(rate * np.arange(ys.shape[1]))
        return ridge(1e-3)(xs, ys, x_query) + ((weights / weights.sum()) * ys).sum(1)

    return predict


@dataclass(frozen=True)
class Known:
    """A predictor, and its verdicts by claim."""

    predict: Callable[..., Any]
    verdicts: dict[str, str] = field(default_factory=dict)
    task: Any = AFFINE


# A line of its own in every context.
LINES = {ERASED: NO, LINE: NO, LEVEL: OPEN, HELPLESS: NO}
# A constant far out, which another context moves.
LEVELS = {ERASED: NO, LINE: OPEN, LEVEL: YES, HELPLESS: YES}
FORGETS = {ERASED: YES, LINE: OPEN, LEVEL: YES, HELPLESS: YES}
OF_ORDER = {ORDER: YES}

KNOWN = {
    "least squares": Known(ridge(1e-9), LINES),
    "ridge 0.001": Known(ridge(1e-3), LINES),
    "ridge 0.1": Known(ridge(0.1), LINES),
    "nearest": Known(neighbours(1), LEVELS),
    "2 nearest": Known(neighbours(2), LEVELS),
    "3 nearest": Known(neighbours(3), LEVELS),
    "kernel 0.02": Known(kernel_average(0.02), LEVELS),
    "kernel 0.05": Known(kernel_average(0.05), LEVELS),
    "kernel 0.1": Known(kernel_average(0.1), LEVELS),
    "process 0.3": Known(gaussian_process(0.3), FORGETS),
    "process 0.5": Known(gaussian_process(0.5), FORGETS),
    "process 1": Known(gaussian_process(1.0), FORGETS),
    "lines together": Known(mean_of(ridge(1e-3), ridge(0.1)), LINES),
    "levels together": Known(mean_of(neighbours(1), neighbours(2)), LEVELS),
    "line and level": Known(mean_of(ridge(1e-3), neighbours(2)), LINES),
    "level and process": Known(mean_of(neighbours(1), gaussian_process(0.5)), LEVELS),
    "a line beside": Known(plus_line(neighbours(1), 3.0), {LINE: YES, LEVEL: OPEN}),
    "regression": Known(ridge(1e-3, intercept=False), OF_ORDER, REGRESSION),
    "regression by neighbours": Known(neighbours(2), OF_ORDER, REGRESSION),
    "regression by late labels": Known(recent(0.5), {ORDER: NO}, REGRESSION),
}
