"""Labelled examples as the only keys: no token sees the query's column, on every route."""

import math
from dataclasses import replace

import pytest
import tiny_runs
import torch
from helpers import must_fail
from small_models import make

from icl_interp.checkpoints.store import load
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.training.trainer import train

LABELLED = {"keys": "labelled", "d_in": 2, "init_std": 0.3}
CAUSAL, BIDIRECTIONAL = make(**LABELLED), make("bidirectional", **LABELLED)
MODELS = {
    "causal": CAUSAL,
    "bidirectional": BIDIRECTIONAL,
    "post": make("post", **LABELLED, attention_dir="bidirectional"),
    "linear": make("linear", **LABELLED, attention_dir="bidirectional"),
    "relu": make("bidirectional", **LABELLED, score_fn="relu"),
    "entmax": make("bidirectional", **LABELLED, score_fn="entmax", attn_only=True),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def tokens_of(n_tokens=7, batch=3, stream="test/keys"):
    return torch.randn(batch, n_tokens, 2, generator=generator(0, stream), dtype=torch.float64)


def agree(got, want, tolerance=1e-12):
    assert got.shape == want.shape
    assert want.std() > 1e-3
    assert (got - want).abs().max() <= tolerance * want.abs().max()


def ordinary(model, **change):
    """The same weights where every visible token is a key."""
    control = HookedTransformer(replace(model.cfg, keys=None, **change)).double().eval()
    control.load_state_dict(model.state_dict())
    return control


def hiding(scores, hook):
    """Hide the last key from every query."""
    scores = scores.clone()
    scores[..., -1] = -math.inf
    return scores


def hiding_from_the_query(scores, hook):
    scores = scores.clone()
    scores[..., -1, -1] = -math.inf
    return scores


def is_hidden_by_hand(model, edit):
    """What an ordinary model gives under an edit of all its scores."""
    hooks = [(f"blocks.{i}.attn.hook_attn_scores", edit) for i in range(model.cfg.n_layers)]
    agree(model(tokens_of()), ordinary(model).run_with_hooks(tokens_of(), fwd_hooks=hooks))


@EVERY
def test_it_is_the_ordinary_model_without_the_last_key(name):
    with torch.no_grad():
        is_hidden_by_hand(MODELS[name], hiding)
        must_fail(is_hidden_by_hand, MODELS[name], lambda scores, hook: scores)
    if name == "bidirectional":  # the other tokens do not see the query either
        must_fail(is_hidden_by_hand, MODELS[name], hiding_from_the_query)


def ignores_the_query(model):
    """Examples' activations do not depend on the query, and the query's depend on them alone."""
    tokens = tokens_of()
    other = tokens.clone()
    other[:, -1] = 3.0
    (_, one), (_, two) = (model.run_with_cache(t) for t in (tokens, other))
    for i in range(model.cfg.n_layers):
        name = f"blocks.{i}.hook_resid_post"
        assert torch.allclose(one[name][:, :-1], two[name][:, :-1], rtol=0, atol=1e-12)
        assert not torch.allclose(one[name][:, -1], two[name][:, -1], rtol=0, atol=1e-3)
        pattern = one[f"blocks.{i}.attn.hook_pattern"]
        assert not pattern[..., -1].any()
        assert (pattern[..., -1, :-1] != 0).any()


@EVERY
def test_examples_do_not_see_the_query(name):
    with torch.no_grad():
        ignores_the_query(MODELS[name])
        if MODELS[name].cfg.attention_dir == "bidirectional":
            must_fail(ignores_the_query, ordinary(MODELS[name]))


def test_weights_add_up_over_the_labelled_examples():
    with torch.no_grad():
        _, cache = BIDIRECTIONAL.run_with_cache(tokens_of())
    pattern = cache["blocks.0.attn.hook_pattern"]
    torch.testing.assert_close(pattern[..., :-1].sum(-1), torch.ones_like(pattern[..., 0]))


@EVERY
def test_every_route_gives_the_same(name):
    model, tokens = MODELS[name], tokens_of()
    with torch.no_grad():
        full = model(tokens)
        for positions in (range(6, 7), range(0, 7, 2)):
            agree(model(tokens, positions), full[:, positions])
        _, cache = model.run_with_cache(tokens, names_filter="blocks.1.hook_resid_pre")
        agree(model.resume(cache["blocks.1.hook_resid_pre"], 1, range(6, 7)), full[:, 6:])
        for block in model.blocks:  # asked for or not: torch's kernel knows no such mask
            block.attn.fused = True
        agree(model(tokens), full)
        for block in model.blocks:
            block.attn.fused = None


def after_is_whole(model, context, remembered):
    queries = tokens_of(4, stream="test/queries") * 3
    got = model.after(model.remember(remembered), queries, context.shape[1])
    whole = [model(torch.cat([context, queries[:, i : i + 1]], 1))[:, -1] for i in range(4)]
    agree(got, torch.stack(whole, 1))


@EVERY
@pytest.mark.parametrize("n_context", [1, 6])
def test_alternative_queries_after_a_context_of_examples(n_context, name):
    """A remembered context holds no query, so its tokens may see each other both ways."""
    context, model = tokens_of(n_context), MODELS[name]
    with torch.no_grad():
        after_is_whole(model, context, context)
        must_fail(after_is_whole, model, context, context.flip(0))
        memory, patterns = model.remember(context), []
        with model.hooks(
            fwd_hooks=[("blocks.1.attn.hook_pattern", lambda p, hook: patterns.append(p.clone()))]
        ):
            model.after(memory, tokens_of(4), n_context)
    assert patterns[0].shape == (3, 3, 4, n_context + 1)
    assert not patterns[0][..., -1].any()


def test_routes_in_turn_do_not_disturb_each_other():
    """The mask that is kept between calls is another one for a context than for a prompt."""
    tokens, fresh = tokens_of(), make(**LABELLED)
    with torch.no_grad():
        for _ in range(2):
            agree(CAUSAL(tokens), fresh(tokens))
            memory, other = CAUSAL.remember(tokens), make(**LABELLED).remember(tokens)
            for ours, theirs in zip(memory, other, strict=True):
                agree(ours.values, theirs.values)


def bent(value, hook):
    """Coordinates scaled each by another factor, so that no norm takes it back."""
    return value * torch.linspace(0.5, 1.5, value.shape[-1], dtype=value.dtype)


HOOKS = [(name, hook) for name in ("causal", "post") for hook in MODELS[name].hook_dict]


@pytest.mark.parametrize(("name", "hook"), HOOKS)
def test_every_hook_is_read_without_a_trace_and_edited_with_one(name, hook):
    model, tokens = MODELS[name], tokens_of()

    def fail(value, hook):
        raise KeyError("in the middle")

    with torch.no_grad():
        plain = model(tokens)
        out, cache = model.run_with_cache(tokens, names_filter=hook)
        assert torch.equal(out, plain)
        assert hook in cache
        moved = model.run_with_hooks(tokens, fwd_hooks=[(hook, bent)])
        assert (moved - plain).abs().max() > 1e-6
        with pytest.raises(KeyError, match="in the middle"):
            model.run_with_hooks(tokens, fwd_hooks=[(hook, fail)])
        assert torch.equal(model(tokens), plain)


def test_a_run_is_saved_loaded_and_read_by_older_configs(tmp_path):
    stacked = {
        "encoding": "stacked",
        "model": {"d_in": 2, "attention_dir": "bidirectional", "keys": "labelled"},
    }
    train(tiny_runs.data(**stacked), tmp_path / "run", progress=False)
    found = load(tmp_path / "run")
    assert found.model.cfg.keys == "labelled"
    found.save(tmp_path / "copy")
    tiny_runs.check_same_model(load(tmp_path / "copy"), found)
    without = tiny_runs.config(**{**stacked, "model": {**stacked["model"], "keys": None}})
    assert without.model == HookedTransformerConfig(
        **{**tiny_runs.data(**stacked)["model"], "keys": None}
    )
    assert tiny_runs.config().model.keys is None


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: make(keys="labeled"), "unknown keys 'labeled': did you mean 'labelled'"),
        (
            lambda: make("mlp only", keys="labelled"),
            "keys='labelled' needs attention, but mlp_only leaves none",
        ),
        (
            lambda: make("linear", keys="labelled", score_norm="labelled"),
            "the visible keys are the labelled examples: use score_norm='visible'",
        ),
        (
            lambda: tiny_runs.config(model={"keys": "labelled"}),
            (
                "keys='labelled' hides .* only stacked prompts have, but the encoding is "
                "'interleaved': use stacked"
            ),
        ),
        (
            lambda: CAUSAL(tokens_of(1)),
            "a prompt needs a labelled example before the query, but got none",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(InputError, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)
