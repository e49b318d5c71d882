"""Files that forks of Garg et al. (2022) write beside the weights are read or refused by name."""

from dataclasses import fields

import numpy as np
import pytest
import torch
import yaml
from foreign_files import TheirTransformer, config, predicts_the_same, run_folder, state_dict
from helpers import must_fail
from tiny_runs import refuse

import icl_interp
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=5)


@pytest.fixture
def theirs(tmp_path):
    return run_folder(tmp_path / "their run", TheirTransformer())


def says(folder, section="model", **changes):
    """The folder, with a config.yaml that says these things too."""
    data = config()
    data[section].update(changes)
    (folder / "config.yaml").write_text(yaml.dump(data))
    return folder


# ---- the model -----------------------------------------------------------------------------------


def without_positions():
    model = TheirTransformer()
    with torch.no_grad():
        model._backbone.wpe.weight.zero_()
    return model


def test_a_fork_without_positions_is_read_as_one(theirs):
    """Their weights hold a table of positions all the same."""
    found = icl_interp.load(says(theirs, pos_encode=False))
    assert found.model.cfg.positional_embedding_type == "none"
    assert not any("pos" in name for name in found.model.state_dict())
    predicts_the_same(found, without_positions())
    must_fail(predicts_the_same, found, TheirTransformer())
    predicts_the_same(icl_interp.load(says(theirs, pos_encode=True)), TheirTransformer())
    refuse(
        says(theirs, pos_encode="no"),
        r"config\.yaml: model\.pos_encode must be true or false, but got 'no'",
    )


@pytest.mark.parametrize(
    "change", [{"activation": "relu"}, {"n_loop": 3}, {"layer_norm": False}, {"weird": 0}]
)
def test_another_word_about_the_model_is_refused(theirs, change):
    ((key, value),) = change.items()
    match = (
        rf"config\.yaml: model\.{key} is {value!r}, a setting of a fork that is not known here: .* "
        r"take it out"
    )
    refuse(says(theirs, **change), match)
    must_fail(refuse, says(theirs, **{key: None}), match)


OPEN = ("n_heads", "d_head")  # the second follows from the first
ASSUMED = ("act_fn", "positional_embedding_type")  # where no config tells


def contradicted(source, still_open=OPEN, **given):
    """Every setting of a model but the number of heads is told by the format."""
    names = [field.name for field in fields(HookedTransformerConfig)]
    for name in [name for name in names if name not in still_open]:
        settings = {name: "anything else"}
        refuse(
            source,
            f"says {name}=",
            lambda s, settings=settings: icl_interp.load(s, settings=settings, **given),
        )


@pytest.mark.slow
def test_no_setting_changes_the_arithmetic(theirs, tmp_path):
    contradicted(theirs)
    torch.save(state_dict(TheirTransformer()), tmp_path / "state.pt")
    contradicted(tmp_path / "state.pt", OPEN + ASSUMED, task=TASK, n_heads=2)
    ours = icl_interp.load(theirs).model.state_dict()
    torch.save(ours, tmp_path / "names.pt")  # a state dict with TransformerLens' names tells less
    given = {"task": TASK, "encoding": "interleaved", "n_heads": 2}
    must_fail(contradicted, tmp_path / "names.pt", **given)


# ---- the task ------------------------------------------------------------------------------------


def test_another_word_about_the_training_asks_for_the_task(theirs):
    folder = says(theirs, "training", data_kwargs={"bias": 1})
    refuse(
        folder,
        r"training\.data_kwargs is \{'bias': 1\}, .*; give the task, as task=\.\.\. \(--task "
        r"FILE\.yaml\)$",
    )
    predicts_the_same(icl_interp.load(folder, TASK), TheirTransformer())


# ---- a config.yaml of another program, and a config.json -----------------------------------------

OTHER = {
    "flat": "n_dims: 3",
    "tagged": "!munch.Munch\nmodel: {n_dims: 3}",
    "list": "- 1",
    "broken": "a: [",
    "": "",
}


@pytest.mark.parametrize("name", OTHER)
def test_another_programs_config_is_overruled_by_what_it_would_tell(theirs, caplog, name):
    (theirs / "config.yaml").write_text(OTHER[name])
    match = (
        r"config\.yaml .*; if the file belongs to another program, give n_heads=N \(--n-heads N\) "
        r"and task=.*--task"
    )
    refuse(theirs, match)
    refuse(theirs, match, lambda path: icl_interp.load(path, TASK))
    assert not caplog.records
    predicts_the_same(icl_interp.load(theirs, TASK, n_heads=2), TheirTransformer())
    record, assumed = caplog.records
    assert "does not say act_fn" in assumed.getMessage()
    assert record.getMessage().endswith(
        "it is not read, because the task and the number of heads were given"
    )


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', "[1", '{"model_type": "gpt2"}'])
def test_a_config_json_beside_their_weights_is_nobodys(theirs, text):
    (theirs / "config.json").write_text(text)
    predicts_the_same(icl_interp.load(theirs), TheirTransformer())


def test_a_config_json_of_ours_is_ours_whatever_lies_beside_it(theirs, tmp_path):
    saved = icl_interp.load(theirs).save(tmp_path / "ours")
    run_folder(saved, TheirTransformer(seed=1))
    found = icl_interp.load(saved)
    assert "training" in vars(found.config)
    predicts_the_same(found, TheirTransformer())
    must_fail(predicts_the_same, found, TheirTransformer(seed=1))
    (saved / "model.safetensors").unlink()
    refuse(saved, "ours is not a checkpoint: it has no model.safetensors")


# ---- how training scripts save -------------------------------------------------------------------


def saved(folder, content):
    torch.save(content, folder / "state.pt")
    return icl_interp.load(folder)


def test_lightning_puts_model_in_front_of_every_name(theirs):
    state = {f"model.{name}": tensor for name, tensor in state_dict(TheirTransformer()).items()}
    found = saved(theirs, {"state_dict": state, "epoch": 3, "global_step": 500000})
    predicts_the_same(found, TheirTransformer())
    assert found.step == 500000
    state["loss.weight"] = torch.ones(2)
    refuse(
        theirs,
        "there must be a linear read-in and",
        lambda folder: saved(folder, {"state_dict": state}),
    )


STEPS = {
    "int": 1000,
    "tensor": torch.tensor(1000),
    "int64": np.int64(1000),
    "int32": np.int32(1000),
}


@pytest.mark.parametrize("kind", STEPS)
def test_the_step_is_a_number_of_any_kind(theirs, kind):
    """It decides how long prompts had become."""
    data = config(curriculum={"dims": {"start": 3, "end": 3, "inc": 1, "interval": 2000}})
    (theirs / "config.yaml").write_text(yaml.dump(data))
    content = {
        "model_state_dict": state_dict(TheirTransformer()),
        "train_step": STEPS[kind],
        "loss": np.float64(0.5),
    }
    found = saved(theirs, content)
    assert (found.step, found.task.n_points) == (1000, 3)
    assert saved(theirs, {**content, "train_step": "late"}).task.n_points == 5  # not told: the last


def test_whole_numbers_are_named_as_the_file_names_them(theirs):
    state = {**state_dict(TheirTransformer()), "_read_out.bias": torch.zeros(1, dtype=torch.int64)}
    refuse(
        theirs,
        "_read_out.bias holds numbers of the type int64, but",
        lambda folder: saved(folder, state),
    )


# ---- a folder without a file that can be read ----------------------------------------------------


def test_a_folder_says_what_is_wrong_with_its_file(tmp_path):
    torch.save(TheirTransformer(), tmp_path / "model.pt")
    refuse(tmp_path, r"model\.pt is a pickle, .*this one asks for foreign_files\.TheirTransformer")
    (tmp_path / "model.pt").unlink()
    np.savez(tmp_path / "weights.npz", a=np.ones(3))  # a zip file as well
    refuse(tmp_path, "no file of weights that is known here; it holds 'weights.npz'")
    refuse(
        tmp_path / "weights.npz",
        "weights.npz is a zip file, but not one of torch.save: give the file",
    )


def test_a_task_that_does_not_fit_is_refused_with_the_models_name(theirs):
    for task in (LinearRegression(n_dims=7, n_points=5), LinearRegression(n_dims=3, n_points=99)):
        refuse(theirs, "their run: ", lambda folder, task=task: icl_interp.load(folder, task))
