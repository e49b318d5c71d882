"""`HookedTransformer` in others' tools, each skipped where it is not installed (extra `beside`)."""

import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.provenance import generator


@pytest.fixture(scope="module")
def asked():
    loaded = icl_interp.load("affine")
    prompts = loaded.task.sample(4, generator(0, "tests/beside"))
    return loaded.model, loaded.encoding.encode(prompts)


def adds_up(attributions, change):
    """Completeness of integrated gradients."""
    torch.testing.assert_close(attributions.sum((1, 2)), change, atol=0.02, rtol=0.02)


def test_captum_attributes_to_tokens(asked):
    attr = pytest.importorskip("captum.attr", reason="needs captum: the extra `beside`")
    model, tokens = asked

    def at_query(given):
        return model(given)[:, -1, 0]

    method = attr.IntegratedGradients(at_query)
    found = method.attribute(tokens, torch.zeros_like(tokens), n_steps=64).float()
    with torch.no_grad():
        change = at_query(tokens) - at_query(torch.zeros_like(tokens))
    adds_up(found, change)
    must_fail(adds_up, found * 2, change)


def test_circuitsvis_shows_patterns(asked):
    attention = pytest.importorskip(
        "circuitsvis.attention", reason="needs circuitsvis: the extra `beside`"
    )
    model, tokens = asked
    _, cache = model.run_with_cache(tokens[:1])
    pattern = cache["blocks.1.attn.hook_pattern"][0]
    names = [f"token {i}" for i in range(tokens.shape[1])]
    page = str(attention.attention_patterns(tokens=names, attention=pattern))
    assert "token 38" in page
    assert "token 39" not in page
