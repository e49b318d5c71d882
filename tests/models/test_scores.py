"""Score functions: exact where they claim to be, and the gradients they claim to have."""

import math

import pytest
import torch
from helpers import must_fail

from icl_interp.models import scores
from icl_interp.provenance import generator


def masked(dtype=torch.float64):
    """Scores (batch, head, query, key) of causal attention over 6 tokens."""
    drawn = 3 * torch.randn(2, 3, 6, 6, generator=generator(0, "test/scores"), dtype=dtype)
    return drawn.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf)


def is_one_hot_at_the_first_largest(pattern, score):
    want = torch.zeros_like(score)
    for row, out in zip(
        score.reshape(-1, score.shape[-1]).tolist(), want.view(-1, score.shape[-1]), strict=True
    ):
        out[row.index(max(row))] = 1
    assert torch.equal(pattern, want)


def test_hardmax_is_exactly_one_hot():
    ties = torch.tensor(
        [[1.0, 4.0, 4.0, 4.0], [2.0, 2.0, 2.0, 2.0], [5.0, -math.inf, 5.0, -math.inf]]
    ).double()
    for score in (masked(), masked(torch.float32), ties):
        is_one_hot_at_the_first_largest(scores.hardmax(score), score)
        flipped = scores.hardmax(score.flip(-1)).flip(-1)
        assert torch.equal(flipped.sum(-1), torch.ones_like(flipped[..., 0]))
    must_fail(
        is_one_hot_at_the_first_largest, scores.hardmax(ties.flip(-1)).flip(-1), ties
    )  # the last largest
    p = masked(torch.float32).softmax(-1)
    usual_trick = scores.hardmax(p) + p - p.detach()
    must_fail(is_one_hot_at_the_first_largest, usual_trick, masked(torch.float32))


def has_softmaxs_gradient(function, temperature=1.0):
    score = masked().requires_grad_()
    weights = torch.randn(score.shape, generator=generator(0, "test/weights"), dtype=score.dtype)
    got, want = (
        torch.autograd.grad((f(score) * weights).sum(), score)[0]
        for f in (function, lambda s: (s / temperature).softmax(-1))
    )
    assert want.abs().max() > 0.1
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_hardmax_goes_back_as_softmax():
    has_softmaxs_gradient(scores.hardmax)
    must_fail(has_softmaxs_gradient, scores.hardmax, temperature=1.01)
    must_fail(
        has_softmaxs_gradient,
        lambda score: scores.hardmax(score).detach() + 0 * score.nan_to_num(neginf=0),
    )


def is_linear(pattern, score, divisor):
    for where in torch.cartesian_prod(*map(torch.arange, score.shape[:-1])):
        row = score[tuple(where)].tolist()
        seen = [s for s in row if s > -math.inf]
        want = [0.0 if s == -math.inf else s / max(divisor(len(seen)), 1) for s in row]
        torch.testing.assert_close(pattern[tuple(where)].tolist(), want, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("norm", "divisor"),
    [(None, lambda n: 1), ("visible", lambda n: n), ("labelled", lambda n: n - 1)],
)
def test_linear_scores_against_a_loop(norm, divisor):
    score = masked()
    is_linear(scores.linear(score, norm), score, divisor)
    must_fail(is_linear, scores.linear(score, norm), score, lambda n: divisor(n) + 1)
    everything = score.masked_fill(score == -math.inf, 0.5)  # nothing hidden: bidirectional
    is_linear(scores.linear(everything, norm), everything, divisor)
    grads = torch.autograd.grad(scores.linear(score.requires_grad_(), norm).sum(), score)[0]
    assert torch.isfinite(grads).all()
    assert not grads[score == -math.inf].any()


@pytest.mark.parametrize("name", ["softmax", "hardmax", "linear"])
def test_a_key_hidden_by_its_score_weighs_nothing(name):
    score = masked()
    score[..., 0] = -math.inf
    pattern = scores.apply(name, score)[..., 1:, :]  # the first query has nothing left to see
    assert not pattern[..., 0].any()
    assert pattern[..., 1].any()
