"""Activation patching: every token, every head, against a loop of plain hooked runs."""

from itertools import product

import pytest
import torch
import xarray
from helpers import must_fail, one_in
from own_hooks import adapted
from small_models import make

import icl_interp
from icl_interp.errors import InputError
from icl_interp.interventions.patching import AXES, patch
from icl_interp.models.hooks import patching
from icl_interp.provenance import generator

CLEAN, CORRUPTED = torch.randn(
    2, 3, 4, 1, generator=generator(0, "test/patching"), dtype=torch.float64
)
SIZES = {"token": 4, "head": 3}
STREAM = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_in", "mlp_out", "pre", "post")
VECTORS, PATTERNS = ("q", "k", "v", "z", "result"), ("attn_scores", "pattern")
READ = ("q_input", "k_input", "v_input")


def recovered(out):
    """A number made of the output."""
    return out[:, -1, 0].square().mean()


def full_name(activation, layer):
    folder = (
        "attn."
        if activation in VECTORS + PATTERNS
        else "mlp."
        if activation in ("pre", "post")
        else ""
    )
    return f"blocks.{layer}.{folder}hook_{activation}"


def is_the_loop(result, model, activation, by, skip=()):
    """The result equals that of a loop over layers and places.

    `skip` leaves out an axis, as a mutant would.
    """
    assert list(result.indexes) == ["layer", *by]
    with torch.no_grad():
        _, cache = model.run_with_cache(CLEAN, names_filter=lambda name: True)
        for index in product(*map(range, result.values.shape)):
            name, place = full_name(activation, index[0]), dict(zip(by, index[1:], strict=True))
            axes = ("head", "token") if activation in PATTERNS else ("token", "head")

            def put(value, hook, name=name, place=place, axes=axes):
                value = value.clone()
                where = [
                    slice(None),
                    *(place.get(a, slice(None)) if a not in skip else 0 for a in axes),
                ]
                where = tuple(where[: value.ndim])
                value[where] = cache[name][where]
                return value

            want = recovered(model.run_with_hooks(CORRUPTED, fwd_hooks=[(name, put)])).item()
            assert result.values[index] == want, (name, place)


def by_default(activation):
    return ("token",) if activation in STREAM else ("token", "head")


@pytest.mark.parametrize(
    ("name", "activation", "by"),
    [
        *one_in(3, [("pre", name, None) for name in STREAM + VECTORS + READ + PATTERNS]),
        *[
            ("pre", "z", ("head",)),
            ("pre", "pattern", ("head",)),
            ("pre", "q", ("head", "token")),
            ("pre", "mlp_out", ()),
        ],
        *[("post", "resid_mid", None), ("post", "result", ("head",))],
    ],
)
def test_patching_is_a_loop_over_every_place(name, activation, by):
    model = make(name)
    result = patch(model, CLEAN, CORRUPTED, recovered, activation, by)
    by = by_default(activation) if by is None else by
    assert result.values.shape == (2, *(SIZES[axis] for axis in by))
    assert result.values.std() > 1e-6
    is_the_loop(result, model, activation, by)
    if "token" in by:
        must_fail(is_the_loop, result, model, activation, by, skip=("token",))


def test_every_activation_is_tried_above():
    assert set(AXES) == {*STREAM, *VECTORS, *READ, *PATTERNS}


def reaches_every_token(values):
    assert values.shape == (2, 4)


BY_POSITION = (
    "resid_pre",
    "resid_mid",
    "attn_out",
    "mlp_out",
    "attn_head_out_by_pos",
    "attn_head_q_by_pos",
    "attn_head_pattern_by_pos",
    "attn_head_by_pos_every",
    "block_every",
)
ALL_POSITIONS = ("attn_head_out_all_pos", "attn_head_v_all_pos", "attn_head_pattern_all_pos")


def setup():
    model = make()
    _, cache = model.run_with_cache(CLEAN)
    return model, cache


@pytest.mark.parametrize("name", BY_POSITION)
def test_transformer_lens_alone_is_refused(name):
    """TransformerLens would read (batch, token, d_in) as (.., position): it patches one token."""
    model, cache = setup()
    for tokens in (CORRUPTED, CORRUPTED.expand(-1, -1, 1)):
        with (
            torch.no_grad(),
            pytest.raises(InputError, match=r"icl_interp\.interventions\.patch\(") as caught,
        ):
            getattr(patching, f"get_act_patch_{name}")(model, tokens, cache, recovered)
        assert "\n" not in str(caught.value)
    reaches_every_token(patch(model, CLEAN, CORRUPTED, recovered).values)


def test_a_setter_of_ones_own_is_refused_too():
    model, cache = setup()

    def put(corrupted, index, clean):
        corrupted[:, index[1]] = clean[:, index[1]]
        return corrupted

    with torch.no_grad(), pytest.raises(InputError, match="takes the last axis"):
        patching.generic_activation_patch(
            model, CORRUPTED, cache, recovered, put, "resid_pre", index_axis_names=("layer", "pos")
        )
    listed = patching.make_df_from_ranges([2, CLEAN.shape[1]], ["layer", "pos"])
    with torch.no_grad():
        found = patching.generic_activation_patch(
            model, CORRUPTED, cache, recovered, put, "resid_pre", index_df=listed
        )
    want = patch(model, CLEAN, CORRUPTED, recovered).values.reshape(-1)
    assert found.double().numpy() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("name", ALL_POSITIONS)
def test_where_no_position_is_listed_transformer_lens_is_right(name):
    model, cache = setup()
    activation = name.removeprefix("attn_head_").removesuffix("_all_pos").replace("out", "z")
    with torch.no_grad():
        found = getattr(patching, f"get_act_patch_{name}")(model, CORRUPTED, cache, recovered)
    want = patch(model, CLEAN, CORRUPTED, recovered, activation, by=("head",)).values
    assert found.double().numpy() == pytest.approx(want, rel=1e-6)


def test_patching_the_stream_before_the_first_block_moves_one_tokens_input():
    """Only the last block's stream at the query decides the prediction there."""
    model = make()
    values = patch(model, CLEAN, CORRUPTED, recovered, "resid_post").values
    with torch.no_grad():
        clean, corrupted = recovered(model(CLEAN)).item(), recovered(model(CORRUPTED)).item()
    assert values[1, -1] == pytest.approx(clean, rel=1e-12)
    assert values[1, :-1] == pytest.approx(corrupted, rel=1e-12)
    assert values[0, 0] not in (pytest.approx(clean), pytest.approx(corrupted))


def test_the_model_is_left_as_it_was(capfd):
    model = make().train()
    before, bar = model(CORRUPTED), patching.tqdm
    patch(model, CLEAN, CORRUPTED, recovered)
    with pytest.raises(ZeroDivisionError):
        patch(model, CLEAN, CORRUPTED, lambda out: 1 / 0)
    assert torch.equal(model(CORRUPTED), before)
    assert model.training
    assert patching.tqdm is bar
    assert capfd.readouterr().err == "", "no progress bar where there is no terminal"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            (CLEAN, CORRUPTED, recovered, "residpre"),
            "unknown activation 'residpre': did you mean 'resid_pre'",
        ),
        (
            (CLEAN, CORRUPTED, recovered, "resid_pre", ("head",)),
            "resid_pre has no axis 'head': patch it by token",
        ),
        (
            (CLEAN, CORRUPTED[:, :2], recovered),
            r"must have one shape, but got \(3, 4, 1\) and \(3, 2, 1\)",
        ),
        (
            (CLEAN, CORRUPTED, lambda out: out[:, -1, 0]),
            r"metric must return one number .* but returned shape \(3,\)$",
        ),
        (
            (CLEAN, CORRUPTED, lambda out: None),
            "metric must return one number .* but returned None$",
        ),
    ],
)
def test_what_cannot_be_patched_is_refused_by_name(arguments, match):
    with pytest.raises(InputError, match=match):
        patch(make(), *arguments)


def test_heads_of_a_model_without_attention_are_refused_by_name():
    with pytest.raises(InputError, match=r"unknown hook 'blocks.0.attn.hook_z'"):
        patch(make("mlp only"), CLEAN, CORRUPTED, recovered, "z")


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["resid_pre", "q", "result", "q_input", "mlp_in"])
def test_an_adapted_module_is_patched_like_the_model(activation):
    def same(module):
        found = patch(module, CLEAN, CORRUPTED, recovered, activation)
        xarray.testing.assert_allclose(
            found, patch(make(), CLEAN, CORRUPTED, recovered, activation), rtol=1e-10
        )

    same(adapted(make(), CLEAN))
    other = make()
    with torch.no_grad():
        other.blocks[0].attn.W_V[1] *= 1.01
    must_fail(same, adapted(other, CLEAN))


def test_heads_need_not_be_named_where_none_is_patched():
    module = adapted(make(), CLEAN, without=("hook",))  # the stream is all that is left
    found = patch(module, CLEAN, CORRUPTED, recovered, "resid_post")
    assert dict(found.sizes) == {"layer": 2, "token": 4}
    with pytest.raises(InputError, match=r"no blocks\.0\.attn\.hook_z.*; give points="):
        patch(module, CLEAN, CORRUPTED, recovered, "z")


def test_a_module_without_layers_is_not_patched_at_none_of_them():
    module = icl_interp.adapt(
        torch.nn.Linear(1, 1).double(), encoding="stacked", points={"part.hook_it": ""}
    )
    with pytest.raises(InputError, match=r"no blocks\.0\.hook_resid_pre.*; give residual="):
        patch(module, CLEAN, CORRUPTED, recovered)
