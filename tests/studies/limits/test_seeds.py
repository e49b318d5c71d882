"""Kinds of training: whose numbers come along, what is measured, and which runs are one arm."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from affine_runs import lab_of, run
from helpers import must_fail
from small_reports import seed_of

import icl_interp
from icl_interp import pipeline
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints import bundled, store
from icl_interp.checkpoints.companions import Role, kind_of
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import encode
from icl_interp.studies.limits.constructions.trainings import (
    BETTER,
    DENSITY,
    LARGER,
    NEAR,
    SIZE,
    SUFFICIENT,
)
from icl_interp.studies.limits.measurements import seeds, shift
from icl_interp.studies.limits.measurements.seeds import OWN, TRAINED, UNTRAINED

ARMS = ("affine", "affine_no_ln", "affine_attn_only", "affine_u5", "affine_u10")
CLAIMS = (BETTER, NEAR, SIZE, DENSITY, LARGER, SUFFICIENT)


def never(*args, **settings):
    pytest.fail("nothing is to be measured here")


def folder(name):
    """Of a bundled model or a further seed."""
    inside = bundled.folder(name)
    return inside if inside.exists() else bundled.ZOO / "seeds" / name


# ---- what comes with the package -----------------------------------------------------------------


def check_file(kinds):
    """Every kind has the seeds, weights and configs of the zoo's folders."""
    by_recipe = {kind.recipe: (name, kind) for name, kind in kinds.items()}
    for recipe in ARMS:
        name, kind = by_recipe[recipe]
        assert [one["seed"] for one in kind.runs] == [0, 1, 2, 3, 4]
        assert len(kind.untrained) == 5
        for one in kind.runs:
            checkpoint = store.load(folder(one["name"]))
            assert kind_of(encode(checkpoint.config)) == name
            assert checkpoint.config.training.seed == one["seed"]
            assert one["weights"] == weights_hash(checkpoint.model)
            assert one["run_id"] == checkpoint.provenance["run_id"]
            assert (
                one["command"]
                == f"icl-interp train {recipe} training.seed={one['seed']} --out FOLDER"
            )
            assert all(np.isfinite(v) or "onset" in key for key, v in one["numbers"].items())


@pytest.mark.slow
def test_the_file_names_the_zoo_s_runs_by_their_weights():
    check_file(seeds.kinds())
    other = dict(seeds.kinds())
    name, kind = next((name, kind) for name, kind in other.items() if kind.recipe == "affine_u5")
    first = {**kind.runs[0], "weights": kind.runs[1]["weights"]}
    must_fail(check_file, {**other, name: replace(kind, runs=(first, *kind.runs[1:]))})


def check_numbers(name, family, kinds):
    """Measured again they are what the file has, but for rounding.

    Its float32 sums depend on the machine.
    """
    checkpoint = store.load(folder(name))
    kind = kinds[kind_of(encode(checkpoint.config))]
    stored = next(one["numbers"] for one in kind.runs if one["name"] == name)
    sample = shift.Sample()
    if family == "intervals":
        found = shift.intervals(checkpoint, sample, seeds.sizes())
    else:
        found = shift.FAMILIES[family](checkpoint, sample)
    for key, value in found.items():
        assert value == pytest.approx(stored[key], rel=1e-3, nan_ok=True), key


@functools.cache
def off_by_a_hundredth():
    return {
        name: replace(
            kind,
            runs=tuple(
                {**r, "numbers": {k: 1.01 * v for k, v in r["numbers"].items()}} for r in kind.runs
            ),
        )
        for name, kind in seeds.kinds().items()
    }


AGAIN = [
    ("affine_no_ln_seed3", "inside"),
    pytest.param("affine_attn_only_seed2", "own functions", marks=pytest.mark.slow),
    pytest.param("affine_u5_seed1", "intervals", marks=pytest.mark.slow),
    pytest.param("affine_u10_seed4", "onsets", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family"), AGAIN)
def test_numbers_are_measured_again(name, family):
    check_numbers(name, family, seeds.kinds())
    if family == "inside":
        must_fail(check_numbers, name, family, off_by_a_hundredth())


def test_a_hash_is_of_all_weights_in_float32():
    model = run().model
    double = HookedTransformer(model.cfg).double()
    double.load_state_dict(model.state_dict())
    assert weights_hash(double) == weights_hash(model)
    other = run(d_head=4).model
    other.unembed.b_U.data += 1e-6
    assert weights_hash(other) != weights_hash(model)


def test_a_file_of_another_schema_is_refused(tmp_path, monkeypatch):
    (tmp_path / "seeds.json").write_text('{"schema": "other/2"}')
    monkeypatch.setattr(seeds, "FILE", tmp_path / "seeds.json")
    seeds._file.cache_clear()
    try:
        with pytest.raises(InputError, match="schema 'other/2'"):
            seeds.sizes()
    finally:
        seeds._file.cache_clear()


# ---- arms ----------------------------------------------------------------------------------------


def family(n=4, others=4):
    """A tiny run with further seeds, and as many without a norm."""
    mine, bare = run(), run(normalization_type=None)
    beside = {Role("another seed", further=i): seed_of(mine, i + 1) for i in range(n - 1)}
    beside |= {Role("no norm", further=i): seed_of(bare, i) for i in range(others)}
    return mine, beside


@pytest.mark.slow
def test_arms_hold_all_seeds_of_a_kind():
    mine, beside = family()
    beside[Role("another seed", further=9)] = replace(
        seed_of(mine, 9),
        config=replace(mine.config, training=replace(mine.config.training, steps=99, seed=9)),
    )
    own, other = seeds.arms(lab_of(mine, beside), ("no norm",))
    assert [one.seed for one in own.runs] == [
        0,
        1,
        2,
        3,
    ]  # the one that was trained longer is of another kind
    assert [one.seed for one in other.runs] == [0, 1, 2, 3]
    assert (own.name, other.name) == (OWN, "no norm")
    assert own.kind != other.kind
    assert own.training == other.training
    assert [arm.name for arm in seeds.arms(lab_of(mine, beside), ("wider",))] == [OWN]


@pytest.mark.slow
def test_the_package_s_seeds_stand_beside_a_known_run():
    mine = icl_interp.load("affine")
    beside, left_out = pipeline.companions_of_model((), mine)
    assert left_out == []
    lab = Lab(
        mine.model,
        mine.task,
        mine.encoding,
        n_units=2,
        n_contexts=1,
        companions=beside,
        config=mine.config,
    )
    found = {arm.name: arm for arm in seeds.arms(lab, ("no norm", "attention only", "interval"))}
    assert set(found) == {
        OWN,
        "no norm",
        "attention only",
        "interval 5",
        "interval 10",
        "interval 100",
    }
    for name, arm in found.items():
        assert sorted(one.seed for one in arm.runs) == (
            [0] if name == "interval 100" else [0, 1, 2, 3, 4]
        )
        assert all(one.numbers for one in arm.runs)
    # Weights that nobody knows, of a seed that is known, stand in its place.
    edited = HookedTransformer(mine.model.cfg)
    edited.load_state_dict(mine.model.state_dict())
    edited.unembed.b_U.data += 1.0
    lab = Lab(
        edited,
        mine.task,
        mine.encoding,
        n_units=2,
        n_contexts=1,
        companions=beside,
        config=mine.config,
    )
    own = seeds.arms(lab, ())[0]
    assert sorted(one.seed for one in own.runs) == [0, 1, 2, 3, 4]
    assert [one.seed for one in own.runs if one.numbers is None] == [0]


@pytest.mark.slow
def test_what_nobody_measured_is_measured_here():
    mine, beside = family()
    table = seeds.functions(lab_of(mine, beside))
    trained = table[table["weights are"] == TRAINED]
    assert list(trained["arm"]) == [OWN] * 4 + ["no norm"] * 4
    assert set(trained["numbers"]) == {seeds.HERE}
    untrained = table[table["weights are"] == UNTRAINED]
    assert list(untrained["numbers"]) == [seeds.HERE] * 8
    sample = shift.Sample(n_functions=32, more=1)
    expected = shift.functions(beside[Role("no norm", further=2)], sample)
    row = trained[trained["arm"] == "no norm"].iloc[2]
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    assert np.isnan(
        table["functions 2"].iloc[-1]
    )  # nobody asks untrained runs about scaled functions
    assert (
        seeds.functions(lab_of(*family()))
        .attrs["note"]
        .startswith("32 functions x 2 contexts, seed 25")
    )


def test_where_nothing_can_be_decided_nothing_is_measured(monkeypatch):
    mine, beside = family(n=4, others=3)
    monkeypatch.setattr(seeds, "measured", never)
    table = seeds.functions(lab_of(mine, beside))
    assert set(table["numbers"]) == {seeds.NOWHERE}
    assert len(table) == 7


# ---- analyses ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bundled_kinds_are_judged_without_a_measurement(monkeypatch):
    """All numbers of these kinds come with the package."""
    monkeypatch.setattr(seeds, "measured", never)
    claims = [c for c in CLAIMS if c != SUFFICIENT]
    report = icl_interp.analyze("affine", claims=claims, n_prompts=256, progress=False)
    for finding in report.findings:
        assert finding.error is None
        assert (finding.estimate is None) == (finding.id == SIZE)
    assert "5 seeds each" in report[BETTER].reason
    assert "interval 100" in " ".join(report.results["seeds/intervals"]["arm"])
    assert "a = 100" in report[DENSITY].details[-1]["intervals left out"]


@pytest.mark.slow
def test_companions_count_as_seeds_and_judge_again():
    mine, beside = family()
    report = icl_interp.analyze(
        mine, claims=CLAIMS[:3], companions=list(beside.values()), n_prompts=256, progress=False
    )
    assert report.model["companions_left_out"] == []
    assert "no norm, further seed 3" in report.model["companions"]
    for finding in report.findings:
        assert finding.verdict == "inconclusive"  # nobody has learned anything
        assert any("left out, not learned" in row for row in finding.details) or finding.id == SIZE
    assert report.figures["shift"] is not None
    again = report.judge()
    assert [f.reason for f in again.findings] == [f.reason for f in report.findings]


def test_companions_in_one_role_are_alike_but_for_their_seed():
    mine, bare = run(), run(normalization_type=None)
    other = run(normalization_type=None, act_fn="relu")
    longer = replace(
        bare, config=replace(bare.config, training=replace(bare.config.training, steps=99))
    )
    given = [bare, seed_of(bare, 1), bare, longer, other]
    found, left_out = pipeline.companions_of_model(given, mine)
    assert {str(role) for role in found} == {"no norm", "no norm, further seed 1"}
    reasons = [entry["reason"] for entry in left_out]
    assert "its seed is that of a companion that came first" in reasons[0]
    assert "must be alike but for their seed" in reasons[1]
    assert len(reasons) == 3
