"""Steering and projecting out: what they leave, where they act, and that nothing stays."""

import pytest
import torch
from helpers import must_fail
from own_hooks import adapted
from small_models import MODELS, make, tokens_for
from torch.testing import assert_close

from icl_interp.errors import InputError
from icl_interp.interventions import At, Intervention, ProjectOut, Steer, intervene
from icl_interp.models.hooks import hooked_modules
from icl_interp.provenance import generator

HOOK, HEADS = "blocks.0.hook_resid_post", "blocks.1.attn.hook_z"


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def drawn(*shape):
    return torch.randn(shape, generator=generator(5, "test/directions"), dtype=torch.float64)


def check_quartet(model, tokens, edit):
    """Moved inside; bit-identical after exit, also after an exception; nothing left behind."""
    before = model(tokens)
    with intervene(model, edit):
        assert not torch.allclose(model(tokens), before, rtol=1e-3, atol=1e-3)
    assert torch.equal(model(tokens), before)
    with pytest.raises(ZeroDivisionError), intervene(model, edit):
        1 / 0  # noqa: B018
    assert torch.equal(model(tokens), before)
    assert hooked_modules(model) == []


def built(model):
    width = model.cfg.d_model
    edits = [Steer(drawn(width), 3.0, HOOK), ProjectOut(drawn(3, width), HOOK)]
    if not model.cfg.mlp_only:
        edits.append(Steer(drawn(model.cfg.head_width), 5.0, HEADS, head=0))
        edits.append(ProjectOut(torch.eye(model.cfg.head_width), HEADS, head=0))
    return edits


@pytest.mark.parametrize("name", MODELS)
def test_they_act_inside_and_only_there(name):
    model = make(name)
    for edit in built(model):
        check_quartet(model, tokens_for(model), edit)


class Nothing(Intervention):
    def hooks(self, model):
        return [(HOOK, lambda t, hook: t)]


def test_one_that_does_nothing_is_noticed():
    model = make()
    must_fail(check_quartet, model, tokens_for(model), Nothing())
    must_fail(check_quartet, model, tokens_for(model), Steer(drawn(12), 0.0, HOOK))


def seen(model, *edits, at=HOOK):
    kept = []
    tokens = tokens_for(model)
    reader = (at, lambda t, hook: kept.append(t))
    with intervene(model, *edits), model.hooks(fwd_hooks=[reader]):
        model(tokens)
    return kept[0]


def test_steering_adds_the_direction():
    model, direction = make(), drawn(12)
    before = seen(model)
    assert_close(seen(model, Steer(direction, 2.5, HOOK)), before + 2.5 * direction)
    by = torch.arange(len(before)).double()
    each = seen(model, Steer(direction, by, HOOK))
    assert_close(each, before + by[:, None, None] * direction)
    last = seen(model, At((-1,), Steer(direction, 2.5, HOOK)))
    assert_close(last[:, -1], before[:, -1] + 2.5 * direction)
    assert torch.equal(last[:, :-1], before[:, :-1])


def check_cleared(left, before, directions, about):
    along = (left - about) @ directions.mT
    assert along.abs().max() < 1e-12
    basis = torch.linalg.qr(directions.mT, mode="complete").Q[:, len(directions) :]
    assert_close(left @ basis, before @ basis)


def test_projecting_out_leaves_the_rest():
    model, directions = make(), drawn(3, 12)
    before = seen(model)
    check_cleared(seen(model, ProjectOut(directions, HOOK)), before, directions, 0 * before[0, 0])
    about = before.mean((0, 1))
    edit = ProjectOut(directions, HOOK, about=about)
    check_cleared(seen(model, edit), before, directions, about)
    must_fail(check_cleared, before, before, directions, about)
    twice = torch.cat([directions, 2 * directions[:1]])
    assert ProjectOut(twice, HOOK).basis.shape == (12, 3)
    assert_close(seen(model, ProjectOut(twice, HOOK, about=about)), seen(model, edit))


def test_a_head_alone():
    model = make()
    before = seen(model, at=HEADS)
    edited = seen(model, ProjectOut(torch.eye(4), HEADS, head=1), at=HEADS)
    assert edited[:, :, 1].abs().max() < 1e-12
    assert torch.equal(edited[:, :, [0, 2]], before[:, :, [0, 2]])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: Steer(drawn(12), 1.0, "blocks.0.resid_post"), "did you mean 'blocks.0.hook_resid"),
        (lambda: Steer(drawn(12), float("nan"), HOOK), "by must be a finite number"),
        (lambda: Steer(drawn(12) * float("nan"), 1.0, HOOK), "must be finite numbers"),
        (lambda: Steer(drawn(2, 12), 1.0, HOOK), "but got one of shape"),
        (lambda: Steer(drawn(11), 1.0, HOOK), "11 coordinates does not fit"),
        (lambda: Steer(drawn(12), torch.ones(3), HOOK), "each of 3 prompts, but the run has 24"),
        (lambda: Steer(drawn(4), 1.0, HEADS), "name one with head="),
        (lambda: Steer(drawn(4), 1.0, HEADS, head=3), "there is no head 3"),
        (lambda: Steer(drawn(12), 1.0, HOOK, head=0), "has no axis of heads"),
        (lambda: Steer(drawn(12), 1.0, "blocks.0.attn.hook_pattern"), "not vectors"),
        (lambda: ProjectOut(torch.zeros(12), HOOK), "must not all be 0"),
    ],
)
def test_refusals(edit, message):
    model = make()
    with pytest.raises(InputError, match=message), intervene(model, edit()):
        model(tokens_for(model))


@pytest.mark.parametrize(("at", "head"), [(HOOK, None), (HEADS, 1)])
def test_an_adapted_module_is_steered_like_the_model(at, head):
    model = make()
    tokens = tokens_for(model)
    direction = drawn(model.cfg.d_model if head is None else model.cfg.d_head)
    # Of a module whose stream alone was named no head is asked for.
    module = adapted(model, tokens, without=("hook",) if head is None else ())

    def same(by):
        with intervene(module, Steer(direction, by, at, head)):
            found = module(tokens)
        with intervene(model, Steer(direction, 0.5, at, head)):
            assert_close(found, model(tokens), rtol=1e-10, atol=1e-10)

    same(0.5)
    must_fail(same, 0.6)


def test_a_hook_point_that_was_not_named_is_asked_for():
    model = make()
    module = adapted(model, tokens_for(model), without=("hook_z",))
    edit = Steer(drawn(model.cfg.d_head), 0.5, HEADS, 0)
    with (
        pytest.raises(InputError, match=r"no blocks\.1\.attn\.hook_z.*; give points="),
        intervene(module, edit),
    ):
        pass
