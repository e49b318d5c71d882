"""Products of heads against theory and chance."""

import math

import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.constructions import units
from icl_interp.studies.autoregression.measurements import distinct_heads
from icl_interp.studies.autoregression.measurements.unit import Heads
from icl_interp.theory import autoregression as theory

N = 2000  # random sets of heads, fixed by the measurement


def test_cosines_are_theorys_for_real_heads_and_leave_phases():
    A, B = torch.randn(2, 3, 4, generator=generator(0, "test"), dtype=torch.float64)
    expected = theory.head_products(A, B)
    turn = torch.polar(torch.rand(3, 1).double() + 0.5, 6 * torch.rand(3, 1).double())

    def check(keys, values):
        found = distinct_heads.cosines(Heads(keys, values))
        torch.testing.assert_close(found, expected.cosines.abs())
        torch.testing.assert_close(distinct_heads.largest(found), expected.largest)

    check(A * turn, B / turn)
    must_fail(check, A * turn, B / turn * torch.polar(torch.ones(4), torch.arange(4.0)))


def test_the_identity_is_without_a_conjugate():
    A, B = units.mixed(generator(0, "test"), torch.eye(3, dtype=torch.float64))

    def check(keys):
        assert float(distinct_heads.largest(distinct_heads.cosines(Heads(keys, B)))) < 1e-12

    check(A)
    must_fail(check, A.conj())
    assert float(distinct_heads.cosines(Heads(torch.zeros_like(A), B)).max()) == 0


def test_random_heads_in_the_plane():
    """The angle of two directions in the plane is uniform.

    There are two products of different heads.
    """

    def check(found):
        for x in (0.2, 0.5, 0.8):
            exact = (2 / math.pi * math.asin(x)) ** 2
            share = float((found <= x).double().mean())
            assert abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / N)

    found = distinct_heads.random_largest(2, 2)
    assert len(found) == N
    check(found)
    must_fail(check, distinct_heads.random_largest(3, 2))


def check_cells(name, seed=5):
    for row in calibration.calibrate(1, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.slow
def test_products_without_conjugates_break_their_cell(monkeypatch):
    name = "diagonal unit at a unitary minimiser"
    check_cells(name)
    plain = distinct_heads.cosines
    monkeypatch.setattr(
        distinct_heads, "cosines", lambda heads: plain(Heads(heads.keys.conj(), heads.values))
    )
    must_fail(check_cells, name)
