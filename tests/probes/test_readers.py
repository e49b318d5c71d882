"""Directions of the stream that later parts read: what else is in the stream changes nothing."""

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.probes import readers
from icl_interp.probes.residual import depths
from icl_interp.provenance import generator
from icl_interp.testing.reparameterisations.stream import UNREAD, UNREAD_COPY

KINDS = {
    "attention and MLP": {},
    "attention only": {"attn_only": True},
    "linear attention": {"score_fn": "linear", "score_norm": "visible"},
}
EDITS = {edit.name: edit for edit in (*UNREAD, *UNREAD_COPY)}


def without_norms(**change):
    """A small model whose stream no norm reads."""
    return make("pre", normalization_type=None, **change)


def moved_by(model, name, added):
    """How far predictions move when something is added to the stream at a hook."""
    tokens = torch.randn(3, 7, model.cfg.d_in, generator=generator(0, "test")).double()
    before = model(tokens)
    after = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda t, hook: t + added)])
    moved = (after - before).detach()
    return float(moved.abs().max())


def check_the_rest_changes_nothing(directions_read, model, width):
    """Noise that no direction holds moves no prediction, along a direction it does.

    Args:
        directions_read: what is tested.
        model: without norms.
        width: directions that are read before the last block.
    """
    found = directions_read(model)
    assert [read.shape[1] for read in found] == [width] * model.cfg.n_layers + [model.cfg.d_out]
    noise = torch.randn(model.cfg.d_model, generator=generator(1, "test")).double()
    for name, read in zip(depths(model), found, strict=True):
        held = read @ (read.T @ noise)
        along = moved_by(model, name, held)
        assert along > 1e-3
        assert moved_by(model, name, noise - held) < 1e-9 * along


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_read_changes_no_prediction(kind, edit):
    model = without_norms(**KINDS[kind])
    edited = EDITS[edit].apply(model, generator(2, "test"))
    assert edited.cfg.d_model > model.cfg.d_model
    width = model.cfg.d_model
    check_the_rest_changes_nothing(readers.directions_read, model, width)
    check_the_rest_changes_nothing(readers.directions_read, edited, width)

    def everything(model):
        return [torch.eye(model.cfg.d_model).double() for _ in depths(model)]

    def too_few(model):
        return [read[:, 1:] for read in readers.directions_read(model)]

    must_fail(check_the_rest_changes_nothing, everything, edited, width)
    must_fail(check_the_rest_changes_nothing, too_few, edited, width - 1)


def check_dead_parts(directions_read):
    """What a part reads whose output nothing reads is not read either, however it gets there."""
    model = without_norms()
    first, second = model.blocks
    with torch.no_grad():
        # The read-out sees coordinate 0, and everything writes to others only.
        model.unembed.W_U[1:] = 0
        for block in (first, second):
            block.attn.W_O[..., 0] = 0
            block.mlp.W_out[:, 0] = 0
        # But one hidden unit of the last layer, which reads coordinate 1.
        second.mlp.W_in[:, 0] = 0
        second.mlp.W_in[1, 0] = 1
        second.mlp.W_out[0, 0] = 1
        # Of all heads only the second of the first layer writes there.
        second.attn.W_O[..., 1] = 0
        others = [h for h in range(model.cfg.n_heads) if h != 1]
        first.attn.W_O[others, :, 1] = 0
        # And its first query column meets no key.
        first.attn.W_K[1, :, 0] = 0
        first.attn.b_K[1, 0] = 0
        first.mlp.W_out[:, 1] = 0
    before, between, after = directions_read(model)
    assert (between.shape[1], after.shape[1]) == (2, 1)
    assert between[2:].abs().max() < 1e-12
    head = first.attn
    look = head.W_Q[1] @ head.W_K[1].T
    read = [torch.eye(model.cfg.d_model).double()[:, :2], look, look.T]
    read += [head.W_Q[1] @ head.b_K[1][:, None], head.W_K[1] @ head.b_Q[1][:, None]]
    read.append(head.W_V[1] @ head.W_O[1][:, 1:2])
    expected = readers.basis(torch.cat(read, 1))
    torch.testing.assert_close(before @ before.T, expected @ expected.T, rtol=0, atol=1e-9)


def test_a_part_that_nobody_hears_reads_nothing(monkeypatch):
    check_dead_parts(readers.directions_read)
    monkeypatch.setattr(
        readers,
        "_read_by_attention",
        lambda attn, later: attn.W_V.detach().transpose(0, 1).flatten(1),
    )
    must_fail(check_dead_parts, readers.directions_read)
    monkeypatch.undo()
    monkeypatch.setattr(readers, "_looks", lambda attn: [attn.W_Q.detach(), attn.W_K.detach()])
    must_fail(check_dead_parts, readers.directions_read)


def test_a_model_that_says_a_constant_reads_nothing():
    model = without_norms()
    with torch.no_grad():
        model.unembed.W_U.zero_()
    for seen in readers.as_read(model, [torch.ones(4, 12).double() for _ in depths(model)]):
        torch.testing.assert_close(seen, torch.zeros(4, 1).double(), rtol=0, atol=0)


def check_projected(projected):
    """What is read is the same, and what is not is 0, whatever basis was found."""
    model = without_norms()
    edited = EDITS["unread coordinates, one a head (large)"].apply(model, generator(2, "test"))
    noise = torch.randn(4, edited.cfg.d_model, generator=generator(1, "test")).double()
    *inner, last = projected(edited, [noise for _ in depths(edited)])
    for kept in inner:
        width = model.cfg.d_model
        torch.testing.assert_close(kept[:, :width], noise[:, :width], rtol=0, atol=1e-9)
        assert kept[:, width:].abs().max() < 1e-9
    said, wanted = (edited.unembed(stream[:, None]) for stream in (last, noise))
    torch.testing.assert_close(said, wanted, rtol=0, atol=1e-9)


def test_what_is_not_read_is_0_in_the_stream():
    check_projected(readers.projected)
    must_fail(check_projected, lambda model, streams: streams)


def check_left_alone(as_read):
    model = make("pre")
    streams = [torch.randn(2, model.cfg.d_model) for _ in depths(model)]
    for given, kept in zip(streams, as_read(model, streams), strict=True):
        torch.testing.assert_close(kept, given, rtol=0, atol=0)


def test_a_norm_reads_everything():
    check_left_alone(readers.as_read)
    must_fail(check_left_alone, lambda model, streams: [one[:, :1] for one in streams])
