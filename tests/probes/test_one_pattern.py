"""Heads with one pattern: where two are one, and what they write together."""

import pytest
import torch
from helpers import must_fail

from icl_interp.probes import one_pattern

ROWS = torch.randn(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def grouped(apart, factor=1.0, scaled=False):
    """Groups of a row, and of a multiple of it that is apart by so much of its size."""
    first, other = ROWS
    aside = other * first.norm() / other.norm()
    rows = torch.stack([first, factor * (first + apart * aside)])
    return one_pattern.groups(rows, scaled)


@pytest.mark.parametrize(("factor", "scaled"), [(1.0, False), (1.0, True), (-3.0, True)])
def test_patterns_are_one_up_to_the_root_of_the_bound(factor, scaled):
    bound = one_pattern.ONE_PATTERN**0.5

    def check(apart, expected):
        assert grouped(apart, factor, scaled) == expected

    check(bound / 3, [(0, 1)])
    check(bound * 3, [(0,), (1,)])
    must_fail(check, bound * 3, [(0, 1)])


def test_a_multiple_is_another_pattern_unless_scores_make_up_for_it():
    assert grouped(0.0, 2.0, scaled=False) == [(0,), (1,)]
    assert grouped(0.0, 2.0, scaled=True) == [(0, 1)]


def test_what_is_written_adds_up_in_units_of_the_first():
    rows = torch.stack([ROWS[0], ROWS[1], 2 * ROWS[0]])
    written = torch.tensor([[1.0, 0.0], [5.0, 5.0], [0.5, 3.0]], dtype=torch.float64)
    alike, sums = one_pattern.summed(rows, written, scaled=True)
    assert alike == [(0, 2), (1,)]

    def check(factor):
        torch.testing.assert_close(sums[0], written[0] + factor * written[2])

    check(2.0)
    must_fail(check, 1.0)
    torch.testing.assert_close(sums[1], written[1])
