"""Mixtures: each function is of one of the tasks, in the shares that were asked for."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp.algorithms.rivals import normal_laws
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import (
    LinearRegression,
    Mixture,
    Normal,
    Polynomial,
    SparseLinearRegression,
    Uniform,
)

DENSE = LinearRegression(n_dims=5, n_points=8)
SPARSE = SparseLinearRegression(n_dims=5, sparsity=1, n_points=8)
MIXTURE = Mixture.of(DENSE, SPARSE, shares=(0.75, 0.25))


def check_share(task, share):
    prompts = task.sample(2048, generator(0, "test"), dtype=torch.float64)
    sparse = (prompts.parameters[:, 1:] != 0).sum(-1) == 1
    assert torch.equal(sparse, prompts.parameters[:, 0] == 1)
    error = (share * (1 - share) / 2048) ** 0.5
    assert abs(float(sparse.double().mean()) - share) < 4 * error


def test_shares():
    check_share(MIXTURE, 0.25)
    must_fail(check_share, MIXTURE, 0.5)


def test_values_are_those_of_the_task():
    prompts = MIXTURE.sample(64, generator(0, "test"), dtype=torch.float64)
    truth = (prompts.xs * prompts.parameters[:, None, 1:]).sum(-1, keepdim=True)
    torch.testing.assert_close(prompts.ys, truth)
    torch.testing.assert_close(MIXTURE.targets(prompts.parameters, prompts.xs), truth)


def test_each_task_has_its_inputs_and_noise():
    wide = LinearRegression(n_dims=5, n_points=8, inputs=Uniform(9, 10), noise_std=0.5)
    prompts = Mixture.of(DENSE, wide).sample(64, generator(0, "test"))
    far = prompts.parameters[:, 0] == 1
    assert bool((prompts.xs[far] > 8).all())
    assert bool((prompts.xs[~far] < 8).all())
    missed = prompts.ys - (prompts.xs * prompts.parameters[:, None, 1:]).sum(-1, keepdim=True)
    assert float(missed[far].std()) > 0.3
    assert float(missed[~far].abs().max()) < 1e-4


def check_mean(task, xs, n=20_000):
    """E[f(x)] beside the mean of fresh functions, within 4 standard errors."""
    parameters = task.sample_parameters(n, generator(1, "test"), torch.float64)
    values = task.targets(parameters, xs.expand(n, -1, -1))
    error = values.std(0) / n**0.5
    assert bool(((task.expected(xs)[0] - values.mean(0)).abs() < 4 * error).all())


def test_the_mean_weighs_those_of_the_tasks():
    xs = torch.tensor([[[1.0, 2, 3, 4, 5]]], dtype=torch.float64)
    three = replace(DENSE, weights=Normal(1.0, mean=3.0))
    task = Mixture.of(DENSE, three, shares=(0.75, 0.25))
    assert task.closed_mean(xs).item() == pytest.approx(0.25 * 3 * 15)
    check_mean(task, xs)

    class Twice(LinearRegression):
        def value(self, parameters, xs):
            return 2 * super().value(parameters, xs)

    twice = Twice(n_dims=5, n_points=8, weights=Normal(1.0, mean=3.0))
    doubled = Mixture.of(DENSE, twice)
    assert doubled.closed_mean(xs) is None
    check_mean(doubled, xs)

    class Forgets(Mixture):
        def closed_mean(self, xs):
            return self.tasks[1].closed_mean(xs)

    must_fail(check_mean, Forgets.of(DENSE, three), xs)


def test_features_are_shared_or_none():
    xs = torch.zeros(1, 2, 5)
    assert torch.equal(MIXTURE.features(xs), xs)
    law = Uniform(-1, 1)
    curves = [Polynomial(degrees=(d,), inputs=law, coefficients=law, n_points=8) for d in (1, 2)]
    assert Mixture.of(*curves).features(torch.zeros(1, 2, 1)) is None


def test_a_pool_holds_functions_of_all_tasks():
    pooled = Mixture(
        tasks=(DENSE, SPARSE), inputs=DENSE.inputs, n_points=8, n_tasks=64, pool_seed=1
    )
    assert 0 < float(pooled.pool[:, 0].mean()) < 1


@pytest.mark.parametrize(
    ("tasks", "shares", "words"),
    [
        ((DENSE,), (), "two tasks or more"),
        ((DENSE, LinearRegression(n_dims=4, n_points=8)), (), "same number of coordinates"),
        ((DENSE, SPARSE), (0.5, 0.6), "add up to 1"),
        ((DENSE, LinearRegression(n_dims=5, n_points=8, n_tasks=4)), (), "pool of its own"),
    ],
)
def test_what_is_no_mixture_is_refused(tasks, shares, words):
    with pytest.raises(InputError, match=words):
        Mixture.of(*tasks, shares=shares)


def test_only_families_whose_labels_tell_them_apart_have_laws_in_closed_form():
    """Where inputs differ too, they tell families apart, and other weights have no closed form."""
    first = LinearRegression(n_dims=3, n_points=9, noise_std=0.5, weights=Normal(1.0, mean=2.0))

    def check(other, expected):
        task = Mixture.of(first, other)
        assert task.has_normal_weights is expected
        assert bool(normal_laws(task)) is expected

    check(replace(first, weights=Normal(0.2), noise_std=0.1), True)
    check(replace(first, weights=Uniform(-1, 1)), False)
    check(replace(first, inputs=Normal(2.0)), False)
    check(replace(first, covariance=(1.0, 2.0, 3.0)), False)
    check(SparseLinearRegression(n_dims=3, sparsity=1, n_points=9), False)
    must_fail(check, replace(first, covariance=(1.0, 2.0, 3.0)), True)
