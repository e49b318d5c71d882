"""Edges of an adapted module: what was named must add up, and an edit must reach what it says."""

import pytest
import torch
from helpers import must_fail
from own_hooks import adapted
from small_models import make

from icl_interp.adapters import Place
from icl_interp.errors import InputError
from icl_interp.interventions.edges import edges_of, readers
from icl_interp.provenance import generator

TOKENS = torch.randn(2, 5, 1, generator=generator(0, "test/sums"))
SUMS = ("pre", "no norm", "attention only", "rms", "mlp only")
# All heads read the stream by one place, which is no place of one head.
ONE_FOR_ALL = Place(
    "blocks.{i}.hook_q_input",
    take=lambda t: t.mean(2, keepdim=True).expand_as(t),
    put=lambda old, new: new.mean(2, keepdim=True).expand_as(old),
)
HALF = Place(
    "blocks.{i}.hook_mlp_out", take=lambda t: t, put=lambda old, new: old + (new - old) / 2
)
WRONG = {
    "post-norm": ("post", {}, "something else than the sum"),
    "norms on outputs": ("norm on outputs", {}, "something else than the sum"),
    "no MLP": ("pre", {"without": ("mlp",)}, "something else than the sum"),
    "reads the norm": (
        "pre",
        {"hook_mlp_in": "blocks.{i}.ln2.hook_out"},
        "at blocks.0.hook_mlp_in there is something else",
    ),
    "edits the stream": (
        "pre",
        {"hook_mlp_in": "blocks.{i}.hook_resid_mid"},
        "an edit at blocks.0.hook_mlp_in reaches more than what MLP 0 reads",
    ),
    "edits all heads": (
        "pre",
        {"hook_q_input": ONE_FOR_ALL},
        "an edit at blocks.0.hook_q_input reaches more than what head 0.0 q reads",
    ),
    "another reader": (
        "pre",
        {"hook_k_input": "blocks.{i}.hook_q_input"},
        "an edit at blocks.0.hook_q_input reaches more than what head 0.0 q reads",
    ),
    "edits by half": (
        "pre",
        {"hook_mlp_out": HALF},
        "an edit at blocks.0.hook_mlp_out reaches the stream otherwise",
    ),
}


def is_a_sum(model):
    assert model.no_sum is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_own_hook_points_add_up(name):
    model = make(name)
    found = adapted(model, TOKENS)
    is_a_sum(found)
    assert edges_of(found) == edges_of(model)


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_add_up_is_refused(case):
    name, change, message = WRONG[case]
    found = adapted(make(name), TOKENS, **change)
    must_fail(is_a_sum, found)
    with pytest.raises(InputError, match=message) as refused:
        readers(found)
    assert "\n" not in str(refused.value)


def test_prompts_that_are_alike_are_told_apart():
    found = adapted(make("pre"), torch.zeros(1, 5, 1), without=("mlp",))
    must_fail(is_a_sum, found)


def test_a_hook_point_that_was_not_named_is_asked_for():
    for missing, name in (("hook_result", "blocks.0.attn.hook_result"), ("hook_mlp_out",) * 2):
        found = adapted(make("pre"), TOKENS, without=(missing,))
        with pytest.raises(InputError, match=f"has no .*{name}.*; give points="):
            readers(found)
    found = adapted(make("pre"), TOKENS, without=("hook_k_input",))
    assert len(readers(found)) == len(readers(make("pre")))
    with pytest.raises(InputError, match=r"has no blocks\.0\.hook_k_input"):
        edges_of(found)
