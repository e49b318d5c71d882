"""A context put into weights: the edit is a change of the weights themselves."""

import copy
from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from own_hooks import adapted
from small_models import MODELS, make, tokens_for
from torch.testing import assert_close

from icl_interp.errors import InputError
from icl_interp.interventions import ImplicitUpdate, intervene

WITH_MLP = [name for name, settings in MODELS.items() if not settings.get("attn_only")]


def drawn(model, n):
    """An update for each of n prompts."""
    draw = torch.Generator().manual_seed(3)
    widths = (model.cfg.mlp_width, model.cfg.d_model, model.cfg.d_model)
    return ImplicitUpdate(
        *(torch.randn(n, width, generator=draw, dtype=torch.float64) for width in widths)
    )


def by_weights(model, edit, row):
    """A copy whose last MLP has one prompt's update in W and, where it is added, in its bias."""
    other = copy.deepcopy(model)
    mlp = other.blocks[-1].mlp
    with torch.no_grad():
        mlp.W_in += edit.row[row].outer(edit.column[row])
        place = mlp.b_out
        if model.cfg.norm_position == "output":
            place = other.blocks[-1].ln2.b
        place += edit.bias[row]
    return other


@pytest.mark.parametrize("name", WITH_MLP)
def test_it_is_a_change_of_the_last_mlps_weights(name):
    model = make(name)
    tokens = tokens_for(model)[:3]
    edit = drawn(model, len(tokens))
    with torch.no_grad(), intervene(model, edit):
        found = model(tokens)

    def check(row, of):
        with torch.no_grad():
            wanted = by_weights(model, edit, of)(tokens)
        assert_close(found[row], wanted[row], rtol=1e-9, atol=1e-9)

    for row in range(len(tokens)):
        check(row, row)
    must_fail(check, 0, 1)


def test_the_derivative_in_hidden_units_is_that_of_central_differences():
    model = make()
    tokens = tokens_for(model)[:2, :1]
    edit = drawn(model, 2)

    def said(hidden):
        moved = ImplicitUpdate(edit.column, edit.row, edit.bias, hidden)
        with torch.enable_grad(), intervene(model, moved):
            return model(tokens).sum()

    hidden = torch.zeros(2, model.cfg.mlp_width, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(said(hidden), hidden)
    unit = int(slope[1].abs().argmax())
    change = torch.zeros_like(slope)
    change[1, unit] = 1e-5
    by_hand = (said(change) - said(-change)).detach() / 2e-5
    assert slope[1, unit].item() == pytest.approx(by_hand.item(), rel=1e-6)


def test_a_model_without_an_mlp_is_refused():
    model = make("attention only")
    edit = drawn(model, 1)
    with pytest.raises(InputError, match="unknown hook"), intervene(model, edit):
        pass


def test_an_adapted_module_is_updated_like_the_model():
    model = make()
    tokens = tokens_for(model)[:3]
    edit = drawn(model, len(tokens))
    module = adapted(model, tokens, more=("ln2.hook_out", "mlp.hook_pre"))

    def same(one, other):
        with torch.no_grad():
            with intervene(module, one):
                found = module(tokens)
            with intervene(model, other):
                assert_close(found, model(tokens), rtol=1e-10, atol=1e-10)

    same(edit, edit)
    must_fail(same, edit, replace(edit, row=1.01 * edit.row))
    # What an MLP reads is not guessed.
    module = adapted(model, tokens, more=("mlp.hook_pre", "hook_resid_mid"))
    with (
        pytest.raises(InputError, match=r"no blocks\.1\.ln2\.hook_out: .*; give points="),
        intervene(module, edit),
    ):
        pass
