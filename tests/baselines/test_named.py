"""The algorithms that each task is compared with, and linear fits of tasks without features."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines import (
    AveragingEstimator,
    Inputs,
    LeastSquares,
    Predictor,
    Signs,
    classical,
)
from icl_interp.errors import InputError
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import DecisionTree, LinearRegression, ReLUNetwork, SparseLinearRegression

SPARSE = SparseLinearRegression(n_dims=3, sparsity=2, n_points=6)
RELU = ReLUNetwork(n_dims=3, hidden=4, n_points=6)
TREE = DecisionTree(n_dims=3, depth=2, n_points=6)
REGRESSIONS = {
    "least squares",
    *(f"ridge, penalty {penalty}" for penalty in (0.01, 0.1, 1)),
    *(f"gradient descent, {steps}" for steps in ("1 step", "10 steps", "100 steps")),
}
LOCAL = {
    "averaging",
    "1 nearest",
    "3 nearest",
    *(f"Nadaraya-Watson, beta {beta}" for beta in ("6", "0.667", "0.0417")),
}
COMPARED = {
    SPARSE: REGRESSIONS
    | {"averaging estimator", *(f"lasso, penalty {p}" for p in (0.0001, 0.001, 0.01, 0.1, 1))},
    RELU: {
        "averaging estimator",
        "least squares on the inputs",
        "two-layer network, 4 units, 100 steps",
    },
    TREE: {
        "averaging estimator",
        "least squares on the inputs",
        "greedy tree",
        "greedy tree, depth 2",
        "greedy tree, depth 2, on signs",
        "boosting, 100 trees, depth 3",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("task", COMPARED, ids=str)
def test_the_algorithms_of_a_task_by_name(task):
    algorithms: dict[str, Any] = dict(classical(task))
    prompts = task.sample(2, generator(0, "named"))
    assert set(algorithms) == COMPARED[task] | LOCAL
    for name, algorithm in algorithms.items():
        assert algorithm.name == name
        assert isinstance(algorithm, Predictor)
        found = algorithm.predict(prompts)
        assert found.isfinite().all()
        assert found.dtype == torch.float64


def test_other_tasks_are_compared_with_what_they_were():
    linear, noisy = (LinearRegression(n_dims=3, n_points=6, noise_std=std) for std in (0.0, 0.5))
    assert set(classical(linear)) == REGRESSIONS | LOCAL | {"averaging estimator"}
    assert set(classical(noisy)) == {*classical(linear), "best ridge"}


class Misspelt(LinearRegression):
    compared_with = ("laso",)


def test_a_word_that_is_not_known_is_refused():
    with pytest.raises(
        InputError, match="unknown word in compared_with 'laso': did you mean 'lasso'"
    ):
        classical(Misspelt(n_dims=3, n_points=6))


def by_hand(xs, ys, x):
    """w = the mean of y x."""
    return x @ np.mean([y * one for y, one in zip(ys, xs, strict=True)], 0)


def check_loop(predictor, route, prompts):
    found, xs = as_numbers(predictor.predict(prompts)).numpy(), prompts.xs.numpy()
    ys = as_numbers(prompts.ys).numpy()
    assert (found[:, 0] == 0).all()
    for row in range(len(prompts)):
        for k in range(1, prompts.n_points):
            np.testing.assert_allclose(
                found[row, k], route(xs[row, :k], ys[row, :k], xs[row, k]), rtol=1e-8, atol=1e-10
            )


def test_linear_fits_equal_a_loop_over_prefixes():
    prompts = RELU.sample(5, generator(0, "named"), dtype=torch.float64)
    check_loop(AveragingEstimator(Inputs()), by_hand, prompts)
    must_fail(check_loop, AveragingEstimator(Signs()), by_hand, prompts)
    must_fail(check_loop, LeastSquares(Inputs()), by_hand, prompts)
    check_loop(
        LeastSquares(Inputs()),
        lambda xs, ys, x: x @ np.linalg.lstsq(xs, ys, rcond=None)[0],
        prompts,
    )
