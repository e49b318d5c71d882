"""The losses of `theory.autoregression`, against exact expectations over grids of eigenvalues."""

import inspect

import pytest
import torch
from angle_grids import eigenvalues, normal, paths, squared_error
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.theory import autoregression as theory

C = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
P = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
SIZES = [(1, 1, 3), (2, 2, 2), (2, 3, 5), (3, 2, 3)]  # d, heads, tokens
PAIRED_SIZES = [(2, 1, 2), (2, 3, 5), (4, 2, 4), (4, 5, 3)]


@pytest.mark.parametrize(
    "name", [n for n in theory.__all__ if inspect.isfunction(getattr(theory, n))]
)
def test_every_function_says_where_it_comes_from_and_shows_it(name):
    doc = inspect.getdoc(getattr(theory, name))
    assert "Source: " in doc
    assert ">>> " in doc


def test_goldens():
    def check(unitary, coded, orthogonal):
        values = [float(loss(C, P)) for loss in (unitary, coded, orthogonal)]
        assert values == pytest.approx([9.52, 12.22, 24.5], abs=1e-12)

    check(theory.unitary_loss, theory.unitary_loss_as_coded, theory.orthogonal_loss)
    must_fail(
        check, theory.unitary_loss_as_coded, theory.unitary_loss_as_coded, theory.orthogonal_loss
    )


def exact(A, B, p, paired):
    """The loss on a grid, with the layer written out head by head and key by key."""
    grid = eigenvalues(A.shape[1], len(p), paired=paired)
    states = paths(grid, len(p))
    query, out = states[:, -2], 0
    for a, b in zip(A, B, strict=True):
        for t, weight in enumerate(p):
            score = ((a * query).conj() * states[:, t]).sum(-1, keepdim=True)
            out = out + weight * b * states[:, t] * score
    return squared_error(out, grid ** len(p))


def check_loss(loss, paired, sizes):
    for d, heads, n_tokens in sizes:
        A, B, p = normal(heads, d), normal(heads, d, seed=1), normal(n_tokens, seed=2)
        assert_close(
            loss(theory.head_product(A, B), p), exact(A, B, p, paired), rtol=1e-12, atol=1e-12
        )


def test_losses_are_expectations():
    check_loss(theory.unitary_loss, False, SIZES)
    check_loss(theory.orthogonal_loss, True, PAIRED_SIZES)
    must_fail(check_loss, theory.unitary_loss_as_coded, False, SIZES)
    must_fail(check_loss, theory.unitary_loss, True, PAIRED_SIZES)
    must_fail(check_loss, theory.orthogonal_loss, False, [(2, 2, 3)])
    must_fail(check_loss, lambda C, p: theory.unitary_loss(C.T, p), False, SIZES)
    must_fail(check_loss, lambda C, p: theory.orthogonal_loss(C, p.roll(1)), True, PAIRED_SIZES)


def check_prediction(predict):
    A, B, p = normal(3, 2), normal(3, 2, seed=1), normal(4, seed=2)
    grid = eigenvalues(2, 4, paired=False)
    found = squared_error(predict(paths(grid, 4), A, B, p), grid**4)
    assert_close(found, exact(A, B, p, False), rtol=1e-12, atol=0)


def test_the_prediction_is_that_of_the_layer():
    check_prediction(theory.prediction)
    must_fail(check_prediction, lambda s, A, B, p: theory.prediction(s, B, A, p))
    must_fail(check_prediction, lambda s, A, B, p: theory.prediction(s.roll(1, 1), A, B, p))
    batch = paths(eigenvalues(2, 1, paired=False), 4).view(7, 7, 4, 2)
    A, B, p = normal(3, 2), normal(3, 2, seed=1), normal(4, seed=2)
    one = theory.prediction(batch[2, 5], A, B, p)
    assert_close(theory.prediction(batch, A, B, p)[2, 5], one, rtol=1e-12, atol=0)


def test_the_published_code_has_another_loss_with_the_same_minimisers():
    point = theory.unitary_minimiser(3, 5, scale=2.0)

    def gradient(loss, product, p):
        at = [product.clone().requires_grad_(), p.clone().requires_grad_()]
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss(*at), at)])

    def check(product, p):
        assert_close(
            gradient(theory.unitary_loss_as_coded, product, p),
            gradient(theory.unitary_loss, product, p),
            rtol=1e-12,
            atol=1e-12,
        )

    check(*point)
    assert float(theory.unitary_loss_as_coded(*point)) == pytest.approx(0, abs=1e-14)
    must_fail(check, C, P)


@pytest.mark.parametrize("paired", [False, True])
def test_losses_of_all_lengths(paired):
    d, n_tokens = 4, 6
    product, table = normal(d, d), normal(n_tokens, n_tokens, seed=1)
    loss = theory.orthogonal_loss if paired else theory.unitary_loss

    def check(table):
        found = theory.row_losses(product, table, paired=paired)
        wanted = [loss(product, table[t, : t + 2]) for t in range(n_tokens - 1)]
        assert_close(found, torch.stack(wanted), rtol=1e-12, atol=1e-12)
        hidden = torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(2)
        hidden[-1] = True
        blind = theory.row_losses(product, table.masked_fill(hidden, 9.0), paired=paired)
        assert_close(blind, found, rtol=0, atol=0)

    check(table)
    must_fail(
        lambda: assert_close(
            theory.row_losses(product, table.T, paired=paired)[0], loss(product, table[0, :2])
        )
    )


def test_nothing_depends_on_the_first_state():
    A, B, p, start = (
        normal(3, 2),
        normal(3, 2, seed=1),
        normal(4, seed=2),
        torch.tensor([2 - 1j, 0.5j]).to(torch.complex128),
    )
    states = paths(eigenvalues(2, 2, paired=False), 4)
    plain = theory.prediction(states, A, B, p)

    def check(sizes):
        product = theory.with_start(theory.head_product(A, B), sizes)
        heads = torch.eye(2, dtype=torch.float64)
        found = theory.prediction(states * start, product, heads, p)  # B = I: the product is A
        assert_close(found, start * plain, rtol=1e-12, atol=1e-12)

    check(start.abs())
    must_fail(check, start.abs().sqrt())


@pytest.mark.parametrize("loss", [theory.unitary_loss, theory.orthogonal_loss])
def test_losses_do_not_see_the_scale(loss):
    product, p = normal(4, 4), normal(5, seed=1)

    def check(factor, other):
        assert_close(loss(product / factor, other * p), loss(product, p), rtol=1e-12, atol=0)

    check(-3.0, -3.0)
    must_fail(check, -3.0, 3.0)


BAD = [
    (
        lambda: theory.unitary_loss(torch.ones(2, 3), P),
        r"must be a square matrix, got shape \[2, 3\]",
    ),
    (lambda: theory.unitary_loss(C, P[:1]), r"two tokens or more, got shape \[1\]"),
    (lambda: theory.orthogonal_loss(torch.eye(3), P), "an even number of coordinates, got 3"),
    (
        lambda: theory.head_product(torch.ones(2, 3), torch.ones(1, 3)),
        r"one shape, got \[2, 3\] and \[1, 3\]",
    ),
    (
        lambda: theory.prediction(torch.ones(3, 2), C, C, P),
        r"4 tokens \(p\) of 2 coordinates .* got shape \(3, 2\)",
    ),
    (
        lambda: theory.row_losses(C, torch.ones(1, 1), paired=False),
        r"two columns or more, got shape \[1, 1\]",
    ),
    (lambda: theory.with_start(C, torch.tensor([1.0, 0.0])), "must be 2 positive numbers"),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
