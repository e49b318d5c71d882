"""Norms frozen at a scale of each prompt's own."""

import pytest
import torch
from helpers import must_fail
from small_models import PROMPTS, make, tokens_for

from icl_interp.errors import InputError
from icl_interp.interventions.base import At, intervene
from icl_interp.interventions.norms import FreezeNorms


def own_scales(model) -> dict[str, torch.Tensor]:
    """Of each prompt, at its last token: `(prompt, 1, 1)`."""
    _, cache = model.run_with_cache(tokens_for(model, PROMPTS))
    return {name: cache[f"{name}.hook_scale"][:, -1:] for name in model.norms}


def check_own(model, freeze: FreezeNorms):
    """A prompt frozen at its own scales at the last token is what it was there."""
    tokens = tokens_for(model, PROMPTS)
    with intervene(model, At((-1,), freeze)):
        assert torch.allclose(
            model(tokens)[:, -1], model_of(model)(tokens)[:, -1], rtol=0, atol=1e-10
        )


def model_of(model):
    """The same model without interventions."""
    other = make("pre")
    other.load_state_dict(model.state_dict())
    return other


def test_a_prompt_at_its_own_scale_is_what_it_was():
    model = make("pre")
    scales = own_scales(model)
    check_own(model, FreezeNorms(scales))
    check_own(model, FreezeNorms(scales).at_query())
    must_fail(
        check_own, model, FreezeNorms({name: scale.flip(0) for name, scale in scales.items()})
    )
    must_fail(
        check_own, model, FreezeNorms({name: scale.mean(0) for name, scale in scales.items()})
    )


def test_scales_of_other_prompts_are_refused():
    model = make("pre")
    freeze = FreezeNorms(own_scales(model))
    with (
        intervene(model, freeze),
        pytest.raises(InputError, match="scales of 24 prompts, but 5 are run at once"),
    ):
        model(tokens_for(model, PROMPTS[:5]))
