"""Scaled softmax, sigmoid, ReLU and entmax: independent routes, limits and invariances."""

import math

import pytest
import torch
import transformer_formulas
from helpers import must_fail

from icl_interp.models import scores
from icl_interp.provenance import generator
from icl_interp.theory import scores as theory

NAMES = tuple(transformer_formulas.WEIGHTS)
SHARED = ("softmax", "scaled_softmax", "entmax", "hardmax")
EVERY = pytest.mark.parametrize("name", ["softmax", "hardmax", *NAMES])


def drawn(*shape, scale=2.0, seed=0):
    return scale * torch.randn(
        shape, generator=generator(seed, "test/score functions"), dtype=torch.float64
    )


def causal(scale=2.0, n=8):
    """Scores (batch, head, query, key) of causal attention."""
    return drawn(2, 3, n, n, scale=scale).masked_fill(
        torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf
    )


def function(name):
    return lambda score: scores.apply(name, score)


# Independent routes: a loop over the visible scores of each query.


def follows_the_loop(pattern, score, weights, tolerance):
    for got, row in zip(pattern.flatten(0, -2), score.flatten(0, -2).tolist(), strict=True):
        seen = [s for s in row if s > -math.inf]
        found = iter(weights(seen))
        want = torch.tensor([0.0 if s == -math.inf else next(found) for s in row], dtype=got.dtype)
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance)
        assert torch.equal(got == 0, want == 0), "zeros are not where they should be"


def sparsemax(row):
    """Entmax of order 2, for contrast."""
    taus = [(sum(sorted(row)[-k:]) - 1) / k for k in range(1, len(row) + 1)]
    return [max(s - max(taus), 0) for s in row]


MUTANTS = {
    "scaled_softmax": lambda row: [math.exp(s) / sum(map(math.exp, row)) for s in row],
    "entmax": sparsemax,
    "sigmoid": lambda row: [1 / (1 + math.exp(-s)) for s in row],
    "relu": lambda row: [max(s, 0) for s in row],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
def test_against_a_loop(name, scale):
    score = causal(scale)
    follows_the_loop(scores.apply(name, score), score, transformer_formulas.WEIGHTS[name], 1e-13)
    everything = drawn(4, 9, 9, scale=scale)
    follows_the_loop(
        scores.apply(name, everything), everything, transformer_formulas.WEIGHTS[name], 1e-13
    )
    must_fail(follows_the_loop, scores.apply(name, score), score, MUTANTS[name], 1e-4)


@pytest.mark.parametrize(
    "row",
    [
        [0.0] * 40,
        [1.0, 1.0, -1.0, -math.inf],
        [1e6, 1e6, 1e6 - 1],
        [-1e6, 0.0, 1e6],
        [0.0, -2.0],
        [0.0, -2.0 + 1e-9],
    ],
    ids=["all tie", "two tie", "far and close", "far apart", "at the margin", "inside the margin"],
)
def test_entmax_where_sorting_could_slip(row):
    score = torch.tensor([row], dtype=torch.float64)
    pattern = scores.entmax(score)
    torch.testing.assert_close(
        pattern,
        torch.tensor([transformer_formulas.entmax(row)], dtype=torch.float64),
        rtol=0,
        atol=1e-9,
    )
    torch.testing.assert_close(pattern.sum(), torch.ones(()).double())
    single = scores.entmax(score.float())
    assert single.isfinite().all()
    torch.testing.assert_close(
        single.double(), pattern, rtol=0, atol=2e-6 if max(row) < 1e5 else 0.1
    )


def test_entmax_is_the_largest_of_its_own_objective():
    """It maximises p.s + H(p) with Tsallis' H of order 3/2 over distributions.

    The mutants are other distributions.
    """
    score = drawn(50, 12)

    def objective(p):
        return (p * score).sum(-1) + (p - p.pow(1.5)).sum(-1) / 0.75

    def nothing_beats(p):
        best = objective(p)
        for other in ("softmax", "hardmax", "scaled_softmax"):
            towards = scores.apply(other, score)
            for step in (1e-3, 0.1, 1.0):
                assert (objective(p + step * (towards - p)) <= best + 1e-12).all()

    nothing_beats(scores.entmax(score))
    must_fail(nothing_beats, score.softmax(-1))
    must_fail(nothing_beats, scores.entmax(1.1 * score))


def test_entmax_is_sparse_and_softmax_is_not():
    score = drawn(200, 40)
    support = (scores.entmax(score) > 0).sum(-1)
    assert support.max() < 40
    assert (scores.entmax(score)[score < score.amax(-1, keepdim=True) - 2] == 0).all()
    assert (score.softmax(-1) > 0).all()


# Gradients.


def gradient_is_right(f, score):
    """Every entry of the Jacobian against central differences, in float64."""
    assert torch.autograd.gradcheck(f, (score.clone().requires_grad_(),), raise_exception=False)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_exact(name):
    score = drawn(3, 4, 6, scale=1.0)
    gradient_is_right(function(name), score)
    wrong = _WrongGradient.apply
    must_fail(gradient_is_right, lambda s: wrong(scores.apply(name, s)), score)


class _WrongGradient(torch.autograd.Function):
    """The identity, whose gradient is a percent too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 1.01 * grad


@EVERY
def test_hidden_keys_get_no_gradient_and_spoil_none(name):
    score = causal().requires_grad_()
    weights = drawn(*score.shape, seed=1)
    (grad,) = torch.autograd.grad((scores.apply(name, score) * weights).sum(), score)
    assert grad.isfinite().all()
    assert not grad[score == -math.inf].any()
    assert grad[..., 3, :4].any()


# What must not matter.


def hiding_is_removing(f, score):
    """A key that is hidden by its score weighs 0, and the others as if it had never been there."""
    for key in range(score.shape[-1]):
        hidden = score.clone()
        hidden[..., key] = -math.inf
        pattern = f(hidden)
        assert not pattern[..., key].any()
        rest = [k for k in range(score.shape[-1]) if k != key]
        torch.testing.assert_close(pattern[..., rest], f(score[..., rest]), rtol=0, atol=1e-14)


@EVERY
def test_a_hidden_key_is_no_key(name):
    hiding_is_removing(function(name), drawn(4, 5, 7))
    must_fail(
        hiding_is_removing,
        lambda s: scores.apply(name, s.masked_fill(s == -math.inf, 10.0)),
        drawn(4, 5, 7),
    )


@pytest.mark.parametrize("name", ["scaled_softmax", "sigmoid", "relu"])
def test_n_counts_visible_keys_only(name):
    """A finite score, however low, is that of a key which is there."""
    must_fail(hiding_is_removing, lambda s: scores.apply(name, s.clamp(min=-1e4)), drawn(4, 5, 7))


def order_of_keys_does_not_matter(f, score):
    turned = torch.randperm(score.shape[-1], generator=generator(2, "test/order"))
    torch.testing.assert_close(f(score[..., turned]), f(score)[..., turned], rtol=0, atol=1e-14)


@EVERY
def test_patterns_follow_the_order_of_keys(name):
    order_of_keys_does_not_matter(function(name), drawn(4, 5, 7))
    slope = torch.linspace(0, 1, 7, dtype=torch.float64)
    must_fail(
        order_of_keys_does_not_matter, lambda s: scores.apply(name, s + slope), drawn(4, 5, 7)
    )


def adding_to_all_scores_changes_nothing(f):
    score = drawn(4, 5, 7)
    torch.testing.assert_close(f(score + 3.7), f(score), rtol=0, atol=1e-13)
    torch.testing.assert_close(f(score).sum(-1), torch.ones(4, 5).double(), rtol=0, atol=1e-13)


def test_keys_compete_or_do_not():
    for name in SHARED:
        adding_to_all_scores_changes_nothing(function(name))
    for name in ("sigmoid", "relu"):
        must_fail(adding_to_all_scores_changes_nothing, function(name))
        alone = drawn(4, 5, 7)
        raised = alone.clone()
        raised[..., 0] += 5  # one key's score moves its own weight only
        assert torch.equal(scores.apply(name, raised)[..., 1:], scores.apply(name, alone)[..., 1:])


def test_a_single_key_gets_everything_there_is():
    one = torch.tensor([[1.3, -math.inf, -math.inf]], dtype=torch.float64)
    for name in SHARED:
        assert scores.apply(name, one).tolist() == [[1.0, 0.0, 0.0]]
    assert scores.sigmoid(one)[0, 0] == one[0, 0].sigmoid()
    assert scores.relu(one)[0, 0] == one[0, 0]


# Limits, and what theory says of them.


@pytest.mark.parametrize("name", NAMES)
def test_scores_without_contrast_give_equal_weights(name):
    """As temperature goes to infinity."""
    score = drawn(3, 4, 9)
    want = {"sigmoid": 1 / 10, "relu": 0.0}.get(name, 1 / 9)
    pattern = scores.apply(name, 1e-9 * score)
    torch.testing.assert_close(pattern, torch.full_like(pattern, want), rtol=0, atol=1e-8)


def is_the_far_limit(name, score, t, limit):
    got, want = scores.apply(name, t * score), theory.far_weights(limit, score)
    finite = want.isfinite()
    torch.testing.assert_close(got[finite], want[finite], rtol=0, atol=1e-12)
    assert (got[~finite] > 1e3).all()


@pytest.mark.parametrize("name", NAMES)
def test_far_out_a_pattern_is_what_theory_says(name):
    """As temperature goes to 0, ties and scores of exactly 0 included."""
    score = torch.cat([drawn(20, 6), torch.tensor([[1.0, -2.0, 1.0, 0.0, 0.0, -1.0]]).double()])
    is_the_far_limit(name, score, 1e6, limit=name)
    must_fail(is_the_far_limit, name, score, 1.0, limit=name)
    other = {"sigmoid": "softmax", "relu": "sigmoid"}.get(name, "sigmoid")
    must_fail(is_the_far_limit, name, score, 1e6, limit=other)
