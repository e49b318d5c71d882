"""Edits of weights keep the function of each architecture they apply to; half an edit does not."""

import functools
import re
import zlib

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, model_of, tokens_of
from helpers import must_fail, one_in

from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.maps import map_orthogonality
from icl_interp.provenance import generator
from icl_interp.testing.reparameterisations import EDITS, differ
from icl_interp.testing.reparameterisations.base import made, weights_of

FAR = 1e4
NAMED = {edit.name: edit for edit in EDITS}
APPLYING = [
    (name, edit.name)
    for name in ARCHITECTURES
    for edit in EDITS
    if edit.applies(model_of(name).cfg) is None
]
REFUSED = [
    (name, edit.name)
    for name in ARCHITECTURES
    for edit in EDITS
    if edit.applies(model_of(name).cfg) is not None
]


@functools.cache
def edited(name, edit):
    return NAMED[edit].apply(model_of(name), generator(zlib.crc32(name.encode()), edit))


@functools.cache
def outputs(name):
    return [model_of(name)(size * tokens_of(name)) for size in (1.0, FAR)]


def same_function(name, model):
    """Equal outputs, up to rounding, also where tokens are ten thousand times as large."""
    with torch.no_grad():
        for before, size in zip(outputs(name), (1.0, FAR), strict=True):
            assert (
                model(size * tokens_of(name)) - before
            ).abs().max() <= 1e-10 * before.abs().max()


@pytest.mark.parametrize(("name", "edit"), one_in(4, APPLYING))
def test_the_function_stays_and_the_weights_do_not(name, edit):
    before = weights_of(model_of(name))
    model = edited(name, edit)
    same_function(name, model)
    assert differ(model_of(name), model)
    after = weights_of(model_of(name))
    assert all(torch.equal(weight, after[key]) for key, weight in before.items()), (
        "the given model was changed"
    )


def test_each_edit_applies_to_some_architecture_and_each_architecture_has_some():
    assert {edit for _, edit in APPLYING} == set(NAMED)
    assert {name for name, _ in APPLYING} == set(ARCHITECTURES)
    assert len({edit.family for edit in EDITS}) == 11


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit", ["stream rotated", "width doubled (large)", "heads turned within themselves"]
)
def test_the_generator_decides(edit):
    one, again, other = (
        NAMED[edit].apply(model_of("no norm"), generator(seed, "test")) for seed in (0, 0, 1)
    )
    assert not differ(one, again)
    assert differ(one, other)


# ---- an edit by half moves the output ------------------------------------------------------------


def readers_whole(name, weights, before):
    weights["unembed.W_U"] *= 2


def cancelling_part_by_half(name, weights, before):
    out = weights["unembed.W_U"]
    weights["unembed.W_U"][: len(out) // 2] = before["unembed.W_U"] / 2


def restored(*endings):
    """Weights whose names end so are what they were."""

    def restore(name, weights, before):
        found = [key for key in before if key.endswith(endings)]
        assert found
        for key in found:
            assert not torch.equal(weights[key], before[key]), f"{key} did not change"
            weights[key] = before[key]

    return restore


def not_halved(key):
    """What is written twice is as large as before."""

    def double(name, weights, before):
        first = next(one for one in weights if one.endswith(key))
        weights[first] = 2 * weights[first]

    return double


def biases_lost(name, weights, before):
    for key in weights:
        if key.endswith(("b_Q", "b_K", "b_V", "b_in", "b_U")):
            weights[key] = before[key]


def written_by_the_new_layer(name, weights, before):
    weights["blocks.2.attn.W_O"] = weights["blocks.1.attn.W_O"]


def centred_over_channels(name, weights, before):
    """The mean over a token's channels is taken off, not that over the stream's coordinates."""
    weights["embed.W_E"] = before["embed.W_E"] - before["embed.W_E"].mean(0)


def each_size(edit, halves):
    return {f"{edit} ({size})": halves for size in ("large", "small")}


def along(weight):
    """A direction of the stream that no norm takes off."""
    return torch.linspace(-1, 1, weight.shape[-1], dtype=weight.dtype)


def unread_is_read(name, weights, before):
    weights["unembed.W_U"][len(before["unembed.W_U"]) :] = 1


def unread_place_is_read(name, weights, before):
    """The first head writes where the read-out looks, what it should write where nothing does."""
    written = next(weights[key] for key in weights if key.endswith("W_O"))
    written[0, :, 0] += written[0, :, len(before["unembed.W_U"])]


def last_head_lost(name, weights, before):
    """What a copy takes off stays in the stream: norms see it."""
    first = next(key for key in weights if key.endswith("W_O"))
    weights[first][-1] = 0


def one_head_lost(name, weights, before):
    """One of the two heads that cancel, told by its negative, writes nothing."""
    heads = next(weights[key] for key in weights if key.endswith("W_O"))
    pair = [i for i, head in enumerate(heads) if any(torch.equal(head, -other) for other in heads)]
    assert len(pair) == 2
    heads[pair[0]] = 0


def all_heads_write(name, weights, before):
    heads = next(weights[key] for key in weights if key.endswith("W_O"))
    (null,) = (i for i, head in enumerate(heads) if not head.any())
    heads[null] = heads[null - 1]


def scale_not_kept(name, weights, before):
    """Scores are divided by the root of the new width, and queries are what they were."""
    for key in weights:
        if key.endswith("W_Q"):
            weights[key][..., : before[key].shape[-1]] = before[key]


def values_written(name, weights, before):
    """The new coordinates of values are written."""
    first = next(key for key in weights if key.endswith("W_O"))
    width = before[first].shape[1]
    weights[first][:, width:] = along(weights[first])
    weights[first.replace("W_O", "b_V")][:, width:] = 1


def a_position_is_told(name, weights, before):
    weights["pos_embed.W_pos"][3] = along(weights["pos_embed.W_pos"])


def shifted_positions(name, weights, before):
    """The new positions come first."""
    n = len(before["pos_embed.W_pos"])
    weights["pos_embed.W_pos"] = weights["pos_embed.W_pos"].roll(
        len(weights["pos_embed.W_pos"]) - n, 0
    )


def restored_to_ones(ending):
    def ones(name, weights, before):
        weights[next(key for key in weights if key.endswith(ending))].fill_(1)

    return ones


def added_units_write(name, weights, before):
    first = next(key for key in weights if key.endswith("W_out"))
    weights[first][len(before[first]) :] = along(weights[first])


def written_by_the_first_layer(name, weights, before):
    weights["blocks.0.attn.W_O"] = weights["blocks.1.attn.W_O"]


def first_layer_kept(name, weights, before):
    """The layers that follow have not moved on."""
    weights["blocks.1.attn.W_O"] = before["blocks.1.attn.W_O"]


HALVES = {
    "width doubled (large)": [
        ("pre", readers_whole),
        ("post", cancelling_part_by_half),
        ("mlp only", readers_whole),
    ],
    "width doubled (small)": [("pre", readers_whole), ("post", cancelling_part_by_half)],
    **each_size(
        "unread coordinates, one a head",
        [
            ("no norm", unread_is_read),
            ("linear, stacked", unread_is_read),
            ("no norm", unread_place_is_read),
        ],
    ),
    **each_size(
        "unread coordinates, written to and taken off",
        [
            ("pre", last_head_lost),
            ("rms", last_head_lost),
            ("Tanh, post", unread_is_read),
            ("LNPre", last_head_lost),
        ],
    ),
    **each_size("a copy of a head, written where nothing reads", [("no norm", unread_is_read)]),
    "stream rotated": [
        ("no norm", restored("W_U")),
        ("LNPre", restored("W_Q")),
        ("LNPre, post", restored("W_in")),
    ],
    "norm gains folded, stream rotated": [("pre", restored("W_U")), ("rms", restored("W_O"))],
    "norm gains folded into what reads them": [
        ("pre", restored("ln1.w")),
        ("pre", biases_lost),
        ("rms", restored("W_U")),
        ("Tanh", restored("ln_final.b")),
        ("post", restored("W_U")),
    ],
    "writers centred": [("pre", centred_over_channels)],
    "heads permuted": [
        ("pre", restored("W_O")),
        ("hardmax", restored("W_K")),
        ("linear", restored("b_Q")),
    ],
    "a head split in two": [("pre", not_halved("W_O"))],
    "heads turned within themselves": [
        ("pre", restored("W_K")),
        ("post", restored("W_O")),
        ("rms", restored("b_V")),
    ],
    **each_size(
        "heads turned and stretched within themselves",
        [("pre", restored("W_Q")), ("entmax", restored("b_Q"))],
    ),
    **each_size(
        "W_Q times c, W_O over c", [("linear", restored("W_O")), ("ReLU scores", restored("b_Q"))]
    ),
    **each_size(
        "a copy of a head and its negative", [("pre", one_head_lost), ("linear", one_head_lost)]
    ),
    **each_size(
        "two random heads that cancel", [("post", one_head_lost), ("ReLU scores", one_head_lost)]
    ),
    "a copy of a head that writes nothing": [("pre", all_heads_write), ("linear", all_heads_write)],
    "a head that writes nothing": [("pre", all_heads_write), ("hardmax", all_heads_write)],
    **each_size(
        "heads wider",
        [("pre", scale_not_kept), ("entmax", values_written), ("no norm", scale_not_kept)],
    ),
    **each_size("b_V moved out of b_O", [("pre", restored("b_O")), ("hardmax", restored("b_V"))]),
    "b_O moved into b_V": [("pre", restored("b_O")), ("scaled softmax, no norm", restored("b_V"))],
    "positions of zeros": [("attention only", a_position_is_told)],
    **each_size(
        "n_ctx longer",
        [
            ("pre", shifted_positions),
            ("positions by softmax", restored_to_ones("W_P")),
            ("positions by similarity", restored_to_ones("W_K_pos")),
        ],
    ),
    "b_V moved into b_O": [("pre", restored("b_V")), ("hardmax", restored("b_O"))],
    "an MLP unit split in two": [("pre", not_halved("W_out")), ("mlp only", not_halved("W_out"))],
    **each_size("MLP padded", [("pre", added_units_write), ("mlp only", added_units_write)]),
    "MLP units permuted": [
        ("pre", restored("W_in")),
        ("post", restored("b_in")),
        ("rms", restored("W_out")),
    ],
    "a layer appended that writes nothing": [("pre", written_by_the_new_layer)],
    "a layer before that writes nothing": [
        ("pre", written_by_the_first_layer),
        ("linear", first_layer_kept),
    ],
}


def test_each_edit_has_a_mutant_and_each_mutant_an_edit():
    """Of what only drops a part no half can be made: b_K is dropped whole, or it stays."""
    assert set(NAMED) - set(HALVES) == {"b_K dropped"}
    assert set(HALVES) <= set(NAMED)


@pytest.mark.parametrize(
    ("edit", "name", "half"),
    [(edit, name, half) for edit, cases in HALVES.items() for name, half in cases],
)
def test_an_edit_by_half_is_noticed(edit, name, half):
    model = edited(name, edit)
    weights = weights_of(model)
    half(name, weights, weights_of(model_of(name)))
    must_fail(same_function, name, made(weights, model.cfg))


# ---- where an edit is refused it would not do ----------------------------------------------------


@pytest.mark.parametrize(("name", "edit"), REFUSED)
def test_a_refusal_says_why(name, edit):
    why = NAMED[edit].applies(model_of(name).cfg)
    assert why
    with pytest.raises(
        InputError, match=f"does not leave the function of this model: {re.escape(why)}"
    ):
        NAMED[edit].apply(model_of(name), generator(0, edit))


WRONG = [
    ("post", "stream rotated"),
    ("pre", "stream rotated"),
    ("rms", "stream rotated"),
    ("RMS, post", "stream rotated"),
    ("Tanh", "stream rotated"),
    ("Tanh, post", "stream rotated"),
    ("post", "norm gains folded, stream rotated"),
    ("rms", "writers centred"),
    ("no norm", "writers centred"),
    ("post", "writers centred"),
    ("linear", "b_K dropped"),
    ("ReLU scores", "b_K dropped"),
    ("sigmoid scores", "b_K dropped"),
    ("linear", "b_V moved into b_O"),
    ("sigmoid scores", "b_V moved into b_O"),
    ("pre", "W_Q times c, W_O over c (large)"),
    ("hardmax", "W_Q times c, W_O over c (small)"),
    ("sigmoid scores", "W_Q times c, W_O over c (large)"),
    ("post", "a layer appended that writes nothing"),
    ("LNPre, post", "a layer appended that writes nothing"),
    ("post", "a layer before that writes nothing"),
    ("post, MLP only", "a layer before that writes nothing"),
    ("linear", "b_V moved out of b_O (large)"),
    ("sigmoid scores", "b_V moved out of b_O (small)"),
    ("ReLU scores", "b_O moved into b_V"),
    ("positions by softmax", "b_O moved into b_V"),
]


@pytest.mark.parametrize(("name", "edit"), WRONG)
def test_where_an_edit_is_refused_it_would_move_the_output(name, edit):
    assert (name, edit) in REFUSED
    weights = weights_of(model_of(name))
    cfg = NAMED[edit].change(weights, model_of(name).cfg, generator(0, edit))
    must_fail(same_function, name, made(weights, cfg))


# ---- what may change -----------------------------------------------------------------------------


def extremes(values):
    values = torch.as_tensor(values, dtype=torch.float64)
    return torch.stack([values.min(), values.max()])


def shares_of_identity(model):
    """tr(A)^2 / |A|^2 / d of every head's maps, whatever their size and order."""
    found = []
    for factored in (model.OV, model.QK):
        maps = factored.AB
        trace = maps.diagonal(dim1=-2, dim2=-1).sum(-1)
        found.append(
            extremes(
                trace.square() / (maps.square().sum((-2, -1)).clamp_min(1e-300) * maps.shape[-1])
            )
        )
    return torch.cat(found)


def largest_overlaps(model):
    """The largest and the smallest cosine of two heads' maps."""
    found = []
    for cosines in map_orthogonality(model, angles=False).values():
        others = ~np.eye(model.cfg.n_heads, dtype=bool)
        found.append(extremes(np.abs(cosines.values[:, others])))
    return torch.cat(found)


QUANTITIES = {
    "weight maps": shares_of_identity,
    "overlap of heads": largest_overlaps,
    "depth": lambda model: torch.tensor(float(model.cfg.n_layers)),
}
WITH_HEADS = [
    (name, edit)
    for name, edit in APPLYING
    if name in ("pre", "no norm", "rms", "linear", "attention only")
]


def unchanged(measure, name, edit):
    torch.testing.assert_close(
        measure(edited(name, edit)), measure(model_of(name)), rtol=1e-9, atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("aspect", QUANTITIES)
def test_what_is_not_named_stays(aspect):
    for name, edit in WITH_HEADS:
        # Of heads that do nothing, and of coordinates that nothing reads, no claim may ask for
        # maps.
        if (
            NAMED[edit].family in ("unread", "idle heads")
            or "list of heads" in NAMED[edit].may_change
        ):
            continue
        if aspect not in NAMED[edit].may_change:
            unchanged(QUANTITIES[aspect], name, edit)


@pytest.mark.parametrize(
    ("aspect", "edit"),
    [
        ("weight maps", "width doubled (large)"),
        ("weight maps", "norm gains folded into what reads them"),
        ("weight maps", "writers centred"),
        ("weight maps", "a layer appended that writes nothing"),
        ("overlap of heads", "a head split in two"),
        ("depth", "a layer appended that writes nothing"),
        ("depth", "a layer before that writes nothing"),
    ],
)
def test_what_is_named_changes(aspect, edit):
    assert aspect in NAMED[edit].may_change
    must_fail(unchanged, QUANTITIES[aspect], "pre", edit)


# ---- sizes ---------------------------------------------------------------------------------------


def largest(model, other):
    """The largest new entry of W_O beside those that were there."""
    written = [weights_of(one)["blocks.0.attn.W_O"] for one in (model, other)]
    return float(written[1].abs().max() / written[0].abs().max())


def grows_with_the_size(edit):
    """At the small size nothing that is added is large; at the large one something is.

    The seed draws the size.
    """
    model = model_of("no norm")
    sizes = {}
    for size in ("small", "large"):
        one = NAMED[f"{edit} ({size})"]
        sizes[size] = [
            largest(model, one.apply(model, generator(seed, "size"))) for seed in range(4)
        ]
        assert len(set(sizes[size])) == 4 or size == "small"
    assert max(sizes["small"]) < 1.5
    assert min(sizes["large"]) > 3


@pytest.mark.parametrize(
    "edit",
    [
        "two random heads that cancel",
        "a copy of a head and its negative",
        "unread coordinates, one a head",
    ],
)
def test_an_edit_with_a_size_is_made_at_a_small_and_a_large_one(edit, monkeypatch):
    grows_with_the_size(edit)
    monkeypatch.setitem(NAMED, f"{edit} (large)", NAMED[f"{edit} (small)"])
    must_fail(grows_with_the_size, edit)


def test_every_size_comes_with_the_other():
    large, small = (
        {name.removesuffix(end) for name in NAMED if name.endswith(end)}
        for end in (" (large)", " (small)")
    )
    assert large == small
    assert len(large) >= 10


# ---- classes of one's own ------------------------------------------------------------------------


class Shifted(HookedTransformer):
    """Adds to its predictions what it was given once it was made."""

    def forward(self, tokens, positions=None):
        """The predictions, and a number that depends on the tokens."""
        added = self.by * tokens[:, :1].sum((1, 2)).sin()
        return super().forward(tokens, positions) + added[:, None, None]


def own_class():
    model = Shifted(model_of("pre").cfg).double().eval()
    model.load_state_dict(weights_of(model_of("pre")))
    model.by = 5.0
    return model


def stays_of_its_class(apply):
    model, tokens = own_class(), tokens_of("pre")
    for edit in ("heads permuted", "unread coordinates, written to and taken off (large)"):
        other = apply(NAMED[edit], model)
        with torch.no_grad():
            assert (other(tokens) - model(tokens)).abs().max() <= 1e-10 * model(tokens).abs().max()
        assert type(other) is Shifted


def test_an_edited_model_keeps_its_class_and_what_it_was_given():
    stays_of_its_class(lambda edit, model: edit.apply(model, generator(0, "own")))

    def plain(edit, model):
        weights = weights_of(model)
        return made(weights, edit.change(weights, model.cfg, generator(0, "own")))

    must_fail(stays_of_its_class, plain)


def test_a_class_that_no_config_makes_is_refused():
    class Needy(HookedTransformer):
        def __init__(self, cfg, more):
            super().__init__(cfg)

    model = Needy(model_of("pre").cfg, 1).double()
    with pytest.raises(InputError, match=r"made by Needy\(cfg\), but that fails"):
        NAMED["heads permuted"].apply(model, generator(0, "own"))
