"""Heads in `theory.autoregression`: constructions, how many it takes, and a_h . b_h' = 0."""

import pytest
import torch
from angle_grids import eigenvalues, normal, paths, squared_error
from helpers import must_fail
from scipy.optimize import minimize
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory


def check_construction(layer, paired, n_heads):
    d, n_tokens = layer.queries.shape[1], len(layer.positions)
    grid = eigenvalues(d, n_tokens, paired=paired)
    assert squared_error(theory.prediction(paths(grid, n_tokens), *layer), grid**n_tokens) < 1e-25
    assert layer.queries.shape[0] == n_heads == theory.needed_heads(d, paired=paired)


def test_constructions_predict_the_next_state():
    check_construction(theory.unitary_heads(3, 3), False, 3)
    check_construction(theory.orthogonal_heads(4, 4), True, 2)
    check_construction(theory.orthogonal_heads(2, 2), True, 1)
    must_fail(check_construction, theory.orthogonal_heads(2, 3), False, 1)
    must_fail(check_construction, theory.unitary_heads(2, 3), True, 1)
    layer = theory.orthogonal_heads(4, 3)
    must_fail(check_construction, layer._replace(positions=layer.positions.roll(1)), True, 2)


def best_with(heads, d, n_tokens, seed, paired=False):
    """The least loss that L-BFGS finds with so many heads."""
    loss = theory.orthogonal_loss if paired else theory.unitary_loss

    def both(values):
        at = torch.from_numpy(values.copy()).requires_grad_()
        A, B, p = at.tensor_split([heads * d, 2 * heads * d])
        found = loss(theory.head_product(A.view(heads, d), B.view(heads, d)), p)
        (gradient,) = torch.autograd.grad(found, at)
        return float(found.detach()), gradient.numpy()

    start = normal(2 * heads * d + n_tokens, seed=seed).numpy()
    return minimize(
        both, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-15}
    ).fun


@pytest.mark.parametrize(("d", "heads"), [(3, 1), (3, 2), (3, 3), (4, 2)])
def test_fewer_heads_than_coordinates_leave_the_rest(d, heads):
    least = min(best_with(heads, d, 4, seed) for seed in range(5))

    def check(floor):
        assert least == pytest.approx(float(floor), abs=1e-6)

    check(theory.unitary_floor(d, heads))
    must_fail(check, theory.unitary_floor(d, heads - 1))
    assert theory.unitary_floor(d, d + 3) == 0


@pytest.mark.slow
def test_rotations_need_half_as_many():
    check_construction(theory.orthogonal_heads(4, 3), True, 2)
    assert min(best_with(1, 4, 4, seed, paired=True) for seed in range(4)) > 1.9
    assert theory.needed_heads(4, paired=True) == 2


def check_orthogonal(A, B, size):
    """Different heads are orthogonal, and a_h . b_h is the same for all."""
    found = theory.head_products(A, B)
    assert found.largest < 1e-9
    assert_close(
        found.products, size * torch.eye(len(A), dtype=torch.float64), rtol=1e-9, atol=1e-9
    )


def test_heads_of_minimisers_are_orthogonal():
    """With just as many heads as needed, in every gauge (M A, M^-T B)."""
    for layer, size in ((theory.unitary_heads(5, 4), 1.0), (theory.orthogonal_heads(6, 4), 2.0)):
        mix = normal(len(layer.queries), len(layer.queries))
        A, B = mix @ layer.queries, torch.linalg.inv(mix).T @ layer.values
        assert_close(
            theory.head_product(A, B), theory.head_product(*layer[:2]), rtol=1e-9, atol=1e-9
        )
        check_orthogonal(A, B, size)
        must_fail(check_orthogonal, A, B, 1.1 * size)
        must_fail(check_orthogonal, A, A, size)  # between a and b, not between a and a
    scaled = theory.unitary_heads(3, 3)
    check_orthogonal(scaled.queries / 4, scaled.values, 0.25)  # p_T = 4


def test_with_spare_heads_or_another_ratio_the_identity_need_not_hold():
    A = normal(5, 3)
    B = torch.linalg.pinv(A).T  # B^T A = I with five heads
    assert (
        theory.unitary_loss(theory.head_product(A, B), torch.tensor([0.0, 0.0, 1.0])).abs() < 1e-12
    )
    must_fail(check_orthogonal, A, B, 1.0)
    point = theory.orthogonal_minimiser(4, 4, 0.7)
    B = torch.eye(4, dtype=torch.float64)
    assert (
        theory.orthogonal_loss(theory.head_product(point.product, B), point.positions).abs() < 1e-12
    )
    must_fail(check_orthogonal, point.product, B, 1.0)
    assert theory.head_products(point.product, B).largest > 0.1


def test_cosines():
    A, B = normal(4, 6), normal(4, 6, seed=1)
    found = theory.head_products(A, B)

    def check(A, B):
        other = theory.head_products(A, B)
        assert_close(other.cosines, found.cosines, rtol=1e-12, atol=0)
        assert_close(other.largest, found.largest, rtol=1e-12, atol=0)

    sizes = torch.tensor([0.5, 2.0, 3.0, 4.0]).double()[:, None]
    check(sizes * A, B / sizes)  # a head's own gauge
    must_fail(check, A, B.roll(1, 0))
    expected = torch.nn.functional.cosine_similarity(A[:, None], B[None], dim=-1)
    assert_close(found.cosines, expected, rtol=1e-12, atol=0)
    assert theory.head_products(A[:1], B[:1]).largest == 0
    idle = A.clone()
    idle[2] = 0
    assert (theory.head_products(idle, B).cosines[2] == 0).all()


BAD = [
    (lambda: theory.needed_heads(3, paired=True), "an even number of coordinates, got 3"),
    (lambda: theory.needed_heads(0, paired=False), "at least 1, got 0"),
    (lambda: theory.unitary_floor(3, -1), "a number of heads is at least 0, got -1"),
    (lambda: theory.orthogonal_heads(5, 4), "an even number of coordinates, got 5"),
    (lambda: theory.unitary_heads(5, 1), "at least 2"),
    (lambda: theory.head_products(torch.ones(2, 3), torch.ones(3, 2)), "must have one shape"),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
