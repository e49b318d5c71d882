"""Minimisers of `theory.autoregression`: there are no others, and how to recognise them."""

import numpy as np
import pytest
import torch
from angle_grids import eigenvalues, normal, paths, squared_error
from helpers import must_fail
from scipy.optimize import minimize
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory

RATIOS = [-0.5, 0.0, 0.7, -2.5]


def error_of(point, paired):
    """Of (C, p) on a grid: A = C and B = I."""
    d, n_tokens = len(point.product), len(point.positions)
    grid = eigenvalues(d, n_tokens, paired=paired)
    heads = torch.eye(d, dtype=torch.float64)
    found = theory.prediction(paths(grid, n_tokens), point.product, heads, point.positions)
    return float(squared_error(found, grid**n_tokens))


def test_minimisers_predict_the_next_state():
    def check(point, paired):
        assert error_of(point, paired) < 1e-25

    check(theory.unitary_minimiser(3, 3, scale=-2.0), False)
    for ratio in RATIOS:
        check(theory.orthogonal_minimiser(4, 4, ratio, scale=3.0), True)
    must_fail(check, theory.orthogonal_minimiser(2, 4, -0.5), False)  # another law
    first, second = theory.orthogonal_minimiser(4, 4, 0.7), theory.orthogonal_minimiser(4, 4, 0.6)
    must_fail(check, theory.Point(first.product, second.positions), True)


def descend(loss, size, seed, scale=0.5):
    """Where L-BFGS ends, from random numbers."""

    def both(values):
        at = torch.from_numpy(values.copy()).requires_grad_()
        found = loss(at)
        (gradient,) = torch.autograd.grad(found, at)
        return float(found.detach()), gradient.numpy()

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 1e-11}
    start = scale * normal(size, seed=seed).numpy()
    found = minimize(both, start, jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x), found.fun


def split(d, values):
    return theory.Point(values[: d * d].view(d, d), values[d * d :])


def is_unitary_minimiser(point):
    found = theory.unitary_distance(*point)
    assert found.product < 1e-4
    assert found.positions < 1e-4


def is_orthogonal_minimiser(point):
    found = theory.orthogonal_distance(*point)
    assert found.product < 1e-4
    assert found.positions < 1e-4


@pytest.mark.slow
def test_there_are_no_other_minimisers():
    """From five random points each, all d^2 + T numbers free."""
    for seed in range(5):
        values, loss = descend(lambda v: theory.unitary_loss(*split(3, v)), 9 + 5, seed)
        assert loss < 1e-12
        is_unitary_minimiser(split(3, values))
        must_fail(is_unitary_minimiser, split(3, values + 0.01))
    ratios = []
    for seed in range(5):
        values, loss = descend(lambda v: theory.orthogonal_loss(*split(4, v)), 16 + 5, seed)
        assert loss < 1e-12
        is_orthogonal_minimiser(split(4, values))
        must_fail(is_orthogonal_minimiser, split(4, values + 0.01))
        ratios.append(float(theory.orthogonal_distance(*split(4, values)).ratio))
    assert np.std(ratios) > 0.1  # a family


@pytest.mark.parametrize("factor", [-0.3, 5.0])
def test_distances_leave_the_scale_alone(factor):
    product, p = normal(4, 4), normal(5, seed=1)

    def check(distance, other):
        before, after = distance(product, p), distance(product / factor, other * p)
        for one, two in zip(before, after, strict=True):
            assert_close(torch.as_tensor(one), torch.as_tensor(two), rtol=1e-12, atol=1e-12)

    check(theory.unitary_distance, factor)
    must_fail(check, theory.unitary_distance, -factor)
    check(theory.orthogonal_distance, factor)
    must_fail(check, theory.orthogonal_distance, -factor)


def test_distances_at_the_minimisers():
    for ratio in RATIOS:
        product, p = theory.orthogonal_minimiser(6, 5, ratio, scale=-2.0)
        found = theory.orthogonal_distance(product, p)
        assert float(found.ratio) == pytest.approx(ratio)
        assert max(found.product, found.positions) < 1e-14
        assert found.rank == (3 if ratio == -0.5 else 6)
        moved = theory.orthogonal_distance(product + 0.01 * torch.eye(6).roll(3, 0), p)
        assert float(moved.product) == pytest.approx(0.02)
        assert theory.unitary_distance(product, p).product > 0.1 or ratio == 0
    assert theory.orthogonal_distance(torch.eye(2), torch.tensor([-1.0, 1.0])).product == torch.inf
    assert theory.orthogonal_distance(torch.eye(2), torch.tensor([0.0, 1.0])).positions == 0


def test_the_valley_at_infinity():
    def check(ratio, loss):
        point = theory.far_valley(6, 5, ratio)
        assert float(theory.orthogonal_loss(*point)) == pytest.approx(loss, rel=1e-9)
        assert theory.orthogonal_distance(*point, tolerance=1e-9).rank == 4

    for ratio in (10.0, -30.0, 300.0):
        check(ratio, 1 / ratio**2)
        must_fail(is_orthogonal_minimiser, theory.far_valley(6, 5, ratio))
    must_fail(check, 10.0, 0.1)
    assert error_of(theory.far_valley(4, 3, 10.0), True) == pytest.approx(0.01, rel=1e-9)


def trained(heads, d, n_tokens, paired, seed, step, n_steps):
    """A, B and P by plain gradient descent from small numbers.

    The loss is the sum over lengths, in closed form.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, d), (heads, d), (n_tokens, n_tokens))
    weights = [0.1 * torch.randn(*size, generator=generator, dtype=torch.float64) for size in sizes]
    weights = [w.requires_grad_() for w in weights]
    for _ in range(n_steps):
        loss = theory.row_losses(theory.head_product(*weights[:2]), weights[2], paired=paired).sum()
        if not loss > 1e-20:
            break
        with torch.no_grad():
            for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight -= step * slope
    return [w.detach() for w in weights], float(loss.detach())


def test_descent_finds_the_unitary_minimiser():
    """Many heads, all lengths: each row of P selects its last token.

    Its scale is the inverse of the product's.
    """
    (A, B, P), loss = trained(6, 5, 8, False, 0, 0.02, 3000)
    product = theory.head_product(A, B)
    assert loss < 1e-8
    for t in range(7):
        found = theory.unitary_distance(product, P[t, : t + 2])
        assert max(found.product, found.positions) < 1e-5
        other = theory.unitary_distance(product, P[t, : t + 2].flip(0))
        assert max(other.product, other.positions) > 1


def test_descent_finds_the_orthogonal_minimiser_with_as_many_heads_as_coordinates():
    (A, B, P), loss = trained(4, 4, 6, True, 0, 0.02, 20_000)
    product = theory.head_product(A, B)
    assert loss < 1e-8
    ratios = [theory.orthogonal_distance(product, P[t, : t + 2]) for t in range(5)]
    assert max(max(found.product, found.positions) for found in ratios) < 1e-3
    assert (
        np.std([float(found.ratio) for found in ratios]) < 1e-3
    )  # one product for all lengths, so one ratio


def shared(d, heads, n_tokens):
    """The summed loss as a function of flat A, B and P."""

    def loss(values):
        A, B, P = values.tensor_split([heads * d, 2 * heads * d])
        product = theory.head_product(A.view(heads, d), B.view(heads, d))
        return theory.row_losses(product, P.view(n_tokens, n_tokens), paired=True).sum()

    return loss, 2 * heads * d + n_tokens**2


def check_is_a_minimum(loss, values):
    slope = torch.autograd.functional.jacobian(loss, values)
    curvatures = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, values))
    assert slope.abs().max() < 1e-6
    assert curvatures[0] > -1e-6


@pytest.mark.slow
def test_with_half_as_many_heads_there_are_other_minima():
    """d = 4, two heads, T = 8: four starts end at 0, or at one of two positive losses.

    At these losses the Hessian is >= 0.
    """
    loss, size = shared(4, 2, 8)
    ends = [descend(loss, size, seed, scale=0.1) for seed in range(4)]
    stuck = [(values, value) for values, value in ends if value > 1e-3]
    assert 0 < len(stuck) < len(ends)
    for values, value in stuck:
        assert value == pytest.approx(4.5916, abs=1e-4) or value == pytest.approx(6.8714, abs=1e-4)
        check_is_a_minimum(loss, values)
    for values, value in ends:
        if value < 1e-3:
            A, B, P = values.tensor_split([8, 16])
            product = theory.head_product(A.view(2, 4), B.view(2, 4))
            for t in range(7):
                found = theory.orthogonal_distance(product, P.view(8, 8)[t, : t + 2])
                assert float(found.ratio) == pytest.approx(-0.5, abs=1e-3)
                assert found.rank == 2
    must_fail(check_is_a_minimum, loss, torch.zeros(size, dtype=torch.float64) + 0.01)


def test_estimates_in_context():
    values = torch.polar(torch.ones(5, 4).double(), normal(5, 4))
    rotations = values.view(5, 2, 2)[..., 0]
    rotations = torch.stack([rotations, rotations.conj()], -1).flatten(1)

    def check(estimate, law, power):
        assert_close(estimate(paths(law, 4)), law**power, rtol=1e-12, atol=1e-12)

    check(theory.unitary_map, values, 1)
    check(theory.unitary_map, rotations, 1)
    check(theory.orthogonal_map, rotations, 2)
    must_fail(check, theory.orthogonal_map, values, 2)
    must_fail(check, theory.unitary_map, values, 2)
    # The maps are what the constructions compute.
    states = paths(rotations, 4)
    layers = (theory.unitary_heads(4, 4), theory.orthogonal_heads(4, 4))
    maps = (
        theory.unitary_map(states) * states[:, -1],
        theory.orthogonal_map(states) * states[:, -2],
    )
    for layer, mapped in zip(layers, maps, strict=True):
        assert_close(theory.prediction(states, *layer), mapped, rtol=1e-12, atol=1e-12)


BAD = [
    (lambda: theory.unitary_minimiser(0, 3), "at least 1, got 0"),
    (lambda: theory.unitary_minimiser(2, 1), "at least 2: a query and the token after it, got 1"),
    (lambda: theory.unitary_minimiser(2, 3, scale=0.0), "a finite number other than 0, got 0"),
    (lambda: theory.orthogonal_minimiser(3, 3), "an even number of coordinates, got 3"),
    (lambda: theory.orthogonal_minimiser(4, 3, ratio=-1.0), "must not be -1"),
    (
        lambda: theory.unitary_distance(torch.eye(2), torch.tensor([1.0, 0.0])),
        "p_T, the last entry of p, is 0",
    ),
    (
        lambda: theory.orthogonal_distance(torch.eye(3), torch.ones(2)),
        "an even number of coordinates, got 3",
    ),
    (lambda: theory.far_valley(4, 3, 0.0), "a finite number other than 0"),
    (lambda: theory.unitary_map(torch.ones(1, 2) + 0j), "two states or more"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
