"""Augmented tokens and gradient descent in `theory.autoregression`.

Lemma 1, Propositions 1 and 2.
"""

import numpy as np
import pytest
import torch
from angle_grids import eigenvalues, normal, paths, squared_error
from helpers import must_fail
from scipy.optimize import minimize
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory


def haar(d, seed=0):
    """An orthogonal matrix that commutes with nothing in particular."""
    factor = torch.linalg.qr(normal(d, d, seed=seed))
    return factor.Q * factor.R.diagonal().sign()


def real_states(d=3, n_tokens=6):
    """s_{t+1} = W s_t for one Haar orthogonal W, and what follows."""
    W, states = haar(d), [normal(d, seed=1)]
    for _ in range(n_tokens):
        states.append(W @ states[-1])
    return torch.stack(states[:-1]), states[-1]


def complex_states(d=3, n_tokens=6):
    return torch.complex(
        normal(n_tokens, d), normal(n_tokens, d, seed=1)
    )  # any path: no W is behind it


def stepped(states, step, n_steps, first):
    """Gradient descent by automatic differentiation, on real and imaginary parts."""
    W = first.clone().to(states.dtype)
    for _ in range(n_steps):
        W = W.detach().requires_grad_()
        loss = (
            sum((states[t] - W @ states[t - 1]).abs().square().sum() for t in range(1, len(states)))
            / 2
        )
        (gradient,) = torch.autograd.grad(loss, W)
        W = W - step * gradient
    return W.detach()


@pytest.mark.parametrize(
    "states", [real_states()[0], complex_states()], ids=["orthogonal", "complex"]
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_the_layer_takes_a_step_of_gradient_descent(states, from_zero):
    first = torch.zeros(3, 3, dtype=torch.float64) if from_zero else normal(3, 3, seed=5)
    given = None if from_zero else first
    wanted = stepped(states, 0.1, 1, first) @ states[-1]

    def check(tokens, weights):
        assert_close(theory.augmented_prediction(tokens, *weights), wanted, rtol=1e-12, atol=1e-12)

    tokens, weights = (
        theory.augmented_tokens(states, given),
        theory.gradient_step_weights(3, 0.1, given),
    )
    check(tokens, weights)
    must_fail(check, tokens, theory.gradient_step_weights(3, 0.11, given))
    must_fail(check, tokens, weights._replace(scores=weights.scores.T))
    must_fail(check, theory.augmented_tokens(states.flip(0), given), weights)
    if not from_zero:
        must_fail(check, tokens, theory.gradient_step_weights(3, 0.1))
        must_fail(check, theory.augmented_tokens(states), weights)
    batch = theory.augmented_prediction(tokens.expand(2, -1, -1), *weights)
    assert_close(batch[1], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "states", [real_states()[0], complex_states()], ids=["orthogonal", "complex"]
)
def test_gradient_descent_is_what_it_says(states):
    def check(step, n_steps, first):
        found = theory.gradient_descent(states, step, n_steps, first)
        start = torch.zeros(3, 3, dtype=torch.float64) if first is None else first
        assert_close(found, stepped(states, 0.1, 4, start), rtol=1e-11, atol=1e-12)

    check(0.1, 4, None)
    check(0.1, 4, normal(3, 3, seed=5))
    must_fail(check, 0.1, 3, None)
    must_fail(check, 0.12, 4, None)


def test_gradient_descent_finds_the_matrix():
    states, target = real_states(3, 12)
    found = theory.gradient_descent(states, 0.1, 3000)
    assert_close(found @ states[-1], target, rtol=1e-6, atol=1e-6)
    assert_close(found, haar(3), rtol=1e-6, atol=1e-6)
    must_fail(
        lambda: assert_close(theory.gradient_descent(states, 0.1, 3), haar(3), rtol=1e-2, atol=1e-2)
    )


# The best step ------------------------------------------------------------------------------------


def test_the_loss_of_a_step_is_its_expectation():
    def check(loss, d):
        for length in (1, 2, 3):
            grid = eigenvalues(d, length + 2, paired=False)
            states = paths(grid, length + 1)
            W = theory.gradient_descent(states, 0.3, 1)
            found = squared_error((W @ states[:, -1, :, None])[..., 0], grid ** (length + 1))
            assert_close(found, loss(0.3, [length], d), rtol=1e-11, atol=1e-11)

    for d in (1, 2, 3):
        check(theory.step_loss, d)
    must_fail(check, lambda step, lengths, d: theory.step_loss(step, lengths, d - 1), 3)
    must_fail(check, lambda step, lengths, d: theory.step_loss(1.1 * step, lengths, d), 3)


GOLDENS = [
    (2, range(2, 5), 0.23684, 1.736842),
    (2, range(2, 7), 0.18182, 2.727273),
    (3, [2, 3], 0.21739, 2.739130),
    (1, range(2, 5), 0.31034, 0.206897),
]


@pytest.mark.parametrize(("d", "lengths", "step", "loss"), GOLDENS)
def test_goldens_of_the_best_step(d, lengths, step, loss):
    def check(optimal):
        assert float(optimal(lengths, d)) == pytest.approx(step, abs=5e-6)

    check(theory.optimal_step)
    must_fail(check, lambda lengths, d: theory.optimal_step(lengths, d + 1))
    must_fail(check, lambda lengths, d: theory.optimal_step([t + 1 for t in lengths], d))
    assert float(theory.least_step_loss(lengths, d)) == pytest.approx(loss, abs=5e-7)
    for other in (0.99 * step, 1.01 * step):
        assert theory.step_loss(other, lengths, d) > theory.least_step_loss(lengths, d)


def test_one_length_and_long_prompts():
    assert float(theory.optimal_step([7], 4)) == pytest.approx(1 / 10)
    assert float(theory.least_step_loss([7], 4)) == pytest.approx(4 * 3 / 10)
    ratios = [float(theory.optimal_step(range(2, 51), d)) / (3 / 100) for d in (1, 5, 20)]
    assert ratios == pytest.approx([0.989, 0.884, 0.633], abs=5e-4)


def written_out(a, b, length):
    """The loss of block-diagonal weights on a grid of eigenvalues.

    It is computed through tokens and full matrices.
    """
    d = a.shape[1]
    scores, values = torch.zeros(2, 3 * d, 3 * d, dtype=torch.float64)
    at = [slice(k * d, (k + 1) * d) for k in range(3)]
    for weight, (row, column) in zip(a, ((1, 1), (1, 2), (2, 1), (2, 2)), strict=True):
        scores[at[row], at[column]] = torch.diag(weight)
    values[at[0], at[1]], values[at[0], at[2]] = torch.diag(b[0]), torch.diag(b[1])
    grid = eigenvalues(d, length + 2, paired=False)
    tokens = theory.augmented_tokens(paths(grid, length + 1))
    return squared_error(theory.augmented_prediction(tokens, scores, values), grid ** (length + 1))


def test_the_loss_of_all_block_diagonal_weights():
    def check(loss):
        for d, lengths in ((1, [1, 3]), (2, [1, 2, 3]), (3, [2])):
            a, b = normal(4, d), normal(2, d, seed=1)
            expected = sum(written_out(a, b, length) for length in lengths)
            assert_close(loss(a, b, lengths), expected, rtol=1e-11, atol=1e-11)

    check(theory.block_loss)
    must_fail(check, lambda a, b, lengths: theory.block_loss(a.flip(0), b, lengths))
    must_fail(check, lambda a, b, lengths: theory.block_loss(a, b.flip(0), lengths))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "lengths", "step", "loss"), [GOLDENS[0], GOLDENS[2], GOLDENS[3]])
def test_no_block_diagonal_weights_do_better(d, lengths, step, loss):
    """Proposition 2: L-BFGS ends at one step of gradient descent, with the best size.

    It starts from random weights.
    """

    def both(flat):
        at = torch.from_numpy(flat.copy()).requires_grad_()
        found = theory.block_loss(at[: 4 * d].view(4, d), at[4 * d :].view(2, d), lengths)
        (gradient,) = torch.autograd.grad(found, at)
        return float(found.detach()), gradient.numpy()

    ends = []
    for seed in range(2):
        start = 0.5 * normal(6 * d, seed=seed).numpy()
        ends.append(
            minimize(
                both, start, jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-14}
            )
        )
    best = min(ends, key=lambda end: end.fun)
    a, b = (
        torch.from_numpy(best.x[: 4 * d]).view(4, d),
        torch.from_numpy(best.x[4 * d :]).view(2, d),
    )

    def check(a, b):
        assert best.fun == pytest.approx(float(theory.least_step_loss(lengths, d)), abs=1e-6)
        assert_close(b[0] * a[2], torch.full((d,), step, dtype=torch.float64), rtol=0, atol=1e-4)
        sizes = torch.outer(b[0], a[2]).abs()  # signs are free, a coordinate at a time
        assert_close(sizes, torch.full((d, d), step, dtype=torch.float64), rtol=0, atol=1e-4)
        assert a[[0, 1, 3]].abs().max() * b[0].abs().max() < 0.05  # the loss is flat here
        assert b[1].abs().max() * a[2].abs().max() < 0.05

    check(a, b)
    must_fail(check, a, 1.01 * b)
    assert np.min([end.fun for end in ends]) > loss - 1e-6


def test_signs_of_coordinates_are_free_and_only_equal_ones_are_gradient_descent():
    """a_3 and b_1 times the same signs D: the loss is the least as well.

    The prediction is D W_1 D s_T.
    """
    d, lengths, signs = 3, [2, 3], torch.tensor([1.0, -1.0, 1.0]).double()
    step = float(theory.optimal_step(lengths, d))
    scores, values = torch.zeros(4, d, dtype=torch.float64), torch.zeros(2, d, dtype=torch.float64)

    def is_least(other):
        scores[2], values[0] = signs, step * other
        found = float(theory.block_loss(scores, values, lengths))
        assert found == pytest.approx(float(theory.least_step_loss(lengths, d)), rel=1e-12)

    is_least(signs)
    must_fail(is_least, torch.ones(d).double())
    states, weights, D = complex_states(d), theory.gradient_step_weights(d, step), torch.diag(signs)
    scores, values = weights.scores.clone(), weights.values.clone()
    scores[2 * d :, d : 2 * d], values[:d, d : 2 * d] = D, step * D
    found = theory.augmented_prediction(theory.augmented_tokens(states), scores, values)
    D = D.to(torch.complex128)
    W = theory.gradient_descent(states, step, 1)

    def is_prediction(W):
        assert_close(found, W @ states[-1], rtol=1e-12, atol=1e-12)

    is_prediction(D @ W @ D)
    must_fail(is_prediction, W)


# Lemma 1 ------------------------------------------------------------------------------------------


def test_two_heads_make_augmented_tokens():
    states = complex_states(3, 8)
    wanted, size = theory.augmented_tokens(states), states.abs().max()

    def check(margin, allowed):
        gap = theory.augmented_by_attention(states, allowed) - wanted
        t = torch.arange(1, 8)
        bound = 2 * size * t * float(np.exp(-margin))
        assert (gap[1:].abs().amax(1) <= bound + 1e-15).all()
        assert_close(
            gap[0, 6:], states[0], rtol=1e-12, atol=0
        )  # the first token has none before it

    for margin in (3.0, 8.0, 30.0):
        check(margin, margin)
    must_fail(check, 30.0, 8.0)
    assert torch.equal(theory.augmenting_patterns(1, 5.0), torch.ones(2, 1, 1).double())
    assert_close(theory.augmenting_patterns(6, 2.0).sum(-1), torch.ones(2, 6).double())


@pytest.mark.parametrize("d", [1, 2])
def test_the_first_token_costs_little(d):
    """One gradient step on tokens that two heads made loses d^2 eta^2 more than on true ones."""
    length, step = 3, 0.2
    grid = eigenvalues(d, length + 2, paired=False)
    states, weights = paths(grid, length + 1), theory.gradient_step_weights(d, step)
    made = theory.augmented_prediction(theory.augmented_by_attention(states, 60.0), *weights)
    found = squared_error(made, grid ** (length + 1)) - theory.step_loss(step, [length], d)

    def check(extra):
        assert float(found) == pytest.approx(extra, rel=1e-9)

    check(d**2 * step**2)
    must_fail(check, d * step**2 if d > 1 else 0.0)


BAD = [
    (lambda: theory.optimal_step([], 3), r"each at least 1, got \[\]"),
    (lambda: theory.optimal_step([3, 0], 3), r"each at least 1, got \[3, 0\]"),
    (lambda: theory.step_loss(0.1, [3], 0), "d counts coordinates and must be at least 1, got 0"),
    (lambda: theory.gradient_step_weights(0, 0.1), "at least 1, got 0"),
    (lambda: theory.augmenting_patterns(0, 1.0), "one token or more, got 0"),
    (lambda: theory.augmented_tokens(torch.zeros(0, 3)), "one state or more"),
    (
        lambda: theory.augmented_prediction(torch.ones(2, 4), torch.eye(4), torch.eye(4)),
        "three blocks wide",
    ),
    (
        lambda: theory.augmented_prediction(torch.ones(2, 3), torch.eye(4), torch.eye(4)),
        "three blocks wide",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
