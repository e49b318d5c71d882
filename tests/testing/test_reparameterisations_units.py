"""Edits of units: their weights are then free, since an edit changes those that a unit does not learn."""

import pytest
import torch
from helpers import must_fail
from ridge_units import RELU, square, unit

from icl_interp.errors import InputError
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.testing.reparameterisations import EDITS, TARGET_EDITS, Posed, base, differ

TOKENS = Stacked().encode(RELU.sample(8, generator(0, "test"), dtype=torch.float64))
MODELS = {
    "M": unit(3 * square(3, 3)),
    "KQV": SoftmaxAttention(*(square(4, 4, seed=i) for i in range(3))).to_transformer(
        RELU.n_points
    ),
}


def same_function(model, edited):
    with torch.no_grad():
        assert torch.allclose(model(TOKENS)[:, -1], edited(TOKENS)[:, -1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_what_a_unit_computes_stays_and_it_is_no_unit_any_more(name, edit):
    model = MODELS[name]
    if edit.applies(model.cfg):
        return
    edited = edit.apply(model, generator(0, "test"))
    same_function(model, edited)
    assert edited.cfg.unit is None
    assert model.cfg.unit == name
    if differ(model, edited):
        with torch.no_grad():
            for block in edited.blocks:
                block.attn.W_Q.mul_(0.5)
        must_fail(same_function, model, edited)


def test_some_edits_of_every_kind_apply():
    found = {edit.family for edit in EDITS if edit.applies(MODELS["M"].cfg) is None}
    assert {"width", "basis", "heads", "values", "layers"} <= found


def test_a_config_that_stays_a_units_would_be_impossible(monkeypatch):
    doubled = next(edit for edit in EDITS if edit.name == "width doubled (large)")
    monkeypatch.setattr(base, "freed", lambda cfg: cfg)
    with pytest.raises(InputError, match="d_model"):
        doubled.apply(MODELS["M"], generator(0, "test"))


@pytest.mark.parametrize("edit", TARGET_EDITS, ids=lambda edit: edit.name)
def test_units_of_values_too(edit):
    posed = Posed(MODELS["M"], RELU, Stacked())
    if edit.applies(posed) is None:
        assert edit.apply(posed, generator(0, "test")).model.cfg.unit is None
