"""Laws of mixtures and of combinations, against draws of functions one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts

from icl_interp.algorithms.rivals import normal_laws
from icl_interp.provenance import generator
from icl_interp.studies.mixtures.constructions.predictors import FAMILY, mixture
from icl_interp.studies.mixtures.measurements import laws
from icl_interp.tasks import LinearRegression, Mixture, SparseLinearRegression
from icl_interp.tasks.distributions import Normal, Uniform
from icl_interp.training import recipes

TASK = mixture(Normal(0.5, mean=2.0), Normal(1.0, mean=-1.0), shares=(0.75, 0.25))
N = 20_000  # functions that are drawn


def test_laws_are_those_of_the_algorithms():
    """`algorithms.rivals` takes them from the same task."""
    assert laws.laws_of(TASK) == normal_laws(TASK)
    assert laws.laws_of(TASK)[::-1] != normal_laws(TASK)


def check_moments(law, weights):
    """Mean and variance of weights, within 4 standard errors of each."""
    n = len(weights)
    assert abs(weights.mean() - law.mean) < 4 * weights.std() / n**0.5
    squares = (weights - law.mean) ** 2
    assert abs(squares.mean() - law.std**2) < 4 * squares.std() / n**0.5


def test_one_normal_law_has_the_moments_of_the_mixture():
    drawn = TASK.sample_parameters(N, generator(0, "test"), torch.float64)
    weights = drawn[:, 1].numpy()  # the first is the number of the family
    found = laws.single_laws(TASK)
    assert list(found) == ["family 1", "family 2", laws.ONE]
    check_moments(found[laws.ONE], weights)
    must_fail(check_moments, found["family 1"], weights)
    even = laws.single_laws(replace(TASK, shares=(0.5, 0.5)))
    must_fail(check_moments, even[laws.ONE], weights)


def shares_of(seed):
    """The shares of combinations, drawn as the study draws them."""
    stream = generator(seed, "mixtures/shares")
    sizes = 1 + torch.rand(laws.COMBINATIONS, 2, generator=stream, dtype=torch.float64)
    return (sizes / sizes.sum(1, keepdim=True)).numpy()


def test_combinations_are_those_of_a_function_of_each_family():
    """Weights of two families are drawn and added, instead of drawn from the law of their sum."""
    draw = np.random.default_rng(0)
    first = draw.normal(2.0, 0.5, N)
    second = draw.normal(-1.0, 1.0, N)

    def check(seed):
        found = laws.combinations(TASK, seed)
        assert len(found.tasks) == laws.COMBINATIONS
        for law, (s, t) in zip(normal_laws(found), shares_of(0), strict=True):
            assert 0.5 <= s / t <= 2
            check_moments(law, s * first + t * second)

    check(0)
    must_fail(check, 1)


def by_quadrature(prompts, k):
    """E[f(x) | k examples] of two families in one dimension, by sums over a grid of weights."""
    w = np.linspace(-10, 10, 4001)
    found = []
    for xs, ys in zip(prompts.xs[..., 0].numpy(), prompts.ys[..., 0].numpy(), strict=True):
        prior = np.zeros_like(w)
        for share, mean, std in ((0.75, 2.0, 0.5), (0.25, -1.0, 1.0)):
            prior += share / std * np.exp(-((w - mean) ** 2) / (2 * std**2))
        missed = ys[:k, None] - xs[:k, None] * w
        posterior = prior * np.exp(-(missed**2).sum(0) / (2 * 0.5**2))
        found.append(posterior @ w / posterior.sum() * xs[k])
    return np.array(found)


def test_bayes_is_the_posterior_mean():
    families = [replace(one, n_dims=1, n_points=5) for one in TASK.tasks]
    task = Mixture.of(*families, shares=TASK.shares)
    prompts = task.sample(20, generator(0, "test"), dtype=torch.float64)

    def check(task):
        said = laws.bayes(task).predict(prompts)[..., 0].numpy()
        for k in (0, 1, 3):
            np.testing.assert_allclose(said[:, k], by_quadrature(prompts, k), rtol=1e-6, atol=1e-9)

    check(task)
    must_fail(check, replace(task, shares=(0.5, 0.5)))


NORMAL = replace(FAMILY, weights=Normal(2.0))
OTHERS = {
    "another task": FAMILY,
    "other weights": Mixture.of(NORMAL, replace(FAMILY, weights=Uniform(-1, 1))),
    "no noise": Mixture.of(*(replace(one, noise_std=0.0) for one in (FAMILY, NORMAL))),
    "noise of its own": Mixture.of(NORMAL, replace(FAMILY, noise_std=0.7)),
    "inputs of its own": Mixture.of(NORMAL, replace(FAMILY, covariance_scale=2.0)),
    "another query": Mixture.of(*(replace(one, query=Normal(3.0)) for one in (FAMILY, NORMAL))),
    "another family": Mixture.of(NORMAL, SparseLinearRegression(n_dims=4, n_points=21, sparsity=2)),
    "a pool": replace(TASK, n_tasks=8),
}


@pytest.mark.parametrize("name", OTHERS)
def test_whom_it_is_about(name):
    assert laws.needs_laws(facts(task=OTHERS[name]))
    assert laws.needs_laws(facts(task=TASK)) is None


@pytest.mark.parametrize("name", ["mixture_centres", "mixture_sizes"])
def test_it_is_about_models_of_the_recipes(name):
    task = recipes.resolve(name).task
    assert laws.needs_laws(facts(task=task)) is None
    first, second = laws.laws_of(task)
    assert (first.mean, first.std) != (second.mean, second.std)


def test_a_class_of_ones_own_is_no_family():
    class Doubled(LinearRegression):
        def value(self, parameters, xs):
            return 2 * super().value(parameters, xs)

    other = Doubled(n_dims=4, n_points=21, noise_std=0.5)
    assert "is another one" in laws.needs_laws(facts(task=Mixture.of(FAMILY, other)))
