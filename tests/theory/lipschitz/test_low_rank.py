"""Functions of few directions in `theory.lipschitz`: Theorem 4 for the three links.

Without its cap the theorem fails.
"""

import pytest
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory


def basis(d, k=2):
    """A random subspace, so that nothing rests on the axes."""
    drawn = torch.randn(d, k, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.linalg.qr(drawn)[0]


def contexts(n, d, count, link="affine"):
    return theory.draw_contexts(n, theory.glm_class(link), count, d=d, basis=basis(d))


def best(n, d, count, noise, link="affine"):
    drawn = contexts(n, d, count, link)
    return drawn, theory.optimal_matrix(drawn, noise).matrix


def is_low_rank(matrix, d, tolerance):
    """Theorem 4: M = c B B^T with c > 0."""
    pair = theory.pair_of(matrix, basis(d))
    assert pair.inside > 0
    assert pair.outside.abs() < tolerance * pair.inside
    assert pair.deviation < 2 * tolerance


@pytest.mark.parametrize(("noise", "inside"), [(0.0, 5.98), (0.3, 3.36), (1.0, 0.74)])
def test_two_examples_recover_the_subspace(noise, inside):
    """n = 2, d = 4, k = 2, all 16 entries free."""
    _, matrix = best(2, 4, 40_000, noise)
    is_low_rank(matrix, 4, 0.01)
    must_fail(is_low_rank, matrix + 0.02 * inside * torch.eye(4), 4, 0.01)
    assert float(theory.pair_of(matrix, basis(4)).inside) == pytest.approx(inside, rel=0.03)
    assert theory.outside_energy(matrix, basis(4)) < 1e-3


@pytest.mark.parametrize(("noise", "inside"), [(0.0, 8.2), (0.1, 8.0), (1.0, 3.4)])
def test_few_examples_recover_the_subspace(noise, inside):
    """n = 20, d = 6, k = 2."""
    _, matrix = best(20, 6, 6000, noise)
    is_low_rank(matrix, 6, 0.05)
    pair = theory.pair_of(matrix, basis(6))
    assert pair.outside.abs() < 0.03 * pair.inside
    assert float(pair.inside) == pytest.approx(inside, rel=0.03)


def gain(drawn, d, **options):
    """How much lower the loss is with c' free than with c' = 0; sigma = 0."""
    held = theory.optimal_pair(drawn, basis(d), 0.0, outside=0.0, start=(6.0, 0.0), **options)
    free = theory.optimal_pair(drawn, basis(d), 0.0, start=(8.0, 4.0), **options)
    return float(1 - free.loss / held.loss), free, held


def test_without_the_cap_long_prompts_want_other_directions_too():
    """sigma = 0, d = 4, k = 2: c' = 0 for n = 10, but not for n = 50 and 200."""

    def check(n, count, cap):
        assert gain(contexts(n, 4, count), 4, cap=cap)[0] < 2e-3

    check(10, 6000, 1e3)
    must_fail(check, 50, 2000, 1e3)
    check(200, 600, 5.0)  # the cap C of the theorem
    some, free, _ = gain(contexts(50, 4, 4000), 4)
    assert some == pytest.approx(0.048, abs=0.015)
    assert [float(free.inside), float(free.outside.abs())] == pytest.approx([8, 3.4], rel=0.1)
    drawn = contexts(200, 4, 1000)
    much, free, held = gain(drawn, 4)
    assert much > 0.4
    assert free.outside.abs() > 8
    assert float(theory.matrix_loss(14 * torch.eye(4), drawn, 0.0)) < held.loss


@pytest.mark.slow
def test_without_the_cap_very_long_prompts_want_all_directions():
    assert gain(contexts(2000, 4, 400), 4)[0] > 0.78
    assert gain(contexts(200, 10, 2000), 10)[0] < 2e-3
    assert gain(contexts(1000, 10, 1000), 10)[0] > 0.04


def test_the_long_prompt_limit_of_the_low_rank_matrix():
    """d = 4, k = 2: the least over c of c B B^T tends to 0.00622 at c = 6.62, but w I to 0."""
    grid = torch.arange(6.0, 7.4, 0.02, dtype=torch.float64)
    losses = torch.stack([theory.long_prompt_linear_loss(c, 0.0, 4, 2) for c in grid])

    def check(loss, at):
        assert float(loss) == pytest.approx(0.00622, abs=5e-6)
        assert float(at) == pytest.approx(6.62, abs=0.03)

    check(losses.min(), grid[losses.argmin()])
    wide = torch.stack([theory.long_prompt_linear_loss(c, c, 4, 2) for c in grid])
    must_fail(check, wide.min(), grid[wide.argmin()])
    assert theory.long_prompt_linear_loss(1e3, 1e3, 4, 2) < 1e-6

    def outside_is_not_wanted(c):
        zero = theory.long_prompt_linear_loss(c, 0.0, 4, 2)
        assert all(
            zero <= theory.long_prompt_linear_loss(c, 0.5 * step, 4, 2) for step in range(1, 30)
        )

    for c in (1.0, 3.0, 5.0):
        outside_is_not_wanted(c)
    must_fail(outside_is_not_wanted, 8.0)


def test_the_long_prompt_limit_is_that_of_long_prompts():
    drawn = contexts(3000, 4, 300)

    def check(inside, outside, noise):
        found = theory.matrix_loss(theory.low_rank_matrix(basis(4), 6.0, 3.0), drawn, 2.0)
        assert float(found) == pytest.approx(
            float(theory.long_prompt_linear_loss(inside, outside, 4, 2, noise)), rel=0.05
        )

    check(6.0, 3.0, 4.0 / 3000)
    must_fail(check, 6.0, 0.0, 4.0 / 3000)
    must_fail(check, 6.0, 3.0, 0.0)
    whole = theory.long_prompt_linear_loss(6.0, 6.0, 4, 2)  # M = w I: linear functions of all of x
    assert_close(whole, theory.linear_bias_limit(6.0, 4), rtol=1e-9, atol=0)


DISTANCES = {"affine": 0.1, "quadratic": 0.3, "cosine": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize("link", DISTANCES)
def test_three_links_recover_the_subspace(link):
    """d = 10, k = 2, n = 50, sigma = 0.3, all 100 entries free."""
    _, matrix = best(50, 10, 2000, 0.3, link)

    def check(subspace):
        assert theory.recovery_distance(matrix, subspace) < DISTANCES[link]

    check(basis(10))
    must_fail(check, torch.eye(10)[:, :2])
    if link == "affine":
        is_low_rank(matrix, 10, 0.1)
    else:
        assert theory.glm_class(link).even  # so the sign of M means nothing


@pytest.mark.slow
@pytest.mark.parametrize("link", ["quadratic", "cosine"])
def test_other_links_are_not_low_rank_without_noise(link):
    """Quadratic and cosine functions at sigma = 0.01: M is far from c B B^T.

    M still reads the subspace most.
    """
    _, matrix = best(50, 10, 6000, 0.01, link)
    assert theory.recovery_distance(matrix, basis(10)) < 0.3
    must_fail(is_low_rank, matrix, 10, 0.1)
    assert theory.outside_energy(matrix, basis(10)) > 0.2


def check_gain(link, count, inside, outside, expected):
    """By how much c' > 0 lowers the loss at this c; d = 10, k = 2, n = 50, sigma = 0.01."""
    drawn = contexts(50, 10, count, link)
    # The law does not know the sign of c', so both signs are averaged.
    plus, zero, minus = (
        theory.matrix_loss(theory.low_rank_matrix(basis(10), inside, c), drawn, 0.01)
        for c in (outside, 0.0, -outside)
    )
    assert float(1 - (plus + minus) / (2 * zero)) == pytest.approx(expected, rel=0.3)


def test_without_noise_quadratic_functions_want_other_directions_too():
    check_gain("quadratic", 4000, 11.0, 5.0, 0.053)
    must_fail(check_gain, "affine", 4000, 11.0, 5.0, 0.053)
    must_fail(check_gain, "quadratic", 4000, 11.0, 1.0, 0.053)


@pytest.mark.slow
def test_without_noise_cosine_functions_want_other_directions_too():
    check_gain("cosine", 40_000, 10.7, 3.0, 0.0075)
    must_fail(check_gain, "cosine", 40_000, 10.7, 6.0, 0.0075)


@pytest.mark.slow
def test_the_best_pair_for_quadratic_functions():
    """The joint best near (11, 5) beats the best c B B^T, at c = 9."""
    drawn = contexts(50, 10, 20_000, "quadratic")
    held = theory.optimal_pair(drawn, basis(10), 0.01, outside=0.0, start=(9.0, 0.0))
    free = theory.optimal_pair(drawn, basis(10), 0.01, start=(11.0, 5.0))
    assert float(held.inside) == pytest.approx(9, rel=0.03)
    assert float(1 - free.loss / held.loss) == pytest.approx(0.019, abs=0.008)
    assert free.outside.abs() > 3


def test_optimal_pairs_are_minima_of_the_loss():
    drawn = contexts(10, 4, 500)
    found = theory.optimal_pair(drawn, basis(4), 0.5)

    def check(inside, outside):
        loss = theory.matrix_loss(theory.low_rank_matrix(basis(4), inside, outside), drawn, 0.5)
        assert_close(loss, found.loss, rtol=1e-9, atol=0)

    check(found.inside, found.outside)
    must_fail(check, 1.1 * found.inside, found.outside)
    for step in (0.05, -0.05):
        must_fail(check, found.inside + step, found.outside)
    capped = theory.optimal_pair(drawn, basis(4), 0.5, cap=1.0)
    assert capped.inside == 1
    assert capped.loss > found.loss


def test_distances_between_subspaces():
    first = basis(5)
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)

    def check(second, sine):
        assert float(theory.subspace_distance(first, second)) == pytest.approx(sine, abs=1e-12)

    check(first @ turn, 0.0)
    away = torch.linalg.qr(torch.cat([first, torch.eye(5).double()[:, :1]], 1))[0][:, 2]
    tilted = torch.stack([first[:, 0], 0.8 * first[:, 1] + 0.6 * away], 1)
    check(tilted, 0.6)
    must_fail(check, tilted, 0.0)
    values = torch.linalg.svdvals(first.T @ tilted)  # cosines of the principal angles
    check(tilted, float((1 - values[-1] ** 2).sqrt()))
    matrix = theory.low_rank_matrix(first, 4.0, 3.0)
    assert float(theory.outside_energy(matrix, first)) == pytest.approx(27 / (32 + 27))
    assert float(theory.recovery_distance(matrix, first)) == pytest.approx(0, abs=1e-10)


BAD = [
    (lambda: theory.glm_class("tanh"), "a link is one of affine, quadratic, cosine, got 'tanh'"),
    (lambda: theory.low_rank_matrix(torch.ones(3, 1), 1.0), "must be orthonormal"),
    (lambda: theory.pair_of(torch.eye(3), torch.eye(3)), "must lie between 1 and 2, got 3"),
    (
        lambda: theory.optimal_pair(contexts(3, 4, 4), basis(4), 0.0, cap=0.0),
        "must be positive, got 0",
    ),
    (lambda: theory.long_prompt_linear_loss(0.0, 1.0, 4, 2), "c must be positive"),
    (lambda: theory.long_prompt_linear_loss(1.0, 1.0, 4, 4), "between 1 and 3, got 4"),
    (
        lambda: theory.subspace_distance(torch.ones(3, 1), torch.eye(3)[:, :1]),
        "must be orthonormal",
    ),
    (lambda: theory.recovery_distance(torch.eye(3), torch.ones(3, 1)), "must be orthonormal"),
    (lambda: theory.outside_energy(torch.eye(3), torch.ones(3, 1)), "must be orthonormal"),
]


@pytest.mark.usefixtures("as_users_run_it")
def test_subspaces_of_two_dimensions_are_refused():
    with pytest.raises(ValueError, match="of one dimension are compared, got 1 and 2"):
        theory.subspace_distance(torch.eye(3)[:, :1], torch.eye(3)[:, :2])


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
