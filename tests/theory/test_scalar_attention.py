"""One attention layer on scalar tokens, and LayerNorm behind it: closed forms against the layer written out.

Every check takes the closed form as its argument, so that a wrong variant can be passed to it and
must fail.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from exact_prompts import fitted_slope, normal, vector
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from scalar_tokens import ALPHAS, CONTEXT, EMBED, ONE, ZERO, ZETAS, attention_layer, mixture
from torch.testing import assert_close

from icl_interp.theory import limits

SIX_TOKENS = vector(0.9, -0.4, 0.3, -1.3, 0, 1.7)


# ---- the layer -----------------------------------------------------------------------------------


def line_of_one_head(asymptote, context, alpha, direction=1):
    """Slope and intercept of m(x) itself: one head that writes 1, no skip connection."""
    slope, intercept = asymptote(
        vector(0), vector(alpha), torch.ones(1, 1).double(), context, direction
    )
    return slope[0], intercept[0]


def check_context_mixture(context_mixture):
    x = vector(-40, -1.5, 0, 0.3, 7)
    for alpha in (-0.7, 0.0, 1.3):
        direct = vector(*[mixture(value, SIX_TOKENS, alpha) for value in x.tolist()])
        assert_close(context_mixture(x, SIX_TOKENS, alpha), direct, rtol=1e-12, atol=1e-12)
        assert_close(
            context_mixture(x[:, None], SIX_TOKENS, alpha), direct[:, None], rtol=1e-12, atol=1e-12
        )


def test_context_mixture():
    check_context_mixture(limits.context_mixture)
    assert_close(
        limits.context_mixture(3.0, vector(), 0.5), vector(3)[0]
    )  # alone, a query reads itself

    def without_the_query(x, context, alpha):
        return torch.softmax(alpha * x[..., None] * context, dim=-1) @ context

    must_fail(check_context_mixture, without_the_query)
    must_fail(
        check_context_mixture, lambda x, context, alpha: limits.context_mixture(x, context, -alpha)
    )


def check_asymptote_golden(asymptote):
    for direction, expected in (
        (1, vector(119, -190, 21, 338)),
        (-1, vector(-118, 190, -22, -336)),
    ):
        slope, intercept = asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, direction)
        assert_close(direction * 100 * slope + intercept, expected, rtol=1e-12, atol=1e-12)


@given(
    alphas=st.lists(
        st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=3
    ),
    quarters=st.lists(st.integers(-12, 12), min_size=1, max_size=6),
    direction=st.sampled_from([1, -1]),
)
def check_asymptote(asymptote, alphas, quarters, direction):
    # Tokens on a lattice of 1/4, ties and zeros included: at |x| = 300 every rival's weight is
    # below e^-37.
    context, x = vector(*quarters) / 4, direction * 300.0
    embed, zetas = normal(5), normal(len(alphas), 5, seed=1)
    slope, intercept = asymptote(embed, vector(*alphas), zetas, context, direction)
    direct = attention_layer(x, embed, alphas, zetas, context)
    assert_close(x * slope + intercept, direct, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
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
            assert_close(
                x * slope + intercept,
                vector(mixture(x, SIX_TOKENS, alpha))[0],
                rtol=1e-10,
                atol=1e-10,
            )


def test_of_the_printed_sums_only_the_first_is_right():
    for alpha in (0.7, 0.0, -0.7):
        check_one_head(limits.attention_asymptote, alpha)
    check_one_head(limits.paper_attention_asymptote, 0.7)
    must_fail(check_one_head, limits.paper_attention_asymptote, 0.0)
    must_fail(check_one_head, limits.paper_attention_asymptote, -0.7)


def test_the_printed_numbers():
    slope, intercept = line_of_one_head(limits.paper_attention_asymptote, SIX_TOKENS, -0.7)
    assert_close((slope, intercept), (vector(1)[0], vector(-1.7 / 6)[0]), rtol=1e-12, atol=1e-12)
    slope, intercept = line_of_one_head(
        limits.paper_attention_asymptote, SIX_TOKENS, -0.7, direction=-1
    )
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
    check_error_rate(
        0.7 * 0.9
    )  # |alpha| times the gap between the extreme token, -1.3, and the next, -.4
    must_fail(check_error_rate, 0.7 * 0.1)


# ---- the onset of hardmax ------------------------------------------------------------------------


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
                far = [
                    mass_off_the_arg_max(direction * start * factor, context, alpha)
                    for factor in (1, 1.1, 2, 30)
                ]
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
    must_fail(
        check_hardmax_onset, lambda context, alpha, d: limits.hardmax_onset(context, alpha, -d)
    )
    assert limits.hardmax_onset(CONTEXT, 0.0) == math.inf
    start = float(limits.hardmax_onset(vector(0.8), -2.0, delta=0.3))
    assert mass_off_the_arg_max(start, vector(0.8), -2.0) == pytest.approx(0.3, abs=1e-9)


# ---- LayerNorm behind that layer -----------------------------------------------------------------


PLATEAU = vector(0.249075, -1.376465, -0.275293, 1.402683)
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
            assert_close(
                post_ln(direction * 1e9, GAMMA, BETA, context, eps), limit, rtol=0, atol=1e-7
            )
            near, far = (
                post_ln(direction * x, GAMMA, BETA, context, eps) - limit for x in (1e3, 1e5)
            )
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
    variance = [
        float(attention_layer(float(value), EMBED, ALPHAS, ZETAS, CONTEXT).var(correction=0))
        for value in x
    ]
    assert fitted_slope(x, vector(*variance)) == pytest.approx(power, abs=0.01)


def test_the_variance_grows_like_the_square_and_not_as_printed():
    check_growth_of_the_variance(2)
    must_fail(check_growth_of_the_variance, 1)


def check_correction(correction):
    for direction in (1, -1):
        slope, intercept = limits.attention_asymptote(EMBED, ALPHAS, ZETAS, CONTEXT, direction)
        limit = post_ln(direction * 1e15, GAMMA, BETA)
        rest = {
            x: post_ln(direction * x, GAMMA, BETA)
            - limit
            - correction(slope, intercept, GAMMA, direction) / x
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

    check_correction(
        lambda slope, intercept, gamma, _: limits.layernorm_correction(slope, intercept, gamma)
    )
    check_correction(wrong())
    must_fail(check_correction, wrong(project=False))
    must_fail(check_correction, wrong(odd=True))


def check_spread_over_contexts(n_heads_read):
    # Context enters a post-LN layer at order 1/|x|: the spread over contexts times |x| tends to a
    # constant.
    contexts = normal(32, 5)
    alphas, zetas = ALPHAS[:n_heads_read], ZETAS[:n_heads_read]
    spread = []
    for x in (1e3, 1e4, 1e5):
        outputs = torch.stack(
            [F.layer_norm(attention_layer(x, EMBED, alphas, zetas, c), (4,)) for c in contexts]
        )
        spread.append(x * float(outputs.std(dim=0).max()))
    assert spread[0] > 0.1
    assert spread[2] == pytest.approx(spread[1], rel=1e-3)


def test_the_spread_over_contexts_dies_like_one_over_x():
    check_spread_over_contexts(2)
    must_fail(
        check_spread_over_contexts, 1
    )  # without the head of alpha < 0 no context is left far out
