"""Landscape and flow of `theory.linear_attention`: against derivatives of an independent loss, and another solver."""

import math

import numpy as np
import pytest
import torch
from exact_prompts import covariance, normal, vector
from helpers import mostly_slow, must_fail
from scipy.integrate import solve_ivp
from torch.testing import assert_close

from icl_interp.theory import linear_attention as theory


def unit_theta(d, rank, seed=0):
    """Theta of a given rank with |Theta Theta^T|_F = 1."""
    theta = normal(d, rank, seed=seed) @ normal(rank, d, seed=seed + 1)
    return theta / (theta @ theta.T).norm().sqrt()


GOLDEN = torch.diag(vector(1, 2))  # Lambda of the numbers below, with n = 4
ISOTROPIC = torch.eye(2, dtype=torch.float64) / 2**0.25
RUNS = [
    (1, 3, 1, 0.5),
    (2, 4, 2, 0.95),
    (3, 10, 1, 0.3),
    (4, 7, 4, 0.1),
    (5, 2, 2, 0.6),
    (6, 40, 6, 0.9),
]
# d, n, rank of Theta, and sigma as a share of its limit


def start(d, n, rank, share, seed=0):
    lam, theta = covariance(d, seed), unit_theta(d, rank, seed)
    sigma = share * float(theory.initial_scale_limit(lam, n))
    return lam, theta, sigma, theory.landscape(lam, n), theory.initial_point(sigma, theta)


# The landscape ------------------------------------------------------------------------------------


def whole(matrix, scalar):
    """(W_PV, W_KQ) with these two parts and zeros."""
    d = len(matrix)
    w_pv, w_kq = torch.zeros(2, d + 1, d + 1, dtype=torch.float64)
    w_pv[-1, -1], w_kq[:-1, :-1] = scalar, matrix
    return w_pv.requires_grad_(), w_kq.requires_grad_()


def check_velocity(velocity):
    """Against autograd on the loss of all weights, which is checked by quadrature in another file."""
    for d, n, tau2 in ((1, 1, 0.0), (3, 5, 0.0), (4, 2, 0.6)):
        lam, matrix, scalar = covariance(d), normal(d, d, seed=3), vector(0.8)[0]
        w_pv, w_kq = whole(matrix, scalar)
        theory.population_loss(w_pv, w_kq, lam, n, tau2).backward()
        down, slower = velocity(theory.landscape(lam, n, tau2), matrix, scalar)
        assert_close(-w_kq.grad[:-1, :-1], down, rtol=1e-11, atol=1e-11)
        assert_close(-w_pv.grad[-1, -1], slower, rtol=1e-11, atol=1e-11)
        # The flow never leaves w21 = 0, and nothing else is read.
        for rest in (w_kq.grad[-1], w_kq.grad[:, -1], w_pv.grad[:-1], w_pv.grad[-1, :-1]):
            assert rest.abs().max() < 1e-13


def equation_5_4(lam, n, matrix, scalar):
    """The printed equation, term by term."""
    gamma = theory.gamma(lam, n)
    return (
        -(scalar**2) * gamma @ lam @ matrix @ lam + scalar * lam @ lam,
        -(scalar * gamma @ lam @ matrix @ lam @ matrix.T - lam @ lam @ matrix.T).trace(),
    )


def test_velocity_is_minus_the_gradient():
    def wrong(where, matrix, scalar):
        down, slower = theory.Landscape.velocity(where, matrix, scalar)
        return down, slower * 1.001

    check_velocity(theory.Landscape.velocity)
    must_fail(check_velocity, wrong)
    must_fail(check_velocity, lambda where, matrix, scalar: where.velocity(matrix.T, scalar))
    lam, matrix = covariance(4), normal(4, 4, seed=3)
    for ours, printed in zip(
        theory.landscape(lam, 6).velocity(matrix, 0.8),
        equation_5_4(lam, 6, matrix, 0.8),
        strict=True,
    ):
        assert_close(ours, printed, rtol=1e-12, atol=1e-12)


def check_optimum(where, lam, n):
    """Against Theorem 4.1 and Corollary A.2 with matrices written out."""
    g = torch.linalg.inv(theory.gamma(lam, n))
    matrix, scalar = where.minimiser
    assert_close(scalar, (g @ g).trace() ** 0.25, rtol=1e-12, atol=0)
    assert_close(matrix, g / (g @ g).trace() ** 0.25, rtol=1e-11, atol=1e-12)
    assert_close(where.minimum, -(lam @ lam @ g).trace() / 2, rtol=1e-12, atol=0)
    for scale in (0.1, 3.0):
        assert_close(where.loss(scale * matrix, scalar / scale), where.minimum, rtol=1e-12, atol=0)
    w_pv, w_kq = theory.optimum(where)
    total = theory.population_loss(w_pv, w_kq, lam, n)
    assert_close(total, (lam - lam @ lam @ g).trace() / 2, rtol=1e-12, atol=1e-12)


def test_the_minimum():
    where = theory.landscape(GOLDEN, 4)
    matrix, scalar = where.minimiser
    assert float(scalar) == pytest.approx(0.7662179, abs=5e-8)
    assert_close(matrix, torch.diag(vector(0.6525559, 0.4015728)), rtol=0, atol=5e-8)
    assert float(where.minimum) == pytest.approx(-0.8653846, abs=5e-8)
    assert float(where.minimum + where.label_moment / 2) == pytest.approx(0.6346154, abs=5e-8)
    for d, n in ((1, 1), (3, 10), (6, 2)):
        check_optimum(theory.landscape(covariance(d), n), covariance(d), n)
        must_fail(check_optimum, theory.landscape(covariance(d), n + 1), covariance(d), n)


def check_excess(excess):
    for d, n in ((1, 1), (3, 10), (6, 2)):
        lam, matrix, scalar = covariance(d), normal(d, d, seed=3), 0.8
        where, gamma = theory.landscape(lam, n), theory.gamma(lam, n)
        values, basis = torch.linalg.eigh(lam)
        root = basis * values.sqrt() @ basis.T
        inner = scalar * root @ matrix @ root - lam @ torch.linalg.inv(gamma)
        printed = (inner.T @ gamma @ inner).trace() / 2
        assert_close(excess(where, matrix, scalar), printed, rtol=1e-11, atol=0)
        assert_close(
            excess(where, matrix, scalar),
            where.loss(matrix, scalar) - where.minimum,
            rtol=1e-11,
            atol=0,
        )


def test_the_excess_is_the_square_of_corollary_a_2():
    check_excess(theory.Landscape.excess)
    must_fail(check_excess, lambda where, matrix, scalar: where.excess(matrix.T, scalar))


def loss_of(lam, n):
    """The population loss as a function of all that the prediction reads, flat: the last row of W_PV, then W_KQ."""
    d = len(lam)

    def loss(flat):
        w_pv = torch.cat([torch.zeros(d, d + 1, dtype=torch.float64), flat[None, : d + 1]])
        w_kq = torch.cat(
            [flat[d + 1 :].view(d + 1, d), torch.zeros(d + 1, 1, dtype=torch.float64)], 1
        )
        return theory.population_loss(w_pv, w_kq, lam, n)

    return loss


def descend(loss, flat):
    """Where L-BFGS ends."""
    flat = flat.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [flat], max_iter=250, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        solver.zero_grad()
        value = loss(flat)
        value.backward()
        return value

    solver.step(closure)
    return flat.detach()


@pytest.mark.slow
def test_no_weights_at_all_do_better():
    lam, n = covariance(2), 4
    where, loss = theory.landscape(lam, n), loss_of(lam, n)
    least = where.minimum + where.label_moment / 2
    gaps = vector(
        *[float(loss(descend(loss, normal(9, seed=seed))) - least) for seed in (8, 9, 10)]
    )
    assert (gaps > -1e-12).all()
    assert (gaps.abs() < 1e-10).any()


def rank_one_point(lam, n, place=0):
    """The weights whose product is the best along one eigenvector: the best of all of rank one, or the next."""
    where, d = theory.landscape(lam, n), len(lam)
    kept = (where.slope.square() / where.curvature.diagonal()).argsort(descending=True)[place]
    vec = (where.slope[kept] / where.curvature[kept, kept]).sqrt() * where.basis[:, kept]
    return where, vec, torch.cat([vec, vector(0), torch.zeros(d * d).double(), vec])


def check_rank_one(lam, n, place=0):
    where, vec, flat = rank_one_point(lam, n, place)
    product, excess = where.rank_one
    assert torch.autograd.functional.jacobian(loss_of(lam, n), flat).abs().max() < 1e-12
    assert_close(torch.outer(vec, vec), product, rtol=1e-10, atol=1e-12)
    assert_close(
        loss_of(lam, n)(flat) - where.minimum - where.label_moment / 2,
        excess,
        rtol=1e-10,
        atol=1e-12,
    )


def check_curves_down_nowhere(lam, n, place=0):
    hessian = torch.autograd.functional.hessian(loss_of(lam, n), rank_one_point(lam, n, place)[2])
    curvatures = torch.linalg.eigvalsh(hessian)
    assert curvatures[0] > -1e-10 * curvatures[-1]


def test_there_is_a_stationary_point_of_rank_one_which_short_prompts_make_a_minimum():
    for d, n in ((1, 4), (2, 4), (3, 4), (3, 40), (5, 10)):
        check_rank_one(covariance(d), n)
    must_fail(check_rank_one, covariance(3), 4, 1)
    for d in (1, 2, 3):
        check_curves_down_nowhere(covariance(d), 4)
    must_fail(check_curves_down_nowhere, covariance(3), 40)
    must_fail(check_curves_down_nowhere, covariance(3), 4, 1)


# The flow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", mostly_slow(RUNS, 2, single=True), ids=str)
def test_the_flow_ends_at_the_optimum_balanced_and_below_the_bound(run):
    lam, theta, sigma, where, point = start(*run)
    end = 3000.0
    times = torch.cat([vector(0), torch.logspace(-2, math.log10(end), 400, dtype=torch.float64)])
    path = theory.gradient_flow(where, *point, times, tolerance=1e-11)
    matrix, scalar = where.minimiser
    assert_close(path.matrices[-1], matrix, rtol=0, atol=1e-8)
    assert_close(path.scalars[-1], scalar, rtol=0, atol=1e-8)
    assert path.imbalance.abs().max() < 1e-8
    check_rate(
        path, where, lam, run[1], sigma, theta, theory.pl_constant(lam, run[1], sigma, theta)
    )
    must_fail(
        check_rate,
        path,
        where,
        lam,
        run[1],
        sigma,
        theta,
        1e5 * theory.pl_constant(lam, run[1], sigma, theta),
    )
    assert (path.scalars > theory.read_out_floor(lam, run[1], sigma, theta)).all()


def check_rate(path, where, lam, n, sigma, theta, mu):
    """Lemma 5.4 along a path: |grad|^2 >= mu excess, wherever the excess is above rounding, and excess <= bound."""
    excess = torch.stack(
        [where.excess(m, s) for m, s in zip(path.matrices, path.scalars, strict=True)]
    )
    velocities = [where.velocity(m, s) for m, s in zip(path.matrices, path.scalars, strict=True)]
    squares = torch.stack([v.square().sum() + u**2 for v, u in velocities])
    above = excess > 1e-18
    assert (squares[above] >= mu * excess[above]).all()
    bound = theory.excess_bound(lam, n, sigma, theta, path.times)
    assert (excess <= bound * (1 + 1e-9) + 1e-18).all()


@pytest.fixture(scope="module")
def another_route():
    """A start, and where Dormand and Prince's eighth-order method goes from it with the printed equations."""
    lam, *_, where, (matrix, scalar) = start(3, 10, 2, 0.7)
    times = torch.linspace(0, 10, 11, dtype=torch.float64)
    squared, gamma = (lam @ lam).numpy(), theory.gamma(lam, 10).numpy() @ lam.numpy()

    def velocity(_, state):
        v, u = state[:-1].reshape(3, 3), state[-1]
        pull = gamma @ v @ lam.numpy()
        return np.append(u * squared - u**2 * pull, np.sum(squared * v) - u * np.sum(pull * v))

    first = np.append(matrix.numpy().flatten(), float(scalar))
    solved = solve_ivp(velocity, (0, 10), first, "DOP853", times.numpy(), rtol=1e-12, atol=1e-14)
    return where, (matrix, scalar), times, torch.from_numpy(solved.y.T.copy())


@pytest.mark.parametrize("tolerance", [1e-6, 1e-8, 1e-10])
def test_the_flow_is_as_exact_as_it_says(another_route, tolerance):
    where, point, times, expected = another_route

    def check(asked):
        path = theory.gradient_flow(where, *point, times, tolerance=asked)
        found = torch.cat([path.matrices.flatten(1), path.scalars[:, None]], 1)
        assert (found - expected).abs().max() < 100 * tolerance

    check(tolerance)
    must_fail(check, 1e4 * tolerance)


def test_the_flow_conserves_the_imbalance_of_any_start():
    where = theory.landscape(covariance(3), 5)
    path = theory.gradient_flow(
        where, normal(3, 3, seed=4), 0.3, torch.linspace(0, 20, 50), tolerance=1e-12
    )
    assert (path.imbalance - path.imbalance[0]).abs().max() < 1e-9
    assert abs(path.imbalance[0]) > 1


def drift(where, matrix, scalar, step):
    """Largest imbalance of gradient descent, which conserves it up to its step only."""
    scalar, worst = float(scalar), 0.0
    for _ in range(int(20 / step)):
        v, u = where.velocity(matrix, scalar)
        matrix, scalar = matrix + step * v, scalar + step * float(u)
        worst = max(worst, abs(scalar**2 - float(matrix.square().sum())))
    return worst


@pytest.mark.slow
def test_gradient_descent_loses_balance_in_proportion_to_its_step():
    *_, where, point = start(2, 4, 2, 0.6)
    drifts = [drift(where, *point, step) for step in (0.04, 0.008)]
    assert drifts[0] / drifts[1] == pytest.approx(5, rel=0.1)
    assert drifts[1] > 1e-5


def test_the_flow_on_random_covariances():
    """Exponential(1) variances, N = 20, d = 4: the numbers of Theorem 4.5."""
    where = theory.random_landscape(vector(1, 2, 6)[:, None].repeat(1, 4), 20)
    limit = theory.initial_scale_limit_random(normal(20_000, 4).abs(), unit_theta(4, 2), 20)
    path = theory.gradient_flow(
        where, *theory.initial_point(0.9 * float(limit), unit_theta(4, 2)), vector(0, 3000)
    )
    assert float(path.scalars[-1]) == pytest.approx(0.7613870, abs=1e-7)
    product = path.scalars[-1] * path.matrices[-1]
    assert_close(product, 0.2898551 * torch.eye(4).double(), rtol=0, atol=1e-7)


# Its start ----------------------------------------------------------------------------------------


def test_constants_of_the_start():
    assert float(theory.initial_scale_limit(GOLDEN, 4)) == pytest.approx(0.6596534, abs=5e-8)
    assert float(theory.pl_constant(GOLDEN, 4, 0.4, ISOTROPIC)) == pytest.approx(
        0.1289405, abs=5e-8
    )
    for share in (0.01, 0.99):
        *_, (matrix, scalar) = start(3, 5, 1, share)
        assert_close(matrix.norm(), scalar, rtol=1e-12, atol=0)
    # Theorem 4.5's condition written out, for two diagonals; for a single one it is below Theorem
    # 4.1's.
    diagonals, theta = torch.stack([vector(1, 2), vector(3, 0.5)]), unit_theta(2, 1)
    gammas = [
        torch.linalg.eigvalsh(theory.gamma(torch.diag(v), 4))[-1] * (v @ v) for v in diagonals
    ]
    pull = (torch.diag(diagonals.mean(0)) @ theta).norm() ** 2
    expected = (2 * pull / (2**0.5 * sum(gammas) / 2)).sqrt()
    assert_close(
        theory.initial_scale_limit_random(diagonals, theta, 4), expected, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("factor", [1.5, 5.0, 30.0])
def test_the_condition_on_the_start_is_not_necessary(factor):
    lam, theta = covariance(3), unit_theta(3, 2)
    sigma = factor * float(theory.initial_scale_limit(lam, 10))
    with pytest.raises(
        ValueError, match=f"sigma={sigma:g} is {factor:.3g} times too large.* sufficient"
    ):
        theory.check_initial_scale(sigma, lam, 10)
    where = theory.landscape(lam, 10)
    path = theory.gradient_flow(where, *theory.initial_point(sigma, theta), vector(0, 3000))
    assert_close(path.matrices[-1], where.minimiser[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: theory.check_initial_scale(0.7, GOLDEN, 4),
            "1.06 times too large: .* sigma below 0.659653",
        ),
        (lambda: theory.check_initial_scale(-1.0, GOLDEN, 4), "sigma=-1 is not positive"),
        (lambda: theory.pl_constant(GOLDEN, 4, 0.7, ISOTROPIC), "times too large"),
        (lambda: theory.read_out_floor(GOLDEN, 4, 0.7, ISOTROPIC), "times too large"),
        (lambda: theory.initial_point(0.0, ISOTROPIC), "sigma must be positive, got 0"),
        (lambda: theory.initial_point(0.5, 2 * ISOTROPIC), "must be 1, got 4: divide Theta"),
        (
            lambda: theory.gradient_flow(theory.landscape(GOLDEN, 4), GOLDEN, 1.0, vector(1, 1)),
            "times must increase",
        ),
        (
            lambda: theory.gradient_flow(theory.landscape(GOLDEN, 4), GOLDEN, 1.0, vector(-1, 1)),
            "times must increase",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
