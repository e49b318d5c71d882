"""A free matrix M in `theory.lipschitz`: where Lemma 1, M* = w Sigma^-1, holds, and where not."""

import math

import pytest
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory

SIGMA = torch.tensor([[2.0, 0.6, 0.0], [0.6, 1.0, 0.3], [0.0, 0.3, 0.5]], dtype=torch.float64)
WIDE = torch.diag(torch.tensor([4.0, 1.0, 0.25], dtype=torch.float64))


def best(link, sigma=SIGMA, n=30, noise=0.3, start=None, **options):
    drawn = theory.draw_contexts(n, theory.function_class(link), 2000, covariance=sigma, **options)
    return drawn, theory.optimal_matrix(drawn, noise, start)


@pytest.mark.parametrize("link", ["relu", "linear"])
def test_the_best_matrix_whitens(link):
    drawn, found = best(link)

    def check(matrix):
        assert theory.isotropy(matrix).deviation < 0.05

    check(theory.whitened(found.matrix, SIGMA))
    must_fail(check, found.matrix)
    assert found.gradient < 1e-5
    window = theory.isotropy(theory.whitened(found.matrix, SIGMA)).window

    def check_window(noise):
        scalar = theory.optimal_window(1.0, noise, 30, 3, link, contexts=4000)
        assert float(window) == pytest.approx(
            float(scalar.window), rel=0.03
        )  # two computations of one number

    check_window(0.3)
    must_fail(check_window, 0.35)
    if link == "relu":
        assert float(window) == pytest.approx(3.954, rel=0.02)
    lemma = theory.matrix_loss(theory.lemma_matrix(float(window), SIGMA), drawn, 0.3)
    assert 0 < float(lemma / found.loss) - 1 < 1e-3


def test_functions_that_are_isotropic_in_x_break_the_lemma():
    """Where q is isotropic in the original coordinates, the whitened M* is not.

    Its eigenvalues are 6.8, 5.5 and 4.0.
    """
    broken, kept = (
        best("linear", WIDE, rotate_whitened=rotate)[1].matrix for rotate in (False, True)
    )

    def holds(matrix):
        assert theory.isotropy(theory.whitened(matrix, WIDE)).deviation < 0.05

    holds(kept)
    must_fail(holds, broken)

    def check(matrix):
        values = (
            torch.linalg.eigvals(theory.whitened(matrix, WIDE)).real.sort(descending=True).values
        )
        assert values.tolist() == pytest.approx([6.8, 5.5, 4.0], rel=0.05)
        assert float(theory.isotropy(theory.whitened(matrix, WIDE)).deviation) == pytest.approx(
            0.26, abs=0.03
        )

    check(broken)
    must_fail(check, kept)


def test_even_classes_know_no_sign():
    starts = [sign * torch.eye(3) for sign in (1, -1)]
    (drawn, up), (_, down) = (best("quadratic", start=start) for start in starts)
    windows = [theory.isotropy(theory.whitened(found.matrix, SIGMA)) for found in (up, down)]

    def check(pair):
        first, second = pair
        assert float(first) == pytest.approx(-float(second), rel=0.05)

    check([found.window for found in windows])
    must_fail(check, [found.window.abs() for found in windows])
    assert all(found.deviation < 0.05 for found in windows)
    both_sides = drawn._replace(
        keys=torch.cat([drawn.keys, -drawn.keys], 1), gaps=drawn.gaps.repeat(1, 2, 1)
    )
    assert_close(
        theory.matrix_loss(up.matrix, both_sides, 0.3),
        theory.matrix_loss(-up.matrix, both_sides, 0.3),
    )
    odd = theory.draw_contexts(30, theory.function_class("linear"), 500, covariance=SIGMA)
    assert theory.matrix_loss(-up.matrix, odd, 0.3) > 2 * theory.matrix_loss(up.matrix, odd, 0.3)


def test_the_loss_on_contexts_is_that_of_the_table():
    """Another sampling scheme for the same expectation."""
    drawn = theory.draw_contexts(40, theory.function_class("relu", 2.0), 6000, d=4)
    table = theory.loss_table(40, 4, contexts=6000)

    def check(window, size):
        expected = theory.window_loss(table, window, size, 0.5)
        found = theory.matrix_loss(6.0 * torch.eye(4), drawn, 0.5)
        assert float(found) == pytest.approx(float(expected.value), rel=0.03)

    check(6.0, 2.0)
    must_fail(check, 9.0, 2.0)
    must_fail(check, 6.0, 1.9)


def test_the_gradient_of_the_loss():
    drawn = theory.draw_contexts(7, theory.function_class("relu"), 50, covariance=SIGMA)
    matrix = torch.linspace(-1, 2, 9, dtype=torch.float64).view(3, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(theory.matrix_loss(matrix, drawn, 0.3), matrix)
    step = 1e-6 * torch.ones(3, 3, dtype=torch.float64).tril()

    def check(slope):
        ends = [theory.matrix_loss(matrix.detach() + sign * step, drawn, 0.3) for sign in (1, -1)]
        assert_close((ends[0] - ends[1]) / 2, slope, rtol=1e-5, atol=0)

    check((gradient * step).sum())
    must_fail(check, (gradient.T * step).sum())


def test_isotropy_is_the_largest_deviation():
    def check(deviation):
        values = theory.isotropy(torch.diag(torch.tensor([6.8, 5.5, 4.0])))
        assert float(values.window) == pytest.approx(16.3 / 3, rel=1e-6)
        assert float(values.deviation) == pytest.approx(deviation, abs=5e-3)

    check(0.26)
    must_fail(check, 0.25)
    turned = theory.lemma_matrix(3.0, SIGMA)
    assert float(theory.isotropy(theory.whitened(turned, SIGMA)).deviation) == pytest.approx(
        0, abs=1e-12
    )


def test_inputs_lie_on_the_ellipsoid():
    drawn = theory.draw_contexts(9, theory.function_class("linear"), 40, covariance=SIGMA)

    def check(sigma):
        lengths = torch.einsum("cnd,de,cne->cn", drawn.keys, torch.linalg.inv(sigma), drawn.keys)
        assert_close(lengths, torch.ones_like(lengths), rtol=1e-12, atol=0)

    check(SIGMA)
    must_fail(check, SIGMA @ SIGMA)


BAD = [
    (dict(n=0, d=3), "at least 1, got 0"),
    (dict(n=5, d=1), "at least 2, got 1"),
    (dict(n=5), "give either covariance or d"),
    (dict(n=5, d=3, covariance=SIGMA), "give either covariance or d"),
    (dict(n=5, covariance=-SIGMA), "must be a symmetric positive definite matrix"),
    (dict(n=5, covariance=SIGMA.tril()), "must be a symmetric positive definite matrix"),
    (dict(n=5, d=3, basis=2 * torch.eye(3)[:, :1]), "columns of B must be orthonormal"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        theory.draw_contexts(functions=theory.function_class("relu"), contexts=3, **options)
    with pytest.raises(ValueError, match="symmetric positive definite"):
        theory.lemma_matrix(math.pi, -SIGMA)
