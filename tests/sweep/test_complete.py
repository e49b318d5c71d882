"""What open claims wait for is trained, once, and the claims are judged beside it."""

import math

import pytest
import tiny_runs
from helpers import must_fail

import icl_interp
from icl_interp.analyses import registry
from icl_interp.checkpoints import bundled, companions
from icl_interp.errors import InputError
from icl_interp.provenance import encode, read_json
from icl_interp.sweep import complete as completing
from icl_interp.training import recipes, trainer

CLAIM = "limits.no_norm_better"


def waiting(*ids):
    return list(registry.select(ids))


def names(model, *ids):
    return [one.name for one in completing.wanted(icl_interp.load(model), waiting(*ids))]


def plays_its_part(run, kind, changes):
    """The run with these changes is a matched run of the kind."""
    other = encode(recipes.resolve(run, changes))
    role = companions.relation(run, other)
    assert role is not None
    assert role.kind == kind


def test_changes_make_a_run_of_the_kind_that_they_are_for():
    tried = set()
    for name in ("affine", "affine_no_ln", "affine_post_ln", "affine_attn_only", "affine_u5"):
        run = bundled.config(name)
        for kind in companions.KINDS:
            changes = companions.changes(kind, run)
            if changes:
                plays_its_part(run, kind, changes)
                tried.add(kind)
    parts = {"no norm", "with norm", "attention only", "with MLP", "wider", "narrower"}
    assert parts | {"degrees", "interval"} <= tried
    must_fail(plays_its_part, bundled.config("affine"), "wider", {"model.attn_only": True})
    vectors = bundled.config("softmax_fixed_20")
    assert companions.changes("interval", vectors) is None  # its laws are normal ones


def test_what_comes_with_the_package_is_not_trained_again():
    assert names("affine", CLAIM) == []  # five seeds with a norm, and five without
    size = names("affine", "limits.size_does_not_help")
    assert size[:3] == ["seed_5", "seed_6", "seed_7"]
    assert size[3:] == [f"narrower_seed_{seed}" for seed in range(8)]
    # Of degrees_135 there is one seed, and one trained on another interval: four more of each.
    more = names("degrees_135", "limits.larger_intervals")
    assert more == [f"seed_{i}" for i in (1, 2, 3, 4)] + [f"interval_seed_{i}" for i in range(1, 5)]


def test_further_runs_are_like_those_that_are_at_hand():
    """The one that is there was trained on U(-5, 5), and so are those beside it."""
    claims = waiting("limits.larger_intervals")
    more = completing.wanted(icl_interp.load("degrees_135"), claims)
    there = bundled.config("degrees_135_u5")
    kinds = {companions.kind_of(encode(one.config)) for one in more if "interval" in one.name}
    assert kinds == {companions.kind_of(there)}


def test_a_run_without_its_training_is_refused(tmp_path):
    model = icl_interp.load("affine")
    bare = icl_interp.load(model.model, model.task, encoding="interleaved")
    with pytest.raises(InputError, match="does not say how it was trained"):
        completing.complete(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_are_looked_through_for_runs_that_match(tmp_path):
    mine = bundled.config("affine")
    for name in ("affine_no_ln", "degrees_135_u5"):
        (tmp_path / name).symlink_to(bundled.folder(name))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"something": 1}')
    assert [path.name for path in companions.within(tmp_path, mine)] == ["affine_no_ln"]
    with pytest.raises(InputError, match="is not a folder of runs"):
        companions.within(tmp_path / "nowhere", mine)


@pytest.mark.slow
def test_what_is_missing_is_trained_once_and_the_claim_judged_beside_it(tmp_path):
    coefficients = {**tiny_runs.UNIFORM, "low": -1.5, "high": 1.5}  # nothing bundled is like it
    config = tiny_runs.config(task={"coefficients": coefficients, "inputs": coefficients})
    trainer.train(config, tmp_path / "mine", progress=False)
    found = completing.complete(tmp_path / "mine", tmp_path / "out", claims=[CLAIM], n_prompts=256)
    assert not found.failed
    runs = sorted(path.name for path in (tmp_path / "out" / "runs").iterdir())
    assert runs == sorted(found.trained)
    assert len(runs) == 4 + 5

    def check_arms(report):
        """Five runs of each kind stand in the table that the claim is judged by."""
        table = report.results["seeds/functions"]
        trained = table[table["weights are"] == "trained"]
        assert sorted(trained["arm"].value_counts()) == [5, 5]

    check_arms(found.report)
    alone = icl_interp.analyze(
        tmp_path / "mine", claims=[CLAIM], n_prompts=256, progress=False,
        companions=[tmp_path / "out" / "runs" / "no_norm_seed_0"],
    )  # fmt: skip
    must_fail(check_arms, alone)
    (row,) = found.claims.to_dict("records")
    assert row["claim"] == CLAIM
    assert row["before"] == "not_applicable"
    assert row["after"] != "not_applicable"
    assert read_json(tmp_path / "out" / "report" / "report.json")["findings"]

    # A second time nothing is trained, and the same comes out.
    weights = tmp_path / "out" / "runs" / "seed_1" / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    again = completing.complete(tmp_path / "mine", tmp_path / "out", claims=[CLAIM], n_prompts=256)
    assert weights.stat().st_mtime_ns == stamp
    estimates = [report[CLAIM].estimate for report in (found.report, again.report)]
    values = [estimate.value if estimate else math.nan for estimate in estimates]
    assert values[0] == pytest.approx(values[1], rel=1e-6, nan_ok=True)
