"""A model with hooks is not analysed: its results would be reported as the intact model's."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from tiny_runs import checkpoint
from torch import nn
from torch.nn.utils import parametrize

import icl_interp
from icl_interp import pipeline
from icl_interp.analyses import Bench
from icl_interp.analyses.lab import Lab
from icl_interp.errors import InputError
from icl_interp.interventions import AblateHeads, intervene
from icl_interp.models import hooks

FAST = {"claims": ["limits.context_erased"], "n_prompts": 64, "progress": False}


def same(*args):
    """A listener that changes nothing: it might, and no one can tell."""


# What is attached, where it is said to be, and how it is taken away again.
ATTACHED = {
    "hook": (
        lambda m: m.add_hook("blocks.0.attn.hook_z", lambda t, hook: 0 * t),
        "blocks.0.attn.hook_z",
    ),
    "permanent hook": (lambda m: m.add_perma_hook("hook_embed", same), "hook_embed"),
    "backward hook": (lambda m: m.add_hook("hook_embed", same, dir="bwd"), "hook_embed"),
    "native": (lambda m: m.blocks[0].mlp.register_forward_hook(same), "blocks.0.mlp"),
    "native before": (lambda m: m.unembed.register_forward_pre_hook(same), "unembed"),
    "native backward": (lambda m: m.blocks[0].register_full_backward_hook(same), "blocks.0"),
    "native backward before": (lambda m: m.blocks.register_full_backward_pre_hook(same), "blocks"),
    "whole model": (lambda m: m.register_forward_hook(same), "the model itself"),
    "native at a point": (lambda m: m.hook_embed.register_forward_hook(same), "hook_embed"),
}
DOORS = {
    "checkpoint": lambda c: icl_interp.analyze(c, **FAST),
    "bare model": lambda c: icl_interp.analyze(c.model, c.task, **FAST),
    "wrapped model": lambda c: icl_interp.analyze(nn.DataParallel(c.model), c.task, **FAST),
    "compare": lambda c: icl_interp.compare([c, checkpoint()], **FAST),
    "bench": lambda c: Bench.of(c, n_prompts=64),
    "lab": lambda c: Lab(c.model, c.task, c.encoding, n_units=4),
}


def check_refused(door, attach, where):
    found = checkpoint()
    attach(found.model)
    with pytest.raises(
        InputError, match=f"hooks or interventions are attached .* at .*{where}"
    ) as raised:
        DOORS[door](found)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ATTACHED)
def test_whatever_is_attached_is_refused(kind):
    check_refused("checkpoint", *ATTACHED[kind])


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses(door, monkeypatch):
    check_refused(door, *ATTACHED["native"])
    if door in ("bench", "lab"):
        monkeypatch.setattr(hooks, "hooked_modules", lambda model: [])
        must_fail(check_refused, door, *ATTACHED["native"])


def measured(found):
    """Predictions in distribution, as a report has them: (batch, point, target)."""
    return Bench.of(found, n_prompts=64).predictions()[0]


def test_without_the_refusal_the_edited_model_would_be_reported(monkeypatch):
    """The mutant: what came of it."""
    found, ablate = checkpoint(), AblateHeads.zero((0, 0), (0, 1))
    intact = measured(found)
    with (
        intervene(found.model, ablate),
        pytest.raises(InputError, match=r"at blocks\.0\.attn\.hook_z"),
    ):
        icl_interp.analyze(found, **FAST)
    monkeypatch.setattr(hooks, "hooked_modules", lambda model: [])
    with intervene(found.model, ablate):
        assert (measured(found) - intact).abs().max() > 1e-3


def test_what_was_attached_once_is_nothing():
    found = checkpoint()
    before = measured(found)
    with intervene(found.model, AblateHeads.zero((0, 0))):
        found.model(torch.zeros(1, 3, 1))
    found.model.unembed.register_forward_hook(same).remove()
    assert torch.equal(measured(found), before)


def test_names_are_few():
    model = checkpoint().model
    model.add_hook(lambda name: True, same)
    with pytest.raises(InputError) as raised:
        hooks.check_unhooked(model, "analyze")
    assert f" and {len(model.hook_dict) - hooks.NAMED} more" in str(raised.value)


def test_a_hooked_companion_is_left_out():
    found, other = checkpoint(), checkpoint(model={"normalization_type": None})
    other.model.unembed.register_forward_hook(same)
    matched, (left_out,) = pipeline.companions_of_model([other], found)
    assert other not in matched.values()
    assert "hooks or interventions" in left_out["reason"]


class Half(nn.Module):
    """A parametrisation: the weight that runs is half of the one that is kept."""

    def forward(self, weight):
        return weight / 2


def test_parametrised_weights_are_read_as_they_run():
    found = checkpoint()
    mine, by_hand = copy.deepcopy(found.model), copy.deepcopy(found.model)
    parametrize.register_parametrization(mine.blocks[0].attn, "W_O", Half())
    with torch.no_grad():
        by_hand.blocks[0].attn.W_O /= 2
    torch.testing.assert_close(
        measured(replace(found, model=mine)),
        measured(replace(found, model=by_hand)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert (measured(replace(found, model=mine)) - measured(found)).abs().max() > 1e-3


def test_evaluate_runs_a_model_with_what_is_attached():
    """Its table bears no name of a model, and the context says what is evaluated."""
    found, sizes = checkpoint(), {"n_functions": 8, "n_contexts": 2}

    def error():
        return icl_interp.evaluate(found, **sizes)["error"].iloc[0]

    with found.model.hooks(fwd_hooks=[("ln_final.hook_out", lambda t, hook: 0 * t)]):
        constant = error()
    by_hand = copy.deepcopy(found.model)
    with torch.no_grad():
        by_hand.unembed.W_U.zero_()
    np.testing.assert_allclose(
        constant, icl_interp.evaluate(replace(found, model=by_hand), **sizes)["error"].iloc[0]
    )
    assert error() != constant
