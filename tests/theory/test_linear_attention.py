"""The layer in `theory.linear_attention` and its loss, against the layer written out and exact quadrature."""

import inspect

import pytest
import torch
from exact_prompts import covariance, grid, normal, root, vector
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import linear_attention as theory

GOLDEN = torch.diag(vector(1, 2))  # Lambda of the numbers below, with n = 4


@pytest.mark.parametrize(
    "name", [n for n in theory.__all__ if inspect.isfunction(getattr(theory, n))]
)
def test_every_closed_form_says_where_it_comes_from_and_shows_it(name):
    doc = inspect.getdoc(getattr(theory, name))
    assert "Source: " in doc
    assert ">>> " in doc


# Quadrature over prompts --------------------------------------------------------------------------


def all_prompts(lam, n, tau=0.0, query_nodes=4):
    """Every node: xs (point, n, d), ys (point, n), w (point, d), x_q (point, d), and their weights."""
    d = len(lam)
    noise = n if tau else 0
    nodes, weights = grid(*[3] * (n * d + d + noise), *[query_nodes] * d)
    z, w, e, q = nodes.split([n * d, d, noise, d], -1)
    xs, q = z.view(-1, n, d) @ root(lam).T, q @ root(lam).T
    ys = (xs @ w[:, :, None])[..., 0] + (tau * e if tau else 0)
    return xs, ys, w, q, weights


def predictions(w_pv, w_kq, xs, ys, q):
    """The bottom right entry of E + W_PV E (E^T W_KQ E) / n, for many prompts."""
    columns = torch.cat(
        [torch.cat([xs, ys[..., None]], -1), torch.cat([q, 0 * q[:, :1]], -1)[:, None]], 1
    )
    scores = torch.einsum("pki,ij,pj->pk", columns, w_kq, columns[:, -1]) / xs.shape[1]
    return columns[:, -1, -1] + torch.einsum("j,pkj,pk->p", w_pv[-1], columns, scores)


def exact_loss(w_pv, w_kq, lam, n, tau=0.0):
    xs, ys, w, q, weights = all_prompts(lam, n, tau)
    return (
        weights @ (predictions(w_pv, w_kq, xs, ys, q) - (q * w).sum(-1)).square() / 2 + tau**2 / 2
    )


SETTINGS = [
    (1, 1, 0.0),
    (1, 2, 0.7),
    (2, 1, 0.7),
    (2, 2, 0.7),
    (2, 3, 0.0),
    (3, 1, 0.0),
    (1, 8, 0.0),
]


@pytest.mark.parametrize(("d", "n", "tau"), SETTINGS)
def test_the_population_loss_of_any_weights_is_exact(d, n, tau):
    lam, w_pv, w_kq = covariance(d), normal(d + 1, d + 1, seed=1), normal(d + 1, d + 1, seed=2)

    def check(loss):
        assert_close(
            loss(w_pv, w_kq, lam, n, tau**2),
            exact_loss(w_pv, w_kq, lam, n, tau),
            rtol=1e-11,
            atol=0,
        )

    check(theory.population_loss)
    must_fail(check, lambda p, k, c, n, t: theory.population_loss(p, k, c, n + 1, t))
    must_fail(check, lambda p, k, c, n, t: theory.population_loss(p, k.T, c, n, t))
    must_fail(check, lambda p, k, c, n, t: theory.population_loss(p, k, c, n, t + 0.01))


# The layer ----------------------------------------------------------------------------------------


def check_gamma(gamma):
    assert_close(gamma(GOLDEN, 4), torch.diag(vector(2, 3.25)), rtol=1e-14, atol=0)
    lam, n, tau = covariance(2), 2, 0.7
    xs, ys, *_, weights = all_prompts(lam, n, tau, query_nodes=1)
    h = torch.einsum("pn,pnd->pd", ys, xs) / n
    assert_close(
        gamma(lam, n, tau**2) @ lam,
        torch.einsum("p,pi,pj->ij", weights, h, h),
        rtol=1e-12,
        atol=1e-12,
    )


def test_gamma_is_the_second_moment_of_what_a_prompt_says():
    check_gamma(theory.gamma)
    must_fail(check_gamma, lambda lam, n, tau2=0.0: theory.gamma(lam, n + 1, tau2))
    must_fail(check_gamma, lambda lam, n, tau2=0.0: theory.gamma(lam, n))


def prompt(d, n, seed=0, orthogonal=False):
    """xs, w, x_q of one prompt, and its embedding; with <w, x_q> = 0 on request."""
    xs, w, q = normal(n, d, seed=seed), normal(d, seed=seed + 1), normal(d, seed=seed + 2)
    if orthogonal:
        q = q - w * (w @ q) / (w @ w)
    return xs, w, q, theory.embedding(xs, xs @ w, q)


def check_prediction(predict):
    for d, n in ((4, 7), (1, 1), (6, 3)):
        w_pv, w_kq = normal(d + 1, d + 1, seed=8), normal(d + 1, d + 1, seed=9)
        xs, w, q, e = prompt(d, n)
        full = predictions(w_pv, w_kq, xs[None], (xs @ w)[None], q[None])[0]
        assert_close(predict(w_pv, w_kq, e), full, rtol=1e-12, atol=1e-12)


def test_prediction():
    def form(order):
        def predict(w_pv, w_kq, e):
            matrix = torch.cat([w_kq[:, :-1], w_pv[-1][:, None]], 1)
            u = matrix.T.flatten() if order == "columns" else matrix.flatten()
            return u @ theory.quadratic_form(e) @ u

        return predict

    check_prediction(theory.prediction)
    check_prediction(form("columns"))
    must_fail(check_prediction, form("rows"))
    must_fail(
        check_prediction, lambda p, k, e: theory.prediction(p, k, e) * (e.shape[1] - 1) / e.shape[1]
    )
    must_fail(check_prediction, lambda p, k, e: theory.prediction(p.T, k, e))


COUNTS = {(4, 7): (5, 5, 15), (4, 2): (3, 3, 19), (5, 1): (2, 2, 32), (1, 1): (2, 2, 0)}


def signs(eigenvalues):
    zero = eigenvalues.abs() < 1e-10 * eigenvalues.abs().max()
    return tuple(int(s.sum()) for s in ((eigenvalues < 0) & ~zero, (eigenvalues > 0) & ~zero, zero))


def check_negative(count):
    for d, n in COUNTS:
        assert signs(torch.linalg.eigvalsh(theory.quadratic_form(prompt(d, n)[3])))[0] == count(
            d, n
        )


def test_spectrum_of_the_quadratic_form():
    for (d, n), expected in COUNTS.items():
        e = prompt(d, n)[3]
        eigenvalues = torch.linalg.eigvalsh(theory.quadratic_form(e))
        assert_close(theory.form_eigenvalues(e), eigenvalues, rtol=1e-10, atol=1e-10)
        assert signs(eigenvalues) == expected
    check_negative(theory.negative_eigenvalues)
    must_fail(check_negative, lambda d, n: theory.paper_negative_eigenvalues(d))
    # The exception that the docstring names.
    assert signs(theory.form_eigenvalues(prompt(4, 8, orthogonal=True)[3]))[0] == 4


def test_the_product_is_the_part_that_is_linear_in_the_labels():
    d, n = 3, 5
    w_pv, w_kq = normal(d + 1, d + 1, seed=8), normal(d + 1, d + 1, seed=9)
    xs, w, q, e = prompt(d, n)
    minus = theory.embedding(xs, -(xs @ w), q)
    odd = (theory.prediction(w_pv, w_kq, e) - theory.prediction(w_pv, w_kq, minus)) / 2
    h = xs.T @ (xs @ w) / n

    def check(product):
        assert_close(odd, h @ product(w_pv, w_kq) @ q, rtol=1e-12, atol=1e-12)

    check(theory.invariant_product)
    check(lambda p, k: theory.invariant_product(p * 3, k / 3))
    must_fail(check, lambda p, k: p[-1, -1] * k[:-1, :-1])
    must_fail(check, lambda p, k: theory.invariant_product(p, k).T)


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: theory.gamma(-GOLDEN, 4), "must be a symmetric positive definite matrix"),
        (
            lambda: theory.gamma(vector(1, 2, 0, 1).view(2, 2), 4),
            "must be a symmetric positive definite",
        ),
        (
            lambda: theory.gamma(GOLDEN, 0),
            "n counts examples or coordinates and must be at least 1, got 0",
        ),
        (lambda: theory.negative_eigenvalues(0, 3), "d counts"),
    ],
)
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
