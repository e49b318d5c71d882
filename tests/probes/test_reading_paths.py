"""A model without a task can read paths in two ways, so nothing is guessed.

States show nothing but themselves.
"""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from vector_tasks import MAPS, PATHS

import icl_interp
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Augmented, Interleaved, Stacked, States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import AttentionEntropy
from icl_interp.provenance import generator

SIZES = {"n_layers": 1, "d_model": 8, "n_heads": 2, "n_ctx": 40}


def drawn(task):
    return task.sample(4, generator(0, "test/paths"))


def model(d_in, d_out=2):
    return HookedTransformer(HookedTransformerConfig(d_in=d_in, d_out=d_out, **SIZES)).eval()


def seen(model, prompts, encoding=None):
    return icl_interp.probe(model, prompts, [AttentionEntropy()], encoding)[
        "attention_entropy.visible_keys"
    ]


def test_a_bare_model_asks_how_to_read_paths():
    both = (
        r"model with d_in=2 may read them as states or interleaved: pass encoding=States\(\) or "
        r"encoding=Interleaved"
    )
    with pytest.raises(InputError, match=both):
        seen(model(2), drawn(PATHS))
    for encoding, kinds in ((States(), ["x", "query"]), (Interleaved(), ["x", "y", "query"])):
        assert seen(model(2), drawn(PATHS), encoding).indexes["position"].tolist() == kinds


def test_what_can_be_read_in_one_way_is_told_from_the_width():
    assert tokens.infer_from(drawn(PATHS), 4) == Stacked()
    assert tokens.infer_from(drawn(MAPS), 3) == Interleaved()
    assert tokens.infer_from(drawn(PATHS).first(1), 2) == Interleaved()  # a query alone is no path
    seen(model(3, 3), drawn(MAPS))


def test_states_refuse_prompts_that_are_no_paths():
    def check(encoding):
        for prompts in (drawn(MAPS), replace(drawn(PATHS), ys=drawn(PATHS).ys.flip(1))):
            with pytest.raises(
                InputError,
                match="tokens show no values, so the value at each point must be the next",
            ):
                encoding.encode(prompts)

    check(States())
    check(Augmented())
    must_fail(check, Interleaved())


def test_states_take_a_query_elsewhere_and_values_that_are_unknown():
    prompts = drawn(PATHS)
    xs = prompts.xs.clone()
    xs[:, -1] = 9.0
    for moved in (
        replace(prompts, xs=xs),
        replace(prompts, ys=torch.full_like(prompts.ys, torch.nan)),
    ):
        assert torch.equal(States().encode(moved), moved.xs)
