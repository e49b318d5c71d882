"""Iterative algorithms of all prefixes at once, against plain loops over points and prompts."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.base import INPUTS, Powers
from icl_interp.baselines.moments import (
    ConjugateGradients,
    Descent,
    GDPlusPlus,
    NewtonInverse,
    OnlineDescent,
)
from icl_interp.baselines.regression import LeastSquares
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Polynomial, Uniform

TASK = LinearRegression(n_dims=3, n_points=8, noise_std=0.3)
PROMPTS = TASK.sample(4, generator(0, "test"), dtype=torch.float64)
MATRIX = np.array([[0.4, 0.1, 0.0], [0.0, 0.3, 0.1], [0.2, 0.0, 0.5]])


def looped(predict_one, prompts=PROMPTS):
    """Predictions of a function (xs, ys, x) of numpy arrays, prompt by prompt, point by point."""
    out = torch.zeros_like(prompts.ys)
    for row in range(len(prompts)):
        xs, ys = prompts.xs[row].numpy(), prompts.ys[row].numpy()
        for k in range(1, prompts.n_points):
            out[row, k] = torch.as_tensor(predict_one(xs[:k], ys[:k], xs[k]))
    return out


def check(predictor, predict_one, prompts=PROMPTS):
    torch.testing.assert_close(
        predictor.predict(prompts), looped(predict_one, prompts), rtol=1e-9, atol=1e-10
    )


def descent(*steps):
    """Descent that visits examples one by one."""

    def predict_one(xs, ys, x):
        w = np.zeros((xs.shape[1], ys.shape[1]))
        for step in steps:
            gradient = sum(np.outer(a, b - a @ w) for a, b in zip(xs, ys, strict=True)) / len(xs)
            w = w + (step * gradient if np.isscalar(step) else step @ gradient)
        return x @ w

    return predict_one


def plus_plus(sizes, shrinks):
    """GD++ on tokens: inputs and labels themselves are rewritten."""

    def predict_one(xs, ys, x):
        xs, ys, x, said = xs.copy(), ys.copy(), x.copy(), np.zeros(ys.shape[1])
        for size, shrink in zip(sizes, shrinks, strict=True):
            h = xs.T @ ys / len(xs)
            better = np.eye(len(x)) - shrink * xs.T @ xs / len(xs)
            ys, said = ys - size * xs @ h, said + size * x @ h
            xs, x = xs @ better, better @ x
        return said

    return predict_one


def newton(steps, start=None):
    """By the closed form of the error: I - M S = (I - M_0 S)^(2^steps), on the span of points."""

    def predict_one(xs, ys, x):
        s, basis = np.linalg.eigh(xs.T @ xs / len(xs))
        first = 1 / s[-1] ** 2 if start is None else start
        seen = s > 1e-9
        inverse = np.where(seen, (1 - (1 - first * s**2) ** 2**steps) / np.where(seen, s, 1), 0)
        return x @ basis @ np.diag(inverse) @ basis.T @ xs.T @ ys / len(xs)

    return predict_one


def conjugate(steps):
    """The minimiser of the error over the Krylov space of S and h."""

    def predict_one(xs, ys, x):
        gram, h = xs.T @ xs / len(xs), xs.T @ ys / len(xs)
        space = np.concatenate([np.linalg.matrix_power(gram, i) @ h for i in range(steps)], 1)
        basis = np.linalg.svd(space, full_matrices=False)
        basis = basis.U[:, 1e-9 * basis.S[0] < basis.S]
        return x @ basis @ np.linalg.lstsq(xs @ basis, ys, rcond=None)[0]

    return predict_one


def online(size, forgetting):
    def predict_one(xs, ys, x):
        w = np.zeros((xs.shape[1], ys.shape[1]))
        for a, b in zip(xs, ys, strict=True):
            w = forgetting * w + size * np.outer(a, b - a @ w)
        return x @ w

    return predict_one


def test_descent_is_the_loop():
    check(Descent(INPUTS, (0.3, 0.3)), descent(0.3, 0.3))
    check(Descent(INPUTS, (0.3, 0.7)), descent(0.3, 0.7))
    diagonal = torch.tensor([0.1, 0.4, 0.9]).double()
    check(Descent(INPUTS, (diagonal,)), descent(np.diag(diagonal)))
    check(Descent(INPUTS, (torch.from_numpy(MATRIX), 0.2)), descent(MATRIX, 0.2))
    must_fail(check, Descent(INPUTS, (torch.from_numpy(MATRIX.T.copy()),)), descent(MATRIX))
    must_fail(check, Descent(INPUTS, (0.3,)), descent(0.3, 0.3))


def test_gd_plus_plus_is_the_loop_over_tokens():
    check(GDPlusPlus(INPUTS, (0.3, 0.5), (0.2, 0.1)), plus_plus((0.3, 0.5), (0.2, 0.1)))
    check(GDPlusPlus(INPUTS, (0.3, 0.5), (0.0, 0.0)), descent(0.3, 0.5))
    must_fail(check, GDPlusPlus(INPUTS, (0.3, 0.5), (0.1, 0.2)), plus_plus((0.3, 0.5), (0.2, 0.1)))
    with pytest.raises(InputError, match="as many shrinks as sizes"):
        GDPlusPlus(INPUTS, (0.1,), ())


def test_newton_squares_its_error():
    for steps in (0, 1, 3):
        check(NewtonInverse(INPUTS, steps), newton(steps))
    check(NewtonInverse(INPUTS, 2, 0.05), newton(2, 0.05))
    must_fail(check, NewtonInverse(INPUTS, 3), newton(2))
    near = NewtonInverse(INPUTS, 40).predict(PROMPTS)
    torch.testing.assert_close(near, LeastSquares(TASK).predict(PROMPTS), rtol=1e-6, atol=1e-6)


def test_conjugate_gradients_minimise_over_the_krylov_space():
    for steps in (1, 2):
        check(ConjugateGradients(INPUTS, steps), conjugate(steps))
    must_fail(check, ConjugateGradients(INPUTS, 1), conjugate(2))
    exact = ConjugateGradients(INPUTS, 3).predict(PROMPTS)[:, 1:]
    torch.testing.assert_close(exact, LeastSquares(TASK).predict(PROMPTS)[:, 1:])
    # Steps beyond the last one change nothing.
    more = ConjugateGradients(INPUTS, 9).predict(PROMPTS)[:, 1:]
    torch.testing.assert_close(exact, more)


def test_online_descent_is_the_loop():
    check(OnlineDescent(INPUTS, 0.2, 0.9), online(0.2, 0.9))
    must_fail(check, OnlineDescent(INPUTS, 0.2, 1.0), online(0.2, 0.9))
    with pytest.raises(InputError, match="above 0 and at most 1"):
        OnlineDescent(INPUTS, 0.2, 0.0)


def test_features_are_those_of_the_task():
    law = Uniform(-1, 1)
    task = Polynomial(degrees=(2,), inputs=law, coefficients=law, n_points=6)
    prompts = task.sample(3, generator(0, "test"), dtype=torch.float64)

    def predict_one(xs, ys, x):
        return descent(0.5, 0.5)(xs ** np.arange(3), ys, x ** np.arange(3))

    check(Descent(Powers(2), (0.5, 0.5)), predict_one, prompts)
    must_fail(check, Descent(Powers(1), (0.5, 0.5)), predict_one, prompts)
