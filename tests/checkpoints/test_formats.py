"""The list of formats and the loop over it: what is read, what is refused, what is unknown."""

import os
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
import yaml
from foreign_files import TheirTransformer, config, run_folder, state_dict
from helpers import must_fail
from tiny_runs import refuse

import icl_interp
from icl_interp.checkpoints import given
from icl_interp.checkpoints.formats import FORMATS, Format, files, find, registry
from icl_interp.checkpoints.formats.base import Given, Parts
from icl_interp.tasks import LinearRegression, Normal, Polynomial, Uniform, skewed_covariance

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=5)


# ---- one loop ------------------------------------------------------------------------------------


def test_each_source_is_read_by_one_format(tmp_path):
    """Formats are told apart by content: but for the order, no source would be read by two."""
    ours = tiny_runs.checkpoint().save(tmp_path / "ours")
    theirs = run_folder(tmp_path / "theirs", TheirTransformer())
    for source, name in (
        (ours, "run folder of icl_interp"),
        (theirs, "model of Garg et al. (2022)"),
    ):
        for path in (
            source,
            next(source.glob("model.safetensors" if source == ours else "state.pt")),
        ):
            assert find(path).name == name
    assert find(tiny_runs.checkpoint().model).name == "run folder of icl_interp"
    assert len({format.name for format in FORMATS}) == len(FORMATS)


def first_wins(source, place):
    """The first format of the list that recognises a source reads it.

    Those after it are not asked.
    """
    asked = []
    known = tiny_runs.checkpoint()

    def of(name, answer):
        return Format(
            name, lambda _: asked.append(name) or answer, lambda *_: Parts(known.model, known.task)
        )

    before = list(registry.FORMATS)
    registry.FORMATS[place:place] = [of("first", False), of("second", True), of("third", True)]
    try:
        found = icl_interp.load(source, encoding="interleaved")
    finally:
        registry.FORMATS[:] = before
    assert (asked, found.provenance.get("format")) == (["first", "second"], "second")


def test_the_first_format_that_recognises_a_source_reads_it(folder):
    first_wins(folder, place=0)
    must_fail(first_wins, folder, place=len(FORMATS))  # after ours


# ---- formats that are not read -------------------------------------------------------------------

UNREAD = {
    "looped-transformer or nanoGPT": (
        "_backbone.transformer.h.0.attn.c_attn.weight",
        "how often its blocks are run",
    ),
    "task-prefix": ("task_prefix_embeddings.weight", "a learned token for the task"),
    "transformers-as-statisticians encoder": ("_queries.0.weight", "x and y together"),
    "ical": (
        "decoder.layers.0.attention.values.weight",
        "its two variants, augmented and not, have the same names",
    ),
    "timaeus icl": (
        "token_sequence_transformer.blocks.0.attn.weight",
        "its residual stream doubles at every block",
    ),
    "LinearTransformer (Ahn et al.)": ("allparam", "it has neither read-in nor read-out"),
    "gated linear attention": ("layers.0.W_g.weight", "a gate of each token"),
    "kernel attention": ("layers.0.scale", "stands in no weight but its scale"),
    "low-rank attention": ("layers.0.E.weight", "the keys and values of all tokens"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_known_formats_that_are_not_read_are_refused_by_name(tmp_path, name):
    key, why = UNREAD[name]
    # Others of its tensors may have the names of a format that is read.
    state = {**state_dict(TheirTransformer()), f"module.{key}": torch.ones(2, 2)}
    if name not in ("looped-transformer or nanoGPT", "task-prefix"):
        state = {"a.weight": torch.ones(2), f"module.{key}": torch.ones(2, 2)}
    torch.save({"model": state}, tmp_path / "checkpoint_30")
    with pytest.raises(icl_interp.InputError) as refused:
        icl_interp.load(tmp_path / "checkpoint_30")
    message = str(refused.value)
    assert (
        f"checkpoint_30 is {'an' if name[0] in 'ia' else 'a'} {name} checkpoint (its keys are {key}"
        in message
    )
    assert "; icl_interp cannot read it because " in message
    assert why in message
    assert "\n" not in message


# ---- what nobody recognises ----------------------------------------------------------------------


def test_what_nobody_recognises_is_said_with_what_can_be_read(tmp_path):
    torch.save({"layer.weight": torch.ones(2), "layer.bias": torch.ones(2)}, tmp_path / "mine.pt")
    refuse(
        tmp_path / "mine.pt",
        "mine.pt is not a checkpoint: give a run folder .* its tensors layer.weight, layer.bias",
    )
    (tmp_path / "empty").mkdir()
    refuse(
        tmp_path / "empty",
        "it has no config.json and no file of weights that is known here; it holds nothing; give",
    )
    run_folder(tmp_path / "runs" / "one", TheirTransformer())
    (tmp_path / "runs" / "notes.txt").write_text("")
    refuse(
        tmp_path / "runs",
        r"it holds 'notes.txt', 'one/'; give a run folder .*Garg et al\. \(2022\)",
    )
    for name in ("a.pt", "b.pt"):
        torch.save(state_dict(TheirTransformer()), tmp_path / "empty" / name)
    refuse(tmp_path / "empty", "holds several files of weights: name one of a.pt, b.pt")
    (tmp_path / "empty" / "b.pt").unlink()
    assert icl_interp.load(tmp_path / "empty", TASK, n_heads=2).task == TASK


CONTENTS = {
    "a tensor": (torch.ones(3), "holds no state dict, that is no tensors by name, but tensor"),
    "numbers": ({"a": 1}, "holds no state dict"),
    "nothing": ({}, "holds no state dict"),
    "number keys": ({0: torch.ones(2)}, "holds no state dict"),
    "a giant": (
        {"a": torch.ones(1).expand(10**6, 10**6)},
        "'a' is no plain tensor with all of its numbers in the file",
    ),
    "sparse": ({"a": torch.ones(2, 2).to_sparse()}, "'a' is no plain tensor"),
    "no numbers": ({"a": torch.empty(2, device="meta")}, "'a' is no plain tensor"),
    "numpy": (
        {"a": torch.ones(2), "losses": np.ones(3)},
        (
            r"this one asks for numpy\.\w+\.multiarray\._reconstruct: if you trust it, save "
            r"its tensors alone"
        ),
    ),
    "something odd": (
        {"a": torch.ones(2), "b": torch.ones(2), "epoch": 3},
        "beside tensors by name it holds 'epoch': 3: save the tensors alone, with",
    ),
    "several": (
        {"first": {"a": torch.ones(2)}, "second": {"a": torch.zeros(2)}, "step": 3},
        "holds several state dicts, called first, second: save the one that you want",
    ),
    "twice": (
        {"a": torch.ones(2), "module.a": torch.zeros(2)},
        "holds two tensors called a, once under another name",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_files_of_torch_that_hold_something_else_are_refused(tmp_path, name):
    content, match = CONTENTS[name]
    torch.save(content, tmp_path / "x.pt")
    refuse(tmp_path / "x.pt", match)


class Trap:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def says_nothing_of_switches(path):
    with pytest.raises(icl_interp.InputError, match=r"this one asks for \w+\.mkdir") as refused:
        icl_interp.load(path)
    assert "weights_only" not in str(refused.value)
    assert "Re-running" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__  # a traceback would show torch's own words


def test_a_refusal_does_not_say_how_to_switch_safety_off(tmp_path, monkeypatch):
    path, marker = tmp_path / "state.pt", tmp_path / "trapped"
    torch.save({"a": torch.ones(1), "trap": Trap(marker)}, path)
    says_nothing_of_switches(path)
    says_nothing_of_switches(tmp_path)  # the folder
    assert not marker.exists()
    monkeypatch.setattr(
        files,
        "_refused",
        lambda file, reason: icl_interp.InputError(f"this one asks for posix.mkdir {reason}"),
    )
    must_fail(says_nothing_of_switches, path)


def test_files_that_are_cut_off_are_refused(tmp_path):
    path = tmp_path / "state.pt"
    torch.save(state_dict(TheirTransformer()), path)
    whole = path.read_bytes()
    for n in (4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        for name in ("state.pt", "model_7.pt"):
            path = path.rename(tmp_path / name)
            match = (
                rf"{name} is not a whole file of torch.save \(it is cut off or damaged\): copy or "
                r"download it"
            )
            refuse(path, match)
            refuse(
                tmp_path, match
            )  # a folder with one file of weights says what is wrong with that
    path = path.rename(tmp_path / "state.pt")
    path.write_bytes(b"PK")
    refuse(path, "is not a whole file")
    path.write_bytes(b"")
    refuse(path, "state.pt is not a checkpoint: it is empty; copy or download it again")
    refuse(
        tmp_path,
        r"state.pt is not a whole file of torch.save \(it is empty\): copy or download it again",
    )


def test_a_file_that_changed_is_looked_at_again(tmp_path):
    path = tmp_path / "state.pt"
    torch.save({"a": torch.ones(3)}, path)
    assert dict(files.shapes(path)) == {"a": (3,)}
    torch.save({"a": torch.ones(3), "b": torch.ones(100)}, path)
    assert dict(files.shapes(path)) == {"a": (3,), "b": (100,)}


# ---- what is given beside a source ---------------------------------------------------------------


def test_a_checkpoint_and_a_run_folder_take_another_task_and_no_other_settings(folder):
    other = Polynomial(degrees=(2,), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=4)
    saved = icl_interp.load(folder)
    for source in (saved, folder, saved.model):
        found = icl_interp.load(source, other, encoding="interleaved")
        assert (found.task, found.model.cfg) == (other, saved.model.cfg)
        same = {"task": saved.task, "n_heads": saved.model.cfg.n_heads}
        assert icl_interp.load(source, **same).task == saved.task
        refuse(
            source,
            "says n_heads=2, but n_heads=1 was given",
            lambda s: icl_interp.load(s, n_heads=1),
        )
    assert icl_interp.load(saved, task=saved.task) is saved
    assert icl_interp.load(folder, other).config.training == saved.config.training
    refuse(saved.model, "a bare model brings no task: pass task=")
    refuse(
        folder,
        "unknown encoding 'interlaced': did you mean 'interleaved'",
        lambda s: icl_interp.load(s, encoding="interlaced"),
    )
    for nothing in (None, 3, [folder]):
        refuse(nothing, f"a model is given as a run folder, .* but got {type(nothing).__name__}")


def test_given_refuses_what_is_no_setting():
    refuse(
        {"n_head": 2},
        "unknown setting 'n_head': did you mean 'n_heads'",
        lambda s: Given.of(settings=s),
    )


TEXTS = {
    "task: {kind: LinearRegression, n_dims: 3, n_points: 5}": None,
    "model: {n_layers: 1}\ntask: {kind: LinearRegression, n_dims: 3, n_points: 5}\ntraining: "
    "1": None,
    "kind: LinearRegression": "has no section 'task', but 'kind'",
    "": "must be a mapping, but got None",
    "task: 3": r"task must name its kind, for example 'kind: Polynomial'",
    "task: {kind: LinearRegresion}": "unknown kind in .*: did you mean 'LinearRegression'",
    "task: {kind: LinearRegression, n_dims: 3, n_points: 5, n_point: 4}": "unknown key in .*: did "
    "you mean 'n_points'",
    "a: &a 3\ntask: {kind: LinearRegression, n_dims: *a, n_points: 5}": "line 1: expected "
    "no anchors and aliases",
    "task: !!python/name:os.system": "is not YAML",
    "task: 2020-01-01": "and not 'timestamp'",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_task_is_read_from_the_section_of_a_recipe(tmp_path, text):
    path = tmp_path / "task.yaml"
    path.write_text(text)
    if TEXTS[text] is None:
        assert given.read_task(path) == TASK
    else:
        refuse(path, TEXTS[text], given.read_task)


def test_every_recipe_is_a_task_file():
    for recipe in sorted((Path(icl_interp.__file__).parent / "zoo" / "recipes").glob("*.yaml")):
        assert given.read_task(recipe).n_points > 1
    refuse(Path("nowhere.yaml"), "cannot read nowhere.yaml", given.read_task)


def test_a_config_of_garg_et_al_is_a_task_file_too(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.dump(config()))
    assert given.read_task(path) == TASK
    path.write_text(yaml.dump(config(loss="ce")))
    refuse(path, r"config\.yaml: training\.loss is 'ce'", given.read_task)


def test_a_setting_that_a_task_refuses_is_named_with_its_file(tmp_path):
    path = tmp_path / "task.yaml"
    path.write_text("task: {kind: LinearRegression, n_dims: 3, n_points: 5, covariance: [1, 1]}")
    refuse(
        path,
        r"task\.yaml: covariance must be 3 positive numbers, .*skewed_covariance\(3\)",
        given.read_task,
    )
    path.write_text("task: {kind: LinearRegression, n_dims: 3, n_points: 5, covariance: skewed}")
    assert given.read_task(path) == LinearRegression(
        n_dims=3, n_points=5, covariance=skewed_covariance(3)
    )


@pytest.mark.parametrize("pair", ["act_fn", "=relu", "act_fn=", "act_fn=[1]", "act_fn={", ""])
def test_settings_are_pairs(pair):
    refuse(
        pair,
        "a setting is given as name=value, such as act_fn=relu, but got",
        lambda p: given.read_settings([p]),
    )
