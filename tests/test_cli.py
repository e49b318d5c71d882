"""The command line as a user meets it: what it prints, what it writes, how it ends."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import must_fail

from icl_interp import cli, sources
from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError

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
    assert stderr.startswith("Error: ")
    assert "Traceback" not in stderr
    for word in words:
        assert word in stderr


def test_version_and_the_list_of_claims(monkeypatch, capsys):
    status, out, _ = run(monkeypatch, capsys, "--version")
    assert (status, out) == (0, "icl-interp 0.1.0\n")
    status, out, _ = run(monkeypatch, capsys, "claims", "--study", "heads")
    assert status == 0
    assert out.startswith("heads.orthogonality")
    assert out.count("heads.") == 1  # a claim that is too wide takes a second line
    status, _, err = run(monkeypatch, capsys, "claims", "--study", "head")
    refused(status, err, "unknown study", "heads")


def test_claims_that_do_not_apply_to_a_model_say_why(monkeypatch, capsys):
    _, out, _ = run(monkeypatch, capsys, "claims", "--for", "lsa_fixed", "--study", "heads")
    assert "does not apply: The claim compares the heads of a layer" in out


@pytest.mark.parametrize(
    ("arguments", "rest"),
    [
        (("explain", "limits.no"), "all 72: icl-interp claims"),
        (("analyze", "afine"), f"all {len(bundled.names())}: icl-interp zoo"),
        (("reproduce", "limits.tabel1"), "icl-interp reproduce --list"),
    ],
)
def test_a_message_names_five_at_most_and_says_how_to_list_the_rest(
    monkeypatch, capsys, arguments, rest
):
    status, _, err = run(monkeypatch, capsys, *arguments)
    refused(status, err, rest)
    near = err.partition("near: ")[2].partition(";")[0]
    assert len(near.split(", ")) == 5


def test_every_command_may_be_quiet(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("icl_interp.progress.show", shown.append)
    for options, level in (((), 30), (("--quiet",), 40), (("--log-level", "debug"), 10)):
        status, out, _ = run(monkeypatch, capsys, "zoo", *options)
        assert (status, logging.root.level) == (0, level)
        assert "affine" in out
    logging.root.setLevel(logging.WARNING)
    assert shown == [True, False, True]
    status, _, err = run(monkeypatch, capsys, "claims", "--log-level", "loud")
    refused(status, err, "unknown log level 'loud'", "debug")


def test_shells_complete_commands(monkeypatch, capsys):
    monkeypatch.setenv("_ICL_INTERP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "icl-interp ex")
    monkeypatch.setenv("COMP_CWORD", "1")
    _, out, _ = run(monkeypatch, capsys)
    assert out.strip() == "explain"


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
        (("analyze", "affine", "--n-prompts", "3"), ("n_prompts", "16")),
        (("analyze", "affine", "--out", f"{__file__}/below"), ("cannot write", "is a file")),
        (("analyze", "affine", "--n-prompts", "many"), ("--n-prompts", "integer")),
        (("analyse",), ("analyse",)),
        (("analyze", "--no-such-option"), ("--no-such-option",)),
        (("train", "no-such-recipe"), ("no-such-recipe", "affine")),
        (("train", "affine", "training.stepz=3"), ("stepz", "steps")),
        (("train", "affine", "steps"), ("training.steps=1000",)),
        (("train", "affine", "--scale", "huge"), ("unknown scale", "smoke", "paper")),
        (("train", "affine_wide", "--scale", "small"), ("exists at scale paper only",)),
        (("train", "affine", "task.n_points=50", "--out", "x"), ("n_ctx=40", "n_points=50", "99")),
        (("evaluate", "no-such-model"), ("no-such-model",)),
        (("evaluate", "x" * 5000), ("no such path or bundled model",)),
        (("analyze", "x" * 5000), ("no such path or bundled model",)),
        (("train", "x" * 5000), ("unknown recipe",)),
        (("analyze", "affine", "--device", "cuda:99"), ("device 'cuda:99'",)),
        (("analyze", "affine", "--n-prompts", "1000000000000"), ("n_prompts", "131,072")),
        (
            ("analyze", "affine", "--seed", "-1"),
            ("seed must be a whole number from 0 up, but got -1",),
        ),
        (("analyze", "affine", "--claims", ","), ("--claims is empty",)),
        (("analyze", "affine", "--format", ""), ("--format is empty",)),
        (("train", "affine", "a." * 3000 + "a=1"), ("training.steps=1000",)),
        (("train", "affine", "--device", "cuda:99", "--out", "x"), ("device 'cuda:99'",)),
        *(
            (
                ("evaluate", "affine", "--sigma", sigma),
                ("--sigma must be a number from 1e-09 to 1e+09",),
            )
            for sigma in ("1e200", "nan", "inf", "0", "-1")
        ),
        (
            ("evaluate", "affine", "--functions", "0"),
            ("n_functions", "from 1 to 1,000,000, but got 0"),
        ),
        (("evaluate", "affine", "--contexts", "0"), ("n_contexts", "but got 0")),
        (("evaluate", "affine", "--functions", "1000000000000"), ("n_functions", "1,000,000")),
        (("selfcheck", "--draws", "0"), ("draws must be a whole number from 1",)),
        (("selfcheck", "--full"), ("name a folder for these with --out",)),
        (("selfcheck", "--power"), ("name a folder for these with --out",)),
        (("selfcheck", "--study", "limit"), ("limits",)),
        (("selfcheck", "--study", ","), ("--study is empty",)),
        (("selfcheck", "--seed", "-1"), ("seed must be a whole number from 0 up",)),
        (("selfcheck", "--processes", "2"), ("--processes is for --full",)),
        (("selfcheck", "--tools", "--study", "limits"), ("leave --study out",)),
        (("selfcheck", "--tools", "--draws", "0"), ("draws must be a whole number from 1",)),
        (("reproduce", "--scale", "huge"), ("unknown scale 'huge'", "smoke")),
        (("reproduce", "limits.table4", "--device", "cuda:99"), ("device 'cuda:99'",)),
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


@pytest.mark.slow
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
    refused(
        *run(monkeypatch, capsys, "analyze", run_folder)[::2],
        "blocks.0.mlp.W_in",
        "(8, 32)",
        "(8, 20)",
    )


@pytest.mark.slow
def test_train_then_analyze_writes_a_report(monkeypatch, capsys, run_folder, tmp_path):
    out = tmp_path / "report"
    status, text, err = run(
        monkeypatch, capsys, "analyze", run_folder, "--out", out, "--n-prompts", "64"
    )
    assert status == 0, err
    assert text.splitlines()[-1] == f"report: {out / 'report.html'}"
    report = json.loads((out / "report.json").read_text())
    assert report["schema"] == "icl_interp.report/1"
    assert {"checkpoint", "model", "findings", "results", "provenance"} <= set(report)
    # An untrained scrap on four functions: nothing may be concluded.
    assert {f["verdict"] for f in report["findings"]} <= {"inconclusive", "not_applicable"}
    for finding in report["findings"]:
        begins = " ".join(finding["short"].split()[:2])  # a row may take several lines
        assert (finding["study"] if finding["verdict"] == "not_applicable" else begins) in text


@pytest.mark.slow
def test_claims_are_selected(monkeypatch, capsys, run_folder, tmp_path):
    arguments = (
        "analyze",
        run_folder,
        "--claims",
        "limits.context_erased",
        "--n-prompts",
        "64",
        "--format",
        "json",
    )
    status, _, _ = run(monkeypatch, capsys, *arguments, "--out", tmp_path / "one")
    assert status == 0
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    assert [f["id"] for f in report["findings"]] == ["limits.context_erased"]
    assert not (tmp_path / "one" / "report.html").exists()


@pytest.mark.slow
def test_static_format_without_a_browser_warns_and_goes_on(
    monkeypatch, capsys, caplog, run_folder, tmp_path
):
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


@pytest.mark.slow
def test_baselines_are_a_row_each(monkeypatch, capsys, run_folder):
    few = ("evaluate", run_folder, "--functions", "4", "--contexts", "2")
    shown = {option: run(monkeypatch, capsys, *few, *option) for option in ((), ("--baselines",))}
    assert [status for status, _, _ in shown.values()] == [0, 0]
    for word in ("3 nearest", "gradient descent, 10 steps", "Bayes over degrees"):
        assert [word in out for _, out, _ in shown.values()] == [False, True]


def test_nothing_is_no_model(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for command in ("evaluate", "analyze"):
        refused(*run(monkeypatch, capsys, command, "")[::2], "no such path or bundled model: ''")


def titled(names, titles):
    assert list(sources.titles([str(name) for name in names]).values()) == titles


def test_models_of_one_name_are_called_by_their_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder / "run").mkdir(parents=True)
        (tmp_path / folder / "state.pt").touch()
    one, two = tmp_path / "one", tmp_path / "two"
    titled([one / "state.pt", "two/state.pt", "affine"], ["one/state.pt", "two/state.pt", "affine"])
    titled(["one/run", "two/run"], ["one/run", "two/run"])
    titled([one, two / "run"], ["one", "run"])
    must_fail(titled, ["one/run", "two/run"], ["run", "run"])
    with pytest.raises(InputError, match="each model to compare needs its own name"):
        sources.titles(["one/run", str(one / "run")])


def test_every_model_is_loaded_before_the_first_is_analysed(
    monkeypatch, capsys, tmp_path, run_folder
):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "state.pt").write_bytes(b"PK")
    analysed = []
    monkeypatch.setattr(
        "icl_interp.pipeline.analyze", lambda *args, **settings: analysed.append(args)
    )
    status, _, err = run(
        monkeypatch, capsys, "analyze", run_folder, tmp_path / "broken", "--out", tmp_path / "out"
    )
    refused(status, err, "broken/state.pt is not a whole file")
    assert analysed == []


def test_evaluate_prints_the_references(monkeypatch, capsys, run_folder):
    status, out, _ = run(
        monkeypatch, capsys, "evaluate", run_folder, "--functions", "4", "--contexts", "2"
    )
    assert status == 0
    for word in ("model", "least squares", "zero", "error_rate"):
        assert word in out


def no_line_is_wider(text, width):
    assert max(map(len, text.splitlines())) <= width


def zoo(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, _ = run(monkeypatch, capsys, "zoo")
    assert status == 0
    return out


def test_zoo_lists_every_bundled_model_by_task(monkeypatch, capsys):
    out = zoo(monkeypatch, capsys, 300)
    models = {line.split()[0]: line for line in out.splitlines() if "  R2 " in line}
    assert sorted(models) == bundled.names()
    # Each stands below the line of its task.
    blocks = {block.splitlines()[0]: block for block in out.split("\n\n")}
    for name in bundled.names():
        task = bundled.config(name)["task"]
        (said,) = [title for title, block in blocks.items() if f"\n{name} " in block]
        kind = (
            "degree " + ", ".join(map(str, task["degrees"])) if "degrees" in task else task["kind"]
        )
        assert said.startswith(kind)
        length = task.get("n_points") or task["tasks"][0]["n_points"]
        assert f"{length} points" in said
    assert "covariance Exponential(mean 1)" in out
    assert "1 heads" not in out


def test_zoo_fits_the_screen(monkeypatch, capsys):
    no_line_is_wider(zoo(monkeypatch, capsys, 80), 80)
    must_fail(no_line_is_wider, zoo(monkeypatch, capsys, 160), 80)


@pytest.mark.slow
def test_names_are_text_and_no_markup(monkeypatch, capsys, run_folder):
    """A folder may be called [red]x."""
    odd = run_folder.rename(run_folder.with_name("[red]x"))
    arguments = (
        "--n-prompts",
        "64",
        "--claims",
        "limits.context_erased",
        "--out",
        run_folder / "r",
    )
    status, out, _ = run(monkeypatch, capsys, "analyze", odd, *arguments)
    assert status == 0
    assert "[red]x: " in out


def test_module_and_exit_status_from_a_shell():
    """`python -m icl_interp` really exits with 2 and prints to stderr only."""
    done = subprocess.run(
        [sys.executable, "-m", "icl_interp", "analyze", "no-such-model"],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(done.returncode, done.stderr, "no-such-model")
    assert done.stdout == ""


def test_interrupt_ends_with_130(monkeypatch, capsys, run_folder):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("icl_interp.pipeline.analyze", interrupted)
    status, _, _ = run(monkeypatch, capsys, "analyze", run_folder)
    assert status == 130
