"""Probes that compute a thing anew see every edit before it, or refuse."""

import numpy as np
import pytest
import torch
from architectures import model_of, tokens_of
from helpers import must_fail
from small_models import PROMPTS

from icl_interp.errors import InputError
from icl_interp.interventions import (
    AblateHeads,
    FreezeNorms,
    MeanOutputs,
    PutPatterns,
    SwapPattern,
    intervene,
)
from icl_interp.models.hooks import edited
from icl_interp.models.tokens import Interleaved
from icl_interp.probes import AttentionEntropy, HeadOrthogonality, LayerNormScale, LogitLens
from icl_interp.probes import attention as attention_module
from icl_interp.probes import heads as heads_module
from icl_interp.probes.runner import probe

LAST = "blocks.1.hook_resid_post"
READ_OUT = (
    "ln_final.hook_scale",
    "ln_final.hook_normalized",
    "ln_final.hook_out",
    LAST,
    "blocks.1.attn.hook_z",
)


def cosines(model, tokens):
    found = probe(model, tokens, [HeadOrthogonality(angles=False)])
    return found["head_orthogonality.output_cosine"].sel(position="query").values


def by_hand(model, tokens):
    """Cosines of what heads write at the last token, (layer, head, head), off `hook_result`."""
    _, cache = model.run_with_cache(tokens)
    found = []
    for layer in range(model.cfg.n_layers):
        o = cache[f"blocks.{layer}.attn.hook_result"][:, -1]
        o = o - o.mean(-1, keepdim=True)  # a LayerNorm reads it
        o = o - o.mean(0)
        inner = torch.einsum("bhd,bgd->hg", o, o)
        found.append(inner / inner.diagonal().sqrt()[:, None] / inner.diagonal().sqrt())
    return torch.stack(found).numpy()


def check_heads(attach):
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad(), attach(model, tokens):
        np.testing.assert_allclose(
            cosines(model, tokens), by_hand(model, tokens), rtol=1e-6, atol=1e-8
        )


def doubled(t, hook):
    return t * torch.linspace(0.5, 2, t.numel(), dtype=t.dtype).view(t.shape)


HEADS = {
    "z": lambda m, x: m.hooks([("blocks.0.attn.hook_z", doubled)]),
    "pattern": lambda m, x: intervene(m, SwapPattern("uniform")),
    "a listener": lambda m, x: m.hooks([("blocks.0.attn.hook_result", lambda t, hook: None)]),
    "the stream": lambda m, x: m.hooks([("blocks.0.hook_resid_mid", doubled)]),
}
BEHIND = {
    "result": lambda m, x: m.hooks([("blocks.0.attn.hook_result", doubled)]),
    "added": lambda m, x: m.hooks([("blocks.1.hook_attn_out", doubled)]),
    "mean": lambda m, x: intervene(m, MeanOutputs.measure(m, x, ["blocks.0.hook_attn_out"])),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_compared_as_they_write(name):
    check_heads(HEADS[name])


@pytest.mark.parametrize("name", BEHIND)
def test_edits_behind_the_heads_are_refused(name, monkeypatch):
    with pytest.raises(
        InputError, match=r"off their hook_z, but in block . it is edited after that"
    ):
        check_heads(BEHIND[name])
    monkeypatch.setattr(heads_module, "edited", lambda module: False)
    if name == "result":  # the mutant: cosines of what the heads would have written
        must_fail(check_heads, BEHIND[name])


def test_a_native_hook_on_attention_is_refused():
    model, tokens = model_of("pre"), tokens_of("pre")
    handle = model.blocks[0].attn.register_forward_hook(lambda m, args, out: 2 * out)
    with pytest.raises(InputError, match="in block 0"):
        cosines(model, tokens)
    handle.remove()
    cosines(model, tokens)


def test_edits_of_queries_behind_the_heads_are_refused():
    """They are attached after the probe has said what it reads."""
    model = model_of("pre")
    edit = MeanOutputs.measure(
        model, Interleaved().encode(PROMPTS).double(), ["blocks.0.hook_attn_out"]
    )
    with pytest.raises(InputError, match="in block 0"):
        probe(model, PROMPTS, [HeadOrthogonality(angles=False)], queries=[0.5, 2.0], query=[edit])


def bent(t, hook):
    """Another vector, of another length and direction."""
    return 1.5 * t + 0.3 * torch.linspace(0, 1, t.shape[-1], dtype=t.dtype)


@pytest.mark.parametrize("hook", READ_OUT)
def test_the_lens_ends_at_the_prediction_of_the_edited_model(hook):
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad(), model.hooks([(hook, bent)]):
        out = model(tokens)[:, -1].numpy()
        lens = probe(model, tokens, [LogitLens(per_prompt=True)])["logit_lens.prediction"]
    last = lens.sel(depth=2, position="query").values.T
    np.testing.assert_allclose(last, out, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        must_fail(np.testing.assert_allclose, last, model(tokens)[:, -1].numpy(), rtol=1e-3)


def test_the_scale_of_a_norm_is_the_one_in_use():
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad(), intervene(model, FreezeNorms.measure(model, tokens)):
        _, cache = model.run_with_cache(tokens)
        found = probe(model, tokens, [LayerNormScale(per_prompt=True)])["layernorm_scale.scale"]
    for norm in model.norms:
        used = cache[f"{norm}.hook_scale"][:, -1, 0].numpy()
        np.testing.assert_allclose(found.sel(norm=norm, position="query").values, used, rtol=1e-12)


def check_entropy(attach):
    """The entropy of the pattern in use; n counts the keys seen, or weighed all the same."""
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad(), attach(model, tokens):
        _, cache = model.run_with_cache(tokens)
        found = probe(model, tokens, [AttentionEntropy(per_prompt=True)])
    p = cache["blocks.0.attn.hook_pattern"].numpy()
    # The kind "token": all but the last one, of which those that see one key are left out.
    rows = p[:, :, :-1]
    entropy = -(rows * np.log(np.maximum(rows, 1e-300))).sum(-1)
    n = np.maximum((rows > 0).sum(-1), np.arange(1, rows.shape[2] + 1))
    deficit = np.where(n > 1, np.log(n) - entropy, np.nan)
    assert (np.nan_to_num(deficit) > -1e-9).all()
    values = found["attention_entropy.deficit"].sel(layer=0, position="token").values.T
    np.testing.assert_allclose(values, np.nanmean(deficit, -1), rtol=1e-6, atol=1e-9)


def ahead(model, tokens):
    """Patterns that look ahead, where scores say that no query does."""
    p = torch.rand(
        len(tokens), model.cfg.n_heads, tokens.shape[1], tokens.shape[1], dtype=tokens.dtype
    )
    return intervene(
        model, PutPatterns({"blocks.0.attn.hook_pattern": p / p.sum(-1, keepdim=True)})
    )


def test_entropies_are_those_of_the_pattern_in_use(monkeypatch):
    check_entropy(lambda m, x: intervene(m, SwapPattern("uniform")))
    check_entropy(lambda m, x: intervene(m, AblateHeads.zero((0, 0))))
    check_entropy(ahead)
    monkeypatch.setattr(attention_module, "edited", lambda module: False)
    must_fail(check_entropy, ahead)


def test_who_only_reads_edits_nothing():
    model, tokens = model_of("pre"), tokens_of("pre")
    seen = []
    lens = LogitLens()
    lens.hooks = lambda m, positions: [
        (LAST, lambda t, hook: seen.append(edited(m.hook_dict[LAST])))
    ]
    lens.results = dict
    probe(model, tokens, [lens])
    with model.hooks([(LAST, lambda t, hook: None)]):
        probe(model, tokens, [lens])
    assert seen == [False, True]
