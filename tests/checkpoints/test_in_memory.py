"""Models in memory: what wraps them does not matter, and what they compute is compared closely."""

import copy

import pytest
import torch
from foreign_files import TheirTransformer, predicts_the_same
from helpers import must_fail
from torch import nn

import icl_interp
from icl_interp.checkpoints.formats import modules
from icl_interp.errors import InputError
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
TASK = LinearRegression(n_dims=3, n_points=5)


class Optional(TheirTransformer):
    """Labels may be left out."""

    def forward(self, xs, ys=None):
        return super().forward(xs, ys)


class Exact(nn.Module):
    """GPT-2's activation but for its approximation by tanh: some 1e-4 off."""

    def forward(self, x):
        return nn.functional.gelu(x)


def wrapped_model(model):
    holder = nn.Module()
    holder.net = model
    holder.forward = lambda xs, ys: model(xs, ys)
    return holder


WRAPPERS = {
    "torch.compile": lambda: torch.compile(TheirTransformer()),
    "DataParallel": lambda: nn.DataParallel(TheirTransformer()),
    "both": lambda: nn.DataParallel(torch.compile(TheirTransformer())),
    "labels may be left out": Optional,
    "float64": lambda: TheirTransformer().double(),
    "another module": lambda: wrapped_model(TheirTransformer()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRAPPERS)
def test_what_wraps_a_model_does_not_matter(name):
    found = icl_interp.load(WRAPPERS[name](), TASK)
    predicts_the_same(found, TheirTransformer())
    must_fail(predicts_the_same, found, TheirTransformer(seed=1))


def test_half_precision_is_compared_in_float32():
    """The weights are rounded, and so is what ours predicts.

    Arithmetic in 8 bits is not taken for another model.
    """
    rounded = TheirTransformer().bfloat16()
    before = copy.deepcopy(rounded.state_dict())
    found = icl_interp.load(rounded, TASK)
    predicts_the_same(found, copy.deepcopy(rounded).float())
    must_fail(predicts_the_same, found, TheirTransformer())
    assert rounded._read_in.weight.dtype == torch.bfloat16
    assert all(torch.equal(tensor, before[name]) for name, tensor in rounded.state_dict().items())


def refused(model):
    with pytest.raises(InputError, match="the model's outputs differ by"):
        icl_interp.load(model, TASK)


def test_another_approximation_of_the_activation_is_noticed(monkeypatch):
    model = TheirTransformer()
    for block in model._backbone.h:
        block.mlp.act = Exact()
    refused(model)
    must_fail(refused, TheirTransformer())
    monkeypatch.setattr(modules, "TOLERANCE", 1e-2)
    must_fail(refused, model)


@pytest.mark.slow
def test_what_is_no_wrapper_stays():
    model = TheirTransformer()
    assert modules.unwrapped(model) is model
    assert modules.unwrapped(torch.compile(model)) is model
    for other in (None, "affine", 3):
        assert modules.unwrapped(other) is other
