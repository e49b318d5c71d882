"""A linear recurrent network in `theory.autoregression`: Remark 2, and non-uniform angles."""

import numpy as np
import pytest
import torch
from angle_grids import eigenvalues, normal, paths, squared_error
from helpers import must_fail
from scipy.special import roots_legendre
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory


@pytest.mark.parametrize(("d", "paired"), [(2, False), (2, True), (4, True)])
def test_the_loss_is_its_expectation(d, paired):
    n_tokens, hidden = 4, 3
    R, E, read_out = normal(hidden, hidden), normal(hidden, d, seed=1), normal(d, hidden, seed=2)
    grid = eigenvalues(d, n_tokens, paired=paired)
    states, x = paths(grid, n_tokens), torch.zeros(len(grid), hidden, dtype=torch.complex128)
    for t in range(n_tokens):
        x = x @ R.T.to(x) + states[:, t] @ E.T.to(x)
    expected = squared_error(x @ read_out.T.to(x), grid**n_tokens)

    def check(kernel):
        assert_close(theory.recurrent_loss(kernel), expected, rtol=1e-11, atol=0)

    kernel = theory.recurrent_kernel(R, E, read_out, n_tokens)
    check(kernel)
    must_fail(check, kernel.flip(0))
    assert theory.recurrent_loss(kernel) > theory.recurrent_loss(0 * kernel) == d


def test_attention_predicts_what_the_network_cannot():
    assert theory.recurrent_loss(torch.zeros(5, 4, 4)) == 4
    assert theory.unitary_loss(*theory.unitary_minimiser(4, 5)) == 0


def best_linear(n_tokens, mu):
    """Least squares with complex weights at many angles."""
    nodes, weights = roots_legendre(300)
    theta = (nodes + 1) * np.pi / mu
    states = np.exp(1j * theta[:, None] * np.arange(n_tokens + 1)) * np.sqrt(weights / 2)[:, None]
    found = np.linalg.lstsq(states[:, :-1], states[:, -1], rcond=None)[0]
    return float(np.square(np.abs(states[:, :-1] @ found - states[:, -1])).sum())


@pytest.mark.parametrize(("n_tokens", "mu"), [(6, 1.0), (3, 1.5), (8, 1.5), (2, 3.0), (4, 10.0)])
def test_the_floor_is_that_of_least_squares(n_tokens, mu):
    def check(n_tokens, mu):
        assert float(theory.recurrent_floor(n_tokens, mu)) == pytest.approx(
            expected, rel=1e-6, abs=1e-12
        )

    expected = best_linear(n_tokens, mu)
    check(n_tokens, mu)
    must_fail(check, n_tokens, 1.1 * mu)
    if mu > 1:
        must_fail(check, n_tokens + 1, mu)


def test_where_angles_are_uniform_nothing_is_gained():
    assert all(float(theory.recurrent_floor(t, 1.0)) == pytest.approx(1) for t in (1, 5, 30))
    floors = [float(theory.recurrent_floor(t, 1.2)) for t in (1, 5, 20)]
    assert floors[0] > floors[1] > floors[2]
    assert float(theory.recurrent_floor(30, 50.0)) < 1e-12


@pytest.mark.parametrize("mu", [1.2, 2.0, 4.0])
def test_elsewhere_the_floor_falls_geometrically(mu):
    few, more = (float(theory.recurrent_floor(t, mu)) for t in (6, 8))

    def check(rate):
        assert (more / few) ** 0.25 == pytest.approx(rate, rel=0.01)

    check(np.sin(np.pi / (2 * mu)))
    must_fail(check, np.sin(np.pi / (2.2 * mu)))


BAD = [
    (
        lambda: theory.recurrent_kernel(torch.eye(2), torch.eye(2), torch.eye(2), 0),
        "at least 1, got 0",
    ),
    (lambda: theory.recurrent_floor(3, 0.5), "mu at least 1, got T=3 and mu=0.5"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
