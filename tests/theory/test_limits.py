"""The closed forms of `theory.limits` on LayerNorm: against numbers worked out elsewhere, and against LayerNorm itself.

Nothing here calls one closed form to check another, except where their agreement is the claim.
Every check takes the closed form as its argument, so that a wrong variant can be passed to it and
must fail.
"""

import doctest
import inspect
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from exact_prompts import fitted_slope, normal, vector
from helpers import must_fail
from scalar_tokens import ALPHAS, CONTEXT, EMBED, ONE, ZERO, ZETAS
from torch.testing import assert_close

from icl_interp.theory import limits

FUNCTIONS = [name for name in limits.__all__ if inspect.isfunction(getattr(limits, name))]


# ---- the documentation ---------------------------------------------------------------------------


def check_doctest(function):
    function = inspect.unwrap(function)  # the run-time type checker wraps it
    doc, globs = inspect.getdoc(function), dict(vars(sys.modules[function.__module__]))
    example = doctest.DocTestParser().get_doctest(doc, globs, function.__name__, None, None)
    results = doctest.DocTestRunner(verbose=False).run(example, out=lambda text: None)
    assert results.attempted > 0
    assert results.failed == 0
    assert "\nSource: " in doc


@pytest.mark.parametrize("name", FUNCTIONS)
def test_doctest(name):
    check_doctest(getattr(limits, name))


def test_doctest_can_fail():
    def wrong():
        """Wrong.

        Source: none.

        >>> 1 + 1
        3
        """

    def without_example():
        """Source: none."""

    must_fail(check_doctest, wrong)
    must_fail(check_doctest, without_example)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_returned_in_float64(dtype):
    v, context = torch.tensor([1.0, -2.0, 0.5], dtype=dtype), torch.tensor([0.5, -1.0], dtype=dtype)
    heads = torch.tensor([0.5, 0.0], dtype=dtype), torch.ones(2, 3, dtype=dtype)
    results = [
        *limits.output_certificate(v, v, v, v[0]),
        *limits.plateau(v, v, v, v, 1.0),
        limits.layernorm_plateau(v, v, v),
        limits.layernorm_correction(v, v, v),
        limits.layernorm_onset(v, 1e-5),
        limits.layernorm_onset(v, 1e-5, v.square()),
        *limits.saturation_profile(v, v[0]),
        limits.saturation_onset(1.0),
        limits.context_mixture(v, context, 0.5),
        limits.context_mixture(3, context, 0.5),
        *limits.attention_asymptote(v, *heads, context),
        *limits.paper_attention_asymptote(v, *heads, context),
        *(part for line in limits.attention_sums(*heads, context) for part in line),
        *(part for line in limits.paper_attention_sums(*heads, context) for part in line),
        *limits.attention_terms(v, context, 0.5),
        *limits.scalar_heads(
            v, *torch.ones(3, 2, 3, 1, dtype=dtype), torch.ones(2, 1, 3, dtype=dtype)
        ),
        *limits.layernorm_far(v, v, v, v),
        *vars(limits.ScalarLayer.of_heads(v, *heads, n_tokens=3)).values(),
        limits.hardmax_onset(context, -1.0),
        limits.max_weight_bound(3, v.abs()),
        limits.entropy_deficit_bound(v.abs()),
        limits.hardmax_margin(3),
        limits.necessary_margin(),
    ]
    assert {result.dtype for result in results} == {torch.float64}


# ---- LayerNorm: certificate and plateau ----------------------------------------------------------


def check_certificate_golden(certificate):
    c, r = certificate(vector(1, -2, 0.5), vector(1, 0.5, 2), vector(0.1, 0.2, 0.3), 0.25)
    assert_close(c, vector(0.1)[0], rtol=0, atol=1e-12)
    assert_close(r, vector(8).sqrt()[0], rtol=0, atol=1e-12)


def check_certificate_is_the_supremum(certificate):
    for d_model, seed in [(3, 0), (16, 1), (64, 2)]:
        w, gamma, beta = normal(3, d_model, seed=seed)
        c, r = certificate(w, gamma, beta, 0.3)
        streams = 10 ** normal(2000, 1, seed=seed + 10) * normal(2000, d_model, seed=seed + 20)
        outputs = F.layer_norm(streams, (d_model,), gamma, beta) @ w + 0.3
        assert ((outputs - c).abs() < r).all()
        # The stream along w * gamma, and a thousand streams near it: closer to the bound than any
        # random one comes.
        aligned = 1e4 * (w * gamma + 1e-3 * normal(1000, d_model, seed=seed))
        outputs = F.layer_norm(aligned, (d_model,), gamma, beta) @ w + 0.3
        assert ((outputs - c) < r).all()
        assert (outputs.max() - c) / r > 1 - 1e-4


def test_certificate():
    def wrong(gamma_power=1, center=True, scale=1.0, beta_sign=1):
        def certificate(w, gamma, beta, bias):
            direction = w * gamma**gamma_power
            direction = direction - direction.mean() if center else direction
            return beta_sign * (w @ beta) + bias, scale * math.sqrt(len(w)) * direction.norm()

        return certificate

    for check in (check_certificate_golden, check_certificate_is_the_supremum):
        check(limits.output_certificate)
        check(wrong())  # the mutants' frame is right, so it is the change that fails
        for change in (
            {"gamma_power": 0},
            {"center": False},
            {"scale": 0.999},
            {"scale": 1.001},
            {"beta_sign": -1},
        ):
            must_fail(check, wrong(**change))


def transformer(n_layers, post=False, d_model=12, seed=0):
    """A transformer, a head and an MLP a layer, written out: (context, x) -> f(x), and what `plateau` takes of it."""
    weights = normal(n_layers, 6, d_model, d_model, seed=seed) / math.sqrt(d_model)
    biases, norms = (
        normal(n_layers, 2, d_model, seed=seed + 1),
        normal(n_layers, 2, 2, d_model, seed=seed + 2),
    )
    embed, embed_bias, unembed, gamma, beta = normal(5, d_model, seed=seed + 3)

    def forward(context, x):
        h = torch.cat([context, vector(x)])[:, None] * embed + embed_bias
        future = torch.ones(len(h), len(h), dtype=torch.bool).triu(1)
        for (q, k, v, o, m_in, m_out), (b_in, b_out), (ln1, ln2) in zip(
            weights, biases, norms, strict=True
        ):

            def attention(z, q=q, k=k, v=v, o=o):
                pattern = torch.softmax(
                    ((z @ q) @ (z @ k).T).masked_fill(future, -math.inf), dim=-1
                )
                return pattern @ z @ v @ o

            def mlp(z, m_in=m_in, m_out=m_out, b_in=b_in, b_out=b_out):
                return F.gelu(z @ m_in + b_in) @ m_out + b_out

            for block, norm in ((attention, ln1), (mlp, ln2)):
                if post:
                    h = F.layer_norm(h + block(h), (d_model,), *norm)
                else:
                    h = h + block(F.layer_norm(h, (d_model,), *norm))
        return F.layer_norm(h[-1], (d_model,), gamma, beta) @ unembed + 0.4

    return forward, (embed, unembed, gamma, beta, 0.4)


def check_plateau(plateau, n_layers, post=False):
    forward, parameters = transformer(n_layers, post)
    for direction, limit in zip((1, -1), plateau(*parameters), strict=True):
        for seed in range(3):
            context = normal(8, seed=seed)
            assert_close(forward(context, direction * 1e9), limit, rtol=0, atol=1e-6)
            x = 10.0 ** torch.arange(4, 7)
            distance = [float(forward(context, direction * float(value)) - limit) for value in x]
            assert abs(fitted_slope(x, vector(*distance)) + 1) < 0.02


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_plateau_of_a_pre_ln_transformer(n_layers):
    def wrong(center=True, correction=0, gamma_power=1, flip=1):
        def plateau(embed, unembed, gamma, beta, bias):
            v = embed - embed.mean() if center else embed
            swing = flip * unembed @ (gamma**gamma_power * v) / embed.std(correction=correction)
            return unembed @ beta + bias + swing, unembed @ beta + bias - swing

        return plateau

    check_plateau(limits.plateau, n_layers)
    check_plateau(wrong(), n_layers)
    for change in ({"center": False}, {"correction": 1}, {"gamma_power": 0}, {"flip": -1}):
        must_fail(check_plateau, wrong(**change), n_layers)
    must_fail(check_plateau, limits.plateau, n_layers, post=True)


def test_plateau_is_centred_in_the_certificate_and_inside_it():
    for seed in range(200):
        embed, unembed, gamma, beta = normal(4, 8, seed=seed)
        up, down = limits.plateau(embed, unembed, gamma, beta, 0.5)
        c, r = limits.output_certificate(unembed, gamma, beta, 0.5)
        assert_close((up + down) / 2, c, rtol=0, atol=1e-12)
        assert (up - c).abs() < r


# ---- onset and profile ---------------------------------------------------------------------------


def check_profile_golden(profile):
    for x, level, output_growth, scale_growth in (
        (3.0, 0.949, 0.1, 0.9),
        (10.0, 0.995, 0.0099, 0.990),
    ):
        got = profile(vector(x * 7), 7.0)
        assert float(got[0]) == pytest.approx(level, abs=5e-4)
        assert float(got[1]) == pytest.approx(output_growth, abs=5e-5)
        assert float(got[2]) == pytest.approx(scale_growth, abs=5e-4)


def check_profile(profile, onset, parallel=0.0):
    """Against LayerNorm itself, the growth exponents by automatic differentiation.

    The parallel part shifts x.
    """
    v, b = vector(1, -2, 0.5, 3, 0.1), vector(0.3, 2, -1, 0.4, 5)
    v, b = v - v.mean(), b - b.mean()
    b = b - (v @ b) / (v @ v) * v + parallel * v
    for eps in (1e-5, 0.5):
        x = vector(-50, -0.3, 0.01, 0.5, 2, 30, 1e4).requires_grad_()
        stream = (x - parallel)[:, None] * v + b + 17.0  # a common shift is centred away
        output = F.layer_norm(stream, (5,), eps=eps) @ v
        scale = (stream.var(dim=-1, correction=0) + eps).sqrt()
        limit = math.sqrt(5) * v.norm()
        growth = [
            torch.autograd.grad(g.abs().log().sum(), x, retain_graph=True)[0] * x
            for g in (output, scale)
        ]
        direct = (output / limit).detach(), growth[0].detach(), growth[1].detach()
        got = profile(x.detach(), onset(v, eps, b))
        assert_close(tuple(got), direct, rtol=1e-8, atol=1e-9)
        assert_close(got[1], 1 - got[2], rtol=0, atol=1e-12)  # E_f = E_N - E_sigma, E_N = 1


def test_saturation_profile():
    def linear_in_r(x, x0):
        r = (x / x0).abs()
        return torch.sign(x) * r / (1 + r), 1 / (1 + r), r / (1 + r)

    check_profile_golden(limits.saturation_profile)
    check_profile(limits.saturation_profile, limits.layernorm_onset)
    check_profile(limits.saturation_profile, limits.layernorm_onset, parallel=3.0)
    must_fail(check_profile_golden, linear_in_r)
    must_fail(check_profile, linear_in_r, limits.layernorm_onset)
    must_fail(
        check_profile,
        limits.saturation_profile,
        lambda slope, eps, _: limits.layernorm_onset(slope, eps),
    )

    def without_projection(slope, eps, intercept):
        return ((intercept.square().mean() + eps) / slope.square().mean()).sqrt()

    check_profile(limits.saturation_profile, without_projection)
    must_fail(check_profile, limits.saturation_profile, without_projection, parallel=3.0)


def test_eps_alone_delays_saturation():
    slope = vector(1, -2, 0.5, 3)
    assert_close(
        limits.layernorm_onset(slope, 0.02),
        (0.02 / slope.var(correction=0)).sqrt(),
        rtol=1e-12,
        atol=0,
    )
    assert_close(
        limits.layernorm_onset(slope, 0.02, 5 * slope + 2), limits.layernorm_onset(slope, 0.02)
    )


def check_saturation_onset(saturation_onset):
    v, b = vector(1, -1, 1, -1), vector(2, 2, -2, -2)
    for tolerance in (0.3, 0.05, 0.001):
        onset = float(saturation_onset(2.0, tolerance))  # x0 of this v and b, at eps = 0
        stream = onset * vector(0.99, 1, 1.01, 2, 50)[:, None] * v + b
        before, at, *after = 1 - F.layer_norm(stream, (4,), eps=1e-12) @ v / 4
        assert before > tolerance > max(after)
        assert float(at) == pytest.approx(tolerance, abs=1e-9)


def test_saturation_onset():
    check_saturation_onset(limits.saturation_onset)
    must_fail(
        check_saturation_onset, lambda x0, tolerance: x0 / math.sqrt(2 * tolerance)
    )  # the far-out expansion
    assert float(limits.saturation_onset(1.0)) == pytest.approx(3.0424, abs=5e-5)


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constant", [vector(0, 0, 0), vector(*[0.1] * 6), vector(1e8, 1e8), vector(1)]
)
def test_a_constant_read_in_has_no_closed_form(constant):
    other = torch.ones_like(constant)
    with pytest.raises(
        ValueError, match=r"embed is constant over its \d coordinates.*measure the limit instead"
    ):
        limits.plateau(constant, other, other, other, 0.0)
    for call in (
        lambda: limits.layernorm_plateau(constant, other, other),
        lambda: limits.layernorm_correction(constant, other, other),
        lambda: limits.layernorm_onset(constant, 1e-5),
    ):
        with pytest.raises(ValueError, match="slope is constant"):
            call()


def test_a_nearly_constant_read_in_is_left_alone():
    up, down = limits.plateau(1 + 1e-9 * EMBED, EMBED, ONE, ZERO, 0.0)
    assert_close(up, limits.plateau(EMBED, EMBED, ONE, ZERO, 0.0)[0], rtol=1e-6, atol=0)
    assert_close(up, -down)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: limits.layernorm_plateau(EMBED, ONE, ZERO, 0),
            r"direction must be \+1 .* or -1 .*, got 0",
        ),
        (lambda: limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, 2), "direction must be"),
        (
            lambda: limits.paper_attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, 2),
            "direction must be",
        ),
        (lambda: limits.hardmax_onset(CONTEXT, 1.0, 0), "direction must be"),
        (lambda: limits.attention_asymptote(EMBED, ALPHAS, ZETAS, vector()), "context is empty"),
        (
            lambda: limits.paper_attention_asymptote(EMBED, ALPHAS, ZETAS, vector()),
            "context is empty",
        ),
        (lambda: limits.hardmax_onset(vector(), 1.0), "context is empty"),
        (lambda: limits.hardmax_onset(CONTEXT, 1.0, delta=0.0), "delta.*between 0 and 1, got 0"),
        (lambda: limits.hardmax_margin(10, 1.0), "delta.*between 0 and 1, got 1"),
        (lambda: limits.hardmax_margin(1), "at least 2, got 1"),
        (lambda: limits.necessary_margin(0), "at least 1, got 0"),
        (lambda: limits.necessary_margin(1, -0.1), "delta.*between 0 and 1"),
        (lambda: limits.max_weight_bound(0, 1.0), "at least 1, got 0"),
        (lambda: limits.saturation_onset(1.0, 1.0), "tolerance.*between 0 and 1, got 1"),
    ],
)
def test_wrong_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()
