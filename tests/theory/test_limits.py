"""The closed forms of `theory.limits`: against numbers worked out elsewhere, and against LayerNorm and softmax.

Nothing here calls one closed form to check another, except where their agreement is the claim. Every check takes the
closed form as its argument, so that a wrong variant can be passed to it and must fail.
"""

import doctest
import inspect
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from icl_interp.theory import limits

FUNCTIONS = [name for name in limits.__all__ if inspect.isfunction(getattr(limits, name))]


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted_slope(x, y):
    """Slope of log|y| against log|x|: the power of a power law."""
    x, y = torch.as_tensor(x).abs().log(), torch.as_tensor(y).abs().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def entropy_deficit(scores):
    return math.log(scores.shape[-1]) - torch.distributions.Categorical(logits=scores).entropy()


# The documentation ----------------------------------------------------------------------------------------------------


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
        *limits.scalar_heads(v, *torch.ones(3, 2, 3, 1, dtype=dtype), torch.ones(2, 1, 3, dtype=dtype)),
        *limits.layernorm_far(v, v, v, v),
        *vars(limits.ScalarLayer.of_heads(v, *heads, n_tokens=3)).values(),
        limits.hardmax_onset(context, -1.0),
        limits.max_weight_bound(3, v.abs()),
        limits.entropy_deficit_bound(v.abs()),
        limits.hardmax_margin(3),
        limits.necessary_margin(),
    ]
    assert {result.dtype for result in results} == {torch.float64}


# LayerNorm: certificate and plateau -----------------------------------------------------------------------------------


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
        # The stream along w * gamma, and a thousand streams near it: closer to the bound than any random one comes.
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
        for change in ({"gamma_power": 0}, {"center": False}, {"scale": 0.999}, {"scale": 1.001}, {"beta_sign": -1}):
            must_fail(check, wrong(**change))


def transformer(n_layers, post=False, d_model=12, seed=0):
    """A transformer, a head and an MLP a layer, written out: (context, x) -> f(x), and what `plateau` takes of it."""
    weights = normal(n_layers, 6, d_model, d_model, seed=seed) / math.sqrt(d_model)
    biases, norms = normal(n_layers, 2, d_model, seed=seed + 1), normal(n_layers, 2, 2, d_model, seed=seed + 2)
    embed, embed_bias, unembed, gamma, beta = normal(5, d_model, seed=seed + 3)

    def forward(context, x):
        h = torch.cat([context, vector(x)])[:, None] * embed + embed_bias
        future = torch.ones(len(h), len(h), dtype=torch.bool).triu(1)
        for (q, k, v, o, m_in, m_out), (b_in, b_out), (ln1, ln2) in zip(weights, biases, norms, strict=True):

            def attention(z, q=q, k=k, v=v, o=o):
                pattern = torch.softmax(((z @ q) @ (z @ k).T).masked_fill(future, -math.inf), dim=-1)
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


# One attention layer on scalar tokens ---------------------------------------------------------------------------------

EMBED, CONTEXT = vector(1, -2, 0.5, 3), vector(0.5, -1, 2)
ALPHAS, ZETAS = vector(0.5, -0.5), torch.stack([vector(0.2, 0.1, -0.3, 0.4), vector(1, 0, -1, 2)])
SIX_TOKENS = vector(0.9, -0.4, 0.3, -1.3, 0, 1.7)


def mixture(x, context, alpha):
    """The softmax mixture at one x, from the weights as the paper writes them (shifted: none overflows)."""
    tokens = [*context.tolist(), float(x)]
    top = max(alpha * x * token for token in tokens)
    weights = [math.exp(alpha * x * token - top) for token in tokens]
    return sum(w * token for w, token in zip(weights, tokens, strict=True)) / sum(weights)


def attention_layer(x, embed, alphas, zetas, context):
    return x * embed + sum(mixture(x, context, float(alpha)) * zeta for alpha, zeta in zip(alphas, zetas, strict=True))


def line_of_one_head(asymptote, context, alpha, direction=1):
    """Slope and intercept of m(x) itself: one head that writes 1, no skip connection."""
    slope, intercept = asymptote(vector(0), vector(alpha), torch.ones(1, 1).double(), context, direction)
    return slope[0], intercept[0]


def check_context_mixture(context_mixture):
    x = vector(-40, -1.5, 0, 0.3, 7)
    for alpha in (-0.7, 0.0, 1.3):
        direct = vector(*[mixture(value, SIX_TOKENS, alpha) for value in x.tolist()])
        assert_close(context_mixture(x, SIX_TOKENS, alpha), direct, rtol=1e-12, atol=1e-12)
        assert_close(context_mixture(x[:, None], SIX_TOKENS, alpha), direct[:, None], rtol=1e-12, atol=1e-12)


def test_context_mixture():
    check_context_mixture(limits.context_mixture)
    assert_close(limits.context_mixture(3.0, vector(), 0.5), vector(3)[0])  # alone, a query reads itself

    def without_the_query(x, context, alpha):
        return torch.softmax(alpha * x[..., None] * context, dim=-1) @ context

    must_fail(check_context_mixture, without_the_query)
    must_fail(check_context_mixture, lambda x, context, alpha: limits.context_mixture(x, context, -alpha))


def check_asymptote_golden(asymptote):
    for direction, expected in ((1, vector(119, -190, 21, 338)), (-1, vector(-118, 190, -22, -336))):
        slope, intercept = asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, direction)
        assert_close(direction * 100 * slope + intercept, expected, rtol=1e-12, atol=1e-12)


@given(
    alphas=st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=3),
    quarters=st.lists(st.integers(-12, 12), min_size=1, max_size=6),
    direction=st.sampled_from([1, -1]),
)
def check_asymptote(asymptote, alphas, quarters, direction):
    # Tokens on a lattice of 1/4, ties and zeros included: at |x| = 300 every rival's weight is below e^-37.
    context, x = vector(*quarters) / 4, direction * 300.0
    embed, zetas = normal(5), normal(len(alphas), 5, seed=1)
    slope, intercept = asymptote(embed, vector(*alphas), zetas, context, direction)
    direct = attention_layer(x, embed, alphas, zetas, context)
    assert_close(x * slope + intercept, direct, rtol=1e-11, atol=1e-11)


def test_attention_asymptote():
    def other_direction(embed, alphas, zetas, context, direction):
        return limits.attention_asymptote(embed, alphas, zetas, context, -direction)

    for check in (check_asymptote_golden, check_asymptote):
        check(limits.attention_asymptote)
        must_fail(check, other_direction)
        must_fail(check, limits.paper_attention_asymptote)


def check_one_head(asymptote, alpha):
    for direction in (1, -1):
        slope, intercept = line_of_one_head(asymptote, SIX_TOKENS, alpha, direction)
        for x in (direction * 100.0, direction * 130.0):
            assert_close(x * slope + intercept, vector(mixture(x, SIX_TOKENS, alpha))[0], rtol=1e-10, atol=1e-10)


def test_of_the_printed_sums_only_the_first_is_right():
    for alpha in (0.7, 0.0, -0.7):
        check_one_head(limits.attention_asymptote, alpha)
    check_one_head(limits.paper_attention_asymptote, 0.7)
    must_fail(check_one_head, limits.paper_attention_asymptote, 0.0)
    must_fail(check_one_head, limits.paper_attention_asymptote, -0.7)


def test_the_printed_numbers():
    slope, intercept = line_of_one_head(limits.paper_attention_asymptote, SIX_TOKENS, -0.7)
    assert_close((slope, intercept), (vector(1)[0], vector(-1.7 / 6)[0]), rtol=1e-12, atol=1e-12)
    slope, intercept = line_of_one_head(limits.paper_attention_asymptote, SIX_TOKENS, -0.7, direction=-1)
    assert_close((slope, intercept), (vector(1)[0], vector(2.9 / 6)[0]), rtol=1e-12, atol=1e-12)
    assert mixture(100, SIX_TOKENS, -0.7) == pytest.approx(-1.3, abs=1e-12)
    assert mixture(-100, SIX_TOKENS, -0.7) == pytest.approx(1.7, abs=1e-12)

    slope, intercept = line_of_one_head(limits.paper_attention_asymptote, SIX_TOKENS, 0.0)
    assert float(37 * slope + intercept) == pytest.approx(31.886, abs=5e-4)
    slope, intercept = line_of_one_head(limits.attention_asymptote, SIX_TOKENS, 0.0)
    assert float(37 * slope + intercept) == pytest.approx(5.457, abs=5e-4)
    assert mixture(37, SIX_TOKENS, 0.0) == pytest.approx(5.457, abs=5e-4)


def check_error_rate(rate):
    x = torch.arange(20, 40, dtype=torch.float64)
    error = vector(*[mixture(value, SIX_TOKENS, -0.7) - -1.3 for value in x.tolist()])
    assert fitted_slope(x.exp(), error) == pytest.approx(-rate, rel=1e-3)


def test_the_error_of_the_asymptote_is_exponentially_small():
    check_error_rate(0.7 * 0.9)  # |alpha| times the gap between the extreme token, -1.3, and the next, -.4
    must_fail(check_error_rate, 0.7 * 0.1)


# LayerNorm behind that layer ------------------------------------------------------------------------------------------

PLATEAU = vector(0.249075, -1.376465, -0.275293, 1.402683)
ONE, ZERO = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
GAMMA, BETA = vector(1.5, -0.5, 2, 0.7), vector(0.3, -1, 0.2, 2)


def post_ln(x, gamma=ONE, beta=ZERO, context=CONTEXT, eps=1e-5):
    return F.layer_norm(attention_layer(x, EMBED, ALPHAS, ZETAS, context), (4,), gamma, beta, eps)


def check_layernorm_plateau_golden(layernorm_plateau):
    slope, _ = limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT)
    for direction in (1, -1):
        limit = layernorm_plateau(slope, ONE, ZERO, direction)
        assert_close(limit, direction * PLATEAU, rtol=0, atol=1e-6)
    for x, deviation in ((10.0, 0.0698), (100.0, 0.0067)):
        worst = (post_ln(x) - layernorm_plateau(slope, ONE, ZERO, 1)).abs().max()
        assert float(worst) == pytest.approx(deviation, abs=5e-5)


def check_layernorm_plateau(layernorm_plateau):
    slope, _ = limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT)
    for direction in (1, -1):
        limit = layernorm_plateau(slope, GAMMA, BETA, direction)
        for context, eps in ((CONTEXT, 1e-5), (SIX_TOKENS, 1e-5), (CONTEXT, 10.0)):
            assert_close(post_ln(direction * 1e9, GAMMA, BETA, context, eps), limit, rtol=0, atol=1e-7)
            near, far = (post_ln(direction * x, GAMMA, BETA, context, eps) - limit for x in (1e3, 1e5))
            distance = vector(near.abs().max(), far.abs().max())
            assert fitted_slope(vector(1e3, 1e5), distance) == pytest.approx(-1, abs=0.01)


def test_layernorm_plateau():
    def wrong(center=True, correction=0, odd=True):
        def layernorm_plateau(slope, gamma, beta, direction):
            v = slope - slope.mean() if center else slope
            return (direction if odd else 1) * gamma * v / slope.std(correction=correction) + beta

        return layernorm_plateau

    for check in (check_layernorm_plateau_golden, check_layernorm_plateau):
        check(limits.layernorm_plateau)
        check(wrong())
        for change in ({"center": False}, {"correction": 1}, {"odd": False}):
            must_fail(check, wrong(**change))


def check_growth_of_the_variance(power):
    x = 10.0 ** torch.arange(2, 6).double()
    variance = [float(attention_layer(float(value), EMBED, ALPHAS, ZETAS, CONTEXT).var(correction=0)) for value in x]
    assert fitted_slope(x, vector(*variance)) == pytest.approx(power, abs=0.01)


def test_the_variance_grows_like_the_square_and_not_as_printed():
    check_growth_of_the_variance(2)
    must_fail(check_growth_of_the_variance, 1)


def check_correction(correction):
    for direction in (1, -1):
        slope, intercept = limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, direction)
        limit = post_ln(direction * 1e15, GAMMA, BETA)
        rest = {
            x: post_ln(direction * x, GAMMA, BETA) - limit - correction(slope, intercept, GAMMA, direction) / x
            for x in (1e3, 1e4)
        }
        assert (rest[1e4] / GAMMA).abs().max() < 2e-8
        size = vector(*[float(value.abs().max()) for value in rest.values()])
        assert fitted_slope(vector(*rest), size) == pytest.approx(-2, abs=0.02)


def test_layernorm_correction():
    def wrong(project=True, odd=False):
        def correction(slope, intercept, gamma, direction):
            v, b = slope - slope.mean(), intercept - intercept.mean()
            along = (v @ b) / (v @ v) * v if project else 0
            return (direction if odd else 1) * gamma * (b - along) / slope.std(correction=0)

        return correction

    check_correction(lambda slope, intercept, gamma, _: limits.layernorm_correction(slope, intercept, gamma))
    check_correction(wrong())
    must_fail(check_correction, wrong(project=False))
    must_fail(check_correction, wrong(odd=True))


def check_spread_over_contexts(n_heads_read):
    # Context enters a post-LN layer at order 1/|x|: the spread over contexts times |x| tends to a constant.
    contexts = normal(32, 5)
    alphas, zetas = ALPHAS[:n_heads_read], ZETAS[:n_heads_read]
    spread = []
    for x in (1e3, 1e4, 1e5):
        outputs = torch.stack([F.layer_norm(attention_layer(x, EMBED, alphas, zetas, c), (4,)) for c in contexts])
        spread.append(x * float(outputs.std(dim=0).max()))
    assert spread[0] > 0.1
    assert spread[2] == pytest.approx(spread[1], rel=1e-3)


def test_the_spread_over_contexts_dies_like_one_over_x():
    check_spread_over_contexts(2)
    must_fail(check_spread_over_contexts, 1)  # without the head of alpha < 0 no context is left far out


# Onset and profile ----------------------------------------------------------------------------------------------------


def check_profile_golden(profile):
    for x, level, output_growth, scale_growth in ((3.0, 0.949, 0.1, 0.9), (10.0, 0.995, 0.0099, 0.990)):
        got = profile(vector(x * 7), 7.0)
        assert float(got[0]) == pytest.approx(level, abs=5e-4)
        assert float(got[1]) == pytest.approx(output_growth, abs=5e-5)
        assert float(got[2]) == pytest.approx(scale_growth, abs=5e-4)


def check_profile(profile, onset, parallel=0.0):
    """Against LayerNorm itself, the growth exponents by automatic differentiation. The parallel part shifts x."""
    v, b = vector(1, -2, 0.5, 3, 0.1), vector(0.3, 2, -1, 0.4, 5)
    v, b = v - v.mean(), b - b.mean()
    b = b - (v @ b) / (v @ v) * v + parallel * v
    for eps in (1e-5, 0.5):
        x = vector(-50, -0.3, 0.01, 0.5, 2, 30, 1e4).requires_grad_()
        stream = (x - parallel)[:, None] * v + b + 17.0  # a common shift is centred away
        output = F.layer_norm(stream, (5,), eps=eps) @ v
        scale = (stream.var(dim=-1, correction=0) + eps).sqrt()
        limit = math.sqrt(5) * v.norm()
        growth = [torch.autograd.grad(g.abs().log().sum(), x, retain_graph=True)[0] * x for g in (output, scale)]
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
    must_fail(check_profile, limits.saturation_profile, lambda slope, eps, _: limits.layernorm_onset(slope, eps))

    def without_projection(slope, eps, intercept):
        return ((intercept.square().mean() + eps) / slope.square().mean()).sqrt()

    check_profile(limits.saturation_profile, without_projection)
    must_fail(check_profile, limits.saturation_profile, without_projection, parallel=3.0)


def test_eps_alone_delays_saturation():
    slope = vector(1, -2, 0.5, 3)
    assert_close(limits.layernorm_onset(slope, 0.02), (0.02 / slope.var(correction=0)).sqrt(), rtol=1e-12, atol=0)
    assert_close(limits.layernorm_onset(slope, 0.02, 5 * slope + 2), limits.layernorm_onset(slope, 0.02))


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
    must_fail(check_saturation_onset, lambda x0, tolerance: x0 / math.sqrt(2 * tolerance))  # the far-out expansion
    assert float(limits.saturation_onset(1.0)) == pytest.approx(3.0424, abs=5e-5)


# Softmax: between hardmax and uniform ---------------------------------------------------------------------------------


def random_scores():
    """3000 score vectors of many lengths, shapes and ranges."""
    for seed in range(300):
        n = 2 + seed * seed % 97
        spread = 10 ** (seed % 31 / 10 - 1.5)
        scores = normal(10, n, seed=seed)
        scores[5:] = scores[5:].sign() * (1 + 1e-3 * scores[5:])  # nearly two-valued: where bounds are tightest
        yield spread * scores


def check_max_weight(bound):
    for scores in random_scores():
        spread = scores.amax(-1) - scores.amin(-1)
        assert (torch.softmax(scores, -1).amax(-1) <= bound(scores.shape[-1], spread) * (1 + 1e-12)).all()
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
        weights, values = torch.softmax(scores, -1), torch.sin(torch.arange(scores.shape[-1]).double())
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
    must_fail(check_deficit_is_nearly_reached, lambda spread: torch.as_tensor(spread))  # true, but not sharp
    # The thresholds of "uniform": 90 % of the keys effectively attended, and a total variation of .1.
    assert float(limits.entropy_deficit_bound(0.916)) < 0.105
    assert math.exp(-0.105) > 0.9
    assert float(limits.entropy_deficit_bound(0.4)) == pytest.approx(2 * 0.1**2)


def check_margin(margin):
    for n in (2, 3, 41, 1000):
        for delta in (0.05, 0.3):
            scores = -(normal(200, n, seed=n).abs() + float(margin(n, delta)))  # rivals at the margin or beyond
            scores[0], scores[:, 0] = -float(margin(n, delta)), 0.0
            left = 1 - torch.softmax(scores, -1)[:, 0]
            assert (left <= delta + 1e-12).all()
            assert float(left[0]) == pytest.approx(delta, abs=1e-12)  # all rivals tied: nothing to spare


def test_hardmax_margin():
    check_margin(limits.hardmax_margin)
    must_fail(check_margin, lambda n, delta: limits.hardmax_margin(n + 1, delta))
    must_fail(check_margin, lambda n, delta: limits.necessary_margin(1, delta))
    for n, golden in ((10, 5.14), (41, 6.63), (1000, 9.85)):
        assert float(limits.hardmax_margin(n)) == pytest.approx(golden, abs=5e-3)


def check_necessary_margin(margin):
    for k in (1, 2, 7):
        for delta in (0.05, 0.3):
            for seed in range(50):  # any number of rivals, the nearest just inside the margin: too much is lost
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


def mass_off_the_arg_max(x, context, alpha):
    scores = alpha * x * torch.cat([context, vector(x)])
    weights = torch.softmax(scores, 0)
    return 1 - float(weights[scores == scores.max()].sum())


def check_hardmax_onset(onset, p=None):
    for seed in range(60):
        context = normal(p or 1 + seed % 7, seed=seed) + seed % 3 * 4
        if seed % 4 == 0:
            context = torch.cat([context, context])  # ties
        for alpha in (-100.0, -0.7, 0.3, 5.0):
            for direction in (1, -1):
                start = float(onset(context, alpha, direction))
                far = [mass_off_the_arg_max(direction * start * factor, context, alpha) for factor in (1, 1.1, 2, 30)]
                assert max(far) <= 0.05 + 1e-9
                if len(context) == 1:
                    assert far[0] == pytest.approx(0.05, abs=1e-9)  # one rival: nothing to spare


def test_hardmax_onset():
    def gap_only(context, alpha, direction):
        """Forgets that for alpha < 0 the query is a rival too, until it has passed the extreme token."""
        signed = (direction * context).unique()
        if alpha > 0 or len(signed) == 1:
            return limits.hardmax_onset(context, alpha, direction)
        return limits.hardmax_margin(len(context) + 1) / (-alpha * (signed[1] - signed[0]))

    check_hardmax_onset(limits.hardmax_onset)
    must_fail(check_hardmax_onset, gap_only)
    must_fail(check_hardmax_onset, lambda *a: 0.95 * limits.hardmax_onset(*a), p=1)
    must_fail(check_hardmax_onset, lambda *a: 1.05 * limits.hardmax_onset(*a), p=1)
    must_fail(check_hardmax_onset, lambda context, alpha, d: limits.hardmax_onset(context, alpha, -d))
    assert limits.hardmax_onset(CONTEXT, 0.0) == math.inf
    start = float(limits.hardmax_onset(vector(0.8), -2.0, delta=0.3))
    assert mass_off_the_arg_max(start, vector(0.8), -2.0) == pytest.approx(0.3, abs=1e-9)


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
    # "For large values, softmax performs like hardmax": but large values with the gaps of the first column are uniform,
    # and small values with the gaps of the second do not.
    large_values_small_gaps = vector(1000, 1000.02, 1000.03, 1000.05, 1000.1)
    assert_close(softmax(large_values_small_gaps), vector(*TABLE_4[0][1]), rtol=0, atol=5e-7)
    assert 1 - float(entropy_deficit(large_values_small_gaps)) / math.log(5) == pytest.approx(0.99963, abs=5e-6)
    assert_close(softmax(vector(0, 2, 3, 5, 10)), vector(*TABLE_4[1][1]), rtol=0, atol=5e-7)
    assert 10 > limits.hardmax_margin(5) > 0.1


def check_many_tokens(bound):
    """Independent scores in -B .. B: the largest weight dies like 1/n, the entropy deficit stays where it is."""
    half_range, n_tokens = 3.0, (1_000, 10_000, 100_000)
    largest, deficits = [], []
    for n in n_tokens:
        scores = half_range * (2 * torch.rand(n, generator=torch.Generator().manual_seed(n)).double() - 1)
        largest.append(float(torch.softmax(scores, 0).max()))
        deficits.append(float(entropy_deficit(scores)))
        assert largest[-1] <= float(limits.max_weight_bound(n, 2 * half_range))
        assert deficits[-1] <= float(limits.entropy_deficit_bound(2 * half_range))
    assert fitted_slope(vector(*n_tokens), vector(*largest)) == pytest.approx(-1, abs=0.02)
    # n = 1e5: the normalised entropy looks uniform, the effective number of tokens and the output do not.
    assert 1 - deficits[-1] / math.log(n) == pytest.approx(0.930, abs=1e-3)
    assert math.exp(-deficits[-1]) == pytest.approx(0.445, abs=5e-3)
    assert float(torch.softmax(scores, 0) @ scores) == pytest.approx(half_range / math.tanh(half_range) - 1, abs=0.02)
    assert max(deficits) - min(deficits) < bound


def test_many_tokens_are_dispersed_and_not_uniform():
    check_many_tokens(0.1)
    must_fail(check_many_tokens, 1e-6)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [vector(0, 0, 0), vector(*[0.1] * 6), vector(1e8, 1e8), vector(1)])
def test_a_constant_read_in_has_no_closed_form(constant):
    other = torch.ones_like(constant)
    with pytest.raises(ValueError, match=r"embed is constant over its \d coordinates.*measure the limit instead"):
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
        (lambda: limits.layernorm_plateau(EMBED, ONE, ZERO, 0), r"direction must be \+1 .* or -1 .*, got 0"),
        (lambda: limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, 2), "direction must be"),
        (lambda: limits.paper_attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, 2), "direction must be"),
        (lambda: limits.hardmax_onset(CONTEXT, 1.0, 0), "direction must be"),
        (lambda: limits.attention_asymptote(EMBED, ALPHAS, ZETAS, vector()), "context is empty"),
        (lambda: limits.paper_attention_asymptote(EMBED, ALPHAS, ZETAS, vector()), "context is empty"),
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
