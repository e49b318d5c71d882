"""What is made of weights while these are fixed, and that nothing of it stays behind."""

import copy
import threading

import pytest
import torch
from helpers import must_fail
from small_models import PROMPTS, make, tokens_for

from icl_interp.models.attention import FIXED, Attention


def put_together(monkeypatch) -> list[str]:
    """Letters of projections that are put together from now on."""
    made, stack = [], torch.stack

    def noting(tensors, *args, **settings):
        made.append(str(len(tensors)))
        return stack(tensors, *args, **settings)

    monkeypatch.setattr(torch, "stack", noting)
    return made


def test_projections_are_put_together_once(monkeypatch):
    model, made = make(), put_together(monkeypatch)
    tokens = tokens_for(model, PROMPTS)
    with torch.no_grad():
        model(tokens)
        once = len(made)
        with model.fixed_weights():
            first = model(tokens)
            with model.fixed_weights():  # what stands inside goes on with what is known
                second = model(tokens)
            model(tokens)
    assert once > 0
    assert len(made) == 2 * once
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def follows_its_weights(model):
    tokens = tokens_for(model, PROMPTS)
    with torch.no_grad():
        before = model(tokens)
        for block in model.blocks:
            block.attn.W_V.zero_()
        assert (model(tokens) - before).abs().max() > 1e-3


def test_threads_leave_nothing_behind():
    model = make()
    tokens = tokens_for(model, PROMPTS)
    inside, out = threading.Barrier(2), threading.Barrier(2)

    def run():
        with torch.no_grad(), model.fixed_weights():
            inside.wait(10)  # both are in before either is out
            model(tokens)
            out.wait(10)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not FIXED.get()
    follows_its_weights(model)


def test_a_copy_made_meanwhile_has_its_own_weights():
    model = make()
    with torch.no_grad(), model.fixed_weights():
        model(tokens_for(model, PROMPTS))
        other = copy.deepcopy(model)
        follows_its_weights(other)


def test_after_an_exception_too():
    model = make()

    def fails():
        with torch.no_grad(), model.fixed_weights():
            model(tokens_for(model, PROMPTS))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    follows_its_weights(model)


def test_what_stayed_would_be_noticed():
    model = make()
    token = FIXED.set({id(one): {} for one in model.modules() if isinstance(one, Attention)})
    try:
        must_fail(follows_its_weights, model)
    finally:
        FIXED.reset(token)
