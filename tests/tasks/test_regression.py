"""Linear regression: its laws, every shift, and its way through run folders and baselines."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from tables import row_of
from torch.testing import assert_close

from icl_interp import baselines, evaluation
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import parse
from icl_interp.errors import InputError
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Exponential, LinearRegression, LogNormal, Normal, Uniform
from icl_interp.tasks.regression import moment
from icl_interp.training.trainer import train

ROWS = ((2.0, 0.5), (0.5, 1.0))
PLAIN = LinearRegression(n_dims=3, n_points=12)
DIAGONAL = replace(PLAIN, covariance=(0.5, 1.0, 4.0))
FULL = LinearRegression(n_dims=2, covariance=ROWS, n_points=12)
RANDOM = replace(PLAIN, covariance=Exponential(1.0))
N = 4000  # prompts of every Monte Carlo check


def draw(task, n=N, stream="test", **more):
    return task.sample(n, generator(0, stream), dtype=torch.float64, **more)


def within(estimates, expected):
    """The mean over the first axis is within four standard errors, everywhere."""
    estimates = np.asarray(estimates, dtype=float)
    error = estimates.std(0, ddof=1) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(0) - np.asarray(expected)) <= 4 * error + 1e-12).all()


def second_moments(prompts, points):
    """x x^T averaged over some points, prompt by prompt."""
    xs = prompts.xs[:, points]
    return (xs.transpose(1, 2) @ xs / xs.shape[1]).numpy()


def check_covariance(prompts, expected, points=slice(None)):
    within(second_moments(prompts, points), expected)
    within(prompts.xs[:, points].mean(1).numpy(), np.zeros(prompts.xs.shape[-1]))


@pytest.mark.parametrize(
    "task", [PLAIN, DIAGONAL, FULL, replace(FULL, covariance_scale=9.0)], ids=str
)
def test_inputs_have_their_covariance(task):
    check_covariance(draw(task), task.covariance_matrix.numpy())
    must_fail(check_covariance, draw(task.with_inputs_scaled(1.05)), task.covariance_matrix.numpy())


def test_the_covariance_is_the_one_that_was_given():
    assert_close(
        FULL.covariance_matrix, torch.tensor(ROWS, dtype=torch.float64), rtol=1e-14, atol=1e-14
    )
    assert_close(replace(FULL, inputs=Normal(2.0)).covariance_matrix, 4 * FULL.covariance_matrix)
    assert_close(
        replace(DIAGONAL, covariance_scale=9.0).covariance_matrix.diagonal().tolist(),
        [4.5, 9.0, 36.0],
    )


def test_functions_are_the_products_with_gaussian_weights():
    prompts = draw(FULL)
    assert_close(as_numbers(prompts.ys), torch.einsum("bpd,bd->bp", prompts.xs, prompts.parameters))
    within((prompts.parameters[:, :, None] * prompts.parameters[:, None]).numpy(), np.eye(2))
    assert torch.equal(FULL.features(prompts.xs), prompts.xs)


def test_contexts_of_a_function_share_its_weights_only():
    prompts = draw(RANDOM, 5, n_contexts=3)
    by_function = prompts.parameters.view(5, 3, 3)
    assert (by_function == by_function[:, :1]).all()
    assert len(prompts.xs.flatten(1).unique(dim=0)) == 15
    assert prompts.function.tolist() == [f for f in range(5) for _ in range(3)]
    assert draw(PLAIN, 2, n_points=4).xs.shape == (2, 4, 3)
    assert PLAIN.sample(2, generator(0, "t")).ys.dtype == torch.float32


# A fresh Lambda in every prompt -------------------------------------------------------------------


def check_fresh_diagonal(prompts, law, scale=1.0):
    """Within a prompt Lambda is the same; E[v^2] and E[v] come from products of x^2.

    E[v^2] comes from two different points, E[v] from one.
    """
    squares = prompts.xs.square()
    within(squares.mean(1).numpy(), scale * moment(law, 1) * np.ones(3))
    within((squares[:, 0] * squares[:, 1]).numpy(), scale**2 * moment(law, 2) * np.ones(3))
    within(squares[:, :2].prod(1).prod(-1).numpy()[:, None], scale**6 * moment(law, 2) ** 3)


def check_moments(law, moments):
    draws = law.sample((200_000,), generator(0, "moments"), torch.float64).numpy()
    within(np.stack([draws**order for order in (1, 2, 3)], -1), moments)


LAWS = [Exponential(1.0), Exponential(0.5), LogNormal(0.4, median=2.0), Uniform(0.0, 3.0)]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_prompt_draws_its_own_diagonal(law):
    check_moments(law, [moment(law, order) for order in (1, 2, 3)])
    must_fail(check_moments, law, [moment(law, order) * 1.1 for order in (1, 2, 3)])
    if not isinstance(law, Exponential):  # whose eighth moments need more prompts than a test has
        check_fresh_diagonal(
            draw(replace(PLAIN, covariance=law, covariance_scale=2.0), 20_000), law, 2.0
        )
        must_fail(
            check_fresh_diagonal,
            draw(replace(PLAIN, covariance=(moment(law, 1),) * 3), 20_000),
            law,
        )


def test_exponential_diagonals_are_fresh_too():
    squares = draw(RANDOM, 20_000).xs.square()
    within((squares[:, 0] * squares[:, 1]).numpy(), 2 * np.ones(3))
    assert_close(
        RANDOM.spectrum_moments(), torch.tensor([[1.0], [2.0], [6.0]]).double().expand(3, 3)
    )
    scaled = replace(RANDOM, covariance_scale=4.0).spectrum_moments()
    assert_close(scaled[:, 0], torch.tensor([4.0, 32.0, 384.0]).double())
    assert_close(DIAGONAL.spectrum_moments()[:, 2], torch.tensor([4.0, 16.0, 64.0]).double())


# Noise and shifts ---------------------------------------------------------------------------------


def check_noise(task, std):
    prompts = draw(task)
    noise = (as_numbers(prompts.ys) - task.value(prompts.parameters, prompts.xs)).numpy()
    within(noise**2, np.full(noise.shape[1], std**2))
    within(noise[:, :-1] * noise[:, 1:], np.zeros(noise.shape[1] - 1))
    within(noise[:, :, None] * prompts.xs.numpy(), np.zeros(prompts.xs.shape[1:]))


def test_every_label_has_noise_of_its_own():
    check_noise(PLAIN, 0.0)
    check_noise(replace(PLAIN, noise_std=0.5), 0.5)
    must_fail(check_noise, replace(PLAIN, noise_std=0.6), 0.5)


def test_the_query_alone_shifts():
    moved = draw(DIAGONAL.with_query(Normal(3.0)))
    check_covariance(moved, DIAGONAL.covariance_matrix.numpy(), slice(None, -1))
    check_covariance(moved, 9 * np.eye(3), slice(-1, None))
    must_fail(check_covariance, moved, 9 * np.eye(3), slice(-2, -1))
    fixed = draw(DIAGONAL.with_query((1.0, -2.0, 0.5)), 10)
    assert (fixed.xs[:, -1] == torch.tensor([1.0, -2.0, 0.5])).all()
    assert torch.equal(fixed.xs[:, :-1], draw(DIAGONAL, 10).xs[:, :-1])
    assert_close(as_numbers(fixed.ys), DIAGONAL.value(fixed.parameters, fixed.xs))
    assert DIAGONAL.with_query((1.0, 1.0, 1.0)).with_query(None) == DIAGONAL


def check_one_orthant(prompts, points):
    assert (prompts.xs[:, points].sign() == prompts.xs[:, :1].sign()).all()


def test_the_context_lies_in_one_orthant_and_the_query_need_not():
    prompts = draw(replace(PLAIN, single_orthant=True))
    check_one_orthant(prompts, slice(None, -1))
    must_fail(check_one_orthant, prompts, slice(None))
    must_fail(check_one_orthant, draw(PLAIN), slice(None, -1))
    within(prompts.xs[:, 0].sign().numpy(), np.zeros(3))
    within((prompts.xs[:, -1].sign() == prompts.xs[:, 0].sign()).double().numpy(), np.full(3, 0.5))
    within(prompts.xs.square().mean(1).numpy(), np.ones(3))


def test_covariates_and_tasks_are_scaled():
    assert_close(draw(FULL.with_inputs_scaled(3.0), 5).xs, 3 * draw(FULL, 5).xs)
    assert_close(draw(RANDOM.with_inputs_scaled(2.0), 5).xs, 2 * draw(RANDOM, 5).xs)
    assert_close(draw(FULL.scaled(3.0), 5).ys, 3 * draw(FULL, 5).ys)
    fixed = replace(FULL, weights=(1.0, -1.0))
    assert (draw(fixed, 5).parameters == torch.tensor([1.0, -1.0])).all()
    assert fixed.scaled(2.0).weights == (2.0, -2.0)


def test_short_prompts_are_scored_at_the_query():
    assert (PLAIN.dim, PLAIN.n_determining, PLAIN.with_points(3).n_determining) == (3, 3, 2)
    table = evaluation.evaluate(
        baselines.Zero(), PLAIN.with_points(3), n_functions=20, n_contexts=2
    )
    assert "points 3..3" in table.attrs["note"]


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Exponential(0), "positive, finite mean, but got 0"),
        (lambda: LogNormal(-1), "std=-1"),
        (lambda: LogNormal(1, median=math.inf), "median=inf"),
        (lambda: replace(PLAIN, n_dims=0), "n_dims must be a whole number from 1 up, but got 0"),
        (lambda: replace(PLAIN, n_points=1), "at least 2, but got 1"),
        (lambda: replace(PLAIN, inputs=1), "inputs must be a law"),
        (
            lambda: replace(PLAIN, covariance=(1.0, 2.0)),
            r"3 positive numbers, 3 rows.*but got \(1.0, 2.0\)",
        ),
        (lambda: replace(PLAIN, covariance=(1.0, 2.0, 0.0)), "3 positive numbers"),
        (lambda: replace(PLAIN, covariance=2.0), "3 positive numbers.* but got 2.0"),
        (lambda: replace(PLAIN, covariance=((1.0,), 2.0, 3.0)), "3 rows of a symmetric"),
        (lambda: replace(FULL, covariance=((1.0, 2.0), (2.0, 1.0))), "symmetric positive definite"),
        (lambda: replace(FULL, covariance=((1.0, 0.5), (0.4, 1.0))), "symmetric positive definite"),
        (
            lambda: replace(PLAIN, covariance=Normal(1)),
            r"positive law, for example Exponential\(1\), not Normal",
        ),
        (lambda: replace(PLAIN, covariance=Uniform(-1, 1)), "positive law"),
        (
            lambda: replace(PLAIN, covariance_scale=0),
            "covariance_scale must be a positive number, but got 0",
        ),
        (lambda: replace(PLAIN, noise_std=-1), "noise_std must be a number from 0 up, but got -1"),
        (
            lambda: replace(PLAIN, weights=(1.0,)),
            r"weights must be a law.* or 3 numbers \(n_dims\), but got \(1.0,\)",
        ),
        (lambda: replace(PLAIN, weights=None), "weights must be a law"),
        (lambda: replace(PLAIN, query=1.0), "query must be a law"),
        (
            lambda: RANDOM.covariance_matrix,
            r"drawn from Exponential\(mean=1.0\) for every prompt: use spectrum_moments",
        ),
        (lambda: FULL.spectrum_moments(), "not diagonal: use covariance_matrix"),
        (
            lambda: replace(RANDOM, inputs=Uniform(-1, 1)).spectrum_moments(),
            "inputs of a centred normal law",
        ),
        (
            lambda: replace(FULL, inputs=Normal(1, mean=1)).covariance_matrix,
            "inputs of a centred normal law",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)


# Through the rest of the package ------------------------------------------------------------------

TASKS = [
    DIAGONAL.with_query((1.0, 2.0, 3.0)).scaled(2.0),
    FULL.with_inputs_scaled(2.0),
    replace(RANDOM, query=Uniform(0, 1), noise_std=0.1, single_orthant=True),
    replace(PLAIN, covariance=LogNormal(0.5), weights=(1.0, 0.0, 2.0)),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_recipes_and_run_folders_know_it(task):
    model = {"n_layers": 1, "d_model": 8, "n_ctx": 24, "d_in": task.dim + 1}
    data = {"model": model, "task": encode(task), "encoding": "stacked"}
    assert parse(data).task == task
    with pytest.raises(InputError, match=f"have d_in={task.dim}, but the model has"):
        parse({**data, "encoding": "interleaved"})


@pytest.mark.parametrize(("encoding", "d_in"), [("interleaved", 3), ("stacked", 4)])
def test_it_is_trained_on_and_loaded_and_evaluated(tmp_path, encoding, d_in):
    task = {
        "kind": "LinearRegression",
        "n_dims": 3,
        "covariance": {"kind": "Exponential"},
        "n_points": 6,
    }
    run = tiny_runs.data(model={"d_in": d_in})
    run = {**run, "task": task, "encoding": encoding}
    train(run, tmp_path, progress=False)
    checkpoint = store.load(tmp_path)
    assert checkpoint.task == LinearRegression(n_dims=3, covariance=Exponential(), n_points=6)
    rows = evaluation.evaluate(checkpoint, n_functions=20, n_contexts=4)
    assert (
        row_of(rows, predictor="least squares")["error"] < 1e-20
    )  # a context of d points and more determines w
    assert row_of(rows, predictor="model")["error"] > 0.1


def check_least_squares(task, error):
    prompts = draw(task, 1500)
    last = (baselines.LeastSquares(task).predict(prompts) - prompts.ys)[:, -1]
    within(last.square().numpy(), error)


def test_least_squares_has_its_known_error():
    """tau^2 (1 + d / (n - d - 1)) for n > d + 1 Gaussian inputs, whatever Lambda."""
    for task in (FULL, replace(FULL, covariance=Exponential(1.0))):
        noisy = replace(task, noise_std=0.5, n_points=9)
        check_least_squares(noisy, 0.25 * (1 + 2 / (8 - 2 - 1)))
        must_fail(check_least_squares, noisy, 0.25)
