"""Run folders: what is saved loads as the same model, and a save cut short is no checkpoint."""

import os

import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load as parse
from safetensors.torch import save
from tiny_runs import Killed, check_same_model, refuse

from icl_interp import provenance
from icl_interp.checkpoints.store import Checkpoint, load
from icl_interp.models import weights
from icl_interp.models.transformer import HookedTransformer

pytestmark = pytest.mark.usefixtures("as_users_run_it")


# ---- loading -------------------------------------------------------------------------------------


KINDS = {
    "pre": {},
    "post": {"model": {"norm_position": "post"}},
    "rms": {"model": {"normalization_type": "RMS"}},
    "no norm": {"model": {"normalization_type": None, "positional_embedding_type": "none"}},
    "attention only": {"model": {"attn_only": True}},
    "linear": {"model": {"score_fn": "linear", "score_norm": "visible"}},
    "stacked": tiny_runs.STACKED,
    "no training": {"training": None},
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_saved_loads_as_the_same_model(tmp_path, name):
    saved = tiny_runs.checkpoint(**KINDS[name])
    folder = saved.save(tmp_path / "run")
    assert sorted(tiny_runs.contents(folder)) == [
        "config.json",
        "model.safetensors",
        "provenance.json",
    ]
    for source in (folder, str(folder), folder / "config.json", folder / "model.safetensors"):
        check_same_model(load(source), saved)
    model = HookedTransformer.from_checkpoint(folder)
    check_same_model(Checkpoint(model, saved.task, saved.encoding, saved.config), saved)


@pytest.mark.slow
def test_another_model_is_noticed(folder):
    saved = tiny_runs.checkpoint()
    for name in saved.model.state_dict():
        other = load(folder)
        with torch.no_grad():
            other.model.get_parameter(name).view(-1)[0] += 0.1
        if name not in ("blocks.0.attn.b_K",):  # adds the same to every score of a query
            must_fail(check_same_model, other, saved)
    must_fail(check_same_model, tiny_runs.checkpoint(task={"n_points": 4}), saved)


def test_a_checkpoint_loads_as_itself_and_says_where_it_came_from(folder):
    found = load(folder)
    assert load(found) is found
    assert (found.name, found.step) == ("run", 0)
    assert (
        found.provenance["run_id"] == provenance.run_id(found.config) == tiny_runs.checkpoint().name
    )
    later = Checkpoint(
        found.model, found.task, found.encoding, found.config, step=7, provenance={"note": "mine"}
    )
    again = load(later.save(folder.parent / "later"))
    assert (again.name, again.step, again.provenance["note"]) == ("later", 7, "mine")


def test_two_files_are_enough(folder):
    (folder / "provenance.json").unlink()
    check_same_model(load(folder), tiny_runs.checkpoint())


@pytest.mark.slow
def test_a_header_whose_length_looks_like_a_pickle_is_read(folder):
    """The first byte of a safetensors file is the lowest byte of the header's length, 0x80 once in 32 files."""
    path = folder / "model.safetensors"
    tensors = parse(path.read_bytes())
    heads = set()
    for padding in range(512):
        data = save(tensors, metadata={"pad": "x" * padding})
        if data[:1] == b"\x80" and data[:2] not in heads:
            heads.add(data[:2])
            path.write_bytes(data)
            check_same_model(load(folder), tiny_runs.checkpoint())
    assert heads


# ---- saving --------------------------------------------------------------------------------------


def test_where_nothing_can_be_written_nothing_is(tmp_path):
    (tmp_path / "file").write_text("precious")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        refuse(
            folder,
            "cannot write .*model.safetensors: .*choose a folder you can write to",
            tiny_runs.checkpoint().save,
        )
    assert tiny_runs.contents(tmp_path) == {"file": b"precious"}


def check_killed_while_saving(folder, n_written, saver):
    """A fresh folder is a checkpoint once it is whole, and never before."""

    def dying(temporary, path, replace=os.replace):
        if len(list(folder.iterdir())) > n_written + 1:  # the temporary file counts
            raise AssertionError("a file of its own was left")
        if len([item for item in folder.iterdir() if not item.name.startswith(".")]) == n_written:
            raise Killed
        replace(temporary, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance.os, "replace", dying)
        with pytest.raises(Killed):
            saver(folder)
    assert len(list(folder.iterdir())) == n_written
    refuse(folder, "is not a checkpoint: it has no ")
    tiny_runs.checkpoint().save(folder)
    check_same_model(load(folder), tiny_runs.checkpoint())


def config_first(folder):
    checkpoint = tiny_runs.checkpoint()
    provenance.write_json(
        folder / "config.json", {"schema": "x", **provenance.encode(checkpoint.config)}
    )
    weights.write(folder / "model.safetensors", checkpoint.model.state_dict())
    provenance.write_json(folder / "provenance.json", {})


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_save_cut_short_is_no_checkpoint(tmp_path, n_written):
    check_killed_while_saving(tmp_path / "run", n_written, tiny_runs.checkpoint().save)


def test_a_config_written_first_would_be_noticed(tmp_path):
    with pytest.raises(AssertionError):
        check_killed_while_saving(tmp_path / "run", 2, config_first)


def test_a_save_over_a_checkpoint_replaces_it(folder):
    other = tiny_runs.checkpoint(model={"d_model": 4}, task={"n_points": 4})
    other.save(folder)
    check_same_model(load(folder), other)
    must_fail(
        check_same_model,
        load(folder),
        Checkpoint(other.model, other.task.with_points(5), other.encoding, other.config),
    )
