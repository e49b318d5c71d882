"""Risks and shifts in `theory.linear_attention`: against exact quadrature, and Monte Carlo where prompts are long.

The number of prompts of every Monte Carlo check is fixed beforehand, and four standard errors are
the tolerance.
"""

import math
from itertools import product as pairs

import numpy as np
import pytest
import torch
from exact_prompts import covariance, grid, normal, root, vector
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import linear_attention as theory

GOLDEN, A = torch.diag(vector(1, 2)), vector(1, -1)  # Lambda and a of the numbers below, with n = 4


def exact_risk(matrix, m, lam, a, tau, query):
    """E(yhat - y)^2 of h^T P x_q for one task by quadrature: x_q enters by its second moment only."""
    d = len(lam)
    nodes, weights = grid(*[3] * (m * d + (m if tau else 0)))
    z, e = nodes.split([m * d, nodes.shape[1] - m * d], -1)
    xs = z.view(-1, m, d) @ root(lam).T
    ys = xs @ a + (tau * e if tau else 0)
    miss = torch.einsum("pn,pnd->pd", ys, xs) @ matrix / m - a
    return weights @ torch.einsum("pi,ij,pj->p", miss, query, miss) + tau**2


@pytest.mark.parametrize(("d", "m", "tau"), [(1, 1, 0.0), (2, 2, 0.5), (3, 2, 0.0), (2, 4, 0.0)])
def test_the_risk_of_any_layer_under_any_shift_is_exact(d, m, tau):
    lam, matrix, a, query = (
        covariance(d),
        normal(d, d, seed=3),
        normal(d, seed=4),
        covariance(d, seed=5),
    )

    def check(product_risk):
        for seen in (lam, query):
            expected = exact_risk(matrix, m, lam, a, tau, seen)
            assert_close(
                product_risk(matrix, m, lam, a, tau**2, seen).total, expected, rtol=1e-11, atol=0
            )

    check(theory.product_risk)
    must_fail(check, lambda p, m, *rest: theory.product_risk(p, m + 1, *rest))
    if d > 1:
        must_fail(check, lambda p, *rest: theory.product_risk(p.T, *rest))
    must_fail(check, lambda p, m, lam, a, t, q: theory.product_risk(p, m, lam, a, t))
    assert_close(
        theory.product_risk(matrix, m, lam, a, tau**2),
        theory.product_risk(matrix, m, lam, torch.outer(a, a), tau**2, lam),
    )


def check_golden_risk(risk):
    assert float(risk(GOLDEN, 4, 10, A, 0.25)) == pytest.approx(1.1009246, abs=5e-8)


def test_the_risk_of_the_trained_layer():
    check_golden_risk(theory.risk)
    must_fail(check_golden_risk, theory.paper_risk)
    best, variance, bias = theory.product_risk(
        theory.landscape(GOLDEN, 4).product, 10, GOLDEN, A, 0.25
    )
    assert (float(best), float(variance), float(bias)) == pytest.approx(
        (0.25, 0.3050666, 0.5458580), abs=5e-8
    )
    assert float(theory.printed_bias(GOLDEN, 4, A)) == pytest.approx(0.5458580, abs=5e-8)
    lam, a = covariance(4), normal(4, seed=1)
    trained = theory.product_risk(torch.linalg.inv(theory.gamma(lam, 7)), 5, lam, a)
    assert_close(theory.printed_bias(lam, 7, a), trained.bias, rtol=1e-12, atol=0)
    # At test length n, averaged over tasks, it is twice the loss that training minimises.
    for tau2 in (0.0, 0.3):
        w_pv, w_kq = theory.optimum(theory.landscape(lam, 7, tau2))
        mean = theory.risk(lam, 7, 7, torch.eye(4), tau2, training_noise_variance=tau2)
        assert_close(mean, 2 * theory.population_loss(w_pv, w_kq, lam, 7, tau2), rtol=1e-12, atol=0)


LABELS = {
    "clean": (0.0, 0.0),
    "noisy": (0.5, 0.0),
    "quadratic": (0.0, 0.5),  # y = <a, x> + x_1^2 / 2: no linear law
}


def label_moments(lam, a, tau, bend):
    """E[x y], Cov(x y) and E[y^2] of y = <a, x> + bend x_1^2 + noise, by quadrature."""
    z, weights = grid(*[5] * len(a), 3)
    xs = z[:, :-1] @ root(lam).T
    ys = xs @ a + bend * xs[:, 0] ** 2 + tau * z[:, -1]
    xy = xs * ys[:, None]
    mean = weights @ xy
    return mean, torch.einsum("p,pi,pj->ij", weights, xy - mean, xy - mean), weights @ ys**2


@pytest.mark.parametrize("m", [5, 40])
@pytest.mark.parametrize("labels", LABELS)
def test_the_risk_for_labels_of_any_law(labels, m):
    tau, bend = LABELS[labels]
    lam, a, n, prompts = covariance(3), vector(1, -0.5, 2), 10, 20_000
    g = torch.linalg.inv(theory.gamma(lam, n))
    xs = normal(prompts, m, 3, seed=6) @ root(lam).T
    ys = xs @ a + bend * xs[..., 0] ** 2 + tau * normal(prompts, m, seed=7)
    mean, spread, second = label_moments(lam, a, tau, bend)
    best = torch.linalg.solve(lam, mean)
    # Given the context, the expectation over the query is known: (g h - a)^T Lambda (g
    # h - a) + error of the best.
    miss = torch.einsum("pn,pnd->pd", ys, xs) @ g / m - best
    risks = torch.einsum("pi,ij,pj->p", miss, lam, miss) + second - mean @ best

    def check(expected):
        assert abs(risks.mean() - expected) < 4 * risks.std() / math.sqrt(prompts)

    terms = theory.label_law_risk(lam, n, m, mean, spread, second)
    check(terms.total)
    must_fail(check, terms.total + (m - 1) * terms.variance)  # the slides' formula
    if not bend:
        assert_close(terms.total, theory.risk(lam, n, m, a, tau**2), rtol=1e-12, atol=1e-12)
        assert_close(spread, theory.label_covariance(lam, a, tau**2), rtol=1e-12, atol=1e-12)
        must_fail(check, theory.paper_risk(lam, n, m, a, tau**2))


def fixed_query_risk(lam, n, m, w, x):
    """Bias and variance at one query, from the formula for it written out."""
    g = torch.linalg.inv(theory.gamma(lam, n))
    bias = x @ (g @ lam - torch.eye(len(w))) @ w
    sigma = torch.outer(lam @ w, lam @ w) + (w @ lam @ w) * lam
    return x @ g @ sigma @ g @ x / m + bias**2


def test_query_shift_changes_the_error_not_the_relative_bias():
    lam, w, n, m = covariance(3), normal(3, seed=1), 10, 25
    g = theory.landscape(lam, n).product
    for x in normal(4, 3, seed=2) * 100:
        shifted = theory.product_risk(g, m, lam, w, query_covariance=torch.outer(x, x))
        assert_close(shifted.total, fixed_query_risk(lam, n, m, w, x), rtol=1e-11, atol=0)
        lacks = x @ w - x @ theory.effective_weights(g, lam, w)
        assert_close(shifted.bias, lacks**2, rtol=1e-9, atol=0)
    lengths = vector(1e3, 1e4, 1e5, 1e6)
    gaps = [
        theory.effective_weights(theory.landscape(lam, int(k)).product, lam, w) - w for k in lengths
    ]
    slope = np.polyfit(lengths.log(), [float(gap.norm().log()) for gap in gaps], 1)[0]
    assert slope == pytest.approx(-1, abs=0.01)  # tolerated, as O(1/n)


def check_slope(slope, c, n):
    lam = covariance(3)
    g = theory.landscape(lam, n).product
    w, q = normal(50_000, 3, seed=1), normal(50_000, 3, seed=2) @ root(lam).T * c
    ys = (w * q).sum(-1)
    ratio = (w @ (c**2 * lam) @ g * q).sum(-1) * ys - slope(g, c**2 * lam) * ys**2
    assert abs(ratio.mean()) < 4 * ratio.std() / math.sqrt(len(ratio))


def test_covariate_shift_scales_predictions_by_less_than_c_squared():
    for c, n in pairs((1.0, 2.0, 3.0), (10, 100_000)):
        check_slope(theory.prediction_slope, c, n)
    must_fail(
        check_slope, lambda g, lam: 4.0, 2.0, 10
    )  # the paper's c^2 is for long training prompts
    far = theory.landscape(covariance(3), 10**7).product
    assert float(theory.prediction_slope(far, 4 * covariance(3))) == pytest.approx(4, abs=1e-5)
    w = normal(3, seed=1)
    assert_close(theory.effective_weights(far, 9 * covariance(3), w), 9 * w, rtol=1e-5, atol=1e-5)


# Random covariances -------------------------------------------------------------------------------

SUPPORT = vector(0.5, 3.0), vector(0.7, 0.3)  # a two-point law: values and probabilities


def diagonals(d):
    """Every diagonal of independent entries of that law (scaled by 1, 2, ...), with its probability, and moments."""
    values, chances = SUPPORT
    scales = torch.arange(1, d + 1).double()
    draws = [
        (torch.stack(v) * scales, math.prod(p))
        for v, p in zip(pairs(values, repeat=d), pairs(chances, repeat=d), strict=True)
    ]
    moments = torch.stack([(values**k @ chances) * scales**k for k in (1, 2, 3)])
    return draws, moments


def check_random_loss(random_landscape):
    for d, n, tau2 in ((1, 1, 0.0), (2, 4, 0.5), (4, 20, 0.0)):
        draws, moments = diagonals(d)
        matrix, scalar = normal(d, d, seed=3), 0.7
        where = random_landscape(moments, n, tau2)
        mean = sum(
            p * theory.landscape(torch.diag(v), n, tau2).loss(matrix, scalar) for v, p in draws
        )
        assert_close(where.loss(matrix, scalar), mean, rtol=1e-12, atol=1e-12)
        gammas = sum(p * theory.gamma(torch.diag(v), n, tau2) @ torch.diag(v**2) for v, p in draws)
        optimum = torch.linalg.inv(gammas) @ torch.diag(moments[1])
        assert_close(where.product, optimum, rtol=1e-12, atol=1e-12)


def test_the_landscape_of_random_covariances_is_the_mean_landscape():
    check_random_loss(theory.random_landscape)
    must_fail(
        check_random_loss, lambda moments, n, tau2: theory.random_landscape(moments, n + 1, tau2)
    )
    must_fail(
        check_random_loss,
        lambda m, n, t: theory.random_landscape(torch.stack([m[0], m[0] ** 2, m[0] ** 3]), n, t),
    )


EXPONENTIAL = vector(1, 2, 6)[:, None]


@pytest.mark.parametrize(
    ("n", "d", "r"), [(20, 1, 0.3030303), (20, 4, 0.2898551), (100, 10, 0.3174603)]
)
def test_the_optimum_for_exponential_variances(n, d, r):
    where = theory.random_landscape(EXPONENTIAL.repeat(1, d), n)
    assert_close(where.product, r * torch.eye(d).double(), rtol=0, atol=5e-8)
    closed = 2 / (6 * (n + 1) / n + (6 + 2 * (d - 1)) / n)
    assert_close(where.product, closed * torch.eye(d).double(), rtol=1e-14, atol=0)
    if (n, d) == (20, 4):
        assert float(where.minimiser[1]) == pytest.approx(0.7613870, abs=5e-8)


def test_random_covariances_leave_a_third():
    moments = EXPONENTIAL.repeat(1, 3)
    assert_close(theory.random_limit(moments), torch.ones(3).double() / 3, rtol=1e-14, atol=0)
    assert_close(
        theory.random_limit(torch.ones(3, 2)), torch.ones(2).double()
    )  # nothing random: it is learned
    far = theory.random_landscape(moments, 10**8).product.diagonal() * moments[0]
    assert_close(far, theory.random_limit(moments), rtol=1e-6, atol=0)
    # At the optimum the error does not vanish however long prompts are.
    limit = theory.random_risk(theory.random_landscape(moments, 10**8).product, moments, 10**8)
    assert float(limit) == pytest.approx(3 * (1 - 2**2 / 6), rel=1e-6)


def test_the_risk_under_random_covariances_is_the_mean_risk():
    draws, moments = diagonals(3)
    matrix, eye = normal(3, 3, seed=3), torch.eye(3, dtype=torch.float64)

    def check(risk):
        for m, tau2 in ((1, 0.0), (6, 0.4)):
            mean = sum(
                p * theory.product_risk(matrix, m, torch.diag(v), eye, tau2).total for v, p in draws
            )
            assert_close(risk(matrix, moments, m, tau2), mean, rtol=1e-12, atol=1e-12)

    check(theory.random_risk)
    must_fail(check, lambda p, moments, m, tau2: theory.random_risk(p, moments, m + 1, tau2))
    must_fail(check, lambda p, moments, m, tau2: theory.random_risk(p, moments, m, tau2) + tau2)


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: theory.risk(GOLDEN, 4, 0, A), "m counts examples"),
        (
            lambda: theory.label_law_risk(GOLDEN, 4, 4, GOLDEN @ A, GOLDEN, 1.0),
            "less than the 3 that the best linear",
        ),
        (
            lambda: theory.random_landscape(vector(1, 0.5, 6)[:, None], 4),
            "no positive law has the first three moments",
        ),
        (lambda: theory.random_landscape(vector(1, 2, 3)[:, None], 4), "no positive law"),
        (lambda: theory.random_landscape(vector(-1, 2, 6)[:, None], 4), "no positive law"),
    ],
)
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
