"""The classical algorithms against numpy loops, and Bayes against dense Gaussian processes.

Bayes is also compared with integration.
"""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines import (
    Averaging,
    BayesOverDegrees,
    GradientDescent,
    KNearest,
    LeastSquares,
    MaximumDegree,
    NadarayaWatson,
    Powers,
    Predictor,
    Ridge,
    Zero,
    classical,
)
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import Continuous, LinearRegression, Normal, Polynomial, Uniform

CUBIC = Polynomial(degrees=(3,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=9)
SINE = Continuous(function="sin", inputs=Uniform(1, 3), amplitude=Normal(1), n_points=5)


def posed(xs, parameters):
    """Prompts with these inputs, one cubic a row."""
    xs, parameters = torch.as_tensor(xs)[..., None], torch.as_tensor(parameters)
    return Prompts(xs, CUBIC.value(parameters, xs), parameters, torch.arange(len(xs)))


# ---- each by a loop over prefixes -------------------------------------------------------------


def noisy(task=CUBIC, n=6):
    clean = task.sample(n, generator(1, "noisy"), dtype=torch.float64)
    noise = torch.randn(clean.ys.shape, generator=generator(1, "noise"), dtype=torch.float64)
    return Prompts(clean.xs, clean.ys + 0.3 * noise, clean.parameters, clean.function)


def powers(x, degree=3):
    return np.stack([np.asarray(x, float) ** k for k in range(degree + 1)], -1)


def ridge(penalty):
    def predict(xs, ys, x):
        X = np.vstack([powers(xs), math.sqrt(penalty) * np.eye(4)])
        return powers(x) @ np.linalg.lstsq(X, np.append(ys, np.zeros(4)), rcond=None)[0]

    return predict


def descent(steps, learning_rate=1.0):
    def predict(xs, ys, x):
        X, w = powers(xs), np.zeros(4)
        rate = learning_rate / np.linalg.norm(X, 2) ** 2
        for _ in range(steps):
            w = w - rate * sum((X[i] @ w - ys[i]) * X[i] for i in range(len(X)))
        return powers(x) @ w

    return predict


def least_squares(degree):
    return lambda xs, ys, x: (
        powers(x, degree) @ np.linalg.lstsq(powers(xs, degree), ys, rcond=None)[0]
    )


def nearest(k):
    def predict(xs, ys, x):
        order = sorted(range(len(xs)), key=lambda i: (abs(xs[i] - x), i))
        return np.mean([ys[i] for i in order[:k]])

    return predict


def kernel(beta):
    def predict(xs, ys, x):
        weights = [math.exp(-beta * (xi - x) ** 2) for xi in xs]
        return sum(w * y for w, y in zip(weights, ys, strict=True)) / sum(weights)

    return predict


def check_loop(predictor, predict_one, prompts):
    found, xs = as_numbers(predictor.predict(prompts)).numpy(), prompts.xs[..., 0].numpy()
    ys = as_numbers(prompts.ys).numpy()
    assert (found[:, 0] == 0).all()
    for row in range(len(prompts)):
        for k in range(1, prompts.n_points):
            expected = predict_one(xs[row, :k], ys[row, :k], xs[row, k])
            np.testing.assert_allclose(found[row, k], expected, rtol=1e-8, atol=1e-10)


ROUTES = [
    (Ridge(CUBIC, 0.5), ridge(0.5), ridge(0.6)),
    (Ridge(CUBIC, 1e-6), ridge(1e-6), ridge(2e-6)),
    (GradientDescent(CUBIC, 0), descent(0), descent(1)),
    (GradientDescent(CUBIC, 1), descent(1), descent(2)),
    (GradientDescent(CUBIC, 37, 1.9), descent(37, 1.9), descent(37, 1.8)),
    (MaximumDegree(2), least_squares(2), least_squares(3)),
    (Averaging(), lambda xs, ys, x: ys.mean(), lambda xs, ys, x: np.median(ys)),
    (KNearest(1), nearest(1), nearest(2)),
    (KNearest(3), nearest(3), nearest(2)),
    (NadarayaWatson(4.0), kernel(4.0), kernel(4.1)),
]


@pytest.mark.parametrize(
    ("predictor", "route", "wrong"), ROUTES, ids=[route[0].name for route in ROUTES]
)
def test_every_algorithm_equals_a_loop_over_prefixes(predictor, route, wrong):
    check_loop(predictor, route, noisy())
    must_fail(check_loop, predictor, wrong, noisy())


def test_of_equally_near_points_the_earlier_counts():
    prompts = posed([[0.5, -0.5, 0.5, -0.5, 0.0]], [[0.0, 1.0, 0.0, 0.0]])
    check_loop(KNearest(1), nearest(1), prompts)
    assert KNearest(1).predict(prompts)[0, -1] == 0.5
    assert KNearest(3).predict(prompts)[0, -1] == pytest.approx(1 / 6)


def test_distances_are_those_of_all_coordinates():
    xs = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])
    prompts = Prompts(xs, torch.tensor([[1.0, 2.0, 9.0]]), torch.zeros(1, 0), torch.arange(1))
    near, far = math.exp(-0.1 * 9), math.exp(-0.1 * 16)
    found = NadarayaWatson(0.1).predict(prompts)[0, -1]
    assert found == pytest.approx((near + 2 * far) / (near + far))
    assert KNearest(1).predict(prompts)[0, -1] == 1


def test_a_kernel_far_out_still_has_a_nearest_point():
    """exp(-beta d^2) underflows for all; the ratio of the weights does not."""
    prompts = posed([[-1.0, 1.0, 1e6]], [[0.0, 1.0, 0.0, 0.0]])
    assert NadarayaWatson(1.0).predict(prompts)[0, -1] == 1


def check_between(predictor, first, second, tolerance):
    prompts = noisy()
    found, a, b = (p.predict(prompts) for p in (predictor, first, second))
    assert (found - a).abs().max() < tolerance
    assert (found - b).abs().max() > tolerance


def test_algorithms_at_the_ends_of_their_parameters():
    check_between(NadarayaWatson(1e-8), Averaging(), KNearest(1), 1e-6)
    check_between(NadarayaWatson(1e9), KNearest(1), Averaging(), 1e-6)
    check_between(KNearest(100), Averaging(), KNearest(1), 1e-12)
    check_between(Ridge(CUBIC, 1e12), Zero(), LeastSquares(CUBIC), 1e-6)
    affine = LeastSquares(CUBIC.with_degrees((1,)))
    check_between(GradientDescent(affine.task, 200_000), affine, Averaging(), 1e-6)


# ---- Bayes ---------------------------------------------------------------------------------------


def gaussian_process(degrees, mean, std, noise):
    """The posterior mean from dense matrices, without coefficients.

    f, and so its labels, are Gaussian given the degree.
    """

    def predict(xs, ys, x):
        evidences, means = [], []
        for degree in degrees:
            X, at = powers(xs, degree), powers(x, degree)
            covariance = std**2 * X @ X.T + noise**2 * np.eye(len(xs))
            centred = ys - X.sum(1) * mean
            solved = np.linalg.solve(covariance, centred)
            evidences.append(-0.5 * (centred @ solved + np.linalg.slogdet(covariance)[1]))
            means.append(at.sum() * mean + std**2 * at @ X.T @ solved)
        weights = np.exp(np.array(evidences) - max(evidences))
        return weights @ means / weights.sum()

    return predict


def check_bayes(predictor, route, prompts):
    found, xs = as_numbers(predictor.predict(prompts)).numpy(), prompts.xs[..., 0].numpy()
    ys = as_numbers(prompts.ys).numpy()
    for row in range(len(prompts)):
        for k in range(prompts.n_points):
            expected = route(xs[row, :k], ys[row, :k], xs[row, k])
            np.testing.assert_allclose(found[row, k], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("law", [Uniform(-1, 1), Normal(2), Uniform(0, 3), Normal(0.5, mean=-1)])
def test_bayes_is_the_posterior_mean_of_a_mixture_of_gaussian_processes(law):
    predictor, noise = BayesOverDegrees((0, 1, 3), law, noise=0.2), 0.2 * law.std
    check_bayes(predictor, gaussian_process((0, 1, 3), law.mean, law.std, noise), noisy())
    for wrong in (
        gaussian_process((0, 1, 2), law.mean, law.std, noise),
        gaussian_process((0, 1, 3), law.mean + 0.1, law.std, noise),
        gaussian_process((0, 1, 3), law.mean, 1.1 * law.std, noise),
        gaussian_process((0, 1, 3), law.mean, law.std, 1.1 * noise),
    ):
        must_fail(check_bayes, predictor, wrong, noisy())


def integrated(prior, noise):
    """The posterior mean of a constant by integration over a grid, for any prior density."""
    grid = np.linspace(-8, 8, 4001)

    def predict(xs, ys, x):
        log = np.log(prior(grid)) - ((ys[:, None] - grid) ** 2).sum(0) / (2 * noise**2)
        weights = np.exp(log - log.max())
        return weights @ grid / weights.sum()

    return predict


def test_bayes_by_brute_force_integration():
    def normal(a):
        return np.exp(-(a**2) / (2 * 0.7**2))

    prompts = noisy(CUBIC.with_degrees((0,)))
    predictor = BayesOverDegrees((0,), Normal(0.7), noise=0.4)
    check_bayes(predictor, integrated(normal, 0.28), prompts)
    must_fail(check_bayes, predictor, integrated(lambda a: np.exp(-abs(a)), 0.28), prompts)


MIXED = Polynomial(degrees=(1, 3), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=7)


def check_knows_affine(predictor):
    """After three points on a line nobody doubts that it is one."""
    prompts = MIXED.with_degrees((1,)).sample(200, generator(0, "degrees"), dtype=torch.float64)
    assert (predictor.predict(prompts) - prompts.ys)[:, 3].abs().median() < 1e-3


def test_bayes_finds_the_degree():
    bayes = BayesOverDegrees((1, 3), Uniform(-1, 1))
    check_knows_affine(bayes)
    must_fail(check_knows_affine, MaximumDegree(3))
    prompts = MIXED.sample(200, generator(0, "degrees"), dtype=torch.float64)
    posterior = bayes.posterior(prompts)
    assert torch.allclose(posterior.sum(-1), torch.ones(200, 7).double())
    assert (posterior[:, 0] == 0.5).all()
    is_cubic = (prompts.parameters[:, 3] != 0).double()
    assert (posterior[:, 5, 1] - is_cubic).abs().mean() < 0.01
    assert (posterior[:, 1, 1] - is_cubic).abs().mean() > 0.4
    # As good as least squares that is told the degree, within what the noise leaves.
    assert (bayes.predict(prompts) - prompts.ys)[:, 5:].abs().median() < 1e-6


def test_nothing_beats_bayes_on_its_own_model():
    """With Gaussian coefficients, Bayes has the least mean squared error at each point."""
    task = Polynomial(degrees=(1, 3), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=6)
    prompts = task.sample(4000, generator(0, "best"), dtype=torch.float64)
    errors = {
        name: (a.predict(prompts) - prompts.ys).square() for name, a in classical(task).items()
    }

    def check(name):
        for other in errors.keys() - {name}:
            excess = errors[name] - errors[other]
            assert (excess.mean(0) < 4 * excess.std(0) / 4000**0.5 + 1e-6).all()

    check("Bayes over degrees")
    for other in ("least squares", "averaging", "ridge, penalty 0.01"):
        must_fail(check, other)


# ---- what all have in common ---------------------------------------------------------------------

ALL = classical(MIXED) | {"degree 6": MaximumDegree(6), "zero": Zero()}
ORDERLESS = {
    name: p for name, p in ALL.items() if "nearest" not in name
}  # nothing but ties depends on the order
LINEAR = {name: p for name, p in ALL.items() if "Bayes" not in name}


def same(found, expected, tolerance=1e-8):
    assert (found - expected).abs().max() < tolerance


@pytest.mark.parametrize("predictor", ALL.values(), ids=ALL)
def test_predictions_depend_on_earlier_points_only(predictor):
    prompts = noisy(MIXED)
    xs, ys = prompts.xs.clone(), prompts.ys.clone()
    ys[:, 4:] += 10
    xs[:, 5:] += 1
    found = predictor.predict(Prompts(xs, ys, prompts.parameters, prompts.function))
    same(found[:, :5], predictor.predict(prompts)[:, :5], 1e-12)
    if predictor != Zero():
        must_fail(same, found, predictor.predict(prompts))


@pytest.mark.parametrize("predictor", ORDERLESS.values(), ids=ORDERLESS)
def test_the_order_of_the_context_does_not_matter(predictor):
    prompts, order = noisy(MIXED), torch.tensor([3, 0, 5, 1, 4, 2, 6])
    other = Prompts(
        prompts.xs[:, order], prompts.ys[:, order], prompts.parameters, prompts.function
    )
    same(predictor.predict(other)[:, -1], predictor.predict(prompts)[:, -1], 1e-6)


@pytest.mark.parametrize("predictor", LINEAR.values(), ids=LINEAR)
def test_all_but_bayes_are_linear_in_the_labels(predictor):
    prompts, factor = noisy(MIXED), 3.0
    noise = torch.randn(prompts.ys.shape, generator=generator(2, "noise"), dtype=torch.float64)

    def on(ys):
        return predictor.predict(Prompts(prompts.xs, ys, prompts.parameters, prompts.function))

    same(on(factor * prompts.ys + noise), factor * on(prompts.ys) + on(noise), 1e-6)
    if predictor != Zero():
        must_fail(same, on(factor * prompts.ys + noise), on(prompts.ys) + on(noise))


@pytest.mark.parametrize("predictor", ALL.values(), ids=ALL)
def test_all_predict_numbers_in_float64_also_for_one_prompt(predictor):
    prompts = MIXED.sample(1, generator(0, "one"))
    found = predictor.predict(prompts)
    assert found.dtype == torch.float64
    assert found.shape == prompts.ys.shape
    assert found.isfinite().all()
    same(predictor.predict(noisy(MIXED))[2:3], predictor.predict(noisy(MIXED)[2:3]), 1e-12)


def test_the_classical_algorithms_by_their_names():
    assert set(classical(MIXED)) == {
        "least squares",
        "ridge, penalty 0.01",
        "ridge, penalty 0.1",
        "ridge, penalty 1",
        "gradient descent, 1 step",
        "gradient descent, 10 steps",
        "gradient descent, 100 steps",
        "averaging",
        "1 nearest",
        "3 nearest",
        "Nadaraya-Watson, beta 54",
        "Nadaraya-Watson, beta 6",
        "Nadaraya-Watson, beta 0.375",
        "Bayes over degrees",
    }
    assert all(isinstance(p, Predictor) and p.name == name for name, p in classical(MIXED).items())
    assert classical(MIXED)["Bayes over degrees"] == BayesOverDegrees((1, 3), Uniform(-1, 1))


@pytest.mark.parametrize(
    "task", [SINE, LinearRegression(n_dims=3, inputs=Normal(1), weights=Normal(1), n_points=5)]
)
def test_there_are_classical_algorithms_for_other_tasks(task):
    prompts = task.sample(4, generator(0, "other"))
    algorithms = classical(task)
    assert len(algorithms) == 13 + len(getattr(task, "compared_with", ()))
    for algorithm in algorithms.values():
        assert algorithm.predict(prompts).isfinite().all()


def test_kernels_are_as_wide_as_the_inputs():
    prompts, far = noisy(MIXED), MIXED.scaled(inputs=7)
    scaled = Prompts(7 * prompts.xs, prompts.ys, prompts.parameters, prompts.function)
    kernels = [
        [p for p in classical(task).values() if isinstance(p, NadarayaWatson)]
        for task in (MIXED, far)
    ]
    for near, wide in zip(*kernels, strict=True):
        same(wide.predict(scaled), near.predict(prompts))
        must_fail(same, near.predict(scaled), near.predict(prompts))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Ridge(CUBIC, 0.0),
            "penalty must be a positive number, but got 0.0; without a penalty, use Least",
        ),
        (lambda: KNearest(0), "k must be a whole number from 1 up, but got 0"),
        (lambda: NadarayaWatson(-1.0), "beta must be a positive number, but got -1"),
        (lambda: NadarayaWatson(math.inf), "beta must be a positive number, but got inf"),
        (lambda: GradientDescent(CUBIC, -1), "steps must be a whole number from 0 up"),
        (
            lambda: GradientDescent(CUBIC, 5, 2.0),
            "learning_rate must lie between 0 and 2, .* but got 2.0",
        ),
        (lambda: MaximumDegree(-1), "degree must be a whole number from 0 up, but got -1"),
        (lambda: BayesOverDegrees((), Uniform(-1, 1)), "at least one degree"),
        (
            lambda: BayesOverDegrees((1,), Uniform(-1, 1), noise=0.0),
            "noise must be a positive number",
        ),
        (
            lambda: Powers(2).features(torch.zeros(1, 2, 3)),
            "inputs of one coordinate, but these have 3",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, match):
    with pytest.raises(InputError, match=match):
        make()


@pytest.mark.parametrize("law", [Uniform(-1, 3), Normal(2, 0.5)])
def test_laws_know_their_moments(law):
    draws = law.sample((100_000,), generator(0, "moment"), torch.float64)
    assert abs(draws.mean() - law.mean) < 4 * draws.std() / 100_000**0.5
    square = (draws - law.mean).square()
    assert abs(square.mean() - law.std**2) < 4 * square.std() / 100_000**0.5
