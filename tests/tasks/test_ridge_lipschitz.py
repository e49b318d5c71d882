"""Ridge functions: Lipschitz constants, invariance, shifts, configs and what is refused."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from ridge_tasks import AFFINE, EVERY, QUADRATIC, RELU, SMALL, TASKS, N, draw, within
from torch.testing import assert_close

from icl_interp.checkpoints.config import check_round_trip, parse, parse_task
from icl_interp.errors import InputError
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Normal, RidgeFunction, Sphere, random_directions
from icl_interp.tasks.base import Scalable

# ---- Lipschitz constants -------------------------------------------------------------------------


def slopes(task, n=400):
    """The largest |f(u) - f(u')| / |u - u'| of each function over close points of the ball.

    Inputs lie on the surface of this ball.

    Along the function's own direction, where a function of <q, u> changes fastest.
    """
    parameters = task.sample_parameters(n, generator(0, "test/slopes"), torch.float64)
    z = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    root = torch.linalg.inv(task.whitening)
    xs = z[None, :, None] * (
        parameters[:, None, : task.dim] @ root
    )  # x = Sigma^(1/2) (z q), so that <q, u> = z
    values = task.value(parameters, xs)
    return (values.diff(dim=1).abs() / z.diff()).amax(1)


def check_lipschitz(task, constant):
    """No function has a larger constant, and the largest of 400 comes close."""
    found = slopes(task)
    assert found.max() <= constant * (1 + 1e-9)
    assert found.max() >= 0.97 * constant


@pytest.mark.slow
@EVERY
def test_the_lipschitz_constant_is_what_the_task_says(link):
    task = TASKS[link]
    check_lipschitz(task, task.lipschitz)
    for factor in (0.9, 1.1):
        must_fail(check_lipschitz, task, factor * task.lipschitz)
    check_lipschitz(replace(task, lipschitz=3.0 * task.lipschitz), 3 * task.lipschitz)


def test_the_constant_of_a_function_is_that_of_the_slides():
    """max(|l1|, |l2|) in F_L^+, |l| in the affine class."""
    for task, n in ((RELU, 2), (AFFINE, 1)):
        coefficients = task.sample_parameters(400, generator(0, "test/slopes"), torch.float64)[
            :, task.dim :
        ]
        assert_close(slopes(task), coefficients[:, :n].abs().amax(1), rtol=1e-6, atol=1e-9)
        must_fail(assert_close, slopes(task), coefficients.abs().amax(1), rtol=1e-6, atol=1e-9)


def test_two_inputs_never_differ_by_more():
    for task in TASKS.values():
        prompts = draw(task, 200, n_points=30)
        u, f = prompts.xs @ task.whitening, task.value(prompts.parameters, prompts.xs)
        gaps = (f[:, :, None] - f[:, None]).abs()
        assert (gaps <= task.lipschitz * torch.cdist(u, u) + 1e-9).all()


# ---- Lemma 1's condition -------------------------------------------------------------------------


def check_invariant(task):
    """E f(x) f(x') depends on u and u' through their angle: a rotation of u keeps it.

    Here it is a rotation of the axes.
    """
    u = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.2, -0.1], [1.0, -0.1, 0.2]]).double(), dim=-1
    )
    root = torch.linalg.inv(replace(task, sigma=None).whitening)
    parameters = task.sample_parameters(2 * N, generator(0, "test/invariant"), torch.float64)
    products = [
        task.value(parameters, (one @ root).expand(2 * N, -1, -1)).prod(-1)
        for one in (u, u.roll(1, -1))
    ]
    difference = (products[0] - products[1]).numpy()
    assert abs(difference.mean()) <= 4 * difference.std() / math.sqrt(len(difference))


def test_the_law_is_invariant_where_directions_are_isotropic_after_whitening():
    for task in (AFFINE, replace(AFFINE, link="relu"), QUADRATIC):
        check_invariant(task)
        must_fail(check_invariant, replace(task, sigma=(1.0, 1.0, 1.0)))


# ---- shifts, configs, what the rest asks of a task -----------------------------------------------


@EVERY
def test_functions_and_inputs_are_scaled_each_by_its_own_factor(link):
    task = replace(TASKS[link], noise_std=0.0)
    assert isinstance(task, Scalable)

    def check(scaled, functions, inputs):
        plain, shifted = draw(task, 20), draw(scaled, 20)
        assert_close(shifted.xs, inputs * plain.xs)
        assert_close(shifted.ys, functions * task.targets(plain.parameters, inputs * plain.xs))

    check(task.scaled(3.0, 2.0), 3.0, 2.0)
    check(task.scaled(inputs=0.5), 1.0, 0.5)
    check(task.scaled(functions=0.5), 0.5, 1.0)
    must_fail(check, task.scaled(3.0, 2.0), 3.0, 1.0)
    must_fail(check, replace(task.scaled(3.0, 2.0), sigma=None), 3.0, 2.0)
    assert task.scaled() == task


def check_comes_back(task, expected):
    data = {**tiny_runs.data(model={"d_in": task.dim, "n_ctx": 20}), "task": encode(task)}
    run = parse(json.loads(json.dumps(data)))
    assert run.task == expected
    check_round_trip(run)
    assert torch.equal(draw(run.task, 4).ys, draw(expected, 4).ys)


@EVERY
def test_a_config_gives_it_back(link):
    check_comes_back(TASKS[link], TASKS[link])
    must_fail(check_comes_back, replace(TASKS[link], lipschitz=2.5), TASKS[link])


@EVERY
def test_features_are_those_that_its_functions_are_linear_in(link):
    task = TASKS[link]
    prompts = draw(replace(task, noise_std=0.0), 5, n_points=40)
    features = task.features(prompts.xs)
    assert task.has_features == (link in {"affine", "linear", "quadratic"})
    if features is None:
        return
    fits = torch.linalg.lstsq(features, prompts.ys).solution
    assert_close(features @ fits, prompts.ys, rtol=0, atol=1e-9)
    less = features[..., 1:]
    must_fail(
        assert_close,
        less @ torch.linalg.lstsq(less, prompts.ys).solution,
        prompts.ys,
        rtol=0,
        atol=1e-9,
    )


def test_how_many_points_are_not_scored():
    found = {link: task.with_points(50).n_determining for link, task in TASKS.items()}
    expected = {
        "relu": 5,
        "affine": 4,
        "linear": 2,
        "cosine": 2,
        "phased_cosine": 3,
        "quadratic": 3,
    }
    assert found == expected
    assert RELU.with_points(3).n_determining == 2


def test_random_directions_are_repeatable_and_uniform():
    assert (
        random_directions(4, 2)
        == random_directions(4, 2, seed=0)
        != random_directions(4, 2, seed=1)
    )
    matrices = np.array([random_directions(3, 2, seed=seed) for seed in range(400)])
    within(matrices, 0)
    within(matrices @ matrices.transpose(0, 2, 1), 2 / 3 * np.eye(3))
    must_fail(within, np.abs(matrices), 0)


@dataclass(frozen=True)
class Ball(Sphere):
    """A law of vectors of one's own."""


@dataclass(frozen=True)
class OtherLaw:
    """Another law of vectors: nothing says what its Sigma is."""

    dim: int = 3
    mean = 0.0
    std = 1.0
    interval = (-1.0, 1.0)
    on_first_axis = 1.0

    def sample(self, shape, generator, dtype):
        return torch.randn(shape, generator=generator, dtype=dtype)

    def scaled(self, factor):
        raise AssertionError("nothing is scaled here")


def of(**change):
    return RidgeFunction(**{**SMALL, "link": "relu", **change})


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: of(inputs=Normal(1)),
            r"inputs of a RidgeFunction are vectors .* Sphere\(3\) .* but got Normal",
        ),
        (lambda: of(inputs=None), "inputs must be a law"),
        (lambda: of(link="rleu"), "unknown link 'rleu': did you mean 'relu'"),
        (lambda: of(lipschitz=0.0), "lipschitz must be a number above 0, but got 0.0"),
        (lambda: of(lipschitz=True), "lipschitz must be a number above 0, but got True"),
        (lambda: of(lipschitz=math.inf), "lipschitz must be a number above 0, but got inf"),
        (lambda: of(noise_std=-1), "noise_std must be a number from 0 up, but got -1"),
        (
            lambda: of(noise_std=10**400),
            "noise_std must be .* but got <a whole number of about 400 digits>",
        ),
        (lambda: of(intercept="2"), "intercept must be a number, but got '2'"),
        (
            lambda: of(frequency=3.0),
            "frequency is for the links cosine and phased_cosine, but link is 'relu'",
        ),
        (lambda: of(link="cosine", frequency=0), "frequency must be a number above 0, but got 0"),
        (lambda: of(sigma=(1.0, 2.0)), "sigma must be 3 positive numbers or 3 rows"),
        (
            lambda: of(sigma=((1.0, 2.0, 0.0), (2.0, 1.0, 0.0), (0.0, 0.0, 1.0))),
            "symmetric positive definite",
        ),
        (lambda: of(sigma=(1.0, 1.0, 1e-13)), "sigma has no inverse in float64"),
        (
            lambda: of(inputs=OtherLaw()),
            r"sigma must be given, because that of OtherLaw\(dim=3\) is not known",
        ),
        (
            lambda: of(directions=((1.0,), (0.0,))),
            r"directions must be 3 rows of k <= 3 numbers, .* but got",
        ),
        (
            lambda: of(directions=((1.0,), (1.0,), (0.0,))),
            r"orthonormal columns such as random_directions\(3, 1\)",
        ),
        (lambda: of(directions=((1.0, 0.0), (0.0,), (0.0, 1.0))), "directions must be 3 rows"),
        (lambda: of(directions=3), "directions must be 3 rows .* but got 3"),
        (lambda: of(directions=((), (), ())), "directions must be 3 rows"),
        (lambda: of(n_points=1), "at least 2, but got 1"),
        (lambda: random_directions(3, 4), "rank must be a whole number from 1 to 3, but got 4"),
        (lambda: random_directions(0, 1), "n_dims must be a whole number from 1 up, but got 0"),
        (
            lambda: parse_task(
                {"kind": "RidgeFunction", "inputs": {"kind": "Sphere", "dim": 3}, "n_points": 5},
                "task",
            ),
            "task lacks the key 'link'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_a_law_of_ones_own_brings_its_sigma():
    assert of(inputs=OtherLaw(), sigma=(1.0, 1.0, 1.0)).dim == 3
    assert of(inputs=Ball(3, 2.0)).whitening.diagonal().tolist() == [0.5, 0.5, 0.5]
