"""Activations as they are: every prompt, every probed position, each hook with its own axes."""

import numpy as np
import pytest
import torch
from cached_activations import cached
from helpers import must_fail
from small_models import PROMPTS, make

from icl_interp.errors import InputError
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe

NAMES = ("hook_embed", "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_z", "ln_final.hook_scale")


def check_recorded(seen, cache):
    for name in NAMES:
        np.testing.assert_array_equal(seen.recorded[name].numpy(), cache[name])
        result = seen.results()[name]
        np.testing.assert_array_equal(result.values, cache[name])
        assert result.dims[0] == "prompt"


def test_activations_of_whole_prompts():
    model, seen = make(), Activations(NAMES)
    results = probe(model, PROMPTS, [seen])
    assert set(results) == {f"activations.{name}" for name in NAMES}
    check_recorded(seen, cached(model))
    probe(model, PROMPTS[torch.arange(24).flip(0)], [seen])  # and starts anew
    must_fail(check_recorded, seen, cached(model))


def test_pieces_of_a_stream_are_put_together():
    model, whole, pieces = make(), Activations(NAMES), Activations(NAMES)
    probe(model, PROMPTS, [whole])
    probe(model, PROMPTS, [pieces], batch_size=7)
    for name in NAMES:
        torch.testing.assert_close(
            pieces.recorded[name], whole.recorded[name], rtol=1e-10, atol=1e-10
        )


def check_kept(keep):
    """What is made of an activation stands for it, whole prompt by whole prompt."""
    model, whole, part = make(), Activations(NAMES[1:2]), Activations(NAMES[1:2], keep=keep)
    probe(model, PROMPTS, [whole])
    probe(model, PROMPTS, [part], batch_size=7)
    (pattern,), (kept,) = whole.recorded.values(), part.recorded.values()
    torch.testing.assert_close(kept, pattern.amax(-1), rtol=1e-10, atol=1e-10)


def test_of_an_activation_a_part_may_be_kept():
    check_kept(lambda pattern: pattern.amax(-1))
    must_fail(check_kept, None)


def test_what_is_recorded_is_no_view_that_the_model_could_write_to():
    model, seen = make(), Activations(["hook_pos_embed", "blocks.0.hook_resid_pre"])
    with torch.enable_grad():
        probe(model, PROMPTS, [seen])
    before = {name: t.clone() for name, t in seen.recorded.items()}
    with torch.no_grad():
        model.pos_embed.W_pos += 1
    for name, t in seen.recorded.items():
        assert torch.equal(t, before[name])
        assert not t.requires_grad


def test_a_hook_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"unknown hook 'blocks\.9\.hook_resid_post'"):
        probe(make(), PROMPTS, [Activations(["blocks.9.hook_resid_post"])])
