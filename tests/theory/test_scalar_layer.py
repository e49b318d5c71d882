"""`theory.scalar_layer` and the parts of Appendix G.1: against attention written out, key by key, and its far values.

Every check takes the closed form as its argument, so that a wrong variant can be passed to it and
must fail.
"""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from icl_interp.theory import limits
from icl_interp.theory.limits import ScalarLayer

N_HEADS, D_MODEL, D_HEAD, SCALE = 3, 5, 2, 0.7


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters(n_tokens, seed=0):
    """Random weights of a layer with everything: embed, shifts, weights, biases."""
    maps = [normal(N_HEADS, D_MODEL, D_HEAD, seed=seed + k) for k in range(3)]
    maps.append(normal(N_HEADS, D_HEAD, D_MODEL, seed=seed + 3))
    biases = (
        *(normal(N_HEADS, D_HEAD, seed=seed + 4 + k) for k in range(3)),
        normal(D_MODEL, seed=seed + 7),
    )
    return (
        normal(D_MODEL, seed=seed + 8),
        normal(n_tokens, D_MODEL, seed=seed + 9),
        tuple(maps),
        biases,
    )


def attention_written_out(embed, shifts, weights, biases, tokens):
    """(what attention adds at the last token, its weights), with a loop over heads and keys."""
    vectors = [token * embed + shift for token, shift in zip(tokens.tolist(), shifts, strict=True)]
    total, patterns = biases[3].clone(), []
    for w_q, w_k, w_v, w_o, b_q, b_k, b_v in zip(*weights, *biases[:3], strict=True):
        query = vectors[-1] @ w_q + b_q
        scores = [SCALE * float(query @ (v @ w_k + b_k)) for v in vectors]
        exps = [math.exp(score - max(scores)) for score in scores]
        patterns.append([e / sum(exps) for e in exps])
        for weight, v in zip(patterns[-1], vectors, strict=True):
            total = total + weight * (v @ w_v + b_v) @ w_o
    return total, vector(*patterns)


# The decomposition --------------------------------------------------------------------------------

CONTEXT = vector(0.9, -0.4, 0.3, -1.3, 0, 1.7)


def check_decomposition(make):
    for seed in range(3):
        known = parameters(len(CONTEXT) + 1, seed=20 * seed)
        layer, xs = make(*known, SCALE), vector(-50, -1, 0, 0.3, 7)
        mu, beta, offset = layer.terms(xs, CONTEXT)
        for i, x in enumerate(xs.tolist()):
            direct, pattern = attention_written_out(*known, torch.cat([CONTEXT, vector(x)]))
            stream = direct + x * known[0] + known[1][-1]
            assert_close(layer.pattern(x, CONTEXT), pattern, rtol=0, atol=1e-12)
            assert_close(layer.output(x, CONTEXT), direct, rtol=1e-11, atol=1e-11)
            assert_close(layer.stream(x, CONTEXT), stream, rtol=1e-11, atol=1e-11)
            # The parts: what each token is read for, and together the whole.
            assert_close(mu[:, i], pattern[:, :-1] * CONTEXT, rtol=0, atol=1e-11)
            assert_close(beta[:, i], pattern[:, -1] * x, rtol=0, atol=1e-11)
            parts = (mu[:, i].sum(-1) + beta[:, i]) @ layer.zetas + offset[:, i].sum(0) + layer.bias
            assert_close(parts, direct, rtol=1e-11, atol=1e-11)


def without(name):
    """`ScalarLayer.of_weights` that forgets one of the coefficients."""

    def make(*known):
        layer = ScalarLayer.of_weights(*known)
        return dataclasses.replace(layer, **{name: torch.zeros_like(getattr(layer, name))})

    return make


@pytest.mark.parametrize(
    "name", ["embed", "shift", "alphas", "kappas", "lambdas", "nus", "zetas", "omegas", "bias"]
)
def test_decomposition_needs_every_coefficient(name):
    check_decomposition(ScalarLayer.of_weights)
    must_fail(check_decomposition, without(name))


def test_shapes_of_many_queries():
    layer = ScalarLayer.of_weights(*parameters(7), SCALE)
    xs = normal(2, 3)
    assert layer.pattern(xs, CONTEXT).shape == (N_HEADS, 2, 3, 7)
    assert_close(layer.stream(xs, CONTEXT)[1, 2], layer.stream(float(xs[1, 2]), CONTEXT))
    assert_close(layer.pattern(xs, CONTEXT).sum(-1), torch.ones(N_HEADS, 2, 3).double())


def check_terms(terms):
    """Equation 6, with the sums as the paper writes them."""
    for alpha in (-0.7, 0.0, 1.3):
        for x in (-2.0, 0.4, 3.0):
            exps = [math.exp(alpha * x * t) for t in CONTEXT.tolist()]
            own = math.exp(alpha * x * x)
            mu, beta = terms(x, CONTEXT, alpha)
            expected = vector(
                *(t * e / (own + sum(exps)) for t, e in zip(CONTEXT.tolist(), exps, strict=True))
            )
            assert_close(mu, expected, rtol=1e-12, atol=1e-12)
            assert float(beta) == pytest.approx(x * own / (own + sum(exps)), abs=1e-12)


def test_terms():
    def without_own_weight(x, context, alpha):
        weights = torch.softmax(alpha * x * context, 0)
        return weights * context, weights.new_tensor(x)

    check_terms(limits.attention_terms)
    must_fail(check_terms, without_own_weight)
    must_fail(check_terms, lambda x, context, alpha: limits.attention_terms(x, context, -alpha))


def test_an_alpha_that_is_rounding_is_zero():
    """W_Q and W_K orthogonal on W: exactly 0 in the head, 1e-17 in floating point.

    The sum S3 must have it.
    """
    embed, w_q = normal(D_MODEL), normal(1, D_MODEL, 3)
    q = embed @ w_q[0]
    k = torch.linalg.cross(q, normal(3, seed=1))
    w_k = (embed[:, None] * k / embed.square().sum())[None]
    assert 0 < abs(float((embed @ w_q[0]) @ (embed @ w_k[0]))) < 1e-13
    other = normal(1, D_MODEL, 3, seed=2), normal(1, 3, D_MODEL, seed=3)
    assert limits.scalar_heads(embed, w_q, w_k, *other).alphas.tolist() == [0.0]
    slightly = w_k + 1e-9 * w_q
    assert float(limits.scalar_heads(embed, w_q, slightly, *other).alphas[0]) == pytest.approx(
        1e-9 * float(q @ q)
    )
    zero = torch.zeros(1, 3).double()
    layer = ScalarLayer.of_weights(
        embed,
        torch.zeros(3, D_MODEL).double(),
        (w_q, w_k, *other),
        (zero, zero, zero, torch.zeros(D_MODEL).double()),
    )
    assert layer.alphas.tolist() == [0.0]


# Far out ------------------------------------------------------------------------------------------


def layer_with(alpha, kappas, lambda_=0.0, nus=None, seed=5):
    """One head with these score coefficients that writes at random."""
    n = len(kappas)
    return ScalarLayer(
        embed=normal(4, seed=seed),
        shift=normal(4, seed=seed + 1),
        alphas=vector(alpha),
        kappas=vector(*kappas)[None],
        lambdas=vector(lambda_),
        nus=vector(*(nus or [0.0] * n))[None],
        zetas=normal(1, 4, seed=seed + 2),
        omegas=normal(1, n, 4, seed=seed + 3),
        bias=normal(4, seed=seed + 4),
    )


def check_far(layer, asymptote, context, x=2000.0):
    for direction in (1, -1):
        slope, intercept = asymptote(layer, context, direction)
        for factor in (1, 3):
            far = layer.stream(direction * factor * x, context)
            assert_close(direction * factor * x * slope + intercept, far, rtol=1e-10, atol=1e-10)


TOKENS = vector(0.5, -1.0, 2.0)
# Coefficients and where the weight goes at +infinity: one key, or keys by softmax of the constants
# that tie.
CASES = {
    "itself": (layer_with(0.5, [1, -2, 3, 4], 0.7, [1, 2, 3, 4]), [0, 0, 0, 1]),
    "the token of the smallest alpha x_j + kappa_j": (
        layer_with(-0.5, [3, 1, 1, 9], 0.7, [1, 2, 3, 4]),
        [1, 0, 0, 0],
    ),
    "kappa decides where alpha is 0": (
        layer_with(0.0, [1, -2, 3, 0.5], 0.7, [1, 2, 3, 4]),
        [0, 0, 1, 0],
    ),
    "the query, where alpha is 0 and lambda beats kappa": (
        layer_with(0.0, [1, 2, 3, 0], 4),
        [0, 0, 0, 1],
    ),
    "a tie of three tokens, weighed by lambda x_j + nu_j": (
        layer_with(-1.0, [0.5, -1, 2, 0], 0.7, [0.1, 0.2, 0.3, 0]),
        [*torch.softmax(0.7 * TOKENS + vector(0.1, 0.2, 0.3), 0).tolist(), 0],
    ),
    "a tie of a token with the query": (
        layer_with(0.0, [2, 1, 0, 1.5], 0.5, [0.1, 0, 0, 0.9]),
        [
            float(torch.softmax(vector(0.5 * 0.5 + 0.1, 0.9), 0)[0]),
            0,
            0,
            float(torch.softmax(vector(0.5 * 0.5 + 0.1, 0.9), 0)[1]),
        ],
    ),
    "constants only": (
        layer_with(0.0, [0, 0, 0, 0], 0.0, [0.1, 0.2, 0.3, 0.4]),
        torch.softmax(vector(0.1, 0.2, 0.3, 0.4), 0).tolist(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_limit_pattern(case):
    layer, expected = CASES[case]
    assert_close(layer.limit_pattern(TOKENS)[0], vector(*expected), rtol=1e-12, atol=1e-12)
    check_far(layer, ScalarLayer.asymptote, TOKENS)


def test_wrong_limits_are_noticed():
    """Each mutant gets one of the cases wrong."""

    def other_direction(layer, context, direction):
        return layer.asymptote(context, -direction)

    def constants_forgotten(layer, context, direction):
        return dataclasses.replace(layer, nus=0 * layer.nus).asymptote(context, direction)

    def three_cases_only(layer, context, direction):
        """The paper's rule, which sees the sign of alpha and nothing else."""
        plain = dataclasses.replace(
            layer, kappas=0 * layer.kappas, lambdas=0 * layer.lambdas, nus=0 * layer.nus
        )
        return plain.asymptote(context, direction)

    def omegas_forgotten(layer, context, direction):
        return dataclasses.replace(layer, omegas=0 * layer.omegas).asymptote(context, direction)

    token, tie = (
        CASES["the token of the smallest alpha x_j + kappa_j"][0],
        CASES["a tie of a token with the query"][0],
    )
    must_fail(check_far, token, other_direction, TOKENS)
    must_fail(check_far, tie, constants_forgotten, TOKENS)
    must_fail(check_far, token, three_cases_only, TOKENS)
    must_fail(check_far, tie, three_cases_only, TOKENS)
    must_fail(check_far, CASES["itself"][0], omegas_forgotten, TOKENS)


def test_random_layers_reach_their_line():
    reached = 0
    for seed in range(20):
        layer = ScalarLayer.of_weights(*parameters(len(CONTEXT) + 1, seed=20 * seed), SCALE)
        x = 1e4
        off = (layer.pattern(x, CONTEXT) - layer.limit_pattern(CONTEXT)).abs().max()
        if off < 1e-20:  # a rival this close behind needs a larger x: nothing to be seen yet
            reached += 1
            slope, intercept = layer.asymptote(CONTEXT)
            assert_close(x * slope + intercept, layer.stream(x, CONTEXT), rtol=1e-11, atol=1e-10)
    assert reached >= 15


@given(
    alphas=st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 2.0]), min_size=1, max_size=4),
    quarters=st.lists(st.integers(-12, 12), min_size=1, max_size=6),
    direction=st.sampled_from([1, -1]),
)
def check_the_papers_layer(asymptote, alphas, quarters, direction):
    """The one rule of polynomials gives the three cases of the paper, corrected: the two share no code."""
    context, embed, zetas = vector(*quarters) / 4, normal(5), normal(len(alphas), 5, seed=1)
    layer = ScalarLayer.of_heads(embed, vector(*alphas), zetas, n_tokens=len(quarters) + 1)
    expected = asymptote(embed, vector(*alphas), zetas, context, direction)
    assert_close(
        tuple(layer.asymptote(context, direction)), tuple(expected), rtol=1e-12, atol=1e-12
    )


@pytest.mark.slow
def test_the_papers_layer_is_a_special_case():
    check_the_papers_layer(limits.attention_asymptote)
    must_fail(check_the_papers_layer, limits.paper_attention_asymptote)


def check_sums(sums):
    """S1, S2 and S3 each by itself, against the heads of its sign at x = 100."""
    alphas, zetas = vector(0.5, -0.5, 0.0, 1.5, -2.0), normal(5, 4)
    for direction in (1, -1):
        x = direction * 100.0
        heads = torch.stack(
            [limits.context_mixture(x, CONTEXT, a) * z for a, z in zip(alphas, zetas, strict=True)]
        )
        signs = (alphas > 0, alphas < 0, alphas == 0)
        for line, chosen in zip(sums(alphas, zetas, CONTEXT, direction), signs, strict=True):
            assert_close(
                x * line.slope + line.intercept, heads[chosen].sum(0), rtol=1e-10, atol=1e-8
            )


def test_sums():
    def printed(k):
        """Ours with one of the sums as printed."""

        def sums(*known):
            ours, theirs = list(limits.attention_sums(*known)), limits.paper_attention_sums(*known)
            ours[k] = theirs[k]
            return ours

        return sums

    check_sums(limits.attention_sums)
    check_sums(printed(0))  # S1 is right
    must_fail(check_sums, printed(1))
    must_fail(check_sums, printed(2))


# LayerNorm behind the layer -----------------------------------------------------------------------

GAMMA, BETA = vector(1.5, -0.5, 2, 0.7), vector(0.3, -1, 0.2, 2)


def check_layernorm_far(layernorm_far, slope, intercept, eps, rate):
    for direction in (1, -1):
        limit, correction = layernorm_far(slope, intercept, GAMMA, BETA, eps, direction)
        for x in (1e3, 1e4):
            far = F.layer_norm(direction * x * slope + intercept, (4,), GAMMA, BETA, eps)
            assert (far - limit - correction / x).abs().max() < rate / x**2 + 1e-11


def test_layernorm_far():
    def eps_forgotten(slope, intercept, gamma, beta, eps, direction):
        return limits.layernorm_far(slope, intercept, gamma, beta, 0.0, direction)

    def eps_outside_the_root(slope, intercept, gamma, beta, eps, direction):
        limit, correction = limits.layernorm_far(slope, intercept, gamma, 0 * beta, 0.0, direction)
        return limit + eps, correction

    def limit_only(*known):
        limit, correction = limits.layernorm_far(*known)
        return limit, 0 * correction

    slope, intercept, flat = vector(1, -2, 0.5, 3), vector(0.4, 2, -1, 0.1), vector(3, 3, 3, 3)
    check_layernorm_far(limits.layernorm_far, slope, intercept, 1e-5, rate=20)
    check_layernorm_far(limits.layernorm_far, slope, intercept, 0.5, rate=20)
    must_fail(check_layernorm_far, limit_only, slope, intercept, 1e-5, rate=20)
    must_fail(check_layernorm_far, eps_outside_the_root, slope, intercept, 0.5, rate=20)
    # A slope that centring removes: the context stays, and eps with it.
    check_layernorm_far(limits.layernorm_far, flat, intercept, 0.5, rate=0)
    must_fail(check_layernorm_far, eps_forgotten, flat, intercept, 0.5, rate=0)
    assert_close(limits.layernorm_far(flat, 0 * flat, GAMMA, BETA).limit, BETA)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda layer: layer.output(1.0, vector(1, 2)),
            "context has 2 tokens, but this layer was made for 6 before",
        ),
        (
            lambda layer: layer.limit_pattern(CONTEXT, 0),
            r"direction must be \+1 .* or -1 .*, got 0",
        ),
        (lambda layer: layer.asymptote(vector()), "context has 0 tokens"),
        (
            lambda layer: limits.attention_sums(vector(1), vector(1)[None], vector()),
            "context is empty",
        ),
        (
            lambda layer: limits.paper_attention_sums(vector(1), vector(1)[None], CONTEXT, 3),
            "direction must be",
        ),
        (
            lambda layer: limits.layernorm_far(GAMMA, GAMMA, GAMMA, BETA, direction=0),
            "direction must be",
        ),
    ],
)
def test_wrong_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call(ScalarLayer.of_weights(*parameters(len(CONTEXT) + 1), SCALE))


def test_a_query_alone_reads_itself():
    layer = ScalarLayer.of_heads(vector(1, 2), vector(-0.5), vector(3, 4)[None], n_tokens=1)
    assert_close(tuple(layer.asymptote(vector())), (vector(4, 6), vector(0, 0)))
