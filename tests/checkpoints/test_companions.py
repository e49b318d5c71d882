"""Companions: what two configs differ in, and which bundled models stand beside which."""

import copy

import pytest
from helpers import must_fail

from icl_interp.checkpoints import bundled, companions
from icl_interp.checkpoints.companions import Role, relation

RUN = bundled.config("affine")


def changed(**changes):
    run = copy.deepcopy(RUN)
    for key, value in changes.items():
        part, name = key.split("__")
        run[part][name] = value
    return run


def law(a, low=None):
    return {"kind": "Uniform", "low": -a if low is None else low, "high": a}


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({"model__normalization_type": None}, "no norm"),
        ({"model__normalization_type": None, "model__init_std": 0.1}, "no norm"),
        ({"model__norm_position": "post"}, "post-norm"),
        ({"model__normalization_type": "RMS"}, None),
        ({"model__attn_only": True}, "attention only"),
        ({"model__mlp_only": True}, "MLP only"),
        ({"model__d_model": 128, "model__d_head": 32, "model__d_mlp": 512}, "wider"),
        ({"model__d_model": 32, "model__d_head": 8, "model__d_mlp": 128}, "narrower"),
        ({"model__n_layers": 2}, None),
        ({"task__degrees": [1, 3]}, "degrees 1,3"),
        ({"task__inputs": law(5), "task__coefficients": law(5)}, "interval 5"),
        ({"task__inputs": law(5), "task__coefficients": law(10)}, None),
        ({"task__inputs": law(5, 0), "task__coefficients": law(5, 0)}, None),
        ({"training__seed": 7}, "another seed"),
        ({"training__steps": 7}, None),
        ({"model__attn_only": True, "task__degrees": [3]}, None),
        ({"task__n_points": 10}, None),
    ],
)
def test_the_role_says_what_differs(changes, role):
    found = relation(RUN, changed(**changes))
    assert (found and str(found)) == role


def check_both_ways(relation):
    bare = changed(model__normalization_type=None)
    assert (relation(RUN, bare), relation(bare, RUN)) == (Role("no norm"), Role("with norm"))
    attention = changed(model__attn_only=True)
    assert (relation(RUN, attention), relation(attention, RUN)) == (
        Role("attention only"),
        Role("with MLP"),
    )


def test_roles_have_a_direction():
    check_both_ways(relation)
    must_fail(check_both_ways, lambda a, b: relation(b, a))


def test_bundled_companions_are_what_they_are_called():
    found = companions.of(RUN)
    assert "affine" not in found.values()
    assert bundled.config(found[Role("no norm")])["model"]["normalization_type"] is None
    assert bundled.config(found[Role("attention only")])["model"]["attn_only"]
    assert companions.of(changed(model__n_layers=7)) == {}


def check_kinds(kind_of):
    """A kind is everything but the seed and what a run records."""
    mine = kind_of(RUN)
    for same in (
        {"training__seed": 7},
        {"training__log_every": 7},
        {"training__checkpoint_every": 7},
    ):
        assert kind_of(changed(**same)) == mine
    for other in (
        {"training__steps": 7},
        {"training__learning_rate": 7.0},
        {"model__init_std": 7.0},
        {"task__degrees": [2]},
    ):
        assert kind_of(changed(**other)) != mine


def test_a_kind_is_a_run_but_for_its_seed():
    check_kinds(companions.kind_of)
    must_fail(check_kinds, lambda run: companions.kind_of({**run, "training": None}))
    must_fail(check_kinds, lambda run: str(run))
    assert companions.kind_of(changed(model__embed_bound=None)) == companions.kind_of(
        RUN
    )  # older configs lack it
    assert companions.training_of({**RUN, "training": None}) == {}


def test_further_seeds_have_a_number():
    third = Role("interval", half_width=5.0, further=2)
    assert (str(third), third.first) == (
        "interval 5, further seed 2",
        Role("interval", half_width=5.0),
    )
