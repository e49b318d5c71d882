"""Scales: what changes and what stays, and where the models of an experiment are found."""

from dataclasses import replace

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.checkpoints import bundled, store
from icl_interp.errors import InputError
from icl_interp.experiments import base, obtain, presets
from icl_interp.experiments.base import Model
from icl_interp.provenance import read_json, write_json
from icl_interp.training import recipes

LIMITS = [name for name in base.names() if base.get(name).study == "limits"]
NEEDED = sorted({(m.recipe, s) for name in LIMITS for m in base.get(name).models for s in m.scales})


@pytest.mark.parametrize(("recipe", "scale"), NEEDED)
def test_every_model_of_every_experiment_exists_at_its_scales(recipe, scale):
    run = presets.config(recipe, scale)
    assert run.task.n_points == presets.PRESETS[scale].n_points
    assert run.training.curriculum.until <= run.training.steps
    assert all(start < run.training.steps for start, _ in run.training.curriculum.degrees)


@pytest.mark.parametrize(
    "recipe", ["affine", "affine_no_ln", "degrees_135_attn_only", "remedy_entmax", "affine_u100"]
)
def test_scales_change_sizes_only(recipe):
    """Everything that makes the recipe survives: the norm, the scores, the parts, the laws."""
    small = recipes.resolve(recipe)
    for scale in ("smoke", "paper"):
        other = presets.at_preset(small, scale)
        for name in (
            "normalization_type",
            "norm_position",
            "score_fn",
            "attn_only",
            "mlp_only",
            "embed_bound",
            "act_fn",
        ):
            assert getattr(other.model, name) == getattr(small.model, name)
        assert other.task == small.task.with_points(presets.PRESETS[scale].n_points)
        assert other.encoding == small.encoding
        share = small.training.curriculum.until / small.training.steps
        assert other.training.curriculum.until / other.training.steps == pytest.approx(
            share, abs=0.01
        )
    assert presets.at_preset(small, "small") is small


def test_paper_scale_is_the_papers():
    """Section 3 and appendix A of Naim & Asher."""

    def check(run):
        model, training = run.model, run.training
        assert (model.n_layers, model.n_heads, model.d_model, run.task.n_points) == (12, 8, 256, 41)
        assert (training.steps, training.batch_size, training.learning_rate) == (500_000, 64, 1e-4)
        # Prompts of 1 to 40 labelled examples: two points to 41.
        assert training.curriculum.first_points == 2

    check(presets.config("affine", "paper"))
    check(presets.config("degree_3_gaussian", "paper"))
    must_fail(check, presets.config("affine", "small"))
    assert presets.config("affine_wide", "paper").model.d_model == 512
    heads = presets.config("two_layers_32_heads", "paper").model
    assert (heads.n_layers, heads.n_heads, heads.d_model, heads.attn_only) == (2, 32, 256, True)


@pytest.mark.parametrize("name", presets.PAPER_ONLY)
def test_what_exists_at_paper_scale_only_is_refused_elsewhere(name):
    for scale in ("smoke", "small"):
        with pytest.raises(InputError, match=f"{name} exists at scale paper only"):
            presets.config(name, scale)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match=r"unknown scale 'smal': did you mean 'small'"):
        presets.config("affine", "smal")
    with pytest.raises(
        InputError, match=r"unknown experiment 'limits\.tabel1': did you mean 'limits\.table1'"
    ):
        base.get("limits.tabel1")
    with pytest.raises(InputError, match=r"is an experiment called 'limits\.table1' already"):
        base.register(replace(base.get("limits.table1")))


@pytest.mark.slow
def test_bundled_models_are_found_by_what_they_are():
    shelf = obtain.Shelf()
    assert shelf.find(obtain.config_of(Model("affine"), "small")) == bundled.folder("affine")
    assert shelf.find(obtain.config_of(Model("affine_no_ln", 1), "small")) == bundled.folder(
        "affine_no_ln_seed1"
    )
    for recipe in (
        "affine",
        "affine_no_ln",
        "affine_attn_only",
        "affine_u5",
        "affine_u10",
    ):  # five runs of each
        found = {shelf.find(obtain.config_of(Model(recipe, seed), "small")) for seed in range(5)}
        assert len(found - {None}) == 5, recipe
    assert shelf.find(obtain.config_of(Model("affine"), "smoke")) is None
    assert shelf.find(obtain.config_of(Model("affine", 77), "small")) is None


@pytest.mark.slow
def test_only_finished_runs_of_exactly_that_config_are_taken(tmp_path):
    run = tiny_runs.config()
    store.Checkpoint.save(tiny_runs.checkpoint(), tmp_path / "one")

    def found(config=run):
        assert obtain.Shelf([tmp_path]).find(config) == tmp_path / "one"

    must_fail(found)  # nothing says that it is finished
    origin = read_json(tmp_path / "one" / "provenance.json")
    write_json(tmp_path / "one" / "provenance.json", {**origin, "finished": True})
    found()
    must_fail(found, tiny_runs.config(training={"steps": 13}))
    must_fail(found, tiny_runs.config(training={"seed": 1}))
    with pytest.raises(InputError, match="no folder of run folders"):
        obtain.Shelf([tmp_path / "nowhere"])


@pytest.mark.slow
def test_what_is_not_there_is_left_out_without_training(tmp_path):
    found = obtain.obtain(
        [Model("affine"), Model("affine", 77)], "small", tmp_path, obtain.Shelf(), train=False
    )
    assert list(found) == ["affine"]
    assert list(tmp_path.iterdir()) == []
