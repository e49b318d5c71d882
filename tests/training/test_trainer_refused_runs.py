"""Folders and configs from which no run can go on are refused in one line and left unchanged."""

import shutil

import pytest
import tiny_runs
import torch
from helpers import must_fail
from tiny_runs import RUNS, check_same_run

from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.training import trainer
from icl_interp.training.trainer import train

pytestmark = pytest.mark.usefixtures("quick")


def check_refused(config, folder, match):
    """One clear line, and the folder as it was."""
    before = tiny_runs.contents(folder) if folder.is_dir() else folder.exists()
    with pytest.raises(InputError, match=match) as refused:
        train(config, folder, progress=False)
    assert "\n" not in str(refused.value)
    assert (tiny_runs.contents(folder) if folder.is_dir() else folder.exists()) == before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"training": {"steps": 13}},
            "holds a run with training.steps = 12, but 13 was asked for: resume with the same",
        ),
        ({"training": {"seed": 1}}, "training.seed = 0, but 1 was"),
        (
            {"training": {"curriculum": {"first_points": 4}}},
            "training.curriculum.first_points = 2, but 4 was",
        ),
        ({"model": {"d_model": 16}}, "model.d_model = 8, but 16 was"),
        ({"task": {"degrees": [1]}}, r"task.degrees = \[0, 1\], but \[1\] was"),
        (
            {"task": {"inputs": {"kind": "Normal", "std": 1}}},
            "task.inputs.kind = 'Uniform', but 'Normal' was",
        ),
        (tiny_runs.STACKED, "model.d_in = 1, but 2 was"),
    ],
)
def test_another_config_is_refused_by_key(started, change, match):
    base = RUNS["growing prompts"]
    merged = {**base, **change}
    if "training" in change:
        merged["training"] = {**base["training"], **change["training"]}
        if "curriculum" in change["training"]:
            merged["training"]["curriculum"] = {"until": 8, **change["training"]["curriculum"]}
    check_refused(tiny_runs.data(**merged), started, match)


def test_the_same_config_is_not_refused(started, tmp_path):
    shutil.copytree(started, tmp_path / "run")
    must_fail(check_refused, tiny_runs.data(**RUNS["growing prompts"]), tmp_path / "run", ".")


def test_folders_with_something_else_are_refused(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("precious")
    check_refused(
        tiny_runs.data(),
        tmp_path / "thesis",
        "thesis is not empty and holds no run: choose another folder",
    )
    check_refused(
        tiny_runs.data(),
        tmp_path / "thesis" / "chapter1.txt",
        "chapter1.txt is a file, but a run needs a folder",
    )
    below = tmp_path / "thesis" / "chapter1.txt" / "run"
    check_refused(
        tiny_runs.data(), below, "cannot write to .*run: Not a directory; choose a folder"
    )
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "config.json").write_text('{"port": 80}')
    check_refused(tiny_runs.data(), tmp_path / "app", "app holds a run with schema = None")
    (tmp_path / "app" / "config.json").write_text("{")
    check_refused(tiny_runs.data(), tmp_path / "app", "config.json is not JSON")
    must_fail(check_refused, tiny_runs.data(), tmp_path / "new", ".")


def test_a_model_without_its_training_state_is_not_overwritten(tmp_path, uninterrupted):
    config = tiny_runs.data(**RUNS["stacked"])
    saved = store.load(uninterrupted["stacked"]).save(tmp_path / "copy")
    check_refused(
        config,
        saved,
        "holds a model without the training state to go on from: choose another folder",
    )


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        (
            "training_state.safetensors",
            b"",
            "training_state.safetensors is not a whole safetensors file",
        ),
        ("metrics.jsonl", None, "has a training state but no metrics.jsonl"),
        ("model.safetensors", None, None),
        ("provenance.json", None, None),
    ],
)
def test_a_started_run_that_lost_a_file(tmp_path, started, uninterrupted, file, content, match):
    """`training_state` decides; what a later checkpoint writes anyway is not missed."""
    config = tiny_runs.data(**RUNS["growing prompts"])
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    if match:
        check_refused(config, tmp_path, match)
    else:
        train(config, tmp_path, progress=False)
        check_same_run(tmp_path, uninterrupted["growing prompts"])


def test_a_state_of_another_program_is_refused(tmp_path, started):
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    trainer.weights.write(tmp_path / "training_state.safetensors", {"step": torch.tensor(5)})
    check_refused(
        tiny_runs.data(**RUNS["growing prompts"]),
        tmp_path,
        r"training_state.safetensors lacks the tensor weight/embed.W_E that the config asks for",
    )
