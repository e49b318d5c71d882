"""Gradient flow in `theory.autoregression`: what it conserves, and where it ends.

One start ends elsewhere than at a minimum.
"""

import pytest
import torch
from angle_grids import normal
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory

TIMES = torch.linspace(0, 30, 40, dtype=torch.float64)


@pytest.mark.parametrize("paired", [False, True])
def test_conserved_quantities(paired):
    start = [0.5 * normal(3, 4), 0.5 * normal(3, 4, seed=1), 0.5 * normal(5, seed=2)]
    path = theory.gradient_flow(*start, TIMES, paired=paired, tolerance=1e-12)

    def check(quantity):
        assert (quantity - quantity[0]).abs().max() < 1e-9

    check(path.imbalance)
    check(path.scale_imbalance)
    must_fail(check, path.queries @ path.queries.mT + path.values @ path.values.mT)
    must_fail(check, path.queries.square().sum((1, 2)) + path.positions.square().sum(1))
    assert (path.loss.diff() <= 1e-9).all()
    held = theory.gradient_flow(*start, TIMES, paired=paired, moving=False)
    check(held.imbalance)
    must_fail(check, held.scale_imbalance)
    check(held.positions)


@pytest.mark.parametrize("paired", [False, True])
def test_the_flow_follows_the_gradient(paired):
    """Against one Euler step: the gradient by differences of the loss."""
    start = [normal(2, 2), normal(2, 2, seed=1), normal(3, seed=2)]
    loss = theory.orthogonal_loss if paired else theory.unitary_loss
    flat = torch.cat([w.flatten() for w in start])

    def value(flat):
        A, B, p = flat.tensor_split([4, 8])
        return loss(theory.head_product(A.view(2, 2), B.view(2, 2)), p)

    slopes = torch.stack(
        [(value(flat + h) - value(flat - h)) / 2e-5 for h in 1e-5 * torch.eye(11).double()]
    )
    path = theory.gradient_flow(*start, torch.tensor([0.0, 1e-5]), paired=paired)
    moved = (
        torch.cat([path.queries[1].flatten(), path.values[1].flatten(), path.positions[1]]) - flat
    )

    def check(slopes):
        assert_close(moved, -1e-5 * slopes, rtol=2e-3, atol=1e-8)

    check(slopes)
    must_fail(check, 1.01 * slopes)


@pytest.mark.slow
def test_with_p_held_the_flow_of_the_heads_ends_at_the_identity():
    """Proposition 4: p = e_T, and the loss is |B^T A - I|^2."""
    last = torch.tensor([0.0, 0.0, 2.0]).double()
    for seed in range(4):
        start = normal(4, 3, seed=seed), normal(4, 3, seed=seed + 9)
        path = theory.gradient_flow(
            *start, last, torch.tensor([0.0, 60.0]), paired=False, moving=False
        )

        def check(scale, path=path):
            product = theory.head_product(path.queries[-1], path.values[-1])
            assert_close(product, torch.eye(3).double() / scale, rtol=0, atol=1e-6)

        check(2.0)
        must_fail(check, 1.0)


# One coordinate -----------------------------------------------------------------------------------


def scalar_flow(a, b, p, end=100.0):
    start = torch.full((1, 1), float(a)), torch.full((1, 1), float(b)), p
    return theory.gradient_flow(*start, torch.tensor([0.0, end]), paired=False, tolerance=1e-12)


def starts(n=5):
    """Random starts with a loss below 1."""
    found, seed = [], 0
    while len(found) < n:
        a, b, *p = normal(6, seed=seed).tolist()
        seed += 1
        if theory.scalar_loss(a, b, torch.tensor(p)) < 1:
            found.append((a, b, torch.tensor(p).double()))
    return found


def test_the_scalar_loss_and_its_flow():
    a, b, p = 0.7, -1.3, normal(4)

    def check(value):
        assert float(theory.scalar_loss(a, b, p)) == pytest.approx(value, rel=1e-12)

    norm, last = float(p.square().sum()), float(p[-1])
    check(norm * (a * b) ** 2 - 2 * a * b * last + 1)
    must_fail(check, norm * (a * b) ** 2 - a * b * last + 1)
    assert float(theory.scalar_loss(0.0, 3.0, p)) == 1


@pytest.mark.slow
def test_below_one_the_flow_ends_at_a_minimum_that_is_known_beforehand():
    for a, b, p in starts():
        path, limit = scalar_flow(a, b, p), theory.scalar_limit(a, b, p)

        def check(limit, path=path):
            found = path.queries[-1, 0, 0], path.values[-1, 0, 0], path.positions[-1, -1]
            assert_close(torch.stack(found), torch.stack(list(limit)), rtol=1e-6, atol=1e-7)
            assert path.positions[-1, :-1].abs().max() < 1e-6
            assert path.loss[-1] < 1e-10

        check(limit)
        must_fail(check, limit._replace(query=-limit.query))
        must_fail(check, limit._replace(last=1.01 * limit.last))
        assert float(limit.query * limit.value * limit.last) == pytest.approx(1, rel=1e-12)


def test_the_condition_is_sufficient_and_not_void():
    p = torch.tensor([0.0, -1.0]).double()
    with pytest.raises(
        ValueError,
        match=r"the loss at the start is 4: .* less than 1\. The condition is sufficient",
    ):
        theory.scalar_limit(1.0, 1.0, p)
    path = scalar_flow(1.0, 1.0, p, end=1000.0)  # to the origin, where the loss is 1

    def check(path, loss):
        assert float(path.loss[-1]) == pytest.approx(loss, abs=1e-3)

    check(path, 1.0)
    must_fail(check, path, 0.0)
    check(scalar_flow(1.0, 1.1, p), 0.0)  # nearby it goes to a minimum


@pytest.mark.parametrize("times", [[], [1.0, 1.0], [-1.0, 2.0]])
def test_times_that_do_not_increase_are_refused(times):
    with pytest.raises(ValueError, match="times must increase from 0 up"):
        theory.gradient_flow(
            torch.ones(1, 1), torch.ones(1, 1), torch.ones(2), torch.tensor(times), paired=False
        )
