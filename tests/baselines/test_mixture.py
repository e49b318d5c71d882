"""Bayes predictors over pools and mixtures, against sums over functions one by one."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from scipy.stats import multivariate_normal, norm

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.mixture import BayesMixture, BayesPool, NormalWeights, PoolLaw
from icl_interp.baselines.regression import Ridge
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=2, n_points=5, n_tasks=7, pool_seed=1, noise_std=0.5)
PROMPTS = TASK.fresh().sample(3, generator(0, "test"), dtype=torch.float64)


def over_the_pool(noise, row, k):
    """Posterior mean, and log density of the labels, by a sum over functions."""
    xs, ys = PROMPTS.xs[row].numpy(), PROMPTS.ys[row, :, 0].numpy()
    weights, values = [], []
    for w in TASK.pool.numpy():
        weights.append(np.prod(norm.pdf(ys[:k], xs[:k] @ w, noise)))
        values.append(xs[k] @ w)
    weights = np.array(weights)
    return weights @ values / weights.sum(), np.log(weights.mean())


def check_pool(law, noise):
    given = law.given(PROMPTS)
    for row in range(len(PROMPTS)):
        for k in range(PROMPTS.n_points):
            mean, evidence = over_the_pool(noise, row, k)
            assert float(given.mean[row, k]) == pytest.approx(mean, abs=1e-10)
            constant = -0.5 * k * np.log(2 * np.pi)
            assert float(given.evidence[row, k]) + constant == pytest.approx(evidence, abs=1e-9)


def test_a_pool_is_a_sum_over_its_functions():
    check_pool(PoolLaw(TASK, 0.5), 0.5)
    must_fail(check_pool, PoolLaw(TASK, 0.6), 0.5)
    torch.testing.assert_close(
        BayesPool(TASK, 0.5).predict(PROMPTS), PoolLaw(TASK, 0.5).given(PROMPTS).mean
    )
    with pytest.raises(InputError, match="has no pool to weigh"):
        BayesPool(TASK.fresh(), 0.5)


def test_parts_of_a_pool_are_put_together(monkeypatch):
    whole = BayesPool(TASK, 0.5).predict(PROMPTS)
    monkeypatch.setattr("icl_interp.baselines.mixture.HELD", 1)
    torch.testing.assert_close(BayesPool(TASK, 0.5).predict(PROMPTS), whole)


def check_evidence(law, std, noise):
    """Labels of the points before are jointly normal with covariance std^2 X X' + noise^2."""
    found = law.given(PROMPTS).evidence
    for row in range(len(PROMPTS)):
        for k in range(1, PROMPTS.n_points):
            xs = PROMPTS.xs[row, :k].numpy()
            covariance = std**2 * xs @ xs.T + noise**2 * np.eye(k)
            expected = multivariate_normal(np.zeros(k), covariance).logpdf(
                PROMPTS.ys[row, :k, 0].numpy()
            )
            constant = -0.5 * k * np.log(2 * np.pi)
            assert float(found[row, k]) + constant == pytest.approx(expected, abs=1e-9)


def test_normal_weights_are_ridge_with_its_evidence():
    law = NormalWeights(INPUTS, noise=0.5, std=2.0)
    ridge = Ridge(INPUTS, 0.5**2 / 2.0**2).predict(PROMPTS)
    torch.testing.assert_close(law.given(PROMPTS).mean, ridge)
    check_evidence(law, 2.0, 0.5)
    must_fail(check_evidence, law, 1.0, 0.5)


def test_a_mixture_weighs_its_laws():
    laws = [NormalWeights(INPUTS, 0.5, std=2.0), PoolLaw(TASK, 0.5)]
    shares = (0.2, 0.8)
    found = BayesMixture(laws, shares)
    each = [law.given(PROMPTS) for law in laws]
    densities = torch.stack([s * law.evidence.exp() for s, law in zip(shares, each, strict=True)])
    weights = densities / densities.sum(0)
    expected = sum(w[..., None] * one.mean for w, one in zip(weights, each, strict=True))
    torch.testing.assert_close(found.predict(PROMPTS), expected)
    torch.testing.assert_close(found.posterior(PROMPTS), weights.movedim(0, -1))
    must_fail(torch.testing.assert_close, BayesMixture(laws).predict(PROMPTS), expected)
    with pytest.raises(InputError, match="2 positive numbers"):
        BayesMixture(laws, (1.0,))
