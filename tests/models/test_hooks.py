"""Every hook point: reading changes nothing, editing changes the output, nothing is left behind."""

import copy
from functools import cache

import pytest
import torch
from helpers import must_fail
from small_models import MODELS, make

from icl_interp.errors import InputError
from icl_interp.models.hooks import READS, HookedRootModule, hooked_modules
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

N_TOKENS = 7


def tokens_of(model):
    return torch.randn(
        3, N_TOKENS, model.cfg.d_in, generator=generator(0, "test/hooks"), dtype=torch.float64
    )


def expected_hooks(cfg):
    """Hook names and shapes as the design has them."""
    b, t, d, h, e = 3, N_TOKENS, cfg.d_model, cfg.n_heads, cfg.d_head
    stream, scale, heads, weights = (b, t, d), (b, t, 1), (b, t, h, e), (b, h, t, t)
    found = {"hook_embed": stream}
    if cfg.positional_embedding_type == "standard":
        found["hook_pos_embed"] = stream
    norms = ["ln_final"] if cfg.norm_position == "pre" and cfg.final_norm is not False else []
    for i in range(cfg.n_layers):
        here = f"blocks.{i}."
        found |= dict.fromkeys(
            (here + "hook_resid_pre", here + "hook_resid_mid", here + "hook_resid_post"), stream
        )
        if not cfg.mlp_only:
            norms.append(here + "ln1")
            found |= {here + "hook_attn_out": stream, here + "attn.hook_result": (b, t, h, d)}
            found |= {f"{here}hook_{name}_input": (b, t, h, d) for name in "qkv"}
            found |= {f"{here}attn.hook_{name}": heads for name in "qkvz"}
            found |= {f"{here}attn.hook_{name}": weights for name in ("attn_scores", "pattern")}
        if cfg.norm_position == "both":
            norms.append(here + "ln2")
        if not cfg.attn_only:
            norms.append(here + "ln2")
            found |= {here + "hook_mlp_out": stream, here + "hook_mlp_in": stream}
            found |= {f"{here}mlp.hook_{name}": (b, t, cfg.d_mlp) for name in ("pre", "post")}
    for name in norms if cfg.normalization_type else ():
        found |= {
            f"{name}.hook_scale": scale,
            f"{name}.hook_normalized": stream,
            f"{name}.hook_out": stream,
        }
    return found


def has_hooks(model, expected):
    _, cache = model.run_with_cache(tokens_of(model), names_filter=lambda name: True)
    assert {name: tuple(value.shape) for name, value in cache.items()} == expected
    assert set(model.hook_dict) == set(expected)
    # Copies of the stream are kept on demand only.
    _, usual = model.run_with_cache(tokens_of(model))
    assert set(usual) == {name for name in expected if not name.endswith(READS)}


@pytest.mark.parametrize("name", MODELS)
def test_hooks_are_those_of_the_design_and_all_fire(name):
    model = make(name)
    expected = expected_hooks(model.cfg)
    has_hooks(model, expected)
    must_fail(
        has_hooks, model, {name: shape for name, shape in expected.items() if name != "hook_embed"}
    )
    must_fail(has_hooks, model, {**expected, "blocks.0.hook_mid": (3, N_TOKENS, 12)})


# A hardmax looks only at the order of its scores, so that a small edit of a query, a key or a score
# is meant to change nothing: a large one is made there, which reorders them.
small = cache(make)  # a test that looks at every hook leaves each model as it was
EVERY_HOOK = [(name, hook) for name in MODELS for hook in expected_hooks(small(name).cfg)]


@cache
def idle(name):
    with torch.no_grad():
        return small(name)(tokens_of(small(name)))


def moves_the_output(name, hook, edit):
    model = small(name)
    with torch.no_grad():
        moved = model.run_with_hooks(tokens_of(model), fwd_hooks=[(hook, edit)])
    gap = (moved - idle(name)).abs().max() / idle(name).abs().max()
    assert gap > 1e-6, f"{hook} can be edited without effect"


def nudge(value, hook):
    noise = torch.rand(value.shape, generator=generator(0, hook.name), dtype=value.dtype)
    return value * 1.01 + 0.01 * noise


def reorder(value, hook):
    return value.flip(-1) if hook.name.endswith("scores") else -value


def in_place(edit):
    def change(value, hook):
        value[:] = edit(value, hook)

    return change


@pytest.mark.parametrize(("name", "hook"), EVERY_HOOK)
def test_editing_any_hook_moves_the_output(name, hook):
    order = ("hook_q", "hook_k", "hook_attn_scores", "hook_q_input", "hook_k_input")
    ordered_only = name == "hardmax" and hook.endswith(order)
    edit = reorder if ordered_only else nudge
    moves_the_output(name, hook, edit)
    moves_the_output(name, hook, in_place(edit))
    if ordered_only:
        must_fail(moves_the_output, name, hook, lambda value, hook: value * 1.01)


def test_an_edit_that_edits_nothing_is_noticed():
    for hook in small("pre").hook_dict:
        must_fail(moves_the_output, "pre", hook, lambda value, hook: value.clone())


# The quartet: idle, probe, edit, after. Reading is bit-identical where gradients are off.


def leaves_the_output_alone(model, hooks, probe):
    """Bit by bit, and so does having failed."""
    tokens = tokens_of(model).to(model.unembed.W_U.dtype)
    with torch.no_grad():
        idle = model(tokens)
        assert torch.equal(model(tokens), idle)
        for hook in hooks:
            with model.hooks(fwd_hooks=[(hook, probe)]):
                assert torch.equal(model(tokens), idle), f"reading {hook} changed the output"
        assert torch.equal(model(tokens), idle)
        with pytest.raises(ZeroDivisionError):
            model.run_with_hooks(
                tokens, fwd_hooks=[(hooks[0], probe), (hooks[-1], lambda value, hook: 1 / 0)]
            )
        assert torch.equal(model(tokens), idle), "an exception left its hooks behind"
        assert torch.equal(model.run_with_cache(tokens)[0], idle)
    assert not any(point.has_hooks() for point in model.hook_points())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_reading_leaves_the_output_bit_identical(name, dtype):
    model, read = make(name, n_layers=1).to(dtype), set()
    hooks = list(model.hook_dict)
    leaves_the_output_alone(model, hooks, lambda value, hook: read.add(hook.name))
    assert read == set(hooks)
    must_fail(leaves_the_output_alone, model, hooks, lambda value, hook: value * (1 + 1e-6))


@pytest.mark.parametrize("name", MODELS)
def test_reading_with_gradients_on_agrees_in_float32(name):
    """The idle model takes torch's fused LayerNorm; with a listener it takes the explicit one."""
    model = make(name, init_std=0.3).float()
    tokens = tokens_of(model).float()

    def run(hooks, scale=1.0):
        model.zero_grad()
        with model.hooks(fwd_hooks=hooks):
            out = model(tokens)
        (scale * out.square().mean()).backward()
        return out.detach(), torch.cat(
            [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        )

    def same(a, b):
        for x, y in zip(a, b, strict=True):
            assert (x - y).abs().max() < 1e-5 * y.abs().max()

    same(run([(hook, lambda value, hook: None) for hook in model.hook_dict]), run([]))
    must_fail(same, run([], scale=1.0001), run([]))
    must_fail(same, run([("hook_embed", lambda value, hook: value * 1.001)]), run([]))


def test_an_edit_in_place_touches_no_weight_and_no_neighbour():
    """A batch of one would otherwise hand out the positional weights themselves."""
    model = make()
    weights, tokens = copy.deepcopy(model.state_dict()), tokens_of(model)[:1]
    with torch.no_grad():
        _, before = model.run_with_cache(tokens)
        for hook in model.hook_dict:
            with model.hooks(fwd_hooks=[(hook, lambda value, hook: value.zero_())]):
                model(tokens)
        assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
        with model.hooks(fwd_hooks=[("blocks.1.attn.hook_q", lambda value, hook: value.zero_())]):
            _, after = model.run_with_cache(tokens)
    assert not after["blocks.1.attn.hook_q"].any()
    assert torch.equal(after["blocks.1.attn.hook_k"], before["blocks.1.attn.hook_k"])


def test_queries_may_be_edited_in_place_with_gradients_on():
    model = make()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_v", lambda value, hook: value.mul_(2))]):
        model(tokens_of(model)).sum().backward()
    assert model.blocks[0].attn.W_V.grad.any()


# Who listens.


def rows_of_the_last_block(model):
    """How many tokens its last MLP works on when two positions are asked for."""
    seen, act = [], model.blocks[-1].mlp.act
    model.blocks[-1].mlp.act = lambda x: seen.append(x.shape[1]) or act(x)
    out = model(tokens_of(model), [2, 4])
    model.blocks[-1].mlp.act = act
    return seen[0], out


@pytest.mark.parametrize(
    "attach",
    [
        lambda model, f: model.blocks[-1].mlp.hook_pre.add_hook(lambda value, hook: f(value)),
        lambda model, f: model.add_hook(
            "blocks.0.hook_resid_post", lambda value, hook: f(value), dir="bwd"
        ),
        lambda model, f: model.blocks[-1].hook_mlp_out.register_forward_hook(
            lambda m, args, out: f(out)
        ),
        lambda model, f: model.blocks[-1].mlp.register_forward_pre_hook(lambda m, args: f(*args)),
        lambda model, f: model.blocks[-1].register_full_backward_hook(
            lambda m, gin, gout: f(*gout)
        ),
        lambda model, f: model.unembed.register_full_backward_pre_hook(lambda m, gout: f(*gout)),
    ],
    ids=[
        "hook",
        "backward hook",
        "native forward",
        "native pre",
        "native backward",
        "native backward pre",
    ],
)
def test_any_listener_sees_every_position(attach):
    model, seen = make(), []
    rows, alone = rows_of_the_last_block(model)
    assert rows == 2
    handle = attach(model, lambda value: seen.append(value.shape[1]))
    rows, out = rows_of_the_last_block(model)
    torch.testing.assert_close(out, alone, rtol=0, atol=1e-12)
    out.sum().backward()
    assert rows == N_TOKENS
    assert seen == [N_TOKENS]
    model.reset_hooks()
    if handle is not None and hasattr(handle, "remove"):
        handle.remove()
    assert rows_of_the_last_block(model)[0] == 2


def test_gradients_arrive_at_backward_hooks():
    model, seen = make(), {}
    points = ("hook_resid_pre", "attn.hook_pattern", "attn.hook_result", "ln2.hook_scale")
    names = [f"blocks.1.{point}" for point in points]

    def keep(grad, hook):
        seen[hook.name] = grad.clone()

    def loss_with(name, shift):
        with torch.no_grad():
            out = model.run_with_hooks(
                tokens_of(model), fwd_hooks=[(name, lambda value, hook: value + shift)]
            )
        return out.square().sum()

    with model.hooks(bwd_hooks=[(name, keep) for name in names]):
        model(tokens_of(model)).square().sum().backward()
    for name in names:  # each against a finite difference
        direction = torch.randn(seen[name].shape, generator=generator(0, name), dtype=torch.float64)
        slope = (loss_with(name, 1e-5 * direction) - loss_with(name, -1e-5 * direction)) / 2e-5
        torch.testing.assert_close((seen[name] * direction).sum(), slope, rtol=1e-6, atol=1e-6)


# Names that do not exist.


def nothing(name):
    return name.endswith("hook_nothing")


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (
            lambda m, x: m.run_with_cache(x, names_filter="blocks.0.hook_resid_prе"),
            "unknown hook .* did you mean",
        ),
        (
            lambda m, x: m.run_with_cache(x, names_filter=["hook_embed", "hook_embedd"]),
            "did you mean 'hook_embed'",
        ),
        (
            lambda m, x: m.run_with_cache(x, names_filter=nothing),
            "the hook filter matches none of the ",
        ),
        (
            lambda m, x: m.run_with_hooks(x, fwd_hooks=[("blocks.9.hook_z", print)]),
            "unknown hook 'blocks.9.hook_z'",
        ),
        (
            lambda m, x: m.run_with_hooks(x, fwd_hooks=[(nothing, print)]),
            "the hook filter matches none",
        ),
        (
            lambda m, x: m.run_with_hooks(x, bwd_hooks=[("blocks.0", print)]),
            "unknown hook 'blocks.0'",
        ),
        (lambda m, x: m.hooks(fwd_hooks=[("embed", print)]), "did you mean 'hook_embed'"),
        (lambda m, x: m.add_hook("blocks.0.hook_zz", print), "unknown hook 'blocks.0.hook_zz'"),
        (lambda m, x: m.add_hook(nothing, print), "the hook filter matches none"),
    ],
)
def test_a_hook_that_does_not_exist_is_refused(act, match):
    model = make()
    with pytest.raises(InputError, match=match):
        act(model, tokens_of(model))
    assert not any(point.has_hooks() for point in model.hook_points())


def test_filters_that_match_are_taken():
    model = make()
    _, cache = model.run_with_cache(
        tokens_of(model), names_filter=lambda name: name.endswith("hook_z")
    )
    assert list(cache) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
    _, cache = model.run_with_cache(tokens_of(model), names_filter="hook_embed")
    assert list(cache) == ["hook_embed"]
    calls = []
    model.run_with_hooks(
        tokens_of(model),
        fwd_hooks=[(lambda n: "ln2" in n, lambda v, hook: calls.append(hook.name))],
    )
    assert len(calls) == 6
    out, plain = model.run_with_cache(tokens_of(model), return_cache_object=False)
    assert type(plain) is dict
    assert out.shape == (3, N_TOKENS, 1)


def test_a_copy_of_the_model_has_hooks_of_its_own():
    model = make()
    control: HookedTransformer = copy.deepcopy(model)
    with control.hooks(fwd_hooks=[("hook_embed", lambda value, hook: value * 2)]):
        assert not torch.equal(control(tokens_of(model)), model(tokens_of(model)))
        assert rows_of_the_last_block(model)[0] == 2
        assert rows_of_the_last_block(control)[0] == N_TOKENS


def gradients_read_with(hooks, model, tokens):
    """Gradients of a loss at one hook, through functions attached to it."""
    found = []
    with hooks(bwd_hooks=[("blocks.0.hook_resid_pre", lambda g, hook: found.append(g))]):
        model(tokens).square().sum().backward()
    return found


def are_the_gradients(cache, model, tokens, number):
    """Those of plain autograd, with respect to a nudge that is added at every hook."""
    kept = [name for name in cache if not name.endswith("_grad")]
    assert kept
    for name in kept:
        nudge = torch.zeros_like(cache[name], requires_grad=True)
        out = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda t, hook, n=nudge: t + n)])
        [want] = torch.autograd.grad(number(out), nudge)
        assert bool(want.any()), name
        torch.testing.assert_close(cache[f"{name}_grad"], want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["pre", "post", "attention only", "mlp only", "no norm"])
def test_gradients_of_a_chosen_number_are_kept(name):
    model = make(name)
    tokens = tokens_of(model)

    def run(wanted):
        return model.run_with_cache(
            tokens, names_filter=wanted, incl_bwd=True, number=lambda out: out.square().sum()
        )

    _, cache = run(lambda hook: hook.endswith(READS))
    are_the_gradients(cache, model, tokens, lambda out: out.square().sum())
    # Scores of hidden keys are infinite.
    out, cache = run(lambda hook: not hook.endswith((*READS, "scores")))
    are_the_gradients(cache, model, tokens, lambda out: out.square().sum())
    must_fail(are_the_gradients, cache, model, tokens, lambda out: out[:, -1].square().sum())
    with torch.no_grad():
        torch.testing.assert_close(out, model(tokens), rtol=1e-9, atol=1e-11)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not out.requires_grad


def test_gradients_are_there_where_weights_are_frozen_and_gradients_off():
    model = make("pre").requires_grad_(False)
    with torch.no_grad():
        _, cache = model.run_with_cache(
            tokens_of(model), incl_bwd=True, number=lambda out: out.sum()
        )
    assert bool(cache["blocks.0.hook_resid_pre_grad"].any())


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"incl_bwd": True}, r"incl_bwd needs a number .*pass number="),
        ({"number": torch.sum}, "pass incl_bwd=True with it"),
        (
            {"incl_bwd": True, "number": lambda out: out[:, -1]},
            r"make one number .* a Tensor of shape \(3, 1\)",
        ),
        ({"incl_bwd": True, "number": lambda out: 1.0}, "make one number .* a float"),
        (
            {"incl_bwd": True, "number": torch.sum, "names_filter": lambda name: True},
            "hook_v_input pass by the hooks of ln1.* two runs",
        ),
    ],
)
def test_a_backward_pass_that_nobody_can_start_is_refused(given, match):
    model = make("pre")
    tokens = tokens_of(model)
    with pytest.raises(InputError, match=match):
        model.run_with_cache(tokens, **given)
    assert not hooked_modules(model)
    # Without the check torch stops in the middle, with an error of its own.
    with pytest.raises(RuntimeError, match="scalar"):
        HookedRootModule.run_with_cache(model, tokens, incl_bwd=True)
    model.reset_hooks(including_permanent=True)
    [gradient] = gradients_read_with(model.hooks, model, tokens)
    assert gradient.shape == (*tokens.shape[:2], model.cfg.d_model)
    assert bool(gradient.any())
