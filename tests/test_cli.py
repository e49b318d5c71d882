"""The command line as a user meets it: what it prints, what it writes, how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import must_fail

from icl_interp import cli
from icl_interp.checkpoints import bundled

RECIPE = """
model: {n_layers: 1, d_model: 8, n_heads: 2, n_ctx: 12}
task:
  kind: Polynomial
  degrees: [1]
  inputs: {kind: Uniform, low: -1, high: 1}
  coefficients: {kind: Uniform, low: -1, high: 1}
  n_points: 6
training: {steps: 8, batch_size: 4, log_every: 2, checkpoint_every: 4}
"""


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command, in this process."""
    monkeypatch.setattr(sys, "argv", ["icl-interp", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def refused(status: int, stderr: str, *words: str) -> None:
    """Exit 2 with one line that says what is wrong."""
    assert status == 2
    assert len(stderr.strip().splitlines()) == 1
    assert "Traceback" not in stderr
    for word in words:
        assert word in stderr


@pytest.fixture
def run_folder(tmp_path, monkeypatch, capsys) -> Path:
    """A tiny trained run."""
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    status, out, _ = run(monkeypatch, capsys, "train", recipe, "--out", tmp_path / "run")
    assert status == 0
    assert out.splitlines()[-1] == f"run: {tmp_path / 'run'}"
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("analyze", "no-such-model"), ("no-such-model", "affine")),
        (("analyze", "afine"), ("did you mean 'affine'?",)),
        (("analyze", __file__), ("not a checkpoint",)),
        (("analyze", "affine", "--claims", "limits.softmax_hardmx"), ("limits.softmax_hardmax",)),
        (("analyze", "affine", "--format", "docx"), ("docx", "html")),
        (("analyze", "affine", "--n-prompts", "3"), ("n_prompts", "32")),
        (("analyze", "affine", "--out", f"{__file__}/below"), ("cannot write", "is a file")),
        (("analyze", "affine", "--n-prompts", "many"), ("--n-prompts", "integer")),
        (("analyse",), ("analyse",)),
        (("analyze", "--no-such-option"), ("--no-such-option",)),
        (("train", "no-such-recipe"), ("no-such-recipe", "affine")),
        (("train", "affine", "training.stepz=3"), ("stepz", "steps")),
        (("train", "affine", "steps"), ("training.steps=1000",)),
        (("train", "affine", "task.n_points=50", "--out", "x"), ("n_ctx=40", "n_points=50", "99")),
        (("evaluate", "no-such-model"), ("no-such-model",)),
    ],
)
def test_bad_input_is_one_line_and_exit_2(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(monkeypatch, capsys, *arguments)
    refused(status, err, *words)
    assert out == ""
    assert list(tmp_path.iterdir()) == []  # nothing half-written
    must_fail(refused, status, err + "another line", *words)
    must_fail(refused, 1, err, *words)


def test_broken_checkpoints_are_refused(monkeypatch, capsys, tmp_path, run_folder):
    """Corrupted weights, a pickle and a config that does not fit, each in one line."""
    weights = run_folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused(*run(monkeypatch, capsys, "analyze", run_folder)[::2], "safetensors")
    torch.save({"a": torch.ones(1)}, weights)
    refused(*run(monkeypatch, capsys, "analyze", run_folder)[::2], "pickle")
    weights.write_bytes(whole)
    config = json.loads((run_folder / "config.json").read_text())
    config["model"]["d_mlp"] = 20
    (run_folder / "config.json").write_text(json.dumps(config))
    refused(*run(monkeypatch, capsys, "analyze", run_folder)[::2], "blocks.0.mlp.W_in", "(8, 32)", "(8, 20)")


def test_train_then_analyze_writes_a_report(monkeypatch, capsys, run_folder, tmp_path):
    out = tmp_path / "report"
    status, text, err = run(monkeypatch, capsys, "analyze", run_folder, "--out", out, "--n-prompts", "64")
    assert status == 0, err
    assert text.splitlines()[-1] == f"report: {out / 'report.html'}"
    report = json.loads((out / "report.json").read_text())
    assert report["schema"] == "icl_interp.report/1"
    assert {"checkpoint", "model", "findings", "results", "provenance"} <= set(report)
    # An untrained scrap on four functions: nothing may be concluded.
    assert {f["verdict"] for f in report["findings"]} <= {"inconclusive", "not_applicable"}
    for finding in report["findings"]:
        assert finding["id"] in text


def test_claims_are_selected(monkeypatch, capsys, run_folder, tmp_path):
    arguments = ("analyze", run_folder, "--claims", "limits.context_erased", "--n-prompts", "64", "--format", "json")
    status, _, _ = run(monkeypatch, capsys, *arguments, "--out", tmp_path / "one")
    assert status == 0
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    assert [f["id"] for f in report["findings"]] == ["limits.context_erased"]
    assert not (tmp_path / "one" / "report.html").exists()


def test_static_format_without_a_browser_warns_and_goes_on(monkeypatch, capsys, caplog, run_folder, tmp_path):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    monkeypatch.setenv("PATH", "")
    arguments = (
        "analyze",
        run_folder,
        "--claims",
        "limits.context_erased",
        "--n-prompts",
        "64",
        "--format",
        "html,png",
    )
    status, _, _ = run(monkeypatch, capsys, *arguments, "--out", tmp_path / "r")
    assert status == 0
    assert (tmp_path / "r" / "report.html").exists()
    assert not list((tmp_path / "r").rglob("*.png"))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "Chrom" in message
    assert "\n" not in message


def test_evaluate_prints_the_references(monkeypatch, capsys, run_folder):
    status, out, _ = run(monkeypatch, capsys, "evaluate", run_folder, "--functions", "4", "--contexts", "2")
    assert status == 0
    for word in ("model", "least squares", "zero", "error_rate"):
        assert word in out


def test_zoo_lists_every_bundled_model(monkeypatch, capsys):
    status, out, _ = run(monkeypatch, capsys, "zoo")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == bundled.names()


def test_module_and_exit_status_from_a_shell():
    """`python -m icl_interp` really exits with 2 and prints to stderr only."""
    done = subprocess.run(
        [sys.executable, "-m", "icl_interp", "analyze", "no-such-model"], capture_output=True, text=True, check=False
    )
    refused(done.returncode, done.stderr, "no-such-model")
    assert done.stdout == ""


def test_interrupt_ends_with_130(monkeypatch, capsys, run_folder):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("icl_interp.pipeline.analyze", interrupted)
    status, _, _ = run(monkeypatch, capsys, "analyze", run_folder)
    assert status == 130
