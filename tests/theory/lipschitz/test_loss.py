"""The loss at finite prompt length in `theory.lipschitz`.

The Monte-Carlo table, the best window, and what that window costs elsewhere.
"""

import math

import pytest
import torch
from helpers import mostly_slow, must_fail
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory

CLASSES = [
    theory.function_class("relu"),
    theory.function_class("linear"),
    theory.function_class("affine"),
    theory.function_class("quadratic"),
    theory.function_class("cosine", 3.0),
    theory.function_class("phased_cosine", 1.0, frequency=10.0),
]


def scatter(groups):
    """Mean over groups of contexts, and its standard error."""
    return groups.mean(0), groups.std(0) / math.sqrt(len(groups))


# The table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("functions", CLASSES, ids=str)
def test_one_example_is_copied(functions):
    """n = 1: the prediction is the only label, so the bias is 2 Var f, whatever the window."""
    d = 3
    table = theory.loss_table(1, d, functions, contexts=4000)
    energies = theory.harmonic_energies(functions, d, 2000 if functions.link == "relu" else 60)
    mean, error = scatter(table.bias)

    def check(expected):
        assert ((mean - expected).abs() < 4 * error + 1e-6).all()

    check(2 * energies[1:].sum())  # degree 0 is constant over x
    must_fail(check, 2.2 * energies[1:].sum())
    assert_close(table.noise, torch.ones_like(table.noise))


def two_examples(w):
    """Bias on linear functions and noise for n = 2, d = 3.

    They are computed by quadrature over the cosines t, which are uniform.
    """
    nodes, weights = torch.linspace(-1, 1, 402, dtype=torch.float64)[:-1] + 1 / 401, 1 / 401
    first, second = nodes[:, None], nodes[None]
    a = torch.sigmoid(w * (first - second))
    b = 1 - a
    # |a x_1 + b x_2 - x_q|^2 with x_1.x_2 = t_1 t_2 on average
    square = a**2 + b**2 + 2 * a * b * first * second + 1 - 2 * (a * first + b * second)
    return square.sum() * weights**2 / 3, (a**2 + b**2).sum() * weights**2


def test_two_examples():
    table = theory.loss_table(2, 3, theory.function_class("linear"), contexts=20_000)

    def check(bias, noise):
        for at in (10, 25, 35):
            expected = two_examples(float(table.windows[at]))
            for groups, value in zip((bias, noise), expected, strict=True):
                mean, error = scatter(groups[:, at])
                assert abs(mean - value) < 4 * error + 1e-6

    check(table.bias, table.noise)
    must_fail(check, 1.05 * table.bias, table.noise)
    must_fail(check, table.bias, 1.01 * table.noise)
    must_fail(
        check, theory.loss_table(2, 3, contexts=20_000).bias, table.noise
    )  # F_L^+ is another class


@pytest.mark.slow
def test_the_loss_is_that_of_prompts_drawn_one_by_one():
    n, d, size, noise, w = 30, 4, 2.0, 0.5, 4.0
    draw = torch.Generator().manual_seed(5)

    def sphere(*shape):
        drawn = torch.randn(*shape, d, generator=draw, dtype=torch.float64)
        return torch.nn.functional.normalize(drawn, dim=-1)

    count = 40_000
    points, q = sphere(count, n + 1), sphere(count)
    slopes = size * (2 * torch.rand(count, 3, 1, generator=draw, dtype=torch.float64) - 1)
    z = torch.einsum("cnd,cd->cn", points, q)
    f = slopes[:, 0] * z.clamp(min=0) + slopes[:, 1] * (-z).clamp(min=0) + slopes[:, 2]
    labels = f[:, :-1] + noise * torch.randn(count, n, generator=draw, dtype=torch.float64)
    errors = (
        theory.prediction(points[:, :-1], labels, points[:, -1], w * torch.eye(d)) - f[:, -1]
    ).square()

    def check(loss):
        gap = float(errors.mean() - loss.value)
        assert abs(gap) < 4 * math.hypot(float(errors.std()) / math.sqrt(count), float(loss.error))

    table = theory.loss_table(n, d, contexts=4000)
    check(theory.window_loss(table, w, size, noise))
    must_fail(check, theory.window_loss(table, w, size * 1.1, noise))
    must_fail(check, theory.window_loss(table, w, size, noise * 1.2))
    must_fail(check, theory.window_loss(table, 1.5 * w, size, noise))


def test_the_noise_of_long_prompts():
    """n nu = w coth w within 3% at n = 1000, d = 3."""
    table = theory.loss_table(1000, 3, contexts=400)
    w = torch.tensor([3.0, 10.0, 30.0])
    noise = (
        theory.window_loss(table, w, 1.0, 1.0).value - theory.window_loss(table, w, 1.0, 0.0).value
    )

    def check(expected):
        assert_close(1000 * noise, expected, rtol=0.03, atol=0)

    check(theory.noise_limit(w, 3))
    must_fail(check, w.double() ** theory.noise_exponent_as_printed(3))
    assert float(theory.loss_table(2, 3).noise.mean(0)[-1]) > 0.99  # it saturates at 1


def test_tables_are_made_once():
    table = theory.loss_table(20, 3, contexts=200)
    assert (
        theory.loss_table(20, 3, theory.function_class("relu", 5.0), contexts=200) is table
    )  # L only scales
    assert theory.loss_table(20, 3, contexts=200, seed=1) is not table
    again = theory.loss_table(20, 3, theory.function_class("linear"), contexts=200)
    assert_close(again.noise, table.noise)  # the same contexts
    cosines = theory.loss_table(20, 3, theory.function_class("cosine", 2.0), contexts=200)
    with pytest.raises(ValueError, match=r"cosine is for L=2 and L is no factor there, got L=3"):
        theory.table_optimum(cosines, 3.0, 1.0)


# The best window ----------------------------------------------------------------------------------

GOLDEN = {
    (1.0, 1.0): (2.333, 0.007, 0.0426, 1e-4),
    (10.0, 1.0): (14.48, 0.03, 0.394, 0.003),
}  # d = 3, n = 100


@pytest.mark.parametrize(("lipschitz", "noise"), GOLDEN)
def test_the_best_window_has_the_known_value(lipschitz, noise):
    window, tolerance, risk, risk_tolerance = GOLDEN[lipschitz, noise]

    def check(optimum):
        half = float(optimum.high - optimum.low) / 2
        assert float(optimum.window) == pytest.approx(window, abs=tolerance + half)
        assert half < 0.01 * window
        assert float(optimum.risk) == pytest.approx(
            risk, abs=risk_tolerance + 2 * float(optimum.risk_error)
        )

    check(theory.optimal_window(lipschitz, noise, 100, 3))
    must_fail(check, theory.optimal_window(lipschitz, noise * 1.05, 100, 3))
    must_fail(check, theory.optimal_window(lipschitz, noise, 100, 3, "linear"))


def test_without_noise_the_best_window_is_finite():
    """The slides let w go to infinity for L >> sigma; at n = 100, d = 3 it stops at 27.5 +- 0.2."""
    best = theory.optimal_window(1.0, 0.0, 100, 3)

    def check(window):
        assert float(window) == pytest.approx(27.5, abs=0.2 + float(best.high - best.low) / 2)

    check(best.window)
    must_fail(check, best.window * 1.1)
    assert best.bias_share == 1
    nearest = theory.window_loss(theory.loss_table(100, 3), 3000.0, 1.0, 0.0)
    assert float(nearest.value / best.risk) == pytest.approx(
        2.0, abs=0.3
    )  # nearest neighbour: between 1.3 and 3.0


EXTREMES = {(20, 2): 20.8, (20, 3): 9.1, (20, 5): 6.7, (100, 5): 12.9, (1000, 5): 31.3}


@pytest.mark.parametrize(("n", "d"), mostly_slow(EXTREMES, 2))
def test_best_windows_without_noise(n, d):
    def check(n, d, expected):
        table = theory.loss_table(n, d, contexts=min(4000, 400_000 // n))
        optimum = theory.table_optimum(table, 1.0, 0.0)
        assert float(optimum.window) == pytest.approx(expected, rel=0.05)
        nearest = theory.window_loss(table, 3000.0, 1.0, 0.0).value / optimum.risk
        assert 1.2 < float(nearest) < 3.2  # the loss of the nearest neighbour

    check(n, d, EXTREMES[n, d])
    must_fail(check, 2 * n, d, EXTREMES[n, d])


def test_extremes():
    def checks(optimal_window):
        windows = [
            float(optimal_window(1.0, noise, 100, 3).window) for noise in (10.0, 3.0, 1.0, 0.3, 0.0)
        ]
        assert windows == sorted(windows)  # less noise, narrower
        assert windows[0] < 0.1

    checks(theory.optimal_window)
    must_fail(checks, lambda size, noise, *rest: theory.optimal_window(noise + 0.1, size, *rest))
    drowned = theory.optimal_window(1.0, 1e3, 100, 3)
    assert drowned.low == 0
    edge = theory.optimal_window(1.0, 0.0, 1000, 2, contexts=600)
    assert edge.high == math.inf
    assert edge.window > 3000
    assert theory.long_prompt_window(1.0, 0.0, 100, 3) == math.inf


@pytest.mark.slow
def test_intervals_of_the_best_window_hold_it():
    truth = theory.optimal_window(1.0, 0.5, 30, 3, contexts=8000).window

    def held(factor):
        count = 0
        for seed in range(10):
            best = theory.optimal_window(1.0, 0.5, 30, 3, contexts=400, seed=seed + 1)
            half = factor * (best.high.log() - best.window.log())
            count += bool((truth.log() - best.window.log()).abs() < half)
        assert count >= 8

    held(1.0)
    must_fail(held, 0.2)


@pytest.mark.slow
def test_the_window_is_not_monotone_in_l():
    """The best window for cos(L z) at d = 5, n = 200, sigma = 0.1 is not monotone in L.

    It is 10.9 at L = 1, between much wider windows at L = 0.1 and L = 10.
    """
    gentle, middle, steep = (
        theory.optimal_window(size, 0.1, 200, 5, "cosine", contexts=2000).window
        for size in (0.1, 1.0, 10.0)
    )

    def check(gentle, middle, steep):
        assert float(middle) == pytest.approx(10.9, rel=0.03)
        assert gentle < 0.05
        assert steep < 1

    check(gentle, middle, steep)
    must_fail(check, *sorted((gentle, middle, steep)))
    by_bias = [
        theory.long_prompt_loss(torch.tensor([1e-3, 0.3, 1.0, 3.0]), size, 0.1, 200, 5, "cosine")
        for size in (0.1, 10.0)
    ]
    assert by_bias[0][0] < by_bias[0][1:].min()  # also without sampling


# Theorem 3: trained on L, tested on L' ------------------------------------------------------------

TESTED = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0)
RATIOS = {
    1.0: (3.27, 1.76, 1.00, 1.27, 2.81, 5.44, 11.4),
    5.0: (11.5, 5.9, 2.17, 1.35, 1.00, 1.19, 2.02),
}


@pytest.mark.slow
@pytest.mark.parametrize("trained", RATIOS)
def test_what_a_window_costs_at_another_lipschitz_constant(trained):
    """d = 3, n = 300, sigma = 1."""

    def check(noise):
        table = [
            theory.transfer(
                theory.function_class("relu", trained),
                theory.function_class("relu", tested),
                noise,
                300,
                3,
            )
            for tested in TESTED
        ]
        ratios = [float(row.ratio) for row in table]
        assert ratios == pytest.approx(RATIOS[trained], rel=0.05)
        assert min(ratios) > 1 - 1e-9
        at = TESTED.index(trained)
        assert ratios[: at + 1] == sorted(ratios[: at + 1], reverse=True)
        assert ratios[at:] == sorted(ratios[at:])
        assert all(row.ratio_error < 0.02 * row.ratio for row in table)

    check(1.0)
    must_fail(check, 1.3)


def test_a_smaller_l_at_test_brings_nothing():
    """Risks at L' = 0.1, 0.3, 1 of the window for L = 1 floor at its noise."""
    rows = [
        theory.transfer(
            theory.function_class("relu"), theory.function_class("relu", tested), 1.0, 300, 3
        )
        for tested in (0.1, 0.3, 1.0)
    ]

    def check(risks):
        assert [float(risk) for risk in risks] == pytest.approx([0.0131, 0.0138, 0.0220], rel=0.02)

    check([row.risk for row in rows])
    must_fail(check, [row.best for row in rows])
    floor = theory.window_loss(theory.loss_table(300, 3), rows[0].window, 1e-6, 1.0).value
    assert 1 < float(rows[0].risk / floor) < 1.01


SAME = [("linear", None), ("relu", None), ("cosine", None), ("phased_cosine", None)]


@pytest.mark.slow
def test_a_shared_lipschitz_constant_suffices_for_some_classes_only():
    """d = 5, n = 200, sigma = 0.1, L = 1."""

    def check(classes, most):
        for trained in classes:
            for tested in classes:
                row = theory.transfer(trained, tested, 0.1, 200, 5, contexts=2000)
                assert 1 - 1e-9 < float(row.ratio) < most

    smooth = [theory.function_class(link) for link, _ in SAME]
    rapid = theory.function_class("phased_cosine", 1.0, frequency=10.0)
    check(smooth, 1.07)
    must_fail(check, [*smooth, rapid], 3.0)
    paid = theory.transfer(rapid, smooth[0], 0.1, 200, 5, contexts=2000)
    assert float(paid.ratio) > 10


@pytest.mark.slow
def test_a_shared_lipschitz_constant_is_needed():
    """Trained on cos(L z), tested on cos(z), at L = 0.1 and 10; and back."""
    one = theory.function_class("cosine")

    def check(trained, tested, low, high):
        row = theory.transfer(trained, tested, 0.1, 200, 5, contexts=2000)
        assert low < float(row.ratio) < high

    for other in (0.1, 10.0):
        check(theory.function_class("cosine", other), one, 3.0, 3.6)
    check(one, theory.function_class("cosine", 0.1), 19, 30)
    must_fail(check, theory.function_class("linear"), one, 3.0, 3.6)


BAD = [
    (lambda: theory.optimal_window(0.0, 1.0, 10, 3), "Lipschitz constant L must be positive"),
    (
        lambda: theory.optimal_window(1.0, -1.0, 10, 3),
        "sigma and must be finite and at least 0, got -1",
    ),
    (lambda: theory.optimal_window(1.0, 1.0, 0, 3), "at least 1, got 0"),
    (lambda: theory.optimal_window(1.0, 1.0, 10, 1), "at least 2, got 1"),
    (lambda: theory.optimal_window(1.0, 1.0, 10, 3, "tanh"), "one of relu"),
    (lambda: theory.loss_table(10, 3, contexts=5), "at least 20, one for each group, got 5"),
    (
        lambda: theory.window_loss(theory.loss_table(20, 3, contexts=200), 1e5, 1.0, 1.0),
        "spans windows from",
    ),
    (lambda: theory.long_prompt_window(1.0, 1.0, 0, 3), "must be positive, got 0"),
    (lambda: theory.long_prompt_window(1.0, 1e9, 1, 3), "lies below 1e-06"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
