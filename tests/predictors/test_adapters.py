"""Three kinds of predictors as one: the same numbers as an independent route, and clear errors."""

import builtins

import numpy as np
import pytest
import torch
from helpers import must_fail
from known_predictors import AFFINE, REGRESSION, kernel_average, neighbours, ridge
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from icl_interp import predictors
from icl_interp.baselines import LeastSquares
from icl_interp.errors import InputError
from icl_interp.evaluation import evaluate
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.tasks import Uniform


def some(task, n=8):
    return task.sample(n, generator(0, "tests/predictors"), dtype=torch.float64)


def queries_of(prompts):
    """Two queries a prompt, one of them far out."""
    own = prompts.xs[:, -1:]
    return torch.cat([own, -1e3 * own.roll(1, 0)], 1)


def check_same(one, other, task):
    prompts = some(task)
    asked = queries_of(prompts)
    said = [predictor.answers(prompts, asked) for predictor in (one, other)]
    assert said[0].dtype == torch.float64
    torch.testing.assert_close(said[0], said[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", [AFFINE, REGRESSION], ids=["affine", "regression"])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_of_scikit_learn_is_the_closed_form(task, intercept):
    fitted = predictors.from_estimator(Ridge(alpha=0.3, fit_intercept=intercept))
    check_same(fitted, predictors.from_function(ridge(0.3, intercept)), task)
    must_fail(check_same, fitted, predictors.from_function(ridge(0.31, intercept)), task)


@pytest.mark.parametrize("task", [AFFINE, REGRESSION], ids=["affine", "regression"])
def test_neighbours_of_scikit_learn_are_those_of_the_function(task):
    fitted = predictors.from_estimator(KNeighborsRegressor(3))
    check_same(fitted, predictors.from_function(neighbours(3)), task)
    must_fail(check_same, fitted, predictors.from_function(neighbours(2)), task)


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianProcessRegressor(RBF(0.5), alpha=1e-6, optimizer=None),
        DecisionTreeRegressor(random_state=0),
    ],
    ids=["process", "tree"],
)
def test_an_estimator_is_fitted_to_the_examples_of_each_prompt(estimator):
    prompts = some(AFFINE, 4)
    said = predictors.from_estimator(estimator).answers(prompts, queries_of(prompts))
    for row in range(4):
        own = estimator.fit(prompts.xs[row, :-1].numpy(), prompts.ys[row, :-1, 0].numpy())
        expected = own.predict(queries_of(prompts)[row].numpy())
        np.testing.assert_allclose(said[row, :, 0].numpy(), expected, rtol=1e-9)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(said[row - 1, :, 0].numpy(), expected, rtol=1e-9)


def test_an_estimator_stays_unfitted():
    estimator = Ridge()
    predictors.from_estimator(estimator).predict(some(AFFINE))
    assert not hasattr(estimator, "coef_")


def test_an_object_answers_what_it_predicts_of_the_last_point():
    prompts = some(AFFINE)
    source = LeastSquares(AFFINE)
    whole = predictors.from_object(source)
    expected = source.predict(prompts)
    torch.testing.assert_close(whole.predict(prompts), expected, rtol=1e-12, atol=1e-12)
    said = whole.answers(prompts, queries_of(prompts))
    torch.testing.assert_close(said[:, 0], expected[:, -1], rtol=1e-9, atol=1e-9)
    far = AFFINE.targets(prompts.parameters, queries_of(prompts))
    torch.testing.assert_close(said, far, rtol=1e-6, atol=1e-6)  # least squares knows these


def test_a_function_may_take_and_return_torch():
    def average(xs, ys, x_query):
        assert isinstance(ys, torch.Tensor)
        return ys.mean(1)

    prompts = some(AFFINE)
    said = predictors.from_function(average, library="torch").predict(prompts)
    torch.testing.assert_close(said[:, -1], prompts.ys[:, :-1].mean(1))
    assert said[:, :-1].isnan().all()


def test_vector_values_keep_their_axis():
    prompts = some(AFFINE)
    vectors = torch.cat([prompts.ys, 2 * prompts.ys], -1)
    two = type(prompts)(prompts.xs, vectors, prompts.parameters, prompts.function)
    said = predictors.from_function(lambda xs, ys, x: ys[:, -1]).predict(two)
    torch.testing.assert_close(said[:, -1], vectors[:, -2])


def test_many_queries_are_answered_in_parts(monkeypatch):
    one = predictors.from_function(kernel_average(0.1))
    prompts = some(AFFINE)
    whole = one.answers(prompts, queries_of(prompts))
    monkeypatch.setattr("icl_interp.predictors.adapters.ROWS", 3)
    torch.testing.assert_close(one.answers(prompts, queries_of(prompts)), whole)
    assert one.answers(prompts[:3], queries_of(prompts)[:3]).shape == (3, 2, 1)


def test_what_is_recognised():
    assert predictors.recognised("affine") is None
    assert predictors.recognised(torch.nn.Linear(1, 1)) is None
    assert predictors.recognised(HookedTransformer) is None
    assert predictors.recognised(Ridge()).name == "Ridge()"
    assert predictors.recognised(LeastSquares(AFFINE)).reads_prompts
    assert not predictors.recognised(ridge(1.0)).reads_prompts
    assert predictors.recognised(Uniform(-1, 1)) is None


def wrong_shape(xs, ys, x_query):
    return ys


REFUSED = [
    (lambda: predictors.from_estimator(Ridge), r"call the class: Ridge\(\)"),
    (lambda: predictors.from_estimator(ridge(1.0)), "with fit, predict and get_params"),
    (lambda: predictors.from_function(3), "takes a function"),
    (lambda: predictors.from_function(ridge(1.0), library="jax"), '"numpy" or "torch"'),
    (lambda: predictors.from_object(3), "takes an object with predict"),
    (
        lambda: predictors.from_function(wrong_shape).predict(some(AFFINE)),
        r"shape \(8,\) here, but returned shape \(8, 19\)",
    ),
    (
        lambda: predictors.from_function(lambda *_: "no").predict(some(AFFINE)),
        "must return an array of numbers",
    ),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_errors_say_what_came(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_without_scikit_learn_one_line_names_it(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"needs scikit-learn.*pip install scikit-learn"):
        predictors.from_estimator(Ridge())


def test_evaluate_takes_each_of_them():
    size = {"n_functions": 20, "n_contexts": 2}
    fitted = evaluate(Ridge(alpha=0.3), AFFINE, **size)
    written = evaluate(ridge(0.3), AFFINE, **size)
    np.testing.assert_allclose(fitted["error"], written["error"], rtol=1e-9)
    other = evaluate(ridge(0.4), AFFINE, **size)
    must_fail(np.testing.assert_allclose, fitted["error"], other["error"], rtol=1e-9)
