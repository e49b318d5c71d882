"""Tables of shares: p-values by an independent count, intervals that hold, q-values."""

from itertools import permutations

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.circuits.shares import p_values, share_table
from icl_interp.contrasts import Way
from icl_interp.errors import InputError

RANDOM = np.random.default_rng(5)


def way_of(n, per_unit=1):
    start, end = torch.from_numpy(RANDOM.normal(size=(2, n)))
    return Way(start, end, np.repeat(np.arange(n // per_unit), per_unit))


def exact_p(moved, length):
    """By the list of all permutations: the share that lies as far from their mean."""
    every = np.array([moved @ length[list(order)] for order in permutations(range(len(length)))])
    return float(np.mean(np.abs(every - every.mean()) >= abs(moved @ length - every.mean()) - 1e-9))


def agree(found, exact, n):
    """Within four standard errors of a share of n random permutations."""
    for p, want in zip(found, exact, strict=True):
        assert abs(p - want) < 4 * np.sqrt(want * (1 - want) / n) + 2 / n


def test_p_values_are_the_share_of_permutations():
    way, n = way_of(6), 8000
    length = way.length.numpy()
    moved = np.stack([0.3 * length, RANDOM.normal(size=6), RANDOM.normal(size=6) + 2])
    found = p_values(way.start + torch.from_numpy(moved), way, n_permutations=n)
    exact = [exact_p(one, length) for one in moved]
    assert exact[0] < 0.01 < exact[1]
    agree(found, exact, n)
    must_fail(agree, found[::-1], exact, n)


def level_holds(n_random, way, predictions):
    """Of moves without relation to the way a twentieth has p < 0.05."""
    p = p_values(predictions, way, n_permutations=999)
    share = (p <= 0.05).mean()
    assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / n_random)


def test_p_values_keep_their_level_where_nothing_is():
    way = way_of(60, per_unit=2)
    moves = torch.from_numpy(RANDOM.normal(size=(400, 60)) + 0.5)
    level_holds(400, way, way.start + moves)
    must_fail(level_holds, 400, way, way.start + moves + 0.3 * way.length)


def test_a_table_says_what_moves_and_what_does_not():
    way = way_of(80)
    noise = torch.from_numpy(RANDOM.normal(size=(10, 80)))
    predictions = way.start + 0.1 * noise
    predictions[0] += 0.5 * way.length
    table = share_table({"place": range(10)}, predictions, way)
    assert table["share"][0] == pytest.approx(0.5, abs=0.05)
    assert table["low"][0] < 0.5 < table["high"][0]
    assert (table["q"] < 0.05).tolist() == [True] + [False] * 9
    # Benjamini & Yekutieli by hand, for the smallest of ten.
    assert table["q"][0] == pytest.approx(table["p"][0] * 10 * sum(1 / i for i in range(1, 11)))
    assert "Benjamini-Yekutieli" in table.attrs["note"]


def test_functions_of_unequal_numbers_of_prompts_are_refused():
    start, end = torch.from_numpy(RANDOM.normal(size=(2, 5)))
    way = Way(start, end, np.array([0, 0, 1, 1, 1]))
    with pytest.raises(InputError, match="as many prompts of every function"):
        p_values(end[None], way)
