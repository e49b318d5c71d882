"""Attention by position alone in `theory.autoregression`: Proposition 7 and early stopping."""

import numpy as np
import pytest
import torch
from angle_grids import normal
from helpers import must_fail
from scipy.special import roots_legendre
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory


def by_quadrature(p, mu):
    """The loss with the layer written out, for one coordinate.

    The mean over theta is by Gauss-Legendre quadrature.
    """
    nodes, weights = roots_legendre(200)
    theta, law = torch.from_numpy((nodes + 1) * np.pi / mu), torch.from_numpy(weights / 2)
    states = torch.exp(1j * theta[:, None] * torch.arange(len(p) + 1))
    scores = states[:, len(p) - 2, None].conj() * states[:, :-1]
    error = (p * scores * states[:, :-1]).sum(1) - states[:, -1]
    return law @ error.abs().square()


@pytest.mark.parametrize("mu", [1.0, 3.0, 8.0, 50.0])
def test_the_loss_is_its_expectation(mu):
    p = normal(9)

    def check(p, assumed):
        assert_close(theory.position_loss(p, assumed), expected, rtol=1e-9, atol=1e-12)

    expected = by_quadrature(p, mu)
    check(p, mu)
    must_fail(check, p, 1.5 * mu)
    must_fail(check, p.flip(0), mu)
    unitary = theory.unitary_loss(torch.ones(1, 1), p)
    assert_close(theory.position_loss(p, 1.0), unitary, rtol=1e-12, atol=0)


def check_is_identity(mu):
    assert_close(theory.position_hessian(12, mu), torch.eye(12).double(), rtol=0, atol=1e-12)


def test_the_hessian():
    for mu in (1.0, 2.0, 4.0, 4 / 3):
        check_is_identity(mu)
    for mu in (3.0, 5.0, 8.0):
        must_fail(check_is_identity, mu)

    def check(mu, largest, rest):
        values = torch.linalg.eigvalsh(theory.position_hessian(30, mu)).flip(0)
        assert values[: len(largest)].tolist() == pytest.approx(largest, rel=5e-3)
        assert values[len(largest) :].max() < rest

    check(50.0, [12.42, 11.02, 5.53, 0.966, 0.065, 0.0024], 0.0024)
    check(300.0, [28.74, 1.254, 0.0091], 0.0091)
    must_fail(check, 100.0, [12.42, 11.02], 10)
    far = torch.linalg.eigvalsh(theory.position_hessian(30, 1e6))
    assert float(far[-1]) == pytest.approx(30, rel=1e-6)
    assert far[:-1].abs().max() < 1e-6


@pytest.mark.parametrize(("n_tokens", "mu"), [(30, 50.0), (100, 20.0), (200, 8.0), (30, 1000.0)])
def test_the_number_of_significant_eigenvalues(n_tokens, mu):
    values = torch.linalg.eigvalsh(theory.position_hessian(n_tokens, mu))
    significant = int((values > values[-1] / 2).sum())

    def check(count):
        assert abs(significant - count) <= 1

    check(theory.significant_count(n_tokens, mu))
    must_fail(check, 2 * theory.significant_count(n_tokens, mu) + 1)


TAILS = {
    50.0: [0.001, 0.056, 0.13, 0.221, 0.328, 0.449],
    300.0: [0.096, None, None, None, 0.126, 0.134],
}


@pytest.mark.parametrize("mu", TAILS)
def test_early_stopping_leaves_smooth_rows(mu):
    found = theory.early_stop(28, mu)

    def check(found):
        assert found.loss < 1e-3
        assert (found.positions - torch.eye(28)[-1]).norm() > 0.5
        assert theory.roughness(found.positions) < 0.05

    check(found)
    for sharp in (1.0, 4.0):
        stopped = theory.early_stop(28, sharp)
        must_fail(check, stopped)
        assert_close(stopped.positions, torch.eye(28)[-1].double(), rtol=0, atol=1e-6)
        assert float(theory.roughness(stopped.positions)) == pytest.approx(1)
    for value, golden in zip(found.positions[-6:].tolist(), TAILS[mu], strict=True):
        assert golden is None or value == pytest.approx(golden, abs=4e-3)
    assert_close(found.loss, theory.position_loss(found.positions, mu), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("step", [None, 0.03])
def test_early_stopping_is_gradient_descent(step):
    mu, n_tokens = 20.0, 12
    found = theory.early_stop(n_tokens, mu, tolerance=0.01, step=step)
    hessian = theory.position_hessian(n_tokens, mu)
    size = 0.5 / float(torch.linalg.eigvalsh(hessian)[-1]) if step is None else step

    def check(size):
        p, steps = torch.zeros(n_tokens, dtype=torch.float64, requires_grad=True), 0
        while (loss := theory.position_loss(p, mu)) >= 0.01:
            (slope,) = torch.autograd.grad(loss, p)
            p, steps = (p - size * slope).detach().requires_grad_(), steps + 1
        assert steps == found.n_steps
        assert_close(found.positions, p.detach(), rtol=1e-9, atol=1e-12)

    check(size)
    must_fail(check, 0.9 * size)


BAD = [
    (lambda: theory.position_hessian(0, 1.0), "at least 1, got 0"),
    (lambda: theory.position_hessian(3, 0.0), "must be a positive number, got 0"),
    (lambda: theory.significant_count(3, 2.0), "mu at least 4, got T=3 and mu=2"),
    (lambda: theory.early_stop(5, 8.0, tolerance=1.0), "the tolerance must lie between, got 1"),
    (lambda: theory.early_stop(5, 1.0, step=1.5), "steps between 0 and 1 .* converge, got 1.5"),
    (lambda: theory.roughness(torch.ones(2)), r"three tokens or more, got shape \[2\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
