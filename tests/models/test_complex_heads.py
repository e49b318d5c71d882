"""The unit "diagonal": complex heads that training keeps diagonal, against complex arithmetic."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.models import complex_heads
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements import unit as measured
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.training import recipes, trainer

NAMES = ("unitary", "unitary_spare", "pairs")
SHORT = ["training.steps=3", "training.batch_size=16", "training.warmup_steps=0"]


def run_of(name):
    return recipes.resolve(f"autoregression_{name}", SHORT)


def complex_of(model):
    """The complex unit with a model's heads and weights of positions."""
    attention = model.double().blocks[0].attn
    keys, values = complex_heads.of_heads(attention.W_K.detach(), attention.W_V.detach())
    return DiagonalAttention(keys, values, attention.W_P.detach())


def is_the_unit(model, prompts):
    """Predictions are those of complex arithmetic."""
    with torch.no_grad():
        expected = complex_of(model)(complex_states(prompts.xs.double()))
        found = complex_states(model.double()(prompts.xs.double()))
    assert expected.abs().std() > 1e-4
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_keeps_complex_diagonals(name, tmp_path, monkeypatch):
    run = run_of(name)
    prompts = run.task.sample(8, generator(0, "test/diagonal"))
    is_the_unit(HookedTransformer(run.model), prompts)
    trained = trainer.train(run, tmp_path / "run", progress=False)
    is_the_unit(trained.model, prompts)
    fixed = HookedTransformer(run.model, seed=run.training.seed).state_dict()
    for key, weight in trained.model.state_dict().items():
        moved = not torch.equal(weight.float(), fixed[key])
        assert moved == key.endswith(("W_K", "W_V", "W_P"))
    monkeypatch.setattr(trainer, "keep_diagonal", lambda model: None)
    loose = trainer.train(run, tmp_path / "loose", progress=False)
    must_fail(is_the_unit, loose.model, prompts)


def test_gradients_are_those_of_complex_numbers():
    """A slope along the real and imaginary parts of a_h and b_h, by torch on the complex unit."""
    run = run_of("unitary")
    model = HookedTransformer(run.model).double()
    prompts = run.task.sample(8, generator(0, "test/diagonal"), dtype=torch.float64)
    (model(prompts.xs) - prompts.ys).square().mean().backward()
    complex_heads.keep_diagonal(model)
    attention = model.blocks[0].attn
    keys, values = complex_heads.of_heads(attention.W_K.grad, attention.W_V.grad)
    unit = complex_of(model).requires_grad_(True)
    said = torch.view_as_real(unit(complex_states(prompts.xs))).flatten(-2)
    (said - prompts.ys).square().mean().backward()

    def check(factor):
        # A tied entry stands four times in real weights, and a mean of them is taken.
        torch.testing.assert_close(factor * keys, unit.A.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(factor * values, unit.B.grad, rtol=1e-9, atol=1e-12)

    check(4.0)
    must_fail(check, 2.0)


def test_heads_as_they_are_read_are_those_that_were_put_in():
    model = HookedTransformer(run_of("pairs").model).double()
    attention = model.blocks[0].attn
    keys, values = complex_heads.of_heads(attention.W_K.detach(), attention.W_V.detach())
    real = measured.heads_of(model)
    found = measured.complex_heads(real)
    product = torch.einsum("hi,hj->ij", values, keys)
    torch.testing.assert_close(torch.einsum("hi,hj->ij", found.values, found.keys), product)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"normalization_type": "LN"}, "needs normalization_type=None, but got .*'LN'"),
        ({"n_heads": 5}, "n_heads must be even, but got 6 and 5"),
        ({"score_fn": "softmax"}, "needs score_fn='linear'"),
    ],
)
def test_other_layers_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        replace(run_of("unitary").model, **change)
