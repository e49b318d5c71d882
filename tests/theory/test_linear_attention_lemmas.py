"""The matrix lemmas D.1, D.3 and D.4 that the proofs of Zhang, Frei & Bartlett rest on.

Each is an identity or a bound of its own, tried on random matrices, and is then met where the
theory uses it: the quadratic form (D.1), the constants of Lemmas A.5 and 5.4 (D.3, D.4).
"""

import itertools

import pytest
import torch
from exact_prompts import covariance, normal
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import linear_attention as theory


def vec(matrix):
    """The columns of a matrix, one below the other."""
    return torch.cat(list(matrix.unbind(1)))


def gradient(function, at):
    """The gradient of a number in a matrix or vector, by central differences.

    The functions here are quadratic, so that differences have no error but rounding.
    """
    out = torch.zeros_like(at)
    for place in range(at.numel()):
        step = torch.zeros_like(at)
        step.view(-1)[place] = 1
        out.view(-1)[place] = (function(at + step) - function(at - step)) / 2
    return out


A, B, C, X = (normal(3, 3, seed=k) for k in range(4))
VECTOR = normal(3, seed=4)

# Lemma D.1: a function, where it is differentiated, its gradient, and a gradient that is wrong.
DERIVATIVES = {
    "x^T B x": (lambda x: x @ B @ x, VECTOR, (B + B.T) @ VECTOR, 2 * B @ VECTOR),
    "tr(X B X^T)": (lambda x: (x @ B @ x.T).trace(), X, X @ B.T + X @ B, 2 * X @ B),
    "tr(A X^T)": (lambda x: (A @ x.T).trace(), X, A, A.T),
    "tr(A X B X^T C)": (
        lambda x: (A @ x @ B @ x.T @ C).trace(),
        X,
        A.T @ C.T @ X @ B.T + C @ A @ X @ B,
        2 * C @ A @ X @ B,
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_lemma_d1_the_derivatives(name):
    function, at, expected, wrong = DERIVATIVES[name]

    def check(printed):
        assert_close(gradient(function, at), printed, rtol=1e-12, atol=1e-12)

    check(expected)
    must_fail(check, wrong)


def test_lemma_d1_vectors_of_products_and_traces():
    left, middle, right = normal(2, 3, seed=5), normal(3, 4, seed=6), normal(4, 5, seed=7)

    def check_product(kron):
        whole = vec(left @ middle @ right)
        assert_close(kron(right.T.contiguous(), left) @ vec(middle), whole, rtol=1e-12, atol=1e-12)

    check_product(torch.kron)
    must_fail(check_product, lambda b, a: torch.kron(a, b))

    def check_trace(trace):
        assert_close(trace, vec(A) @ vec(B), rtol=1e-12, atol=1e-12)

    check_trace((A.T @ B).trace())
    must_fail(check_trace, (A @ B).trace())


def test_lemma_d1_makes_the_prediction_a_quadratic_form():
    e = theory.embedding(normal(4, 2, seed=1), normal(4, seed=2), normal(2, seed=3))
    u = normal(3, 3, seed=5)
    # H = X kron (E E^T / n) / 2, so by the lemma H Vec(U) is Vec of (E E^T / n) U X / 2.
    x = torch.zeros(3, 3, dtype=torch.float64)
    x[:2, 2] = e[:2, -1]
    x[2, :2] = e[:2, -1]

    def check(order):
        moved = e @ e.T / 4 @ u @ x / 2
        assert_close(theory.quadratic_form(e) @ order(u), order(moved), rtol=1e-12, atol=1e-12)

    check(vec)
    must_fail(check, torch.flatten)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 2), (3, 3), (3, 7)])
def test_lemma_d3_von_neumanns_trace_inequality(d, n):
    def check(chain):
        for seed in range(20):
            bounds = chain(normal(d, n, seed=seed), normal(d, n, seed=100 + seed))
            for smaller, larger in itertools.pairwise(bounds):
                assert smaller <= larger + 1e-12

    def chain(u, v):
        sizes = torch.linalg.svdvals(u)
        others = torch.linalg.svdvals(v)
        norm = torch.linalg.matrix_norm(v)
        return [
            (u.T @ v).trace(),
            sizes @ others,
            sizes[0] * others.sum(),
            d**0.5 * sizes[0] * norm,
        ]

    check(chain)
    if d > 1:
        # Without sqrt(d), and with singular values in opposite orders, it is no bound.
        must_fail(check, lambda u, v: [*chain(u, v)[:3], chain(u, v)[3] / d**0.5])
        must_fail(check, lambda u, v: [chain(u, u)[0], opposite(u)])


def opposite(u):
    """The sum of products of singular values, the largest with the smallest."""
    sizes = torch.linalg.svdvals(u)
    return sizes @ sizes.flip(0)


def test_lemma_d3_is_sharp_where_singular_vectors_are_shared():
    left, _ = torch.linalg.qr(normal(3, 3, seed=1))
    right, _ = torch.linalg.qr(normal(3, 3, seed=2))
    u = left @ torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)) @ right
    v = left @ torch.diag(torch.tensor([5.0, 4.0, 0.5], dtype=torch.float64)) @ right
    sizes = torch.linalg.svdvals(u) @ torch.linalg.svdvals(v)
    assert_close((u.T @ v).trace(), sizes, rtol=1e-12, atol=0)
    # All three steps are equalities for multiples of one orthogonal matrix.
    bound = 3**0.5 * torch.linalg.matrix_norm(2 * left, 2) * torch.linalg.matrix_norm(left)
    assert_close((2 * left.T @ left).trace(), bound, rtol=1e-12, atol=0)


def test_lemma_d4_traces_and_products_of_positive_matrices():
    def check(other):
        for seed in range(20):
            assert (covariance(3, seed) @ other(covariance(3, 50 + seed))).trace() >= -1e-12

    check(lambda b: b)
    must_fail(check, lambda b: b - 2 * torch.linalg.eigvalsh(b).mean() * torch.eye(3).double())

    def is_positive(matrix):
        """Symmetric, and no eigenvalue below 0."""
        same = torch.allclose(matrix, matrix.T, rtol=0, atol=1e-10)
        return same and bool(torch.linalg.eigvalsh((matrix + matrix.T) / 2).min() >= -1e-10)

    lam = covariance(3)
    # Gamma and Lambda commute, so that their product is positive: the landscape has one valley.
    assert is_positive(theory.gamma(lam, 4) @ lam)
    assert is_positive(torch.linalg.matrix_power(lam, 2) @ torch.linalg.inv(theory.gamma(lam, 4)))
    assert not is_positive(covariance(3, 1) @ lam)
