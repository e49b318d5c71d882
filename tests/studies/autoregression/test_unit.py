"""Heads and weights of positions that are read off a model, and errors.

Heads are compared with how units are made, errors with theory.
"""

import dataclasses
import itertools

import pytest
import torch
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.lab import Lab
from icl_interp.models.diagonal_unit import DiagonalAttention, pairs
from icl_interp.models.tokens import States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements import ties, unit
from icl_interp.tasks import AutoregressiveProcess, Normal
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.testing.reparameterisations.named import EDITS
from icl_interp.theory import autoregression as theory

D, N_POINTS = 3, 6
UNITARY = AutoregressiveProcess(n_dims=D, matrices="unitary", n_points=N_POINTS)
PAIRED = AutoregressiveProcess(n_dims=4, matrices="conjugate_pairs", n_points=N_POINTS)
N = 20_000  # functions of the Monte Carlo check


def random_unit(n_heads=2, dim=D, seed=0):
    return DiagonalAttention.random(n_heads, dim, N_POINTS, generator(seed, "test/unit"), scale=1.0)


def bench(model, task=UNITARY, n_units=8):
    return Lab(model, task, States(), n_units=n_units, n_contexts=1)


def dense(**settings):
    """A fresh model of the same shape, whose matrices are no diagonals."""
    config = dataclasses.replace(random_unit().to_transformer().cfg, init_std=0.5, **settings)
    return HookedTransformer(config, seed=1).double().eval()


def test_the_real_heads_of_a_unit_are_its_complex_ones():
    one = random_unit()
    a, b = one.A.detach(), one.B.detach()
    found = unit.heads_of(one.to_transformer())

    def check(found):
        torch.testing.assert_close(found.keys[::2], a)
        torch.testing.assert_close(found.values[::2], b)
        torch.testing.assert_close(found.keys[1::2], -1j * a)
        torch.testing.assert_close(found.values[1::2], 1j * b)

    check(found)
    must_fail(check, unit.Heads(found.keys.conj(), found.values))


def products(heads):
    """b_h a_h^T of every head, in an order of their own.

    A scale within a head and the heads' order leave it as it is.
    """
    each = torch.einsum("hi,hj->hij", heads.values, heads.keys).flatten(1)
    return each[torch.view_as_real(each)[:, 0, 0].argsort()]


@pytest.mark.parametrize(
    "edit", [e for e in EDITS if not e.applies(random_unit().to_transformer().cfg)]
)
def test_complex_heads_are_found_after_edits(edit):
    one = random_unit(3)
    model = edit.apply(one.to_transformer(), generator(0, "test/edit"))
    if model.cfg.n_heads == 7:
        with pytest.raises(ValueError, match="pairs of real ones, got 7"):
            unit.complex_heads(unit.heads_of(model))
        return
    if (
        model.cfg.n_layers == 2 or model.cfg.n_heads > 6
    ):  # heads were added, which are found as well
        return
    found = unit.complex_heads(unit.heads_of(model))
    torch.testing.assert_close(
        products(found), products(unit.Heads(one.A.detach(), one.B.detach()))
    )
    must_fail(
        torch.testing.assert_close,
        products(found),
        products(unit.Heads(one.A.detach(), 1.01 * one.B.detach())),
    )


def test_which_of_two_heads_stands_for_both_does_not_depend_on_their_order():
    """Heads that are no pairs: any two are somewhat near, and not alike."""
    draw = generator(0, "test/heads")
    a, b = (torch.randn(4, D, dtype=torch.complex128, generator=draw) for _ in range(2))

    def check(chosen):
        expected = products(chosen(unit.Heads(a, b)))
        for order in itertools.permutations(range(4)):
            torch.testing.assert_close(
                products(chosen(unit.Heads(a[list(order)], b[list(order)]))), expected
            )

    check(unit.complex_heads)
    must_fail(check, lambda heads: unit.Heads(heads.keys[::2], heads.values[::2]))


def test_heads_say_what_the_unit_and_the_transformer_say():
    one = random_unit()
    prompts = UNITARY.sample(5, generator(0, "test"), dtype=torch.float64)
    states, real = complex_states(prompts.xs), unit.heads_of(one.to_transformer())
    torch.testing.assert_close(unit.says(real, one.W_P.detach(), states), one(states).detach())
    torch.testing.assert_close(
        pairs(one(states).detach()), one.to_transformer()(prompts.xs).detach()
    )
    pairs_of = unit.as_real(unit.Heads(one.A.detach(), one.B.detach()))
    torch.testing.assert_close(unit.says(pairs_of, one.W_P.detach(), states), one(states).detach())
    wrong = unit.Heads(real.keys, real.values.conj())
    must_fail(
        torch.testing.assert_close, unit.says(wrong, one.W_P.detach(), states), one(states).detach()
    )


def fits(model):
    """The share of predictions that real heads and pairs explain.

    How far all heads move predictions comes with it.
    """
    stored = bench(model).measure(ties.diagonals_tie)
    each = {
        which: ties.tied_everywhere(stored.sel(heads=which)) for which in (ties.REAL, ties.COMPLEX)
    }
    readings = [one["reading"].value for one in each.values()]
    return *readings, each[ties.REAL]["used"].value


def test_diagonals_explain_a_unit_and_not_a_dense_layer():
    real, pairs_of, used = fits(random_unit().to_transformer())
    assert (real, pairs_of) == pytest.approx((1.0, 1.0))
    assert used > 0.5
    assert fits(dense())[0] < 0.9
    alone = random_unit().to_transformer()
    with torch.no_grad():
        alone.blocks[0].attn.W_O[1::2] = 0  # the heads that weigh by imaginary parts are gone
    real, pairs_of, _ = fits(alone)
    assert real == pytest.approx(1.0)
    assert pairs_of < 0.9
    with torch.no_grad():
        alone.unembed.b_U.fill_(3.0)
        alone.blocks[0].attn.W_O.zero_()
    assert fits(alone)[2] == 0  # nothing is predicted, so that nothing is used


def test_positions_of_a_softmax_are_those_of_the_same_model_with_free_ones():
    model = dense(position_weights="softmax")
    prompts = UNITARY.sample(5, generator(0, "test"), dtype=torch.float64)
    p = unit.positions_of(model, N_POINTS)
    torch.testing.assert_close(p.sum(1), torch.ones(N_POINTS, dtype=torch.float64))
    assert not p.triu(1).any()
    free = unit.with_positions(model, p)
    torch.testing.assert_close(free(prompts.xs), model(prompts.xs))
    must_fail(
        torch.testing.assert_close,
        unit.with_positions(model, p.roll(1, 0).tril())(prompts.xs),
        model(prompts.xs),
    )
    one = random_unit()
    torch.testing.assert_close(
        unit.positions_of(one.to_transformer(), 4), one.W_P.detach()[:4, :4].tril()
    )


def check_against_theory(task, paired):
    """Theory's losses against the mean over prompts of each length.

    Monte Carlo with N fixed beforehand, and a tolerance of 4 standard errors.
    """
    A, B = 0.4 * torch.randn(
        2, 2, task.n_dims, generator=generator(0, "test/theory"), dtype=torch.float64
    )
    p = (
        torch.randn(N_POINTS, N_POINTS, generator=generator(1, "test/theory"), dtype=torch.float64)
        / 2
    )
    model = DiagonalAttention(A + 0j, B + 0j, p).to_transformer()
    # Theory's row t has the keys up to t + 1: it is the row of the last token t + 1 here.
    exact = (
        float(theory.row_losses(theory.head_product(A, B), p[1:], paired=paired).mean())
        / task.n_dims
    )
    prompts = task.sample(N, generator(0, "test/errors"), dtype=torch.float64)
    lab = bench(model, task)
    found = unit.errors(unit.outputs(model, lab, prompts), lab, prompts)
    each = found.mean(1)
    assert abs(float(each.mean()) - exact) < 4 * float(each.std()) / N**0.5


@pytest.mark.slow
def test_normalised_errors_are_theorys():
    check_against_theory(UNITARY, paired=False)
    check_against_theory(PAIRED, paired=True)
    must_fail(check_against_theory, PAIRED, paired=False)


def test_whom_the_claims_are_about():
    config = dataclasses.asdict(random_unit().to_transformer().cfg)
    plain = facts(task=UNITARY, config=config, encoding="states")
    assert unit.needs_unit(plain) is None

    def refused(needs, **changes):
        return needs(dataclasses.replace(plain, **changes)) or ""

    assert "about models of an AutoregressiveProcess task, not of Polynomial" in (
        unit.needs_process(facts()) or ""
    )
    assert "plain states" in refused(unit.needs_process, encoding="augmented")
    haar = AutoregressiveProcess(n_dims=2, n_points=N_POINTS)
    assert unit.needs_process(dataclasses.replace(plain, task=haar)) is None
    assert "commute" in refused(unit.needs_commuting, task=haar)
    tiled = dataclasses.replace(UNITARY, tiles=2)
    assert "stand 2 times" in refused(unit.needs_unit, task=tiled)
    deep = dataclasses.replace(plain.config, n_layers=2)
    assert "one layer of attention; this model has 2" in refused(unit.needs_process, config=deep)
    softmax = dataclasses.replace(plain.config, score_fn="softmax", queries=None)
    assert "softmax scores, queries made of the last token" in refused(
        unit.needs_unit, config=softmax
    )


def test_how_many_real_heads_are_needed():
    rotations = AutoregressiveProcess(n_dims=6, matrices="rotations", n_points=N_POINTS)
    assert [unit.real_heads_needed(task) for task in (UNITARY, PAIRED, rotations)] == [6, 4, 6]
    law = AutoregressiveProcess(n_dims=D, matrices="unitary", start=Normal(1.0), n_points=N_POINTS)
    assert unit.n_complex(law) == D
