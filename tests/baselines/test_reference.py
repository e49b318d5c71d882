"""The best reference: the posterior mean where labels have noise, else least squares."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from tables import row_of

from icl_interp.baselines import LeastSquares, Predictor, Ridge, classical, reference
from icl_interp.baselines.reference import BEST, BEST_UNDER_NOISE, BestRidge
from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import parse
from icl_interp.evaluation import error_table, evaluate, in_distribution, shifted
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Normal, Sphere, Task, Uniform
from icl_interp.tasks.ridge import RidgeFunction

NOISY = LinearRegression(n_dims=3, n_points=8, noise_std=0.7, weights=Normal(1.5))
MOVED = replace(NOISY, weights=Normal(1.5, mean=2.0))
FIXED = replace(NOISY, weights=(1.0, 0.0, -1.0))
SMALL = {"n_functions": 200, "n_contexts": 4}


def conditional_mean(task, xs, ys, x):
    """E[x w | y] of jointly normal numbers: cov(x w, y) cov(y)^-1 (y - E y), about its mean."""
    mean, variance = task.weights.mean, task.weights.std**2
    of_labels = variance * xs @ xs.T + task.noise_std**2 * np.eye(len(xs))
    return mean * x.sum() + variance * x @ xs.T @ np.linalg.solve(of_labels, ys - mean * xs.sum(-1))


def check_posterior(predictor, task):
    prompts = task.sample(6, generator(0, "reference"), dtype=torch.float64)
    found = as_numbers(predictor.predict(prompts)).numpy()
    xs, ys = prompts.xs.numpy(), as_numbers(prompts.ys).numpy()
    for row in range(len(xs)):
        for k in range(task.n_points):
            expected = conditional_mean(task, xs[row, :k], ys[row, :k], xs[row, k])
            np.testing.assert_allclose(found[row, k], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", [NOISY, MOVED], ids=["centred", "about 2"])
def test_it_is_the_posterior_mean(task):
    check_posterior(BestRidge(task), task)
    must_fail(check_posterior, LeastSquares(task), task)
    must_fail(check_posterior, BestRidge(replace(task, noise_std=0.8)), task)
    must_fail(check_posterior, BestRidge(task.scaled(functions=2.0)), task)


def test_about_a_mean_of_0_it_is_ridge():
    prompts = NOISY.sample(5, generator(1, "reference"))
    found = BestRidge(NOISY).predict(prompts)
    torch.testing.assert_close(
        found, Ridge(NOISY, (0.7 / 1.5) ** 2).predict(prompts), rtol=0, atol=1e-12
    )
    assert found.dtype == torch.float64
    assert isinstance(BestRidge(NOISY), Predictor)


def beats_all(task):
    """No algorithm that it stands beside has a smaller error, beyond what chance explains."""
    table = evaluate(BestRidge(task), task, **SMALL, baselines=True)
    best = row_of(table, predictor="model")["error"]
    errors = {row["predictor"]: row["error"] for row in table.to_dict("records")}
    assert set(classical(task)) < set(errors)
    assert all(error >= 0.99 * best for error in errors.values())


@pytest.mark.parametrize(
    "task",
    [NOISY, replace(NOISY, weights=Uniform(-2, 2)), MOVED],
    ids=["normal", "uniform", "moved"],
)
def test_none_of_the_classical_algorithms_is_better(task):
    beats_all(task)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (NOISY, BEST_UNDER_NOISE),
        (replace(NOISY, noise_std=0.0), BEST),
        (FIXED, BEST),  # one function has no law of weights
        (replace(NOISY, noise_std=1e-300), BEST),  # a penalty of 0 is least squares
        (RidgeFunction(inputs=Sphere(3), link="linear", noise_std=0.5, n_points=6), BEST),
        (RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.5, n_points=6), None),
    ],
    ids=str,
)
def test_each_task_has_its_best_reference(task, name):
    assert reference.best_of(reference.of_task(task)) == name
    assert (BEST_UNDER_NOISE in reference.note(task)) == (name == BEST_UNDER_NOISE)


# What an evaluation says of the model itself.
OWN = {"error", "low", "high", "error_rate", "noise_free", "note"}
OWN |= {"r2", "best_r2", "r2_low", "r2_high", "learned", "learned_low", "learned_high"}


def of_bundled(names):
    for model in bundled.names():
        task = parse(bundled.config(model), model).task
        kept = set(bundled.provenance(model)["in_distribution"])
        assert set(names(task)) == kept - OWN


def test_bundled_models_keep_their_references():
    of_bundled(reference.of_task)
    must_fail(of_bundled, lambda task: {*reference.of_task(task), BEST_UNDER_NOISE})


# ---- evaluation ----------------------------------------------------------------------------------


def rated(task, predictor=None):
    """Zero is rated at no less than 1, and whoever is as good as the best below it."""
    table = evaluate(predictor or BestRidge(task), task, **SMALL)
    rows = {row["predictor"]: row["error_rate"] for row in table.to_dict("records")}
    assert rows["model"] < 1 <= rows["zero"]
    assert set(rows) == {"model", "zero", BEST_UNDER_NOISE}
    assert BEST not in rows
    assert "the penalty noise variance / weight variance = 0.217778" in table.attrs["note"]


def test_under_noise_errors_are_rated_against_ridge():
    """After d points least squares has an infinite expected error, so it cannot be the reference.

    Against it, zero would seem better than the optimum.
    """
    rated(NOISY)
    must_fail(rated, FIXED, LeastSquares(FIXED))
    assert {"error", BEST_UNDER_NOISE, "zero"} < set(in_distribution(BestRidge(NOISY), NOISY, 2))


def test_a_best_that_is_worse_than_zero_rates_nothing():
    """Least squares of one function explodes for much noise and inputs of rank 1.

    The inputs have rank 1 up to rounding.
    """
    task = LinearRegression(n_dims=3, n_points=5, noise_std=50.0, weights=(1.0, 0.0, 0.0))
    table = evaluate(LeastSquares(task), task, **SMALL)
    errors = {row["predictor"]: row for row in table.to_dict("records")}
    assert errors[BEST]["error"] > errors["zero"]["error"]
    assert all(math.isnan(row["error_rate"]) for row in errors.values())


def test_the_shift_keeps_its_references():
    errors = shifted({"model": BestRidge(NOISY)}, NOISY, (1.0, 3.0), n_functions=100, n_contexts=4)
    assert tuple(errors.indexes["predictor"]) == ("model", BEST_UNDER_NOISE, "zero")
    table = error_table(errors)
    own, best = (row_of(table, predictor=name, sigma=3.0) for name in ("model", BEST_UNDER_NOISE))
    assert best["error"] <= own["error"]  # it knows the law of the shift
    assert own["error_rate"] < 1


def baselines_of(task: Task, **settings):
    table = evaluate(LeastSquares(task), task, n_functions=6, n_contexts=2, **settings)
    return set(table["predictor"]) - {"model", *reference.of_task(task)}


def test_baselines_are_a_row_each():
    task = replace(NOISY, noise_std=0.0)
    assert baselines_of(task) == set()
    assert baselines_of(task, baselines=True) == set(classical(task)) - {BEST}
    errors = evaluate(LeastSquares(task), task, n_functions=6, n_contexts=2, baselines=True)
    alone = evaluate(classical(task)["3 nearest"], task, n_functions=6, n_contexts=2)
    assert (
        row_of(errors, predictor="3 nearest")["error"] == row_of(alone, predictor="model")["error"]
    )
