"""Mean attention patterns against the cache."""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, model_of, tokens_of
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.interventions import SwapPattern, intervene
from icl_interp.probes import AttentionPattern, observe, probe

WEIGHT, STD = "attention_pattern.weight", "attention_pattern.std"
SERVED = [name for name in ARCHITECTURES if not model_of(name).cfg.mlp_only]


def by_hand(model, tokens):
    """(layer, head, query, key)."""
    _, cache = model.run_with_cache(tokens)
    layers = range(model.cfg.n_layers)
    return torch.stack(
        [cache[f"blocks.{i}.attn.hook_pattern"].double().mean(0) for i in layers]
    ).numpy()


@pytest.mark.parametrize("name", SERVED)
def test_means_are_those_of_the_cache_however_the_stream_is_cut(name):
    model, tokens = model_of(name), tokens_of(name)
    expected = by_hand(model, tokens)

    def close(found):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)

    for size in (64, 3):
        found = probe(model, tokens, [AttentionPattern()], batch_size=size)[WEIGHT]
        assert found.dims == ("layer", "head", "query", "key")
        close(found.values)
    must_fail(close, expected[..., ::-1])


@pytest.mark.parametrize("size", [64, 3])
def test_deviations_are_those_of_the_cache_however_the_stream_is_cut(size):
    model, tokens = model_of("pre"), tokens_of("pre")
    _, cache = model.run_with_cache(tokens)
    layers = range(model.cfg.n_layers)
    patterns = torch.stack(
        [cache[f"blocks.{i}.attn.hook_pattern"].double() for i in layers]
    ).numpy()
    results = probe(model, tokens, [AttentionPattern()], batch_size=size)

    def check(mean, std):
        np.testing.assert_allclose(std, patterns.std(1), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(mean**2 + std**2, (patterns**2).mean(1), rtol=1e-6, atol=1e-9)

    check(results[WEIGHT].values, results[STD].values)
    must_fail(check, results[WEIGHT].values, results[STD].values * 0.9)
    assert results[STD].dims == results[WEIGHT].dims


def test_of_the_last_token_alone_there_is_its_row():
    model, tokens = model_of("pre"), tokens_of("pre")
    last = probe(model, tokens, [AttentionPattern(last=True)])[WEIGHT]
    assert last.indexes["query"].tolist() == [tokens.shape[1] - 1]
    np.testing.assert_allclose(last.values, by_hand(model, tokens)[:, :, -1:], rtol=1e-6)


def test_alternative_last_tokens_are_named_by_their_kind():
    model, tokens = model_of("pre"), tokens_of("pre")
    others = torch.stack([tokens[:, -1], tokens[:, -1] + 1], 1)
    memory, pattern = model.remember(tokens[:, :-1]), AttentionPattern()
    with torch.no_grad(), observe(model, pattern, positions={0.5: [0], 1.5: [1]}):
        model.after(memory, others, position=tokens.shape[1] - 1)
    found = pattern.results()["weight"]
    assert found.indexes["query"].tolist() == [0.5, 1.5]
    np.testing.assert_allclose(
        found.sel(query=0.5).values, by_hand(model, tokens)[:, :, -1], rtol=1e-5, atol=1e-7
    )


def test_the_probe_changes_nothing_and_sees_what_interventions_leave():
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad():
        before = model(tokens)
        first = probe(model, tokens, [AttentionPattern()])[WEIGHT]
        assert torch.equal(model(tokens), before)
        with intervene(model, SwapPattern("uniform", ((0, 0),))):
            even = probe(model, tokens, [AttentionPattern()])[WEIGHT]
    row = even.sel(layer=0, head=0).values[-1]
    np.testing.assert_allclose(row, 1 / len(row), rtol=1e-6)
    assert abs(first.sel(layer=0, head=0).values[-1] - 1 / len(row)).max() > 1e-3


def test_a_model_without_attention_is_refused():
    with pytest.raises(InputError, match="attention_pattern: this model has no attention"):
        probe(model_of("mlp only"), tokens_of("mlp only"), [AttentionPattern()])
