"""The extremes of Theorem 2: against nearest neighbours on fresh contexts, and as fitted slopes."""

import torch
from helpers import must_fail

from icl_interp.provenance import generator
from icl_interp.theory import lipschitz as theory

N, D = 50, 3


def losses(windows, n_contexts=4000):
    """Squared errors without noise on F_L^+ at L = 1, context by window; inf is one neighbour."""
    draw = generator(0, "test/extremes")
    x = torch.randn(n_contexts, N + 1, D, generator=draw, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    q = torch.randn(n_contexts, D, 1, generator=draw, dtype=torch.float64)
    z = (x @ (q / q.norm(dim=1, keepdim=True)))[..., 0]
    l1, l2 = (2 * torch.rand(2, n_contexts, 1, generator=draw, dtype=torch.float64) - 1).unbind(0)
    f = l1 * z.relu() + l2 * (-z).relu()
    cosines = (x[:, :-1] @ x[:, -1:].mT)[..., 0]
    nearest = f[:, :-1].gather(1, cosines.argmax(1, keepdim=True))
    found = [
        (torch.softmax(w * cosines, -1) * f[:, :-1]).sum(-1) if w < torch.inf else nearest[:, 0]
        for w in windows
    ]
    return (torch.stack(found, -1) - f[:, -1:]).square()


def test_without_noise_a_finite_window_beats_the_nearest_neighbour():
    found = theory.noiseless_window(N, D, contexts=4000)
    best = float(found.optimum.window)
    each = losses([best, torch.inf])

    def check(ratio):
        gap = each[:, 1] - ratio * each[:, 0]  # of mean 0 at the true ratio
        error = gap.std() / len(gap) ** 0.5 + float(found.ratio_error) * each[:, 0].mean()
        assert abs(gap.mean()) < 4 * error

    check(float(found.ratio))
    must_fail(check, 1.0)  # mutant: the nearest neighbour is as good
    assert found.optimum.high < 30
    assert found.optimum.window < found.narrowest / 100


def test_for_l_beyond_sigma_the_window_stays_where_it_is_without_noise():
    clean = float(theory.noiseless_window(N, D, contexts=4000).optimum.window)
    steep = float(theory.optimal_window(1e4, 1.0, N, D, contexts=4000).window)
    assert abs(steep / clean - 1) < 1e-3


def test_for_much_noise_the_window_falls_as_s():
    noise = torch.tensor([30.0, 100.0, 300.0], dtype=torch.float64)

    def check(window):
        found = torch.stack([window(1.0, float(s), 100.0, D) for s in noise])
        exact = torch.stack([theory.long_prompt_window(1.0, float(s), 100.0, D) for s in noise])
        torch.testing.assert_close(found, exact, rtol=5e-3, atol=0)

    check(theory.noisy_window)
    must_fail(check, theory.asymptotic_window)  # that for large S
    s = 100 / noise**2
    exact = torch.stack([theory.long_prompt_window(1.0, float(one), 100.0, D) for one in noise])
    slope = float(theory.fitted_slope(s, exact).slope)
    assert abs(slope - 1) < 0.01
    assert slope > theory.window_exponents_as_printed(D).high  # Theorem 2 is about large n
