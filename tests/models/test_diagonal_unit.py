"""The diagonal unit of linear attention: against its formula, and inside a `HookedTransformer`."""

import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.models.diagonal_unit import DiagonalAttention, pairs
from icl_interp.provenance import generator
from icl_interp.tasks.autoregressive import complex_states

N_HEADS, DIM, N_CTX = 2, 3, 6
UNIT = DiagonalAttention.random(N_HEADS, DIM, N_CTX, generator(0, "test/diagonal"), scale=0.7)


def states_of(batch=2, n=5):
    """s_t = lambda^t with random angles: a path of unitary diagonal W from (1, ..., 1) on."""
    angles = 6.3 * torch.rand(
        batch, 1, DIM, generator=generator(0, "test/angles"), dtype=torch.float64
    )
    return torch.polar(
        torch.ones(batch, n, DIM, dtype=torch.float64), angles * torch.arange(n)[None, :, None]
    )


def by_hand(unit, states, before=1, conjugate=True):
    """The formula, term by term."""
    out = torch.zeros_like(states)
    for b, (path, line) in enumerate(zip(states, out, strict=True)):
        for last in range(1, len(path)):
            for t in range(last + 1):
                for h in range(N_HEADS):
                    query = path[last - before]
                    query = query.conj() if conjugate else query
                    score = (query * unit.A[h] * path[t]).sum()
                    line[last] += unit.W_P[last, t] * score * unit.B[h] * path[t]
        out[b] = line
    return out


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.abs().max() > 1e-2
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def test_the_unit_is_its_formula():
    with torch.no_grad():
        states = states_of()
        agree(UNIT(states), by_hand(UNIT, states))
        must_fail(agree, UNIT(states), by_hand(UNIT, states, before=0))
        must_fail(agree, UNIT(states), by_hand(UNIT, states, conjugate=False))


def is_inside(unit, model, states):
    agree(complex_states(model(pairs(states))), unit(states))


def test_a_hooked_transformer_contains_it_to_1e_12():
    with torch.no_grad():
        model, states = UNIT.to_transformer(), states_of()
        assert model.cfg.n_heads == 2 * N_HEADS
        is_inside(UNIT, model, states)
        whole, n = complex_states(model(pairs(states))), states.shape[1]
        agree(complex_states(model(pairs(states), range(n - 1, n))), whole[:, -1:])
        alone = UNIT.to_transformer()
        alone.blocks[0].attn.W_O[1] = 0  # without the imaginary part of a head
        must_fail(is_inside, UNIT, alone, states)


def test_its_product_is_all_that_predictions_depend_on():
    """C = B^T A: two heads whose product is that of three others predict alike."""
    turn = torch.linalg.qr(
        torch.randn(N_HEADS, N_HEADS, generator=generator(0, "turn"), dtype=torch.float64)
    ).Q
    with torch.no_grad():
        turned = DiagonalAttention(turn.to(UNIT.A) @ UNIT.A, turn.to(UNIT.A) @ UNIT.B, UNIT.W_P)
        scaled = DiagonalAttention(UNIT.A * 1.01, UNIT.B / 1.01, UNIT.W_P)
        for other in (turned, scaled):
            agree(other.product, UNIT.product)
            agree(other(states_of()), UNIT(states_of()))
        must_fail(
            agree, DiagonalAttention(turned.A, UNIT.B, UNIT.W_P)(states_of()), UNIT(states_of())
        )


def test_hooks_read_and_edit_every_step():
    states = states_of()
    with torch.no_grad():
        plain = UNIT(states)
        out, cache = UNIT.run_with_cache(states)
        assert torch.equal(torch.view_as_real(out), torch.view_as_real(plain))
        agree(cache["hook_z"].sum(2), plain)
        for name in UNIT.hook_dict:
            edited = UNIT.run_with_hooks(states, fwd_hooks=[(name, lambda value, hook: 2 * value)])
            must_fail(agree, edited, plain)
        assert torch.equal(torch.view_as_real(UNIT(states)), torch.view_as_real(plain))


def test_shapes_are_refused_in_a_line():
    with pytest.raises(
        InputError,
        match=r"A and B must both be \(head, dim\) and P must be \(n_ctx, n_ctx\), but got",
    ):
        DiagonalAttention(UNIT.A, UNIT.B[:1], UNIT.W_P)
    with pytest.raises(InputError, match="with at most n_ctx=6 tokens, but got"):
        UNIT(states_of(n=7))
