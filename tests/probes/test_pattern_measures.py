"""Measures of a row of weights: entropy, deficit, distance to hardmax; and scores drawn anew."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp.probes.attention import (
    PatternStatistics,
    _as_numbers,
    among,
    entropy,
    entropy_deficit,
    hardmax_distance,
    resampled_scores,
)
from icl_interp.provenance import generator
from icl_interp.theory.limits import entropy_deficit_bound

# ---- entropy -------------------------------------------------------------------------------------


def random_patterns(n_keys: int = 17) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.randn(50, n_keys, generator=generator(0, "test/deficit"), dtype=torch.float64)
    return scores, scores.softmax(-1)


def check_deficits(deficit):
    """The deficit is log n - H in numpy, zeros included, and at most min(R, R^2 / 8).

    It is 0 for uniform and log n for one-hot weights.
    """
    scores, pattern = random_patterns()
    p = pattern.numpy()
    assert np.allclose(deficit(pattern), math.log(17) + (p * np.log(p)).sum(-1), rtol=0, atol=1e-13)
    one_hot = torch.eye(6).double()
    assert torch.allclose(deficit(one_hot), torch.full((6,), math.log(6)).double())
    assert deficit(torch.full((3, 9), 1 / 9, dtype=torch.float64)).abs().max() < 1e-14
    extent = scores.amax(-1) - scores.amin(-1)
    assert (deficit(pattern) <= entropy_deficit_bound(extent)).all()


def test_deficits():
    check_deficits(entropy_deficit)
    must_fail(check_deficits, lambda p: 1 + torch.xlogy(p, p).sum(-1) / math.log(p.shape[-1]))
    must_fail(check_deficits, lambda p: math.log(p.shape[-1] - 1) + torch.xlogy(p, p).sum(-1))


def check_hidden_keys(quantity):
    """Keys that a query does not see change nothing, whatever their number."""
    _, pattern = random_patterns(5)
    wide = torch.cat([pattern, torch.zeros(50, 3).double()], -1)
    torch.testing.assert_close(
        quantity(wide, torch.full((50,), 5.0).double()), quantity(pattern, None)
    )


@pytest.mark.parametrize("quantity", [entropy_deficit, hardmax_distance, lambda p, n: entropy(p)])
def test_hidden_keys_do_not_count(quantity):
    check_hidden_keys(quantity)


def test_hidden_keys_that_count_are_noticed():
    must_fail(check_hidden_keys, lambda p, n: entropy_deficit(p))
    must_fail(check_hidden_keys, lambda p, n: entropy(p + (p == 0) * 1e-3))
    # Two of four keys that are seen are no majority; two of three are.
    tied = torch.tensor([0.4, 0.4, 0.2, 0.0]).double()
    assert float(hardmax_distance(tied, torch.tensor(4.0).double())) == pytest.approx(0.2)
    assert float(hardmax_distance(tied, torch.tensor(3.0).double())) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_among_some_keys_add_up_to_1_unless_these_have_none(dtype):
    _, pattern = random_patterns(6)
    pattern = pattern.to(dtype)
    pattern[0, [1, 4]] = 0

    def check(part):
        torch.testing.assert_close(
            part[1:], pattern[1:, [1, 4]] / (pattern[1:, 1] + pattern[1:, 4])[:, None]
        )
        assert part[0].tolist() == [0, 0]

    check(among(pattern, (1, 4)))
    must_fail(check, among(pattern, (4, 1)))
    must_fail(check, pattern[:, [1, 4]])


# ---- the distance to hardmax ---------------------------------------------------------------------


def check_deltas(delta):
    """One minus the mass on all largest keys; if more than half of the keys tie, it is 1."""
    for pattern, expected in (
        ([1.0, 0, 0, 0, 0], 0.0),
        ([0.6, 0.1, 0.1, 0.1, 0.1], 0.4),
        ([0, 0, 0, 0, 1.0], 0.0),
        ([0.5, 0.5, 0, 0, 0], 0.0),
        ([0.4, 0.4, 0.2, 0, 0], 0.2),
        ([0.3, 0.3, 0.3, 0.1, 0], 1.0),
        ([0.2] * 5, 1.0),
        ([0.25] * 4, 1.0),
        ([0.5, 0.5], 1.0),
        ([0.4, 0.4 * (1 - 1e-9), 0.2, 0, 0], 0.2),
        ([0.4, 0.399, 0.201, 0, 0], 0.6),
    ):
        assert float(delta(torch.tensor(pattern).double())) == pytest.approx(expected, abs=1e-8), (
            pattern
        )


def unmerged(pattern):
    return 1 - pattern.amax(-1)


def merged_without_evenness(pattern):
    return (pattern * (pattern < pattern.amax(-1, keepdim=True) * (1 - 1e-6))).sum(-1)


def of_statistics(pattern):
    rows = pattern.reshape(-1, pattern.shape[-1])
    visible = torch.full((len(rows),), pattern.shape[-1])
    return PatternStatistics.of(rows, visible).delta.view(pattern.shape[:-1])


def test_deltas_merge_ties():
    check_deltas(hardmax_distance)
    check_deltas(of_statistics)
    must_fail(check_deltas, unmerged)
    must_fail(check_deltas, merged_without_evenness)


def test_a_token_shown_twice_counts_once():
    """A hardmax onto the largest token stays one where the context repeats that token."""
    tokens = torch.tensor([3.0, -1.0, 3.0, 0.5, 3.0, 1.0, 0.0]).double()
    pattern = (1e4 * tokens).softmax(-1)
    assert float(hardmax_distance(pattern)) == 0
    assert float(unmerged(pattern)) == pytest.approx(2 / 3)


EIGHTHS = st.integers(-40, 40).map(lambda k: k / 8)  # so that ties stay ties when a number is added


@given(st.lists(EIGHTHS, min_size=3, max_size=9), EIGHTHS)
def test_delta_ignores_order_and_shift(scores, shift):
    pattern = torch.tensor(scores).double().softmax(-1)
    assert float(hardmax_distance(pattern.flip(-1))) == pytest.approx(
        float(hardmax_distance(pattern)), abs=1e-9
    )
    moved = (torch.tensor(scores).double() + shift).softmax(-1)
    assert float(hardmax_distance(moved)) == pytest.approx(
        float(hardmax_distance(pattern)), abs=1e-9
    )


def test_a_nan_stays_in_sight():
    row = torch.tensor([0.5, torch.nan, 0.5])
    assert bool(hardmax_distance(row).isnan())
    assert bool(entropy(row).isnan())


# ---- scores drawn anew ---------------------------------------------------------------------------


def sizes_of(kinds: list[str], n: int) -> dict[str, int]:
    """How many keys of each kind are drawn beside the query's own."""
    scores = torch.zeros(1, len(kinds) + 1)
    drawn, kind_of = resampled_scores(scores, (*kinds, "x"), n + 1, generator(0, "test/split"))
    assert drawn.shape == (n + 1,)
    assert kind_of[0] == "own"
    assert set(kind_of[1:]) <= set(kinds)
    return {kind: kind_of.count(kind) for kind in dict.fromkeys(kinds)}


def check_split(split):
    """All n keys are given out, each kind within one key of its share."""
    for kinds in (["x", "y"] * 6, ["x", "y", "x"], ["xy"] * 5, ["x"] * 7 + ["y"] * 2 + ["z"]):
        for n in (7, 10, 100):
            sizes = split(kinds, n)
            assert sum(sizes.values()) == n
            assert set(sizes) == set(kinds)
            for kind, size in sizes.items():
                assert abs(size - n * kinds.count(kind) / len(kinds)) < len(sizes)


def test_kinds_keep_their_proportions():
    check_split(sizes_of)
    must_fail(check_split, lambda kinds, n: {k: v + 1 for k, v in sizes_of(kinds, n).items()})
    must_fail(check_split, lambda kinds, n: dict.fromkeys(sizes_of(kinds, n), 0) | {"x": n})
    swapped = lambda kinds, n: dict(zip(s := sizes_of(kinds, n), reversed(s.values()), strict=True))  # noqa: E731
    must_fail(check_split, swapped)
    assert sizes_of(["x", "y"] * 6, 100) == {"x": 50, "y": 50}


def check_resampled(resampled):
    """The query's own score comes first, then scores of each kind, each as frequent.

    They are drawn from the row's own contexts.
    """
    kinds = ("x", "y", "x", "y", "x")
    # (row, context, key): a number tells the row, the context and the key it was read at.
    scores = (
        100 * torch.arange(2)[:, None, None] + 10 * torch.arange(3)[:, None] + torch.arange(5)
    ).double()
    drawn, kind_of = resampled(scores, kinds, 6001, generator(0, "test/resampled"))
    assert drawn.shape == (2, 6001)
    assert drawn[:, 0].tolist() == [4.0, 104.0]
    assert kind_of[0] == "own"
    assert [(kind, len(list(run))) for kind, run in itertools.groupby(kind_of[1:])] == [
        ("x", 3000),
        ("y", 3000),
    ]
    for row in range(2):
        for kind, keys in (("x", (0, 2)), ("y", (1, 3))):
            found = drawn[row, [i for i, k in enumerate(kind_of) if k == kind]]
            values, counts = found.unique(return_counts=True)
            assert values.tolist() == sorted(
                100.0 * row + 10 * c + k for c in range(3) for k in keys
            )
            assert (counts - 500).abs().max() < 100  # 4.9 standard deviations of 20


def test_scores_are_drawn_from_all_contexts():
    check_resampled(resampled_scores)
    must_fail(check_resampled, lambda s, *rest: resampled_scores(s[:, :1].expand_as(s), *rest))
    must_fail(check_resampled, lambda s, *rest: resampled_scores(s.flip(0), *rest))
    must_fail(
        check_resampled, lambda s, kinds, *rest: resampled_scores(s, (*kinds[1:], "x"), *rest)
    )
    one_kind = lambda s, kinds, *rest: resampled_scores(s, ("x",) * 5, *rest)  # noqa: E731
    must_fail(check_resampled, one_kind)


# ---- comparisons ---------------------------------------------------------------------------------


def check_numbers(compare):
    values = random_patterns()[0]
    values[0, 0], values[0, 1], values[1, 0] = math.nan, math.inf, -math.inf
    found = compare(values.requires_grad_(), values[:, :1])
    assert torch.equal(found, (values < values[:, :1]).to(values.dtype))
    assert not found.requires_grad


def test_comparisons_as_numbers():
    check_numbers(lambda values, bound: _as_numbers(torch.lt, values, bound))
    must_fail(check_numbers, lambda values, bound: _as_numbers(torch.le, values, bound))
