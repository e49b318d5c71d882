"""The window's weights, noise and number of keys in `theory.lipschitz`.

They are compared with quadrature over the sphere.
"""

import inspect
import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from scipy.special import eval_chebyt, eval_gegenbauer, roots_jacobi
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory

WINDOWS = torch.tensor([1e-3, 0.1, 1.0, 3.0, 10.0, 30.0, 120.0], dtype=torch.float64)


@pytest.mark.parametrize(
    "name", [n for n in theory.__all__ if inspect.isfunction(getattr(theory, n))]
)
def test_every_function_says_where_it_comes_from_and_shows_it(name):
    doc = inspect.getdoc(getattr(theory, name))
    assert "Source: " in doc
    assert ">>> " in doc


def cosines(d, count=400):
    """Nodes and weights for one coordinate of a uniform point on the sphere of R^d."""
    nodes, weights = roots_jacobi(count, (d - 3) / 2, (d - 3) / 2)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def harmonic(k, d, t):
    """The zonal harmonic of degree k, 1 at t = 1."""
    t = t.numpy()
    values = (
        eval_chebyt(k, t)
        if d == 2
        else eval_gegenbauer(k, d / 2 - 1, t) / eval_gegenbauer(k, d / 2 - 1, 1.0)
    )
    return torch.from_numpy(values)


@pytest.mark.parametrize("d", [2, 3, 5, 10])
def test_limits_for_long_prompts_are_means_over_the_sphere(d):
    t, law = cosines(d)
    weights = torch.exp(WINDOWS[:, None] * (t - 1)) * law

    def check_normaliser(log_normaliser):
        assert_close(
            log_normaliser(WINDOWS, d), weights.sum(1).log() + WINDOWS, rtol=1e-9, atol=1e-12
        )

    def check_shrinkage(shrinkage):
        means = torch.stack([weights @ harmonic(k, d, t) for k in range(7)], 1) / weights.sum(
            1, keepdim=True
        )
        assert_close(shrinkage(WINDOWS, d, 6), means, rtol=1e-9, atol=1e-12)

    def check_noise(noise_limit):
        expected = (weights**2 / law).sum(1) / weights.sum(1) ** 2
        assert_close(noise_limit(WINDOWS, d), expected, rtol=1e-9, atol=0)

    check_normaliser(theory.log_normaliser)
    must_fail(check_normaliser, lambda w, d: theory.log_normaliser(w, d + 1))
    check_shrinkage(theory.harmonic_shrinkage)
    must_fail(check_shrinkage, lambda w, d, k: theory.harmonic_shrinkage(w, d, k) ** 1.001)
    check_noise(theory.noise_limit)
    must_fail(check_noise, lambda w, d: WINDOWS ** theory.noise_exponent_as_printed(d))
    assert_close(theory.mean_cosine(WINDOWS, d), theory.harmonic_shrinkage(WINDOWS, d, 1)[:, 1])


def test_the_noise_in_three_dimensions_is_w_coth_w():
    def check(noise_limit):
        assert_close(noise_limit(WINDOWS, 3), WINDOWS / WINDOWS.tanh(), rtol=1e-10, atol=0)

    check(theory.noise_limit)
    must_fail(check, theory.noise_asymptote)


SLOPES = {2: (0.521, 0.500), 3: (1.000, 1.000), 5: (1.83, 1.998)}  # at w = 10 and at w = 1000


@pytest.mark.parametrize("d", SLOPES)
def test_the_local_exponent_of_the_noise(d):
    w = torch.tensor([10.0, 1000.0], dtype=torch.float64)

    def check(noise_slope):
        assert noise_slope(w, d).tolist() == pytest.approx(SLOPES[d], abs=6e-4)

    check(theory.noise_slope)
    must_fail(check, lambda w, d: theory.noise_exponent_as_printed(d).expand(2))
    step = 1e-4
    rise = (
        theory.noise_limit(w * math.exp(step), d).log()
        - theory.noise_limit(w * math.exp(-step), d).log()
    )
    assert_close(theory.noise_slope(w, d), rise / (2 * step), rtol=1e-6, atol=0)


@pytest.mark.parametrize("d", [2, 3, 5, 10])
def test_the_asymptote_of_the_noise(d):
    def check(asymptote):
        assert_close(theory.noise_limit(1e6, d), asymptote(torch.tensor(1e6), d), rtol=1e-4, atol=0)

    check(theory.noise_asymptote)
    must_fail(check, lambda w, d: w ** theory.noise_exponent(d) if d != 3 else 1.001 * w)
    must_fail(check, lambda w, d: theory.noise_asymptote(w, d) * w**0.5)  # the printed exponent


def test_the_number_of_keys():
    def check(key_count):
        assert_close(key_count(WINDOWS, 300, 3), 300 * WINDOWS.tanh() / WINDOWS, rtol=1e-10, atol=0)

    check(theory.key_count)
    must_fail(check, lambda w, n, d: theory.key_count(w, n, d + 1))
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0, 0, 0]])
    assert_close(
        theory.effective_sample_size(weights), torch.tensor([4.0, 1.0], dtype=torch.float64)
    )


def test_the_half_weight_angle():
    def check(half_weight_angle):
        w = torch.tensor([0.4, 1.0, 30.0], dtype=torch.float64)
        ratio = torch.exp(w * (half_weight_angle(w).cos() - 1))
        assert_close(ratio, torch.full_like(w, 0.5), rtol=1e-12, atol=0)

    check(theory.half_weight_angle)
    must_fail(
        check, lambda w: (1 - math.log(2) / (2 * w)).clamp(min=-1).arccos()
    )  # the proof sketch's w
    wide = theory.half_weight_angle(torch.tensor([0.0, 0.3]))
    assert_close(wide, torch.full_like(wide, math.pi))


def points(*shape, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=-1)


def test_on_the_sphere_weights_are_a_gaussian_kernel():
    keys, query = points(5, 20, 3), points(5, 3, seed=1)
    squares = (keys - query[:, None]).square().sum(-1)

    def check(factor):
        expected = torch.softmax(-factor * 7.0 * squares, -1)
        assert_close(
            theory.attention_weights(keys, query, 7 * torch.eye(3)),
            expected,
            rtol=1e-12,
            atol=1e-15,
        )

    check(0.5)
    must_fail(check, 1.0)  # the w of the proof sketch


def test_constants_drop_out():
    keys, query, labels = points(5, 20, 4), points(5, 4, seed=1), points(5, 20, seed=2)
    matrix = points(4, 4, seed=3) * 9

    def check(prediction):
        shifted = prediction(keys, labels + 2.0, query, matrix)
        assert_close(shifted, prediction(keys, labels, query, matrix) + 2.0, rtol=0, atol=1e-12)

    check(theory.prediction)
    must_fail(check, lambda *a: theory.prediction(*a) * (1 + 1e-9))
    scores = torch.einsum("cnd,de,ce->cn", keys, matrix, query)
    by_hand = (scores.exp() * labels).sum(-1) / scores.exp().sum(-1)
    assert_close(theory.prediction(keys, labels, query, matrix), by_hand, rtol=1e-12, atol=0)


BAD = [
    (lambda: theory.log_normaliser(-1.0, 3), "at least 0, got -1.0"),
    (lambda: theory.mean_cosine(math.inf, 3), "must be finite"),
    (lambda: theory.noise_limit(torch.tensor([1.0, -2.0]), 3), "at least 0"),
    (lambda: theory.noise_slope(1.0, 1), "at least 2, got 1"),
    (lambda: theory.noise_exponent(1), "at least 2, got 1"),
    (lambda: theory.noise_exponent_as_printed(0), "at least 2, got 0"),
    (lambda: theory.key_count(1.0, 0, 3), "at least 1, got 0"),
    (lambda: theory.half_weight_angle(-0.1), "at least 0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_window_is_finite_in_many_dimensions():
    w = torch.tensor([0.0, 1e-9, 1e-3, 1.0, 99.9, 100.1, 1e4])
    for d in (2, 3, 20, 200):
        assert theory.log_normaliser(w, d).isfinite().all()
        assert theory.log_normaliser(w, d)[0] == 0
        assert (theory.log_normaliser(w, d).diff() > -1e-12).all()
    around = torch.tensor(
        [100 - 1e-6, 100 + 1e-6], dtype=torch.float64
    )  # where the formula changes
    seam = theory.log_normaliser(around, 20)
    assert np.diff(seam.numpy())[0] == pytest.approx(
        2e-6 * float(theory.mean_cosine(100.0, 20)), rel=1e-3
    )
