"""Ridge functions: values by hand, and the laws of directions, coefficients, labels and pairs."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from ridge_tasks import AFFINE, COSINE, EVERY, LINEAR, PHASED, RELU, TASKS, B, N, draw, within
from scipy import stats
from torch.testing import assert_close

from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import Ellipsoid, RidgeFunction, random_directions

# ---- values --------------------------------------------------------------------------------------


def by_hand(task, parameters, x):
    """f at one point: u by solving with a root of Sigma that a Cholesky factor does not give."""
    sigma = (
        np.array(task.inputs.sigma)
        if isinstance(task.inputs, Ellipsoid)
        else task.inputs.radius**2 * np.eye(len(x))
    )
    sigma = np.diag(sigma) if sigma.ndim == 1 else sigma
    variances, basis = np.linalg.eigh(sigma)
    z = parameters[: len(x)] @ (basis @ np.diag(1 / np.sqrt(variances)) @ basis.T @ x)
    big_l, omega, c = task.lipschitz, task.frequency or task.lipschitz, parameters[len(x) :]
    g = {
        "relu": lambda: c[0] * max(z, 0) + c[1] * max(-z, 0) + c[2],
        "affine": lambda: c[0] * z + c[1],
        "linear": lambda: big_l * z,
        "cosine": lambda: big_l / omega * math.cos(omega * z),
        "phased_cosine": lambda: big_l / omega * math.cos(omega * z + math.atan2(c[1], c[0])),
        "quadratic": lambda: big_l * z * z / 2,
    }
    return g[task.link]() + task.intercept


def check_values(task, prompts, parameters=None, xs=None):
    """The task's values against those by hand, of other parameters or inputs where these are given."""
    rows = zip(
        prompts.parameters if parameters is None else parameters,
        prompts.xs if xs is None else xs,
        strict=True,
    )
    expected = [[by_hand(task, p.numpy(), x) for x in points.numpy()] for p, points in rows]
    np.testing.assert_allclose(
        task.value(prompts.parameters, prompts.xs), expected, rtol=1e-10, atol=1e-10
    )


@EVERY
def test_values_are_those_of_a_loop(link):
    task, prompts = TASKS[link], draw(replace(TASKS[link], noise_std=0.0), 20)
    check_values(task, prompts)
    scaled = prompts.parameters * 1.01
    must_fail(check_values, task, replace(prompts, parameters=scaled), prompts.parameters)
    must_fail(
        check_values, task, replace(prompts, xs=prompts.xs.flip(-1)), prompts.parameters, prompts.xs
    )


def test_the_slides_links():
    """w^T x + 2, (w^T x)^2 and cos(4 w^T x) with w = B a of length 1 in the column space of B."""
    basis = torch.tensor(B, dtype=torch.float64)
    quadratic = replace(COSINE, link="quadratic", lipschitz=2.0)
    for task, g in (
        (LINEAR, lambda z: z + 2),
        (quadratic, torch.square),
        (COSINE, lambda z: (4 * z).cos()),
    ):
        prompts = draw(task, 50)
        w = prompts.parameters
        assert_close(w.norm(dim=-1), torch.ones(50).double(), rtol=0, atol=1e-10)
        assert_close(w @ basis @ basis.T, w, rtol=0, atol=1e-10)
        assert_close(
            as_numbers(prompts.ys), g((prompts.xs @ w[:, :, None])[..., 0]), rtol=0, atol=1e-10
        )


def depends_on_directions(task):
    """Inputs that differ across the columns of B have the same values, and others have not."""
    prompts = draw(task, 20)
    inside = (
        prompts.xs @ torch.tensor(B, dtype=torch.float64) @ torch.tensor(B, dtype=torch.float64).T
    )
    assert_close(task.value(prompts.parameters, inside), task.value(prompts.parameters, prompts.xs))
    moved = task.value(prompts.parameters, 0.5 * inside)
    assert (moved - task.value(prompts.parameters, inside)).abs().max() > 0.1


@pytest.mark.parametrize("task", [LINEAR, COSINE], ids=str)
def test_values_depend_on_the_directions_alone(task):
    depends_on_directions(task)
    must_fail(depends_on_directions, replace(task, directions=random_directions(5, 2, seed=2)))
    must_fail(depends_on_directions, replace(task, directions=None))


# ---- laws ----------------------------------------------------------------------------------------


def check_directions(task):
    """q is uniform on the unit sphere of the column space: E q = 0, E q q^T = B B^T / k, fourth moments too."""
    q = draw(task).parameters[:, : task.dim] @ task.basis
    k = task.rank
    within(q, 0)
    squares = q.numpy() ** 2
    within(q[:, :, None] * q[:, None], np.eye(k) / k)
    within(squares[:, :, None] * squares[:, None], (1 + 2 * np.eye(k)) / (k * (k + 2)))
    np.testing.assert_allclose(squares.sum(-1), 1, rtol=1e-9)


class OfABox(RidgeFunction):
    """A mutant: directions of points in a box."""

    def sample_parameters(self, n_functions, generator, dtype):
        parameters = super().sample_parameters(n_functions, generator, dtype)
        box = 2 * torch.rand((n_functions, self.dim), generator=generator, dtype=dtype) - 1
        return torch.cat(
            [torch.nn.functional.normalize(box, dim=-1), parameters[:, self.dim :]], -1
        )


def like(task, cls):
    return cls(**{field.name: getattr(task, field.name) for field in fields(task)})


@EVERY
def test_directions_are_uniform(link):
    check_directions(TASKS[link])
    must_fail(check_directions, like(RELU, OfABox))


def check_coefficients(task, n, high):
    """Independent draws from U(-high, high)."""
    coefficients = draw(task).parameters[:, task.dim :].numpy()
    assert coefficients.shape[1] == n
    for column in coefficients.T:
        assert stats.kstest(column, stats.uniform(-high, 2 * high).cdf).pvalue > 1e-3
    within(coefficients[:, :, None] * coefficients[:, None], np.eye(n) * high**2 / 3)


def test_coefficients_are_uniform_and_independent():
    for task, n in ((RELU, 3), (AFFINE, 2)):
        check_coefficients(task, n, 2.0)
        must_fail(check_coefficients, task, n, 2.1)
    assert {
        TASKS[link].sample_parameters(2, generator(0, "t"), torch.float64).shape[1]
        - TASKS[link].dim
        for link in ("linear", "cosine", "quadratic")
    } == {0}


def check_phases(task):
    cosine, sine = draw(task).parameters[:, task.dim :].T.numpy()
    np.testing.assert_allclose(cosine**2 + sine**2, 1, rtol=1e-12)
    assert (
        stats.kstest(np.arctan2(sine, cosine), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    )


class HalfACircle(RidgeFunction):
    """A mutant: phases from half of the circle."""

    def sample_parameters(self, n_functions, generator, dtype):
        parameters = super().sample_parameters(n_functions, generator, dtype)
        parameters[:, -1] = parameters[:, -1].abs()
        return parameters


def test_phases_are_uniform():
    check_phases(PHASED)
    must_fail(check_phases, like(PHASED, HalfACircle))


def check_noise(task, std):
    """Of every label but the query's: independent, normal, of this standard deviation."""
    prompts = draw(task, 3000)
    noise = (prompts.ys - task.targets(prompts.parameters, prompts.xs))[..., 0].numpy()
    assert not noise[:, -1].any()
    within(noise[:, :-1, None] * noise[:, None, :-1], std**2 * np.eye(noise.shape[1] - 1))
    assert stats.kstest(noise[:, :-1].ravel(), stats.norm(0, std).cdf).pvalue > 1e-3


class NoisyQuery(RidgeFunction):
    """A mutant: noise on the query's value too."""

    def sample_points(self, parameters, n_points, generator, dtype):
        xs, ys = super().sample_points(parameters, n_points + 1, generator, dtype)
        return xs[:, :-1], ys[:, :-1]


def test_labels_have_noise_and_the_query_has_none():
    check_noise(RELU, 0.5)
    must_fail(check_noise, RELU, 0.55)
    must_fail(check_noise, like(RELU, NoisyQuery), 0.5)
    assert draw(replace(RELU, noise_std=0.0), 5).ys.shape == (5, 7, 1)


@EVERY
def test_the_mean_value_is_that_of_the_law(link):
    task = TASKS[link]

    def check(shift=0.0):
        xs = 3 * task.inputs.sample((1, 4, task.dim), generator(0, "test/inputs"), torch.float64)
        values = task.targets(
            task.sample_parameters(N, generator(0, "test/mean"), torch.float64),
            xs.expand(N, -1, -1),
        )
        within(values, task.expected(xs)[0].numpy() + shift)

    check()
    must_fail(check, 0.1)
    closed = task.closed_mean(torch.full((1, 1, task.dim), 1e6, dtype=torch.float64))
    assert closed.isfinite().all()


PAIRED = {"relu", "affine", "linear", "phased_cosine"}


@EVERY
def test_partners_are_reflected_about_the_intercept_and_follow_the_law(link):
    task = TASKS[link]
    assert task.paired == (link in PAIRED)
    if not task.paired:
        return
    pairs = task.sample_pairs(N // 2, generator(0, "test/pairs"), dtype=torch.float64)
    one, other = pairs.ys[0::2], pairs.ys[1::2]
    assert_close(one + other, torch.full_like(one, 2 * task.intercept), rtol=0, atol=1e-10)
    fresh = draw(task, N // 2, "test/fresh")
    partners = pairs.parameters[1::2]
    for power in (1, 2, 3):
        a, b = partners**power, fresh.parameters**power
        error = ((a.var(0) + b.var(0)) / len(a)).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 4 * error + 1e-12).all()
