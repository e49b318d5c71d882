"""Theorems 2 and 3 in `theory.lipschitz`, as exponents and orders.

What is true holds, and what is printed and false does not.
"""

import functools
import math

import pytest
import torch
from helpers import mostly_slow, must_fail
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory

SIGNALS = torch.tensor([1e2, 1e4, 1e6, 1e8], dtype=torch.float64)
FAR = torch.tensor([1e2, 1e4, 1e6, 1e8, 1e10, 1e12], dtype=torch.float64)


@functools.cache
def window(d, signal, link):
    """w*(S) for long prompts: L = sigma = 1 and n = S."""
    return theory.long_prompt_window(1.0, 1.0, signal, d, link)


def windows(d, signals=SIGNALS, link="relu"):
    return torch.stack([window(d, signal, link) for signal in signals.tolist()])


def risks(d, tested):
    """The risk at L' of the windows for L = 1, at every S of FAR."""
    pairs = zip(windows(d, FAR), FAR.tolist(), strict=True)
    return torch.stack([theory.long_prompt_loss(w, tested, 1.0, s, d) for w, s in pairs])


WINDOWS = {
    2: (2.64, 23.6, 214, 2040),
    3: (2.34, 15.6, 89.5, 529),
    5: (1.95, 11.0, 40.6, 144),
    10: (1.38, 8.80, 22.4, 50.1),
}


@pytest.mark.parametrize("d", WINDOWS)
def test_windows_for_long_prompts_have_the_known_values(d):
    def check(found):
        assert found.tolist() == pytest.approx(WINDOWS[d], rel=4e-3)

    check(windows(d))
    must_fail(check, windows(d, SIGNALS * 1.1))
    must_fail(check, windows(d, link="linear"))


@pytest.mark.parametrize(
    ("d", "low", "high"), [(2, 0.47, 0.50), (3, 0.375, 0.415), (5, 0.27, 0.38)]
)
def test_local_slopes_of_the_window_lie_in_the_printed_interval(d, low, high):
    slopes = theory.local_slopes(SIGNALS, windows(d))
    assert low < slopes.min()
    assert slopes.max() < high
    if d > 2:  # at d = 2 the exponent is the lower end itself
        printed = theory.window_exponents_as_printed(d)
        assert printed.low < slopes.min()
        assert slopes.max() < printed.high


def test_small_signals_leave_the_printed_interval():
    """For S below about 10 the window grows like S: a fit there violates 2/d."""
    small = torch.tensor([0.01, 0.1, 1.0, 10.0], dtype=torch.float64)
    slopes = theory.local_slopes(small, windows(3, small))

    def check(slope):
        assert 0.9 < slope < 1.01

    for slope in slopes:
        check(slope)
    must_fail(check, theory.window_exponents_as_printed(3).high)


@pytest.mark.parametrize("link", ["relu", "linear"])
@pytest.mark.parametrize("d", mostly_slow([3, 2, 5]))
def test_exponents_are_those_of_very_large_signals(link, d):
    far = torch.tensor([1e11, 1e12], dtype=torch.float64)
    found = windows(d, far, link)

    def check(exponent):
        assert float(theory.local_slopes(far, found)) == pytest.approx(float(exponent), abs=0.006)

    check(theory.window_exponent(d, link))
    must_fail(check, theory.window_exponent(d, "linear" if link == "relu" else "relu"))
    if link == "relu" and d > 2:  # at d = 2 the lower end is the exponent
        for printed in theory.window_exponents_as_printed(d):
            must_fail(check, printed)
    ratios = [
        float(w / theory.asymptotic_window(1.0, 1.0, float(s), d, link))
        for s, w in zip(far, found, strict=True)
    ]
    assert ratios == pytest.approx([1, 1], abs=0.06)


def test_the_exponents():
    def check(link, added):
        for d in range(2, 12):
            exponent = theory.window_exponent(d, link)
            assert float(exponent) == pytest.approx(2 / (d + added))
            assert float(theory.risk_exponent(d, link)) == pytest.approx((added + 1) / (d + added))
            assert float(theory.bias_share(d, link)) == pytest.approx((d - 1) / (d + added))

    def within_print(link):
        for d in range(2, 12):
            low, high = theory.window_exponents_as_printed(d)
            assert low - 1e-12 < theory.window_exponent(d, link)
            assert theory.window_exponent(d, link) < high

    check("relu", 2)
    check("affine", 3)
    must_fail(check, "relu", 3)
    within_print("relu")
    must_fail(within_print, "affine")  # at d = 2


@pytest.mark.parametrize("d", [3, 5])
def test_the_share_of_the_bias(d):
    w = theory.long_prompt_window(1.0, 1.0, 1e12, d)

    def check(share):
        found = theory.long_prompt_loss(w, 1.0, 0.0, 1e12, d) / theory.long_prompt_loss(
            w, 1.0, 1.0, 1e12, d
        )
        assert float(found) == pytest.approx(float(share), abs=0.02)

    check(theory.bias_share(d))
    must_fail(check, theory.bias_share(d, "linear"))
    assert float(theory.bias_share(d)) == pytest.approx((d - 1) / (d + 2))


def fit_in_n(noise, contexts=2000):
    lengths = [10, 30, 100, 300, 1000, 3000]
    found = [
        theory.optimal_window(
            1.0, noise, n, 3, contexts=max(200, min(contexts, 200_000 // n))
        ).window
        for n in lengths
    ]
    return theory.fitted_slope(torch.tensor(lengths), torch.stack(found))


@pytest.mark.slow
def test_the_window_narrows_with_the_length_of_prompts():
    """For n = 10 to 3000 the slope is 0.434 +- 0.002, within the slides' [1/3, 2/3].

    L = 1, sigma = 0.1 and d = 3.
    """
    fit = fit_in_n(0.1)
    printed = theory.window_exponents_as_printed(3)
    assert printed.low < fit.low
    assert fit.high < printed.high

    def check(slope):
        assert abs(float(slope) - 0.434) < 0.03

    check(fit.slope)
    must_fail(check, theory.window_exponent(3))  # not yet asymptotic
    must_fail(check, fit_in_n(3.0).slope)


def test_the_window_narrows_with_l_and_then_no_more():
    """n = 300, sigma = 1: local slopes per L^2 fall from 0.98 over 0.39 to 0.17.

    They fall because n stays finite.
    """
    sizes = torch.tensor([0.03, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0], dtype=torch.float64)
    found = torch.stack([theory.optimal_window(float(size), 1.0, 300, 3).window for size in sizes])
    slopes = theory.local_slopes(sizes.square(), found)
    assert float(slopes[0]) == pytest.approx(0.98, abs=0.03)
    assert float(slopes[3]) == pytest.approx(0.39, abs=0.03)
    assert slopes[-1] < 0.17
    assert (slopes.diff() < 0).all()
    unbounded = torch.stack([theory.long_prompt_window(float(size), 1.0, 300, 3) for size in sizes])

    def saturates(windows):
        assert theory.local_slopes(sizes.square(), windows)[-1] < 0.2

    saturates(found)
    must_fail(saturates, unbounded)


# Theorem 3 ----------------------------------------------------------------------------------------


def constant_order(ratio):
    """A bound of the right order: the ratio changes by less than a third over ten decades."""
    assert ratio.max() < 1.34 * ratio.min()


@pytest.mark.parametrize("tested", [2.0, 0.5, 1e-6])
def test_the_sharp_order_of_the_risk_at_another_l(tested):
    found = risks(3, tested)

    def check(bound):
        constant_order(found / torch.stack([bound(1.0, tested, 1.0, float(s), 3) for s in FAR]))

    check(theory.transfer_bound)
    must_fail(check, theory.transfer_bound_as_printed)
    exact = torch.stack([theory.asymptotic_risk(1.0, tested, 1.0, float(s), 3) for s in FAR])
    assert float((found / exact)[-1]) == pytest.approx(1, abs=0.02)


def test_the_printed_lower_bound_is_too_large():
    """d = 3, L' = 2 L: risk over bound falls towards 0, so no constant makes it a lower bound."""
    ratios = risks(3, 2.0) / torch.stack(
        [theory.transfer_bound_as_printed(1.0, 2.0, 1.0, float(s), 3) for s in FAR]
    )

    def check(ratios):
        assert ratios.tolist() == pytest.approx(
            [0.148, 0.0535, 0.0197, 0.0075, 0.0029, 0.0012], rel=0.05
        )

    check(ratios)
    sharp = risks(3, 2.0) / torch.stack(
        [theory.transfer_bound(1.0, 2.0, 1.0, float(s), 3) for s in FAR]
    )
    must_fail(check, sharp)
    assert [float(sharp[0]), float(sharp[-1])] == pytest.approx([0.37, 0.29], abs=0.005)
    loose = risks(3, 2.0) / (4 * FAR ** (-4 / 5))
    assert (loose.diff() > 0).all()  # with 4/(d+2) it is valid
    below = risks(3, 1e-6) / torch.stack(
        [theory.transfer_bound(1.0, 1e-6, 1.0, float(s), 3) for s in FAR]
    )
    assert [float(below[1]), float(below[3])] == pytest.approx([0.39, 0.33], abs=0.006)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_printed_upper_bound_is_true_and_loose(d):
    bound = torch.stack([theory.risk_bound_as_printed(1.0, 1.0, float(s), d) for s in FAR])
    ratios = risks(d, 1.0) / bound
    assert ratios.max() < 0.2
    assert (ratios.diff() < 0).all()

    def check(order):
        assert float(theory.local_slopes(FAR[-2:], risks(d, 1.0)[-2:])) == pytest.approx(
            -float(order), abs=0.012
        )

    check(theory.risk_exponent(d))
    must_fail(check, 1 / (d + 2))
    must_fail(check, 2 / (d + 2))


def test_units_of_the_bound_for_smaller_l():
    """The printed bound for L' <= L lacks sigma^2.

    So in other units of the labels it is another bound.
    """

    def check(bound):
        first, second = (bound(1.0 * c, 0.5 * c, 0.3 * c, 100, 3) for c in (1.0, 10.0))
        assert_close(second, 100 * first)

    check(theory.transfer_bound)
    must_fail(check, theory.transfer_bound_as_printed)


# Fits ---------------------------------------------------------------------------------------------


def test_fitted_slopes_have_their_intervals():
    n = torch.tensor([10.0, 30.0, 100.0, 300.0, 1000.0], dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(400, len(n), generator=draw, dtype=torch.float64)

    def check(scale):
        fits = [theory.fitted_slope(n, 3 * n**0.4 * row.exp()) for row in noise]
        halves = torch.stack([(fit.high - fit.low) / 2 for fit in fits])
        misses = torch.stack([fit.slope - 0.4 for fit in fits]).abs() > scale * halves
        assert 0.02 < float(misses.double().mean()) < 0.09

    check(1.0)
    must_fail(check, 0.6)
    together = theory.fitted_slope(n, 3 * n**0.4 * noise[:30].exp())
    assert together.low < 0.4 < together.high
    single = theory.fitted_slope(n, 3 * n**0.4 * noise[0].exp())
    assert together.high - together.low < single.high - single.low


BAD = [
    (lambda: theory.fitted_slope(torch.full((4,), 2.0), torch.arange(1.0, 5.0)), "two different"),
    (lambda: theory.window_exponent(1), "at least 2, got 1"),
    (lambda: theory.window_exponent(3, "tanh"), "one of relu"),
    (lambda: theory.window_exponents_as_printed(1), "at least 2"),
    (lambda: theory.asymptotic_window(1.0, 0.0, 10, 3), "needs positive noise and n, got noise=0"),
    (lambda: theory.asymptotic_risk(1.0, -1.0, 1.0, 10, 3), "must be positive"),
    (lambda: theory.risk_bound_as_printed(1.0, 1.0, 10, 1), "at least 2"),
    (lambda: theory.transfer_bound(1.0, math.inf, 1.0, 10, 3), "positive and finite"),
    (lambda: theory.transfer_bound_as_printed(1.0, 1.0, 1.0, -5, 3), "needs positive noise and n"),
    (
        lambda: theory.fitted_slope(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
        "needs 3 points",
    ),
    (lambda: theory.fitted_slope(torch.ones(3), -torch.ones(3)), "need positive x and y"),
    (lambda: theory.local_slopes(torch.zeros(3), torch.ones(3)), "need positive x and y"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
