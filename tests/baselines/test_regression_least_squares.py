"""Least squares against independent float64 routes: every prefix, deficient ranks, digits."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp.baselines import LeastSquares, Zero
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import Continuous, LinearRegression, Normal, Polynomial, Uniform

CUBIC = Polynomial(degrees=(3,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=9)
SINE = Continuous(function="sin", inputs=Uniform(1, 3), amplitude=Normal(1), n_points=5)


def posed(task, xs, parameters):
    """Prompts with these inputs, one function a row."""
    xs, parameters = torch.as_tensor(xs)[..., None], torch.as_tensor(parameters)
    return Prompts(xs, task.value(parameters, xs), parameters, torch.arange(len(xs)))


def by_gram_matrix(features, ys, query):
    """Least squares of least norm, without a least-squares routine: repeated inputs say nothing new
    when there is no noise, and the rest has full rank, so X'(XX')^-1 y or (X'X)^-1 X'y.
    """
    _, first = np.unique(features, axis=0, return_index=True)
    X, y = features[first], ys[first]
    fit = (
        X.T @ np.linalg.solve(X @ X.T, y)
        if len(X) <= X.shape[1]
        else np.linalg.solve(X.T @ X, X.T @ y)
    )
    return query @ fit


def by_numpy(features, ys, query):
    return query @ np.linalg.lstsq(features, ys, rcond=None)[0]


def check_every_prefix(predictor, task, prompts, route):
    found, ys = (
        as_numbers(predictor.predict(prompts)).numpy(),
        as_numbers(prompts.ys).double().numpy(),
    )
    features = task.features(prompts.xs.double()).numpy()
    assert (found[:, 0] == 0).all()
    for row in range(len(prompts)):
        for k in range(1, prompts.n_points):
            expected = route(features[row, :k], ys[row, :k], features[row, k])
            np.testing.assert_allclose(found[row, k], expected, rtol=1e-8, atol=1e-8)


# Multiples of 1/4: repeated often, and far enough apart to leave every system well conditioned.
GRID = st.lists(st.integers(-4, 4), min_size=2, max_size=9).map(lambda ks: [k / 4 for k in ks])


@pytest.mark.slow
@given(x=GRID, degree=st.integers(0, 3), seed=st.integers(0, 1000))
def test_least_squares_is_exact_algebra_on_every_prefix_repeated_points_too(x, degree, seed):
    task = CUBIC.with_degrees((degree,))
    prompts = posed(task, [x], np.random.default_rng(seed).uniform(-1, 1, (1, degree + 1)))
    check_every_prefix(LeastSquares(task), task, prompts, by_gram_matrix)


@pytest.mark.parametrize("task", [CUBIC, SINE], ids=["cubic", "sine"])
def test_least_squares_with_noise_equals_numpy_on_every_prefix(task):
    clean = task.sample(20, generator(0, "test"), dtype=torch.float64)
    noise = torch.randn(clean.ys.shape, generator=generator(0, "noise"), dtype=torch.float64)
    prompts = Prompts(clean.xs, clean.ys + noise, clean.parameters, clean.function)
    check_every_prefix(LeastSquares(task), task, prompts, by_numpy)


class Shrinking(LeastSquares):
    """Shrinks."""

    def predict(self, prompts):
        X, y = self.task.features(prompts.xs.double()), prompts.ys.double()
        out = torch.zeros_like(y)
        for k in range(1, prompts.n_points):
            part = X[:, :k]
            gram = part.mT @ part + 1e-4 * torch.eye(X.shape[-1], dtype=X.dtype)
            out[:, k, None] = X[:, k, None] @ torch.linalg.solve(gram, part.mT @ y[:, :k])
        return out


class Peeking(LeastSquares):
    """Sees the label it should predict."""

    def predict(self, prompts):
        return prompts.ys.double()


class Late(LeastSquares):
    """Forgets the newest point."""

    def predict(self, prompts):
        out = super().predict(prompts)
        longer = Prompts(prompts.xs[:, 1:], prompts.ys[:, 1:], prompts.parameters, prompts.function)
        out[:, 1:] = super().predict(longer)
        return out


@pytest.mark.parametrize("mutant", [Shrinking, Peeking, Late])
def test_another_regression_is_noticed(mutant):
    prompts = CUBIC.sample(5, generator(0, "test"), dtype=torch.float64)
    must_fail(check_every_prefix, mutant(CUBIC), CUBIC, prompts, by_gram_matrix)
    must_fail(check_every_prefix, mutant(CUBIC), CUBIC, prompts, by_numpy)


class FullRankOnly(LeastSquares):
    """Solves X'X w = X'y whether or not there is one solution."""

    def predict(self, prompts):
        X, y = self.task.features(prompts.xs.double()), prompts.ys.double()
        out = torch.zeros_like(y)
        for k in range(1, prompts.n_points):
            part = X[:, :k]
            out[:, k, None] = (
                X[:, k, None] @ torch.linalg.solve_ex(part.mT @ part, part.mT @ y[:, :k]).result
            )
        return out


def test_a_routine_for_full_rank_only_is_noticed():
    repeated = posed(CUBIC, [[0.5, 0.5, 0.5, 0.5, 0.5, -1.0, 0.25]], [[1.0, -0.5, 0.25, 2.0]])
    check_every_prefix(LeastSquares(CUBIC), CUBIC, repeated, by_gram_matrix)
    must_fail(check_every_prefix, FullRankOnly(CUBIC), CUBIC, repeated, by_gram_matrix)


def check_exact_once_determined(predictor, task):
    prompts = task.sample(200, generator(0, "test"), dtype=torch.float64)
    error = (predictor.predict(prompts) - prompts.ys).abs() / (1 + prompts.ys.abs())
    assert error[:, task.n_determining :].max() < 1e-8
    if task.n_determining > 1:
        assert error[:, task.n_determining - 1].median() > 1e-3, "one point earlier it can't know"


@pytest.mark.parametrize("degrees", [(0,), (1,), (3,), (1, 3), (0, 2, 4)])
def test_without_noise_it_is_exact_once_the_function_is_determined(degrees):
    task = Polynomial(degrees=degrees, inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=12)
    check_exact_once_determined(LeastSquares(task), task)


def test_exactness_of_other_functions_and_predictors():
    check_exact_once_determined(LeastSquares(SINE), SINE)
    must_fail(check_exact_once_determined, LeastSquares(CUBIC.with_degrees((2,))), CUBIC)
    must_fail(check_exact_once_determined, Shrinking(CUBIC), CUBIC)
    must_fail(check_exact_once_determined, Zero(), CUBIC)


def test_no_prediction_depends_on_its_own_label_or_later_points():
    prompts = CUBIC.sample(3, generator(0, "test"), dtype=torch.float64)
    changed = prompts.ys.clone()
    changed[:, 5:] += 10
    other = Prompts(prompts.xs, changed, prompts.parameters, prompts.function)
    before, after = LeastSquares(CUBIC).predict(prompts), LeastSquares(CUBIC).predict(other)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=1e-9, atol=1e-12)
    assert (after[:, 6] - before[:, 6]).abs().min() > 1e-3


def test_zero_predicts_zero_and_all_is_float64():
    prompts = CUBIC.sample(3, generator(0, "test"))
    assert prompts.ys.dtype == torch.float32
    assert torch.equal(Zero().predict(prompts), torch.zeros(3, 9, 1, dtype=torch.float64))
    assert LeastSquares(CUBIC).predict(prompts).dtype == torch.float64


# ---- precision -----------------------------------------------------------------------------------

SEXTIC = Polynomial(degrees=(6,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=41)


def largest_error(predict, task=SEXTIC, n=128):
    """The largest error over 1 + |y| at points that the prefix determines."""
    prompts = task.sample(n, generator(0, "precision"), dtype=torch.float64)
    error = (predict(prompts) - prompts.ys).abs() / (1 + prompts.ys.abs())
    return error[:, task.n_determining :].max()


def by_gelsd(prompts):
    features, out = SEXTIC.features(prompts.xs), prompts.ys.clone()
    for k in range(7, prompts.n_points):
        fit = torch.linalg.lstsq(features[:, :k], prompts.ys[:, :k], driver="gelsd").solution
        out[:, k, None] = features[:, k, None] @ fit
    return out


def by_normal_equations(prompts):
    features, out = SEXTIC.features(prompts.xs), prompts.ys.clone()
    gram = (features[..., None] * features[..., None, :]).cumsum(1)
    moment = (features * prompts.ys).cumsum(1)
    out[:, 7:, 0] = (features[:, 7:] * torch.linalg.solve(gram[:, 6:-1], moment[:, 6:-1])).sum(-1)
    return out


def check_digits(predict):
    assert largest_error(predict) < 100 * largest_error(by_gelsd)


def test_powers_up_to_the_sixth_keep_their_digits():
    check_digits(LeastSquares(SEXTIC).predict)
    must_fail(check_digits, by_normal_equations)


def check_units(predict_at, scale):
    """f(x) = g(x / scale): the same function, with inputs in another unit."""
    prompts = CUBIC.sample(50, generator(0, "units"), dtype=torch.float64)
    other = Prompts(scale * prompts.xs, prompts.ys, prompts.parameters, prompts.function)
    found = predict_at(other)[:, 4:]
    assert (found - prompts.ys[:, 4:]).abs().quantile(0.99) < 1e-9


def cubic_by_gelsd(prompts):
    features, out = CUBIC.features(prompts.xs), prompts.ys.clone()
    for k in range(4, prompts.n_points):
        fit = torch.linalg.lstsq(features[:, :k], prompts.ys[:, :k], driver="gelsd").solution
        out[:, k, None] = features[:, k, None] @ fit
    return out


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_inputs_does_not_matter(scale):
    """The powers of x may be many decades apart: rank is a matter of directions, not of sizes."""
    check_units(LeastSquares(CUBIC).predict, scale)
    if scale != 1:
        must_fail(check_units, cubic_by_gelsd, scale)


@pytest.mark.parametrize("n_points", [2, 4, 9])
def test_the_fit_at_the_query_is_that_of_the_whole_prompt(n_points):
    """Fewer examples than weights, as many, and more; labels are noisy."""
    task = LinearRegression(n_dims=3, n_points=n_points, noise_std=0.5)
    prompts = task.sample(50, generator(1, "test"), dtype=torch.float64)
    of_query = LeastSquares(task).at_query(prompts)

    def check(fitted):
        torch.testing.assert_close(of_query, fitted)

    fitted = LeastSquares(task).predict(prompts)
    check(fitted[:, -1])
    must_fail(check, fitted[:, -2])
