"""Short routes give what long ones give: fused attention, some positions, other last tokens."""

import copy

import pytest
import torch
from helpers import must_fail
from small_models import MODELS, make

from icl_interp.errors import InputError
from icl_interp.provenance import generator

TIGHT, SINGLE = (torch.float64, 1e-12), (torch.float32, 1e-5)
PRECISIONS = [pytest.param(*TIGHT, id="float64"), pytest.param(*SINGLE, id="float32")]
CAUSAL = [name for name in MODELS if name != "bidirectional"]


def tokens_of(model, n_tokens=9, stream="test/tokens"):
    drawn = torch.randn(
        3, n_tokens, model.cfg.d_in, generator=generator(0, stream), dtype=torch.float64
    )
    return drawn.to(model.unembed.W_U.dtype)


def agree(got, want, tolerance):
    assert got.shape == want.shape
    assert want.std() > 1e-3, "numbers that hardly vary would agree whatever the model does"
    gap = (got - want).abs().max() / want.abs().max()
    assert gap < tolerance, f"differs by {gap:.1e} of the largest number"


def gradients(model, out):
    """Of a loss that looks at every output, for all weights, in one vector."""
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    model.zero_grad()
    (out * weights).sum().backward()
    missing = torch.zeros(1, dtype=out.dtype)
    return torch.cat([missing if p.grad is None else p.grad.flatten() for p in model.parameters()])


def set_fused(model, value):
    for block in model.blocks:
        block.attn.fused = value


# Torch's fused attention.


def fused_is_explicit(explicit, fused, tolerance):
    set_fused(explicit, False)
    set_fused(fused, True)
    tokens = tokens_of(explicit)
    agree(fused(tokens), explicit(tokens), tolerance)
    agree(gradients(fused, fused(tokens)), gradients(explicit, explicit(tokens)), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("name", ["pre", "post", "attention only", "bidirectional"])
@pytest.mark.parametrize("scale", [True, False])
def test_fused_attention_is_the_explicit_one(name, scale, dtype, tolerance):
    model = make(name, init_std=0.3, use_attn_scale=scale).to(dtype)
    fused_is_explicit(model, copy.deepcopy(model), tolerance)
    must_fail(
        fused_is_explicit,
        model,
        make(name, init_std=0.3, use_attn_scale=not scale).to(dtype),
        tolerance,
    )


def test_fused_attention_really_runs_unless_somebody_reads_between(monkeypatch):
    model, calls = make(), []
    set_fused(model, True)
    kernel = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *a, **k: calls.append(1) or kernel(*a, **k),
    )
    model(tokens_of(model))
    assert len(calls) == 2
    model.run_with_cache(tokens_of(model), names_filter="blocks.0.attn.hook_pattern")
    assert len(calls) == 3
    set_fused(model, None)  # a CPU is faster without it
    model(tokens_of(model))
    assert len(calls) == 3


# Only the positions that are read.


def short_is_full(model, tolerance, positions, offset=0):
    tokens = tokens_of(model)
    full = model(tokens)[:, [p + offset for p in positions]]
    agree(model(tokens, positions), full, tolerance)
    agree(gradients(model, model(tokens, positions)), gradients(model, full), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_asking_for_positions_gives_the_full_models_predictions(name, dtype, tolerance):
    model = make(name, init_std=0.3).to(dtype)
    for positions in (range(0, 9, 2), range(8, 9), [1, 4, 7], [3], range(9)):
        short_is_full(model, tolerance, positions)
    must_fail(short_is_full, model, tolerance, range(0, 8, 2), offset=1)


def test_the_last_block_does_no_other_work(monkeypatch):
    model, rows = make(), []
    for block in model.blocks:
        act = block.mlp.act
        monkeypatch.setattr(block.mlp, "act", lambda x, act=act: rows.append(x.shape[1]) or act(x))
    model(tokens_of(model), range(0, 9, 4))
    assert rows == [9, 3]


@pytest.mark.parametrize(
    "positions", [[], [0, 1, 3], [2, 1], [1, 1], [-1], range(-1, 2), [9], range(0, 11, 2)]
)
def test_positions_must_be_evenly_spaced_and_exist(positions):
    model = make()
    with pytest.raises(
        InputError, match="positions must be evenly spaced, increasing and within 0 to 8"
    ):
        model(tokens_of(model), positions)


# Alternative last tokens after one context.


def after_is_whole(model, tolerance, context, remembered, position):
    queries = tokens_of(model, 4, "test/queries") * 3
    with torch.no_grad():
        got = model.after(model.remember(remembered), queries, position)
        whole = [model(torch.cat([context, queries[:, i : i + 1]], 1))[:, -1] for i in range(4)]
    agree(got, torch.stack(whole, 1), tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("name", CAUSAL)
def test_alternative_last_tokens_give_what_whole_prompts_give(name, dtype, tolerance):
    model = make(name, init_std=0.3).to(dtype)
    context = tokens_of(model, 6)
    after_is_whole(model, tolerance, context, context, 6)
    if name == "mlp only":  # it sees no context, so only the position can be wrong
        must_fail(after_is_whole, model, tolerance, context, context, 5)
    else:
        must_fail(after_is_whole, model, tolerance, context, context.flip(0), 6)


def test_labelled_scores_too():
    model = make("linear", score_norm="labelled", d_in=2)
    context = tokens_of(model, 6)
    after_is_whole(model, 1e-12, context, context, 6)


def test_hooks_fire_on_alternative_last_tokens():
    """An edit moves alternative last tokens, and a probe reads a row of the pattern for each."""
    model = make()
    memory, queries, seen = model.remember(tokens_of(model, 6)), tokens_of(model, 4), []
    before = model.after(memory, queries, 6)
    with model.hooks(
        fwd_hooks=[("blocks.1.attn.hook_pattern", lambda p, hook: seen.append(p.clone()))]
    ):
        model.after(memory, queries, 6)
    (pattern,) = seen
    assert pattern.shape == (3, 3, 4, 7)
    torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    for name in model.hook_dict:
        with model.hooks(fwd_hooks=[(name, lambda t, hook: t * 1.5)]):
            assert not torch.equal(model.after(memory, queries, 6), before), name


def test_a_context_is_read_up_to_the_last_blocks_keys_and_values():
    """Edits reach the remembered context; the last block adds to it nothing that is read."""
    model, fired = make(), []
    context, last = tokens_of(model, 6), len(model.blocks) - 1
    before = model.remember(context)
    with model.hooks(
        fwd_hooks=[(name, lambda t, hook: fired.append(hook.name)) for name in model.hook_dict]
    ):
        model.remember(context)
    of_last = [
        name.removeprefix(f"blocks.{last}.") for name in fired if name.startswith(f"blocks.{last}.")
    ]
    assert of_last == [
        "hook_resid_pre",
        "ln1.hook_scale",
        "ln1.hook_normalized",
        "ln1.hook_out",
        "hook_k_input",
        "hook_v_input",
        "attn.hook_k",
        "attn.hook_v",
    ]

    def moved(name):
        with model.hooks(fwd_hooks=[(name, lambda t, hook: t * 1.5)]):
            after = model.remember(context)
        assert not torch.equal(after[last].values, before[last].values)

    for name in fired:
        if name not in (f"blocks.{last}.attn.hook_k", f"blocks.{last}.hook_k_input"):
            moved(name)
    must_fail(moved, f"blocks.{last}.hook_resid_post")


@pytest.mark.parametrize(
    ("name", "n_context", "position", "match"),
    [
        ("pre", 6, 5, "a context of 6 tokens stand at position 6, below n_ctx=16; got position 5"),
        ("pre", 16, 16, "below n_ctx=16; got position 16"),
        ("mlp only", 6, -1, "below n_ctx=16; got position -1"),
    ],
)
def test_a_position_that_no_prompt_has_is_refused(name, n_context, position, match):
    model = make(name)
    with pytest.raises(InputError, match=match):
        model.after(model.remember(tokens_of(model, n_context)), tokens_of(model, 4), position)


def test_a_bidirectional_context_is_not_remembered():
    model = make("bidirectional")
    with pytest.raises(InputError, match="bidirectional context changes with the query"):
        model.remember(tokens_of(model))


def test_a_model_may_change_its_precision_and_its_prompts_length():
    """What attention keeps between calls must not outlive either."""
    model = make().float()
    for dtype, tolerance in (SINGLE, TIGHT, SINGLE):
        model.to(dtype)
        for n_tokens in (9, 4, 9):
            tokens = tokens_of(model, n_tokens)
            agree(model(tokens), make().float().to(dtype)(tokens), tolerance)
