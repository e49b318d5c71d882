"""Reading of attention: against Jacobians by differences, and weights with known readers."""

import pytest
import torch
from helpers import mostly_slow, must_fail
from own_hooks import adapted
from small_models import make, tokens_for

from icl_interp.adapters import Place
from icl_interp.errors import InputError
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.probes import reading as module
from icl_interp.probes.reading import Reading

STEP = 1e-5


class Add(Intervention):
    """A vector for each prompt, added to what a layer's attention writes at one token."""

    def __init__(self, layer: int, token: int, vectors: torch.Tensor) -> None:
        self.layer, self.token, self.vectors = layer, token, vectors

    def hooks(self, model):
        def add(t, hook):
            moved = t.clone()
            moved[:, self.token] += self.vectors
            return moved

        return [(f"blocks.{self.layer}.hook_attn_out", add)]


def derivatives(model, tokens: torch.Tensor, layer: int, read: list[int]) -> torch.Tensor:
    """J of each token, by differences: (token, prompt, read, d_model)."""
    d, rows = model.cfg.d_model, []
    steps = STEP * torch.cat([torch.eye(d), -torch.eye(d)]).double()
    repeated, vectors = tokens.repeat(2 * d, 1, 1), steps.repeat_interleave(len(tokens), 0)
    for token in range(tokens.shape[1]):
        with intervene(model, Add(layer, token, vectors)):
            out = model(repeated)[:, read, 0].view(2, d, len(tokens), len(read))
        rows.append(((out[0] - out[1]) / (2 * STEP)).permute(1, 2, 0))
    return torch.stack(rows)


def check(reading: Reading, model, tokens: torch.Tensor, read: list[int], rel: float) -> None:
    """G, and how much each token is read beside the mean one."""
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        for layer in range(model.cfg.n_layers):
            slopes = derivatives(model, tokens, layer, read)
            n_tokens, n_prompts = slopes.shape[:2]
            expected = torch.einsum("tbrd,tbre->de", slopes, slopes) / n_tokens / n_prompts
            found = reading.factors[layer] @ reading.factors[layer].mT
            assert float((found - expected).norm() / expected.norm()) < rel
            added = cache[f"blocks.{layer}.hook_attn_out"]
            added = (added - added.mean(0)).flatten(0, 1)
            covariance = added.T @ added / len(added)
            moved = torch.einsum("tbrd,de,tbre->t", slopes, covariance, slopes)
            gap = reading.shares[layer] - moved / moved.mean()
            assert float(gap.abs().max()) < rel * float((moved / moved.mean()).max())


@pytest.mark.parametrize("name", mostly_slow(["post", "pre", "no norm", "linear"]))
def test_it_is_that_of_jacobians(name):
    """Of one prediction signs play no part, so that it is exact up to the differences."""
    model = make(name)
    tokens = tokens_for(model)[:2]
    reading = Reading.measure(model, tokens, [12])
    check(reading, model, tokens, [12], 1e-6)
    must_fail(check, Reading.measure(model, tokens, [10]), model, tokens, [12], 1e-6)


def one_sign(low, shape, generator):
    """In place of random signs."""
    return torch.ones(shape, dtype=torch.long)


@pytest.mark.slow
def test_several_predictions_do_not_mix(monkeypatch):
    """Products of two predictions cancel over signs, up to 1 / sqrt(draws x prompts) of G."""
    model, read = make("post"), [8, 10, 12]
    tokens = tokens_for(model)[:12]
    monkeypatch.setattr(module, "N_DRAWS", 64)
    check(Reading.measure(model, tokens, read), model, tokens, read, 0.05)
    monkeypatch.setattr(module.torch, "randint", one_sign)
    must_fail(check, Reading.measure(model, tokens, read), model, tokens, read, 0.05)


def test_it_does_not_depend_on_how_many_prompts_run_at_once(monkeypatch):
    model = make()
    tokens = tokens_for(model)[:7]
    whole = Reading.measure(model, tokens)
    monkeypatch.setattr(
        module, "chunks", lambda model, n, n_tokens: [slice(i, i + 5) for i in range(0, n, 5)]
    )
    parts = Reading.measure(model, tokens)
    for mine, theirs in zip(
        (whole.factors, whole.shares), (parts.factors, parts.shares), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)


def test_what_nobody_reads_is_not_read():
    """Nobody reads the last layer's outputs at y tokens, or what a silenced read-out shows."""
    model = make()
    tokens = tokens_for(model)
    at_inputs = Reading.measure(model, tokens, range(0, 13, 2))
    assert not at_inputs.shares[1, 1::2].any()
    assert (at_inputs.shares[0, 1::2] > 0).all()
    assert Reading.measure(model, tokens).shares[1, 1::2].all()
    with torch.no_grad():
        model.unembed.W_U.zero_()
    silent = Reading.measure(model, tokens)
    assert not silent.factors.any()
    assert not silent.shares.any()


def test_predictions_that_are_no_numbers_are_read_by_nobody():
    model = make()
    tokens = tokens_for(model)
    tokens[0] = torch.nan
    assert not Reading.measure(model, tokens).factors.any()


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(
        InputError, match="needs a model with attention and at least one prompt, but got 24 prompts"
    ):
        Reading.measure(make("mlp only"), tokens_for(make("mlp only")))
    with pytest.raises(InputError, match="but got 0 prompts"):
        Reading.measure(make(), tokens_for(make())[:0])


@pytest.mark.slow
def test_reading_in_an_adapted_module_is_that_in_the_model():
    model = make()
    tokens = tokens_for(model)[:6]
    expected = Reading.measure(model, tokens)
    place = {"hook_attn_out": Place("blocks.{i}.hook_attn_out", take=torch.clone, put=put_back)}

    def same(module, by=1.0):
        found = Reading.measure(module, tokens)
        torch.testing.assert_close(found.shares, expected.shares)
        # L is told up to a rotation, L L^T is not.
        own, wanted = (one @ one.mT for one in (found.factors, expected.factors))
        torch.testing.assert_close(own, by * wanted)

    module = adapted(model, tokens)
    same(module)
    must_fail(same, module, 1.001)
    same(adapted(model, tokens, **place))  # cut out of the module, and put back
    with pytest.raises(InputError, match=r"no blocks\.0\.hook_attn_out: .*; give points="):
        Reading.measure(adapted(model, tokens, without=("attn_out",)), tokens)


def put_back(old, new):
    return new
