"""Softmax between hardmax and uniform: bounds on weights, entropies and margins, against softmax itself.

Every check takes the bound as its argument, so that a wrong variant can be passed to it and must
fail.
"""

import math

import pytest
import torch
from exact_prompts import fitted_slope, normal, vector
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import limits


def entropy_deficit(scores):
    return math.log(scores.shape[-1]) - torch.distributions.Categorical(logits=scores).entropy()


def random_scores():
    """3000 score vectors of many lengths, shapes and ranges."""
    for seed in range(300):
        n = 2 + seed * seed % 97
        spread = 10 ** (seed % 31 / 10 - 1.5)
        scores = normal(10, n, seed=seed)
        scores[5:] = scores[5:].sign() * (
            1 + 1e-3 * scores[5:]
        )  # nearly two-valued: where bounds are tightest
        yield spread * scores


def check_max_weight(bound):
    for scores in random_scores():
        spread = scores.amax(-1) - scores.amin(-1)
        assert (
            torch.softmax(scores, -1).amax(-1) <= bound(scores.shape[-1], spread) * (1 + 1e-12)
        ).all()
    for n, spread in ((2, 0.5), (10, 3.0), (1000, 8.0)):
        scores = torch.cat([vector(spread), torch.zeros(n - 1).double()])
        assert_close(bound(n, spread), torch.softmax(scores, 0)[0], rtol=1e-12, atol=0)


def test_max_weight_bound():
    check_max_weight(limits.max_weight_bound)
    must_fail(check_max_weight, lambda n, spread: limits.max_weight_bound(n + 1, spread))
    must_fail(check_max_weight, lambda n, spread: limits.max_weight_bound(n, 2 * spread))


def check_deficit(bound):
    for scores in random_scores():
        deficit = entropy_deficit(scores)
        spread = scores.amax(-1) - scores.amin(-1)
        assert (deficit <= bound(spread) + 1e-12).all()
        # Pinsker, and what it means for a head that reads values between -1 and 1.
        weights, values = (
            torch.softmax(scores, -1),
            torch.sin(torch.arange(scores.shape[-1]).double()),
        )
        total_variation = (weights - 1 / scores.shape[-1]).abs().sum(-1) / 2
        assert (total_variation <= (bound(spread) / 2).sqrt() + 1e-12).all()
        moved = (weights @ values - values.mean()).abs()
        assert (moved <= total_variation * (values.max() - values.min()) + 1e-12).all()


def worst_two_valued_deficit(spread):
    """Over the fraction q of keys with the higher of two scores, R apart: q R e^R / Z - log Z, Z = q e^R + 1 - q."""
    q = torch.linspace(0, 1, 100_001, dtype=torch.float64)[1:-1]
    z = q * math.exp(spread) + 1 - q
    return float((q * spread * math.exp(spread) / z - z.log()).max())


def check_deficit_is_nearly_reached(bound):
    for spread, worst, limit in ((1.0, 0.1233, 0.125), (2.0, 0.4745, 0.5), (4.0, 1.670, 2.0)):
        assert worst_two_valued_deficit(spread) == pytest.approx(worst, abs=5e-4)
        assert float(bound(spread)) == pytest.approx(limit, abs=1e-12)
    assert worst_two_valued_deficit(0.01) == pytest.approx(float(bound(0.01)), rel=1e-4)
    assert float(bound(20.0)) == 20


def test_entropy_deficit_bound():
    for check in (check_deficit, check_deficit_is_nearly_reached):
        check(limits.entropy_deficit_bound)
        must_fail(check, lambda spread: 0.9 * limits.entropy_deficit_bound(spread))
    must_fail(
        check_deficit_is_nearly_reached, lambda spread: torch.as_tensor(spread)
    )  # true, but not sharp
    # The thresholds of "uniform": 90 % of the keys effectively attended, and a total variation of
    # .1.
    assert float(limits.entropy_deficit_bound(0.916)) < 0.105
    assert math.exp(-0.105) > 0.9
    assert float(limits.entropy_deficit_bound(0.4)) == pytest.approx(2 * 0.1**2)


def check_margin(margin):
    for n in (2, 3, 41, 1000):
        for delta in (0.05, 0.3):
            scores = -(
                normal(200, n, seed=n).abs() + float(margin(n, delta))
            )  # rivals at the margin or beyond
            scores[0], scores[:, 0] = -float(margin(n, delta)), 0.0
            left = 1 - torch.softmax(scores, -1)[:, 0]
            assert (left <= delta + 1e-12).all()
            assert float(left[0]) == pytest.approx(
                delta, abs=1e-12
            )  # all rivals tied: nothing to spare


def test_hardmax_margin():
    check_margin(limits.hardmax_margin)
    must_fail(check_margin, lambda n, delta: limits.hardmax_margin(n + 1, delta))
    must_fail(check_margin, lambda n, delta: limits.necessary_margin(1, delta))
    for n, golden in ((10, 5.14), (41, 6.63), (1000, 9.85)):
        assert float(limits.hardmax_margin(n)) == pytest.approx(golden, abs=5e-3)


def check_necessary_margin(margin):
    for k in (1, 2, 7):
        for delta in (0.05, 0.3):
            for seed in range(
                50
            ):  # any number of rivals, the nearest just inside the margin: too much is lost
                rivals = float(margin(k, delta)) - 1e-6 + normal(1 + seed % 5, seed=seed).abs()
                rivals[0] = float(margin(k, delta)) - 1e-6
                weights = torch.softmax(torch.cat([torch.zeros(k).double(), -rivals]), 0)
                assert weights[k:].sum() > delta
            scores = torch.cat([torch.zeros(k).double(), -margin(k, delta)[None]])
            assert float(torch.softmax(scores, 0)[-1]) == pytest.approx(delta, abs=1e-12)


def test_necessary_margin():
    check_necessary_margin(limits.necessary_margin)
    must_fail(check_necessary_margin, lambda k, delta: limits.necessary_margin(1, delta))
    must_fail(check_necessary_margin, lambda k, delta: limits.necessary_margin(k, delta / 2))
    assert float(limits.necessary_margin()) == pytest.approx(2.944, abs=5e-4)
    assert float(limits.necessary_margin(k=20)) < 0  # asks for nothing


TABLE_4 = (
    ([1, 1.02, 1.03, 1.05, 1.1], [0.192046, 0.195925, 0.197894, 0.201892, 0.212243]),
    ([100, 102, 103, 105, 110], [0.000045, 0.000333, 0.000905, 0.006684, 0.992033]),
    ([1000, 1020, 1030, 1050, 1100], [0, 0, 0, 0, 1]),
)


def check_table_4(function):
    for values, printed in TABLE_4:
        assert_close(function(vector(*values)), vector(*printed), rtol=0, atol=5e-7)


def test_table_4_has_the_right_numbers_and_the_wrong_reason():
    def softmax(values):
        return torch.softmax(values, 0)

    check_table_4(softmax)
    must_fail(check_table_4, lambda values: torch.softmax(1.01 * values, 0))
    zeros = softmax(vector(*TABLE_4[2][0]))
    assert float(zeros[0]) == pytest.approx(3.7e-44, rel=0.02)
    assert float(zeros[3]) == pytest.approx(1.9e-22, rel=0.02)
    # "For large values, softmax performs like hardmax": but large values with the gaps of the first
    # column are uniform, and small values with the gaps of the second do not.
    large_values_small_gaps = vector(1000, 1000.02, 1000.03, 1000.05, 1000.1)
    assert_close(softmax(large_values_small_gaps), vector(*TABLE_4[0][1]), rtol=0, atol=5e-7)
    assert 1 - float(entropy_deficit(large_values_small_gaps)) / math.log(5) == pytest.approx(
        0.99963, abs=5e-6
    )
    assert_close(softmax(vector(0, 2, 3, 5, 10)), vector(*TABLE_4[1][1]), rtol=0, atol=5e-7)
    assert 10 > limits.hardmax_margin(5) > 0.1


def check_many_tokens(bound):
    """Independent scores in -B .. B: the largest weight dies like 1/n, the entropy deficit stays where it is."""
    half_range, n_tokens = 3.0, (1_000, 10_000, 100_000)
    largest, deficits = [], []
    for n in n_tokens:
        scores = half_range * (
            2 * torch.rand(n, generator=torch.Generator().manual_seed(n)).double() - 1
        )
        largest.append(float(torch.softmax(scores, 0).max()))
        deficits.append(float(entropy_deficit(scores)))
        assert largest[-1] <= float(limits.max_weight_bound(n, 2 * half_range))
        assert deficits[-1] <= float(limits.entropy_deficit_bound(2 * half_range))
    assert fitted_slope(vector(*n_tokens), vector(*largest)) == pytest.approx(-1, abs=0.02)
    # n = 1e5: the normalised entropy looks uniform, the effective number of tokens and the output
    # do not.
    assert 1 - deficits[-1] / math.log(n) == pytest.approx(0.930, abs=1e-3)
    assert math.exp(-deficits[-1]) == pytest.approx(0.445, abs=5e-3)
    assert float(torch.softmax(scores, 0) @ scores) == pytest.approx(
        half_range / math.tanh(half_range) - 1, abs=0.02
    )
    assert max(deficits) - min(deficits) < bound


def test_many_tokens_are_dispersed_and_not_uniform():
    check_many_tokens(0.1)
    must_fail(check_many_tokens, 1e-6)
