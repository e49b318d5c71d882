"""Which runs of a kind of training count: once each, if training and numbers are known."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from affine_runs import INTERVALS, known, lab_of, run
from helpers import must_fail
from made_up_facts import facts
from measured_claims import judged_on
from seed_tables import across, arm, scaled, table
from small_reports import seed_of

import icl_interp
from icl_interp.checkpoints.companions import Role, kind_of
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import encode
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.constructions.trainings import (
    BETTER,
    DENSITY,
    LARGER,
    NEAR,
    SIZE,
    SUFFICIENT,
)
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.seeds import HERE, NOWHERE, TRAINED
from icl_interp.studies.limits.measurements.shift import RATE

# ---- numbers that are not there ------------------------------------------------------------------


def shipped_in_part(monkeypatch):
    """A run that the package knows by its error rate alone, three further seeds of it, and others.

    The others are four without MLPs.
    """
    mine, bare = run(), run(attn_only=True)
    one = {"name": "mine", "seed": 0, "weights": weights_hash(mine.model), "numbers": {RATE: 0.01}}
    kind = seeds.Kind("affine", (one,), ())
    monkeypatch.setattr(seeds, "_model_of", lambda name: mine.model)
    monkeypatch.setattr(
        seeds, "measured", lambda *args, **settings: {RATE: 0.01, "functions 1": 1e-3}
    )
    monkeypatch.setattr(seeds, "kinds", lambda: {kind_of(encode(mine.config)): kind})
    beside = {Role("another seed", further=i): seed_of(mine, i + 1) for i in range(3)}
    return mine, beside | {Role("attention only", further=i): seed_of(bare, i) for i in range(4)}


def check_measured(monkeypatch):
    """What the package knows in part only is measured here."""
    found = seeds.functions(lab_of(*shipped_in_part(monkeypatch)))
    trained = found[found["weights are"] == TRAINED]
    assert set(trained["numbers"]) == {HERE}
    assert np.isfinite(trained["functions 1"]).all()


def test_a_run_that_is_shipped_in_part_is_measured(monkeypatch):
    """`attention_sufficient` once ended in "judging failed", because the shipped row had NaN."""
    check_measured(monkeypatch)
    monkeypatch.setattr(seeds, "_whole", lambda numbers, families: bool(numbers))
    must_fail(check_measured, monkeypatch)


ARMS = {  # by claim: its measurement, the facts, and the numbers of two arms
    BETTER: ("seeds/functions", known("no norm"), "no norm", scaled(), scaled(0.3)),
    SUFFICIENT: (
        "seeds/functions",
        facts("with MLP", config={"attn_only": True}),
        "with MLP",
        scaled(),
        scaled(),
    ),
    SIZE: ("seeds/functions", known("wider"), "wider", scaled(), scaled()),
    NEAR: (
        "seeds/inside",
        known("no norm"),
        "no norm",
        across(lambda x: 1 + 3 * x**2),
        across(lambda x: 1 + x),
    ),
    DENSITY: (
        "seeds/intervals",
        known(INTERVALS[0]),
        "interval 5",
        {"both 1": 1e-3, "both 5": 1.0, "alone 5": 0.1},
        {"both 1": 1e-2, "both 5": 1e-2, "alone 5": 1e-2},
    ),
    LARGER: (
        "seeds/intervals",
        known(INTERVALS[0]),
        "interval 5",
        {"both 1": 1e-3, "both 5": 1.0, "onset +": 20.0, "onset -": 22.0},
        {"both 1": 1e-2, "both 5": 1e-2, "onset +": 60.0, "onset -": 62.0},
    ),
}


def finding(claim, change=None, **told):
    """The verdict on two arms of eight seeds; `change` alters the rows of the second."""
    name, about, role, first, second = ARMS[claim]
    extra = {"a": 5.0} if role.startswith("interval") else {}
    rows = arm(n=8, **first, **told)
    others = arm(role, n=8, **extra, **second, **told)
    found = {name: table(rows + (change(others) if change else others))}
    return judged_on(claim, found, about)


def with_number(value):
    """The first run of an arm has this error, in everything that was measured of it."""

    def change(rows):
        numbers = {
            key: value for key in rows[0] if key.split()[0] in ("functions", "inside", "both")
        }
        return [{**rows[0], "numbers": HERE, **numbers}, *rows[1:]]

    return change


def not_at_hand(rows):
    blank = {
        key: np.nan
        for key in rows[0]
        if key.split()[0] in ("functions", "inside", "both", "alone", "onset")
    }
    return [{**rows[0], "numbers": NOWHERE, **blank}, *rows[1:]]


def check_blank(claim, value):
    found = finding(claim, with_number(value))
    assert found.verdict == "inconclusive"
    assert found.reason.startswith(
        "Nothing was compared: 1 of the runs have an error that is 0, NaN or infinite."
    )


@pytest.mark.parametrize("claim", ARMS)
def test_an_error_that_is_no_number_decides_nothing(claim, monkeypatch):
    assert finding(claim).verdict == "supported"
    for value in (np.nan, np.inf, 0.0):
        check_blank(claim, value)
    monkeypatch.setattr(kinds.Arm, "without_logarithm", lambda arm, columns: 0)
    with pytest.raises(icl_interp.errors.InputError):  # what was said before: judging failed
        check_blank(claim, np.nan)


@pytest.mark.parametrize("claim", [c for c in ARMS if c != SIZE])
def test_a_run_whose_numbers_are_not_at_hand_is_left_out_and_named(claim):
    found = finding(claim, not_at_hand)
    assert found.verdict == "supported"
    assert "1 left out" in found.reason + found.scope
    assert any(row.get("left out, not measured") == f"{ARMS[claim][2]} 0" for row in found.details)


# ---- training that nobody knows ------------------------------------------------------------------


def check_unknown(claim):
    found = finding(claim, training="")
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("For 2 of the groups nothing says how they were trained")


@pytest.mark.parametrize("claim", ARMS)
def test_runs_of_unknown_training_decide_nothing(claim, monkeypatch):
    check_unknown(claim)
    monkeypatch.setattr(kinds, "prepared", functools.partial(_prepared, kinds.prepared))
    assert finding(claim, training="").verdict == "supported"
    must_fail(check_unknown, claim)


def _prepared(prepared, arms, *args, **settings):
    """The mutant: every training counts as known."""
    return prepared([replace(one, known=True) for one in arms], *args, **settings)


def test_nothing_is_measured_where_the_training_is_unknown(monkeypatch):
    mine, bare = run(), run(normalization_type=None)
    beside = {Role("another seed", further=i): seed_of(mine, i + 1) for i in range(3)}
    beside |= {Role("no norm", further=i): seed_of(bare, i) for i in range(4)}
    unknown = {
        role: replace(one, config=replace(one.config, training=None))
        for role, one in beside.items()
    }
    monkeypatch.setattr(seeds, "measured", lambda *args, **settings: pytest.fail("measured"))
    found = seeds.functions(
        lab_of(replace(mine, config=replace(mine.config, training=None)), unknown)
    )
    assert set(found["numbers"]) == {NOWHERE}
    assert set(found["training"]) == {""}
    with pytest.raises(pytest.fail.Exception):
        seeds.functions(lab_of(mine, beside))


# ---- copies --------------------------------------------------------------------------------------


def jittered(one, seed, size):
    """Another seed by its config, and hardly another model."""
    model = type(one.model)(one.model.cfg)
    model.load_state_dict(one.model.state_dict())
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + size * torch.randn(weight.shape, generator=g))
    training = replace(one.config.training, seed=seed)
    return replace(one, model=model.eval(), config=replace(one.config, training=training))


def own_runs(size):
    """The runs of `affine` beside two copies of it, and of one of its further seeds."""
    mine, other = icl_interp.load("affine"), icl_interp.load("affine_seed1")
    given = [jittered(mine, 101, size), jittered(mine, 102, size), jittered(other, 103, size)]
    beside = {Role("another seed", further=i): one for i, one in enumerate(given)}
    return seeds.arms(lab_of(mine, beside), ())[0].runs


def check_copies(size):
    """Five runs of five seeds.

    A copy of the package's run stands in its place, one of the model itself nowhere.
    """
    assert sorted(one.seed for one in own_runs(size)) == [0, 2, 3, 4, 103]


def test_a_copy_is_no_second_seed(monkeypatch):
    for size in (1e-6, 5e-4):
        check_copies(size)
    assert len(own_runs(0.01)) == 8  # another model
    monkeypatch.setattr(seeds, "is_copy", lambda model, other: False)
    must_fail(check_copies, 1e-6)
