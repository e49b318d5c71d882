"""The bias of a window in `theory.lipschitz`: its series, its limits, its term of order 1/n.

The series is compared with quadrature.
"""

import math

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail
from scipy.special import hyp0f1, roots_jacobi
from torch.testing import assert_close

from icl_interp.theory import lipschitz as theory

CLASSES = [
    theory.function_class("relu", 2.0),
    theory.function_class("affine", 2.0),
    theory.function_class("linear", 2.0),
    theory.function_class("quadratic", 2.0),
    theory.function_class("cosine", 4.0),
    theory.function_class("phased_cosine", 3.0),
    theory.function_class("phased_cosine", 1.0, frequency=10.0),
]
NAMES = [f"{c.link}_{c.lipschitz:g}_{c.frequency}" for c in CLASSES]


def angles(count=160):
    """Gauss-Legendre nodes and weights for angles from 0 to pi/2."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) * math.pi / 4, weights * math.pi / 4


def beta_by_quadrature(w, d):
    """E(E_w (z)_+ - (u)_+)^2 with u = q.x_q outside and z = q.x inside.

    Both means are by Gauss quadrature, split at the kink.

    Given z = q.x the mean of e^(w x.x_q) is e^(w z u) Z_(d-1)(w sqrt(1 - z^2) sqrt(1 - u^2)).
    """
    theta, weights = angles()
    law = weights * np.cos(theta) ** (d - 2)
    z, u = np.sin(theta), np.concatenate([np.sin(theta), -np.sin(theta)])
    across = w * np.cos(theta)[None, :] * np.sqrt(1 - u**2)[:, None]
    mixed = hyp0f1((d - 1) / 2, across**2 / 4)
    up, down = np.exp(w * u[:, None] * z) * mixed, np.exp(-w * u[:, None] * z) * mixed
    mean = (up * z) @ law / ((up + down) @ law)
    outer = np.concatenate([law, law]) / (2 * law.sum())
    return float(outer @ (mean - np.maximum(u, 0)) ** 2)


GOLDEN = {2: 1.6369e-3, 3: 2.9400e-3, 5: 4.8244e-3}  # beta_inf(10)


@pytest.mark.parametrize("d", GOLDEN)
def test_the_bias_limit_has_the_known_value(d):
    def check(bias_limit):
        assert float(bias_limit(10.0, d)) == pytest.approx(GOLDEN[d], abs=5.1e-8)

    check(theory.bias_limit)
    must_fail(check, lambda w, d: theory.bias_limit(w, d + 1))
    must_fail(check, theory.linear_bias_limit)


@pytest.mark.parametrize("d", mostly_slow([2, 5, 3, 9], 2))
@pytest.mark.parametrize("w", [0.0, 0.5, 5.0, 60.0])
def test_the_series_of_the_bias_is_exact(d, w):
    def check(value):
        assert float(value) == pytest.approx(beta_by_quadrature(w, d), rel=1e-7)

    check(theory.bias_limit(w, d))
    must_fail(check, theory.bias_limit(w, d) * (1 + 1e-6))
    must_fail(check, theory.bias_limit(1.001 * w + 0.001, d))


def profile(functions, z, phase):
    """A member of a class without its random slopes, as a function of z.

    The phase lies in [0, 2 pi).
    """
    size = functions.lipschitz
    match functions.link:
        case "relu":
            return size * math.sqrt(2 / 3) * np.maximum(z, 0)
        case "affine":
            return size / math.sqrt(3) * z
        case "linear":
            return size * z
        case "quadratic":
            return size / 2 * z**2
        case "cosine":
            return np.cos(size * z)
        case _:
            return size / functions.omega * np.cos(functions.omega * z + phase)


def moments(functions, d, powers):
    """E prod over the sphere and the phase: means of f and f^2."""
    nodes, weights = roots_jacobi(400, (d - 3) / 2, (d - 3) / 2)
    law = weights / weights.sum()
    phases = np.arange(16) * math.pi / 8
    return [
        np.mean([law @ profile(functions, nodes, phase) ** p for phase in phases]) for p in powers
    ]


@pytest.mark.parametrize("functions", CLASSES, ids=NAMES)
@pytest.mark.parametrize("d", [2, 3, 6])
def test_energies_of_all_degrees_add_up_to_the_mean_square(functions, d):
    top = 4000 if functions.link == "relu" else 60
    energies = theory.harmonic_energies(functions, d, top)

    def check(total):
        (second,) = moments(functions, d, [2])
        assert float(total) == pytest.approx(second, rel=1e-5)

    check(energies.sum())
    must_fail(check, energies.sum() - energies[1:3].sum())
    assert (energies >= 0).all()


@pytest.mark.parametrize("functions", CLASSES, ids=NAMES)
def test_features_carry_the_law_of_the_functions(functions):
    """E_f (sum c_i f(x_i))^2 from features, against functions drawn one by one."""
    draw = torch.Generator().manual_seed(0)
    d, count = 3, 60_000
    points = torch.nn.functional.normalize(
        torch.randn(4, d, generator=draw, dtype=torch.float64), dim=-1
    )
    c = torch.tensor([1.0, -2.0, 0.5, 0.5], dtype=torch.float64)
    q = torch.nn.functional.normalize(
        torch.randn(count, d, generator=draw, dtype=torch.float64), dim=-1
    )
    phases = 2 * math.pi * torch.rand(count, 1, generator=draw, dtype=torch.float64)
    z, slopes = q @ points.T, 2 * torch.rand(count, 2, 1, generator=draw, dtype=torch.float64) - 1
    if functions.link == "relu":
        f = functions.lipschitz * (slopes[:, 0] * z.clamp(min=0) + slopes[:, 1] * (-z).clamp(min=0))
    elif functions.link == "affine":
        f = functions.lipschitz * slopes[:, 0] * z
    else:
        f = torch.from_numpy(profile(functions, z.numpy(), phases.numpy()))
    squares = (f @ c).square()

    def check(features):
        expected = (features.T @ c).square().sum()
        assert abs(float(squares.mean() - expected)) < 4 * float(squares.std()) / math.sqrt(count)

    features = functions.features(points, q)
    check(features)
    must_fail(check, 1.1 * features)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_linear_functions_are_shrunk(d):
    w = torch.tensor([0.0, 0.3, 10.0, 300.0], dtype=torch.float64)

    def check(value):
        assert_close(value, (1 - theory.mean_cosine(w, d)) ** 2 / d, rtol=1e-8, atol=0)

    check(theory.linear_bias_limit(w, d))
    check(theory.class_bias_limit(theory.function_class("linear"), w, d))
    check(3 * theory.class_bias_limit(theory.function_class("affine"), w, d))  # E l^2 = L^2 / 3
    must_fail(check, theory.bias_limit(w, d))
    assert float(theory.linear_bias_limit(10.0, 3)) == pytest.approx(3.3333e-3, abs=5e-8)


def test_the_limit_of_the_bias_for_narrow_windows():
    """beta w^1.5 at w = 1e5, beside its limit."""

    def check(bias_limit):
        scaled = [float(bias_limit(1e5, d)) * 1e5**1.5 for d in (2, 3)]
        assert scaled == pytest.approx([0.0353, 0.0556], abs=5e-5)

    check(theory.bias_limit)
    must_fail(check, theory.bias_asymptote)
    constants = [float(theory.bias_asymptote(1.0, d)) for d in (2, 3)]
    assert constants == pytest.approx([0.0351, 0.0551], abs=5e-5)
    assert constants[1] / float(theory.kink_density(3)) == pytest.approx(0.110165, abs=5e-7)
    for d in (2, 3, 5, 10):
        ratios = [
            float(theory.bias_limit(w, d) / theory.bias_asymptote(w, d)) - 1 for w in (1e4, 1e6)
        ]
        assert 0 < ratios[1] < 0.02
        assert ratios[0] / ratios[1] == pytest.approx(
            10, rel=0.1
        )  # the correction falls like w^(-1/2)
        linear = theory.linear_bias_limit(1e5, d) / theory.linear_bias_asymptote(1e5, d)
        assert float(linear) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_printed_bounds_hold_for_narrow_windows_only(d):
    w, n = torch.logspace(0, 5, 26, dtype=torch.float64), 10**7
    printed = theory.bias_bounds_as_printed(w, n)
    bias = theory.bias_limit(w, d)
    assert ((bias / printed.lower).diff() > 0).all()  # so a constant exists: that at w = 1

    def bounded(upper):
        assert (bias < upper).all()

    bounded(0.1 * printed.upper)
    must_fail(bounded, 0.1 * printed.lower)

    def check(lower):  # below the bias for one constant, however wide the window
        wide = torch.logspace(-6, 0, 20, dtype=torch.float64)
        ratio = theory.bias_limit(wide, d) / lower(wide)
        assert ratio.min() > 1e-3 * ratio[-1]

    check(lambda wide: theory.bias_bounds_as_printed(1 + wide, n).lower)
    must_fail(check, lambda wide: theory.bias_bounds_as_printed(wide, n).lower)


CLASSES = [theory.function_class("relu"), theory.function_class("linear")]


@pytest.mark.slow
@pytest.mark.parametrize("functions", CLASSES, ids=str)
def test_the_term_of_order_one_over_n(functions):
    n, d = 200, 3
    table = theory.loss_table(n, d, functions, contexts=5000)
    at = slice(22, 32)  # windows of about 0.6 to 5
    w = table.windows[at]
    excess = n * (table.bias[:, at] - theory.class_bias_limit(functions, w, d))
    error = excess.std(0) / math.sqrt(len(excess))
    term = theory.class_finite_prompt_term(functions, w, d)

    def check(expected):
        assert ((excess.mean(0) - expected).abs() < 3.5 * error + 0.02 * expected).all()

    check(term.total)
    must_fail(check, term.variance if functions.link == "linear" else 2 * term.total)
    must_fail(check, 0 * term.total)


def test_the_variance_term_is_that_of_a_weighted_mean():
    def check(term):
        assert float(term) == pytest.approx(
            1 / 6 - 1 / 16, rel=1e-9
        )  # E (z)_+^2 - (E (z)_+)^2 for d = 3

    check(theory.finite_prompt_term(0.0, 3).variance)
    must_fail(check, theory.finite_prompt_term(0.1, 3).variance)
    assert_close(
        theory.finite_prompt_term(0.0, 3).ratio, torch.tensor(0.0).double(), atol=1e-15, rtol=0
    )


BAD = [
    (lambda: theory.bias_limit(-1.0, 3), "at least 0"),
    (lambda: theory.bias_limit(1.0, 1), "at least 2, got 1"),
    (lambda: theory.linear_bias_limit(1.0, 1), "at least 2"),
    (lambda: theory.finite_prompt_term(1.0, 0), "at least 2"),
    (lambda: theory.kink_density(1), "at least 2"),
    (lambda: theory.bias_asymptote(1.0, 1), "at least 2"),
    (lambda: theory.linear_bias_asymptote(1.0, 1), "at least 2"),
    (lambda: theory.bias_bounds_as_printed(1.0, 0), "at least 1"),
    (lambda: theory.function_class("cubic"), "one of relu, affine, linear, .* got 'cubic'"),
    (lambda: theory.function_class("relu", 0.0), "positive and finite, got 0"),
    (
        lambda: theory.function_class("relu", 1.0, frequency=3.0),
        "frequency is positive and for cosine",
    ),
    (lambda: theory.function_class("cosine", 1.0, frequency=-3.0), "frequency is positive"),
    (lambda: theory.harmonic_energies(theory.function_class("relu"), 1, 4), "at least 2"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
