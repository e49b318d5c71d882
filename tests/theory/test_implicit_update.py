"""The update of rank one: against a solver, against mutants, and descent that says nothing."""

import numpy as np
import torch
from helpers import must_fail

from icl_interp.theory.implicit_update import rank_one, trajectory

DRAW = torch.Generator().manual_seed(1)
NUMBERS = torch.randn(12, 4, generator=DRAW, dtype=torch.float64)
WEIGHT = NUMBERS[:7]
WHOLE = NUMBERS[7]
PART = NUMBERS[8]


def test_it_makes_up_for_the_rest_of_the_context_and_is_the_smallest_that_does():
    def check(change):
        np.testing.assert_allclose((WEIGHT + change) @ PART, WEIGHT @ WHOLE, rtol=1e-12)

    change = rank_one(WEIGHT, WHOLE, PART)
    check(change)
    must_fail(check, rank_one(WEIGHT, PART, WHOLE))
    must_fail(check, change * PART.norm())  # divided by the length, not by its square
    must_fail(check, rank_one(WEIGHT, WHOLE + PART, PART))
    # Of all X with X part = W (whole - part) least squares gives the one of least length.
    wanted = (WEIGHT @ (WHOLE - PART)).numpy()
    smallest = np.linalg.lstsq(PART.numpy()[None], wanted[None], rcond=None)[0].T
    np.testing.assert_allclose(change, smallest, rtol=1e-10, atol=1e-14)


def test_any_sequence_descends_on_the_loss_that_is_made_of_its_steps():
    """By autograd, for reads that are drawn at random: it says nothing of a task."""
    reads = NUMBERS[8:]
    weights = trajectory(WEIGHT, reads)
    assert torch.equal(weights[0], WEIGHT)

    def check(rate):
        for i in range(len(reads) - 1):
            step = (WEIGHT @ (reads[i] - reads[i + 1])).outer(reads[0])
            at = weights[i].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(torch.trace(step.T @ at), at)
            torch.testing.assert_close(weights[i + 1], weights[i] - rate * gradient)

    check(1 / float(reads[0].square().sum()))
    must_fail(check, 1 / float(reads[1].square().sum()))
