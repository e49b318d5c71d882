"""Queries and keys with read-ins of their own: equal to a loop that reads each by its own."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.read_ins import ReadIn, fold_read_ins
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

CONFIG = HookedTransformerConfig(
    n_layers=1,
    d_model=6,
    n_heads=2,
    d_head=3,
    d_in=4,
    n_ctx=7,
    attn_only=True,
    normalization_type=None,
    positional_embedding_type="none",
    init_std=0.5,
)


def drawn(draw, *shape):
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def setting():
    """A model with biases that are not 0, two read-ins, and tokens."""
    draw = generator(0, "read-ins")
    model = HookedTransformer(CONFIG).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b_" in name:
                parameter.copy_(drawn(draw, *parameter.shape))
    query, key = (ReadIn(drawn(draw, 4, 6), drawn(draw, 6)) for _ in range(2))
    return model, query, key, drawn(draw, 5, 7, 4)


def by_hand(model, query, key, tokens):
    """The output with queries and keys from their own read-ins, a head after the other."""
    attention = model.blocks[0].attn
    stream = tokens @ model.W_E + model.embed.b_E
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    out = stream + attention.b_O
    for head in range(2):
        q = (tokens @ query.weight + query.bias) @ attention.W_Q[head] + attention.b_Q[head]
        k = (tokens @ key.weight + key.bias) @ attention.W_K[head] + attention.b_K[head]
        scores = (q @ k.mT / 3**0.5).masked_fill(~causal, -torch.inf)
        values = stream @ attention.W_V[head] + attention.b_V[head]
        out = out + scores.softmax(-1) @ values @ attention.W_O[head]
    return (out @ model.W_U + model.b_U).detach()


def test_the_first_layer_reads_through_them():
    model, query, key, tokens = setting()
    wanted = by_hand(model, query, key, tokens)

    def check(changed):
        torch.testing.assert_close(changed(tokens).detach(), wanted, rtol=1e-10, atol=1e-10)

    must_fail(check, model)
    fold_read_ins(model, query=query)
    must_fail(check, model)  # keys read the stream as yet
    fold_read_ins(model, key=key)
    check(model)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"normalization_type": "LN"}, "a norm stands before"),
        ({"no_bias": "qkv"}, "no biases"),
        ({"embed_bound": 1.0}, "bounded"),
        ({"d_in": 7}, "maps 7 coordinates to 6"),
        ({"positional_embedding_type": "standard"}, "adds another vector"),
    ],
)
def test_where_the_stream_does_not_tell_the_token_it_is_refused(changes, says):
    model = HookedTransformer(replace(CONFIG, **changes))
    width = (model.cfg.d_in, 6)
    with pytest.raises(InputError, match=says):
        fold_read_ins(model, query=ReadIn(torch.ones(width), torch.ones(6)))


def test_a_read_in_of_another_width_is_refused():
    model, query, _, _ = setting()
    before = model.blocks[0].attn.W_Q.detach().clone()
    narrow = ReadIn(query.weight[:, :5], query.bias[:5])
    with pytest.raises(InputError, match=r"a weight \(4, 6\) and a bias \(6,\)"):
        fold_read_ins(model, query=query, key=narrow)
    assert torch.equal(model.blocks[0].attn.W_Q, before)
