"""Hostile run folders: every size, number and fact is checked before it is used."""

import json

import pytest
import tiny_runs
import torch
from safetensors.torch import load_file, save_file

from icl_interp.checkpoints import bundled, store
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import read_json, run_id, write_json

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture
def folder(tmp_path):
    """A saved checkpoint."""
    return tiny_runs.checkpoint().save(tmp_path / "run")


def check_refused(folder, match, read):
    """One clear line, and no model is made."""
    before = tiny_runs.contents(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch, "randn", lambda *args, **kwargs: pytest.fail("a model was made", pytrace=False)
        )
        with pytest.raises(InputError, match=match) as refused:
            read(folder)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700
    assert tiny_runs.contents(folder) == before


READERS = {"load": store.load, "from_checkpoint": HookedTransformer.from_checkpoint}
SIZES = {
    "n_layers": (
        {"n_layers": 10**9},
        r"lacks the tensor blocks\.1\.attn\.W_Q that the config asks for",
    ),
    "d_mlp": (
        {"d_mlp": 10**7},
        r"W_in has shape \(8, 32\), but the config asks for \(8, 10000000\)",
    ),
    "d_model": (
        {"d_model": 10**9},
        r"W_E has shape \(1, 8\), but the config asks for \(1, 1000000000\)",
    ),
    "n_ctx": (
        {"n_ctx": 10**12},
        r"W_pos has shape \(12, 8\), but the config asks for \(1000000000000, 8\)",
    ),
    "n_heads": (
        {"n_heads": 10**10},
        r"W_Q has shape \(2, 8, 4\), but the config asks for \(10000000000, 8, 4\)",
    ),
    "d_out": (
        {"d_out": 2**62},
        rf"no tensor can be as large as this config|\(n_targets\), but the model has d_out={2**62}",
    ),
    "d_head and d_model": (
        {"d_model": 2**40, "d_head": 2**40},
        "no tensor can be as large as this config asks for",
    ),
    "digits": (
        {"d_mlp": 10**300},
        "d_mlp must be a whole number (of at most|below) .*, but got <a whole number",
    ),
    "too many digits": ({"d_mlp": 10**400}, "is not JSON .the number '1000.*000' is too large"),
    "negative": (
        {"d_mlp": -(10**9)},
        "d_mlp must be a whole number from 1 up, but got -1000000000",
    ),
    "eps": ({"eps": 10**309}, "is not JSON .the number '1000.*000' is too large"),
    "init_std": ({"init_std": float("inf")}, "is not JSON .it has no Infinity"),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_compared_with_the_file_before_a_model_is_made(folder, name, read):
    change, match = SIZES[name]
    data = read_json(folder / "config.json")
    data["model"].update(change)
    (folder / "config.json").write_text(json.dumps(data))
    check_refused(folder, match, READERS[read])


def test_making_a_model_would_be_noticed(folder):
    path = folder / "model.safetensors"
    save_file({**load_file(path), "embed.W_E": torch.full((1, 8), torch.nan)}, path)
    with pytest.raises(pytest.fail.Exception, match="a model was made"):
        check_refused(folder, "embed.W_E holds NaN", store.load)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32, torch.bool, torch.float8_e5m2])
def test_weights_that_are_no_floats_are_refused(folder, dtype, read):
    path = folder / "model.safetensors"
    save_file({**load_file(path), "unembed.b_U": torch.zeros(1).to(dtype)}, path)
    check_refused(
        folder, "unembed.b_U holds numbers of the type [A-Z0-9_]+, but float32 or", READERS[read]
    )


@pytest.mark.parametrize("read", READERS)
def test_weights_beyond_float32_are_refused(folder, read):
    path = folder / "model.safetensors"
    save_file({**load_file(path), "unembed.b_U": torch.tensor([1e300], dtype=torch.float64)}, path)
    with pytest.raises(
        InputError, match=r"unembed.b_U holds NaN or infinite numbers \(as float32\)"
    ):
        READERS[read](folder)


# Facts


def test_facts_that_are_not_finite_come_back_as_numbers(folder):
    facts = read_json(folder / "provenance.json")
    errors = {"error": float("inf"), "low": float("nan"), "high": 2, "note": "inf"}
    write_json(folder / "provenance.json", {**facts, "in_distribution": errors})
    read = store.load(folder).provenance["in_distribution"]
    assert f"{read['error']:.3g} {read['low']:.3g} {read['high']:.3g}" == "inf nan 2"
    assert read["note"] == "inf"
    again = store.load(store.load(folder).save(folder.parent / "copy"))
    assert repr(again.provenance["in_distribution"]) == repr(read)


def test_the_provenance_of_another_run_is_refused(folder, tmp_path):
    other = tiny_runs.checkpoint(training={"seed": 5}).save(tmp_path / "other")
    (folder / "provenance.json").write_bytes((other / "provenance.json").read_bytes())
    with pytest.raises(
        InputError,
        match=r"belongs to another run: it has the run_id '[0-9a-f]{12}', but that of the",
    ):
        store.load(folder)


def test_a_config_of_an_earlier_version_keeps_its_id():
    """It lacks the fields that came later."""
    found = store.load("affine")
    assert "embed_bound" not in bundled.config("affine")["model"]
    assert (
        found.provenance["run_id"] == bundled.provenance("affine")["run_id"] != run_id(found.config)
    )


@pytest.mark.parametrize("training", [None, {"snapshots": [3]}])
def test_so_does_one_with_snapshots_or_without_training(tmp_path, training):
    folder = tiny_runs.checkpoint(training=training).save(tmp_path / "run")
    data = read_json(folder / "config.json")
    del data["model"]["embed_bound"]
    write_json(folder / "config.json", data)
    known = {key: value for key, value in data.items() if key != "schema"}
    known["training"] = training and {
        key: value for key, value in data["training"].items() if key != "snapshots"
    }
    facts = {**read_json(folder / "provenance.json"), "run_id": run_id(known)}
    write_json(folder / "provenance.json", facts)
    assert store.load(folder).provenance["run_id"] == run_id(known)


def test_a_saved_checkpoint_has_the_id_of_its_own_config(folder, tmp_path):
    """Whatever it was made of."""
    found = store.load(folder)
    other = tiny_runs.config(training={"seed": 5})
    changed = store.Checkpoint(found.model, found.task, found.encoding, other, 3, found.provenance)
    saved = store.load(changed.save(tmp_path / "changed"))
    assert (saved.provenance["run_id"], saved.step) == (run_id(other), 3)


def test_what_the_config_only_records_is_not_part_of_its_id(tmp_path):
    saved = tiny_runs.checkpoint(training={"snapshots": [3]}).save(tmp_path / "run")
    assert store.load(saved).config.training.snapshots == (3,)
