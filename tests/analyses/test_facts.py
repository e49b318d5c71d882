"""Facts go to JSON and back without loss, also those of tasks that nobody registered here."""

import json
from dataclasses import replace

import pytest
from helpers import must_fail
from made_up_facts import AFFINE, changed, facts

from icl_interp import tasks
from icl_interp.analyses.facts import Facts, UnknownTask, needs_linear_functions
from icl_interp.checkpoints.companions import Role
from icl_interp.errors import InputError
from icl_interp.provenance import finite

ROLES = (
    Role("no norm"),
    Role("no norm", further=1),
    Role("degrees", degrees=(1, 3)),
    Role("interval", half_width=5.0),
)
EVERY = facts(
    *ROLES,
    norms=("ln_final",),
    n_parameters=7,
    snapshots=(0, 10),
    failed={"far/intact": "ValueError: no"},
    companions_left_out=({"name": "x", "reason": "y"},),
)


def through_json(known: Facts) -> Facts:
    return Facts.from_dict(json.loads(json.dumps(finite(known.to_dict()), allow_nan=False)))


def check_lossless(known, trip):
    assert trip(known) == known


def test_facts_go_to_json_and_back():
    check_lossless(EVERY, through_json)
    check_lossless(
        facts(task=tasks.LinearRegression(n_dims=2, n_points=5), config={"embed_bound": 2.0}),
        through_json,
    )
    assert through_json(changed(EVERY, r2=float("nan"))).r2 != EVERY.r2
    must_fail(check_lossless, EVERY, lambda known: changed(through_json(known), companions={}))
    assert EVERY.to_dict()["companions"]["degrees 1,3"] == "model degrees 1,3"


def test_a_task_that_is_not_registered_keeps_its_data():
    data = EVERY.to_dict()
    data["task"] = {"kind": "Unheard", "weights": [1, 2]}
    known = Facts.from_dict(data)
    assert (known.task, known.task_kind) == (UnknownTask(data["task"]), "Unheard")
    assert known.to_dict() == data
    assert EVERY.task_kind == "Polynomial"
    assert EVERY.task == AFFINE


def test_reports_from_before_facts_were_added_can_be_read():
    data = EVERY.to_dict()
    for key in (
        "x_unit",
        "has_features",
        "roles",
        "companions_left_out",
        "failed",
        "snapshots",
        "norms",
    ):
        del data[key]
    known = Facts.from_dict(data)
    assert (known.x_unit, known.has_features, known.companions, known.failed) == (1.0, True, {}, {})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config": {"n_layers": 2}}, "model.config lacks the key 'd_model'"),
        ({"config": {**EVERY.to_dict()["config"], "n_layrs": 2}}, "did you mean 'n_layers'"),
        ({"task": {"kind": "Polynomial", "degrees": [1]}}, "model.task lacks the key"),
        ({"task": {"kind": "Uniform", "low": 0, "high": 1}}, "model.task must be a task"),
        ({"in_distribution": {"error": 0.1}}, "model.in_distribution lacks the key 'r2'"),
        ({"in_distribution": {"error": "much", "r2": 1}}, "error must be a number, but got 'much'"),
        ({"n_points": 1.5}, "n_points must be a whole number"),
        ({"roles": [{"kind": "no norm", "degrees": 3}]}, r"roles\[0\].degrees must be a list"),
    ],
)
def test_what_are_no_facts_is_refused(change, match):
    with pytest.raises(InputError, match=match) as refused:
        Facts.from_dict({**EVERY.to_dict(), **change})
    assert "\n" not in str(refused.value)


def says_that_functions_are_not_drawn(task):
    known = replace(facts(), task=task)
    assert "drawn linear functions" in (needs_linear_functions(known) or "")


def test_claims_about_linear_functions_that_are_drawn_need_more_than_one():
    """A model that knows its one function, of fixed weights or of a pool, needs no prompt."""
    many = tasks.LinearRegression(n_dims=3, n_points=9)
    says_that_functions_are_not_drawn(replace(many, n_tasks=1))
    says_that_functions_are_not_drawn(replace(many, weights=(1.0, 2.0, 3.0)))
    must_fail(says_that_functions_are_not_drawn, many)
    must_fail(says_that_functions_are_not_drawn, replace(many, n_tasks=16))
