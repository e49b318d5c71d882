"""Kernel ridge regression of all prefixes, against scikit-learn's fits one by one."""

import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.kernel import KernelRidge
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

PROMPTS = LinearRegression(n_dims=2, n_points=6).sample(3, generator(0, "test"))


def check(beta, penalty, predictor):
    estimators = pytest.importorskip("sklearn.kernel_ridge")
    found = predictor.predict(PROMPTS)
    xs, ys = PROMPTS.xs.double().numpy(), PROMPTS.ys.double().numpy()
    for row in range(len(PROMPTS)):
        for k in range(1, PROMPTS.n_points):
            fit = estimators.KernelRidge(alpha=penalty, kernel="rbf", gamma=beta)
            fit.fit(xs[row, :k], ys[row, :k])
            said = fit.predict(xs[row, k, None])[0]
            torch.testing.assert_close(found[row, k], torch.as_tensor(said).reshape(1))
    assert not found[:, 0].any()


def test_it_is_kernel_ridge():
    check(0.3, 0.1, KernelRidge(0.3, 0.1))
    must_fail(check, 0.3, 0.1, KernelRidge(0.3, 0.2))
    must_fail(check, 0.3, 0.1, KernelRidge(0.6, 0.1))
