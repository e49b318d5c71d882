"""Score functions and bounds: closed forms against brute force.

Limits are compared with fitted slopes, and weights with the model's own output.
"""

import math
from itertools import pairwise

import pytest
import torch
import transformer_formulas
from helpers import must_fail, one_in

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.theory import bounded, limits, scores

WEIGHTS = {
    "softmax": lambda row: [math.exp(s) / sum(map(math.exp, row)) for s in row],
    **transformer_formulas.WEIGHTS,
}
EVERY = pytest.mark.parametrize("name", scores.SCORE_FUNCTIONS)
GAPS = (0.0, 0.3, 1.0, 1.7, 2.0, 5.0)


def test_every_score_function_is_there():
    assert set(WEIGHTS) == set(scores.SCORE_FUNCTIONS)


# The largest weight.


def is_the_largest_weight(name, bound, n, top, rest):
    """One key at the top attains it, and no other row of scores between rest and top exceeds it."""
    assert abs(WEIGHTS[name]([top] + [rest] * (n - 1))[0] - bound) < 1e-12
    for row in (
        rest + (top - rest) * torch.rand(200, n, generator=generator(n, "test/rows")).double()
    ).tolist():
        assert max(WEIGHTS[name](row)) <= bound + 1e-12


@EVERY
@pytest.mark.parametrize("gap", one_in(2, GAPS))
def test_largest_weight_against_every_row(name, gap):
    for n, rest in ((1, 0.0), (2, -0.5), (7, 0.4), (40, -1.0)):
        bound = float(scores.largest_weight(name, n, rest + gap, rest))
        is_the_largest_weight(name, bound, n, rest + gap, rest)
        must_fail(is_the_largest_weight, name, bound * 1.001 + 1e-9, n, rest + gap, rest)
        must_fail(is_the_largest_weight, name, bound * 0.999 - 1e-9, n, rest + gap, rest)


def test_softmax_here_is_softmax_there():
    for n in (2, 5, 41):
        there = limits.max_weight_bound(n, 1.3)
        torch.testing.assert_close(scores.largest_weight("softmax", n, 2.0, 0.7), there)
    must_fail(
        torch.testing.assert_close,
        scores.largest_weight("entmax", 5, 1.3),
        limits.max_weight_bound(5, 1.3),
    )


# Many keys.


def falls_like(name, top, rest, exponent):
    """The slope of log weight on log n over ten decades, less its limit where that is not 0."""
    ns = (
        [10**k for k in (30, 31, 32)] if name == "scaled_softmax" else [10**k for k in (10, 11, 12)]
    )
    weights = [float(scores.largest_weight(name, n, top, rest)) for n in ns]
    slopes = [math.log10(weights[i] / weights[i + 1]) for i in range(2)]
    assert all(abs(slope - exponent) < 1e-3 for slope in slopes)


@EVERY
@pytest.mark.parametrize("gap", GAPS)
def test_dispersion(name, gap):
    top = 0.5 + gap
    exponent = float(scores.dispersion_exponent(name, top, 0.5))
    falls_like(name, top, 0.5, exponent)
    must_fail(falls_like, name, top, 0.5, exponent + 0.01)
    lasting = float(scores.lasting_weight(name, top, 0.5))
    assert (lasting > 0) == (exponent == 0)
    assert (
        abs(
            float(scores.largest_weight(name, 10**60 if "scaled" in name else 10**13, top, 0.5))
            - lasting
        )
        < 1e-5
    )


def test_what_the_scores_decide():
    """The table of the module: who disperses at a gap of 1.5, who keeps what."""
    lasting = {name: float(scores.lasting_weight(name, 1.5)) for name in scores.SCORE_FUNCTIONS}
    assert lasting == {"softmax": 0, "scaled_softmax": 1, "entmax": 0.5625, "sigmoid": 0, "relu": 0}
    assert [float(scores.lasting_weight("scaled_softmax", gap)) for gap in (0.9, 1.0, 1.1)] == [
        0,
        0.5,
        1,
    ]
    assert math.isnan(scores.dispersion_exponent("relu", -0.1, -1))


@EVERY
def test_total_weight_against_a_sum(name):
    for n in (1, 3, 40):
        for score in (-2.0, 0.0, 1.5):
            want = sum(WEIGHTS[name]([score] * n))
            assert abs(float(scores.total_weight(name, n, score)) - want) < 1e-12
    assert abs(float(scores.total_weight("sigmoid", 40, 1.0)) - 1) > 0.1


# Entmax becomes hardmax at a finite margin.


def is_hardmax_from(margin, k, others=(0.0, -0.5)):
    for extra, exact in ((1e-9, True), (-1e-2, False)):
        row = [margin + extra] * k + list(others)
        weights = transformer_formulas.entmax(row)
        assert (max(weights[k:]) == 0) == exact


@pytest.mark.parametrize("k", [1, 2, 9])
def test_entmax_margin(k):
    margin = float(scores.entmax_margin(k))
    is_hardmax_from(margin, k)
    is_hardmax_from(margin, k, others=[0.0] * 30)
    must_fail(is_hardmax_from, margin * 0.9, k)
    must_fail(is_hardmax_from, margin * 1.1, k)


# Tanh norms and bounded read-ins, on models.


def model(**change):
    """Two pre-norm blocks with random weights, in float64."""
    cfg = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=9, init_std=0.5, **change)
    made = HookedTransformer(cfg, seed=4).double().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if ".W_" not in name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator(1, name))
    return made


def far_values(made, x, n_contexts=5):
    """f at +x and -x after several contexts: (context, direction)."""
    drawn = torch.randn(n_contexts, 6, 1, generator=generator(0, "test/context")).double()
    with torch.no_grad():
        memory = made.remember(drawn)
        return made.after(
            memory, torch.tensor([x, -x]).double()[None, :, None].expand(n_contexts, 2, 1), 6
        )[..., 0]


def tanh_weights(made):
    final = made.ln_final
    return made.unembed.W_U[:, 0], final.w, final.b, made.unembed.b_U[0]


def reaches(values, want, tolerance):
    torch.testing.assert_close(values, torch.stack(want).expand_as(values), rtol=0, atol=tolerance)


@pytest.mark.parametrize("score_fn", ["softmax", "relu", "entmax"])
def test_tanh_plateau_is_what_the_model_does(score_fn):
    with torch.no_grad():
        made = model(normalization_type="Tanh", score_fn=score_fn)
        w, gamma, beta, bias = tanh_weights(made)
        plateau = bounded.tanh_plateau(made.embed.W_E[0], w, made.ln_final.alpha, gamma, beta, bias)
        reaches(far_values(made, 1e5), plateau, 1e-12)
        must_fail(reaches, far_values(made, 1.0), plateau, 1e-3)
        must_fail(reaches, far_values(made, 1e5), plateau[::-1], 1e-3)
        must_fail(
            reaches,
            far_values(made, 1e5),
            limits.plateau(made.embed.W_E[0], w, gamma, beta, bias),
            1e-3,
        )


def lies_within(values, certificate):
    c, r = certificate
    assert ((values - c).abs() < r).all()


def test_tanh_certificate():
    with torch.no_grad():
        made = model(normalization_type="Tanh")
        certificate = bounded.tanh_certificate(*tanh_weights(made))
        for x in (0.0, 0.3, 3.0, 30.0):
            lies_within(far_values(made, x), certificate)
        # It cannot be improved: a stream along w * gamma comes as near as one likes.
        w, gamma, beta, bias = tanh_weights(made)
        y = made.unembed(
            made.ln_final((1e9 * made.ln_final.alpha.sign() * w * gamma)[None, None])
        ).squeeze()
        torch.testing.assert_close(y, sum(certificate))
        must_fail(lies_within, y, (certificate[0], 0.99 * certificate[1]))
        # LayerNorm's certificate is the wider one where w * gamma has mean 0.
        even = w - (w * gamma).mean() / gamma
        assert (
            bounded.tanh_certificate(even, gamma, beta, bias)[1]
            <= limits.output_certificate(even, gamma, beta, bias)[1]
        )


def test_read_in_limit_is_where_the_embedding_goes():
    with torch.no_grad():
        made = model(embed_bound=1.5)
        far = made.embed(torch.tensor([1e8, -1e8]).double()[None, :, None])[0]
        want = torch.stack(bounded.read_in_limit(made.embed.W_E[0], 1.5))
        torch.testing.assert_close(far, want, rtol=0, atol=1e-7)
        must_fail(torch.testing.assert_close, far, want.flip(0), rtol=0, atol=1e-7)
        # Approached like 1 / |x|, because the read-in has a bias.
        gaps = [
            float((made.embed(torch.full((1, 1, 1), x).double())[0, 0] - want[0]).norm())
            for x in (1e4, 1e5, 1e6)
        ]
        assert all(abs(math.log10(a / b) - 1) < 0.01 for a, b in pairwise(gaps))
        # f levels off, at another value for each context.
        values, later = far_values(made, 1e6), far_values(made, 1e8)
        assert (values - later).abs().max() < 1e-4 * later.std(0).min()


# What is refused.


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: scores.far_weights("hardmax", torch.zeros(3)),
            "unknown score function 'hardmax': expected one of",
        ),
        (
            lambda: scores.largest_weight("softmax", 0, 1.0),
            "n counts the visible keys and must be at least 1, got 0",
        ),
        (
            lambda: scores.largest_weight("entmax", 4, 1.0, 2.0),
            "top is the largest score and rest the smallest",
        ),
        (lambda: scores.lasting_weight("soft", 1.0), "unknown score function 'soft'"),
        (lambda: scores.dispersion_exponent("relu", 0.0, 1.0), "top - rest = -1"),
        (lambda: scores.total_weight("relu", 0, 1.0), "must be at least 1, got 0"),
        (
            lambda: scores.entmax_margin(0),
            "k is the size of the arg-max set and must be at least 1, got 0",
        ),
        (lambda: bounded.read_in_limit(torch.zeros(3), 1.0), "embed must not be 0"),
        (lambda: bounded.read_in_limit(torch.ones(3), 0.0), "bound must be positive"),
        (
            lambda: bounded.tanh_plateau(
                torch.tensor([1.0, 0.0]), *[torch.ones(2)], 1.0, *[torch.ones(2)] * 2, 0.0
            ),
            "alpha . embed is 0 in 1 of 2 coordinates",
        ),
    ],
)
def test_refusals(call, match):
    with pytest.raises(ValueError, match=match):
        call()
