"""The command line on somebody else's files, with what they lack given as options."""

import json

import pytest
import torch
import yaml
from foreign_files import TheirTransformer, config, run_folder, state_dict
from helpers import must_fail
from test_cli import refused, run

import icl_interp

TASK = {"task": {"kind": "LinearRegression", "n_dims": 3, "n_points": 5}}
FEW = ("--functions", "4", "--contexts", "2")


@pytest.fixture
def theirs(tmp_path):
    """A run folder as written by the code of Garg et al., and its weights without their config."""
    folder = run_folder(tmp_path / "their run", TheirTransformer(), config())
    torch.save(state_dict(TheirTransformer()), tmp_path / "checkpoint_9")
    (tmp_path / "task.yaml").write_text(yaml.dump(TASK))
    return folder


def report_of(monkeypatch, capsys, out, *arguments):
    """The JSON of a report on one claim, and what the command printed."""
    options = (
        "--claims",
        "limits.context_erased",
        "--n-prompts",
        "64",
        "--format",
        "json",
        "--out",
        out,
    )
    status, printed, err = run(monkeypatch, capsys, "analyze", *arguments, *options)
    assert status == 0, err
    return json.loads((out / "report.json").read_text()), printed


def is_about(report, step):
    """A report on the weights of this step and on their task."""
    assert report["checkpoint"]["step"] == step
    task = report["model"]["task"]
    assert (task["kind"], task["n_dims"], task["n_points"]) == ("LinearRegression", 3, 5)


@pytest.mark.slow
def test_analyze_takes_their_folder_as_it_is(monkeypatch, capsys, tmp_path, theirs):
    report, printed = report_of(monkeypatch, capsys, tmp_path / "out", theirs)
    assert "their run: 2 x 8 x 2 heads, pre-LN, softmax, attention + MLP" in printed
    is_about(report, step=500000)
    must_fail(is_about, report, step=0)
    assert report["checkpoint"]["format"] == "model of Garg et al. (2022)"


def same_findings(report, other):
    assert report["findings"] == other["findings"]


@pytest.mark.slow
def test_analyze_takes_a_file_with_what_it_lacks(monkeypatch, capsys, tmp_path, theirs):
    options = ("--task", tmp_path / "task.yaml", "--n-heads")
    report, printed = report_of(
        monkeypatch, capsys, tmp_path / "out", tmp_path / "checkpoint_9", *options, "2"
    )
    assert "checkpoint_9: 2 x 8 x 2 heads" in printed
    is_about(report, step=9)
    whole, _ = report_of(monkeypatch, capsys, tmp_path / "whole", theirs)
    same_findings(report, whole)  # the same weights, task and seed
    other, _ = report_of(
        monkeypatch, capsys, tmp_path / "other", tmp_path / "checkpoint_9", *options, "4"
    )
    must_fail(same_findings, other, whole)


@pytest.mark.slow
def test_in_python_the_same_words_are_arguments(tmp_path, theirs):
    task = icl_interp.tasks.LinearRegression(n_dims=3, n_points=5)
    quick = {"claims": ("limits.context_erased",), "n_prompts": 64}
    by_folder = icl_interp.analyze(theirs, **quick)
    for source, given in (
        (tmp_path / "checkpoint_9", {"task": task, "n_heads": 2}),
        (TheirTransformer(), {"task": task}),
    ):
        assert icl_interp.analyze(source, **given, **quick).findings == by_folder.findings


def test_evaluate_takes_them_too(monkeypatch, capsys, tmp_path, theirs):
    status, whole, _ = run(monkeypatch, capsys, "evaluate", theirs, *FEW)
    assert status == 0
    assert "least squares" in whole
    given = ("--task", tmp_path / "task.yaml", "--n-heads", "2", "--encoding", "interleaved")
    status, by_file, _ = run(
        monkeypatch, capsys, "evaluate", tmp_path / "checkpoint_9", *FEW, *given
    )
    assert (status, by_file) == (0, whole)


def test_settings_that_weights_do_not_tell_are_options(monkeypatch, capsys, tmp_path, theirs):
    """A state dict with TransformerLens' names: ours, without its config."""
    path = tmp_path / "w.pt"
    torch.save(icl_interp.load(theirs).model.state_dict(), path)
    given = ("--task", tmp_path / "task.yaml", "--encoding", "interleaved", *FEW)
    refused(
        *run(monkeypatch, capsys, "evaluate", path, *given)[::2],
        "the activation",
        "--setting act_fn=",
    )
    printed = run(monkeypatch, capsys, "evaluate", path, *given, "--setting", "act_fn=gelu_new")[:2]
    assert printed == run(monkeypatch, capsys, "evaluate", theirs, *FEW)[:2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (),
            (
                "does not tell the number of attention heads and the task",
                "--n-heads N",
                "--task FILE.yaml",
            ),
        ),
        (("--n-heads", "2"), ("does not tell the task",)),
        (("--task", "nowhere.yaml"), ("cannot read nowhere.yaml",)),
        (
            ("--task", "TASK", "--n-heads", "3"),
            ("checkpoint_9: width 8 does not divide into 3 heads: give 1, 2",),
        ),
        (("--task", "TASK", "--n-heads", "many"), ("--n-heads", "integer")),
        (
            ("--task", "TASK", "--n-heads", "2", "--encoding", "x"),
            ("unknown encoding 'x'", "interleaved"),
        ),
        (
            ("--task", "TASK", "--n-heads", "2", "--setting", "act_fn"),
            ("a setting is given as name=value, such as act_fn=relu",),
        ),
        (
            ("--task", "TASK", "--n-heads", "2", "--setting", "actfn=relu"),
            ("did you mean 'act_fn'",),
        ),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(
    monkeypatch, capsys, tmp_path, theirs, arguments, words
):
    arguments = [str(tmp_path / "task.yaml") if part == "TASK" else part for part in arguments]
    for command in ("analyze", "evaluate"):
        out = tmp_path / "out"
        status, _, err = run(
            monkeypatch, capsys, command, tmp_path / "checkpoint_9", *arguments, "--out", out
        )
        refused(status, err, *words)
        assert not out.exists()
