"""The update of rank one: against a solver, and against mutants."""

import numpy as np
import torch
from helpers import must_fail

from icl_interp.theory.implicit_update import rank_one

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
