"""A predictor in a Python file: `icl-interp analyze module.py:predictor --task FILE.yaml`."""

import json

import pytest
from test_cli import refused, run

from icl_interp import predictors
from icl_interp.errors import InputError

TASK = """
task:
  kind: Polynomial
  degrees: [1]
  inputs: {kind: Uniform, low: -1, high: 1}
  coefficients: {kind: Uniform, low: -1, high: 1}
  n_points: 12
"""
MODULE = """
import beside
from sklearn.linear_model import Ridge

ridge = Ridge(alpha=1e-3)
number = 3

def nearest(xs, ys, x_query):
    return beside.nearest(xs, ys, x_query)

def average(xs, ys, x_query):
    return ys.mean(1)
"""
BESIDE = """
import numpy as np

def nearest(xs, ys, x_query):
    at = ((xs - x_query[:, None]) ** 2).sum(-1).argmin(1)
    return ys[np.arange(len(ys)), at]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "broken.py").write_text("1 / 0")
    return tmp_path


def test_it_is_the_object_of_that_name(folder):
    assert predictors.from_file(f"{folder}/mine.py:nearest").name == "nearest"
    assert predictors.from_file(f"{folder}/mine.py:ridge").name == "Ridge(alpha=0.001)"


def test_analyze_and_evaluate_take_it(folder, monkeypatch, capsys):
    source = f"{folder}/mine.py:nearest"
    asked = ("--task", folder / "task.yaml", "--out", folder / "out")
    few = ("--n-prompts", "256", "--claims", "limits.boundary_immediate")
    status, out, _ = run(monkeypatch, capsys, "analyze", source, *asked, *few, "--format", "json")
    assert status == 0
    assert "seen from outside: no causal check" in out
    stored = json.loads((folder / "out" / "report.json").read_text())
    assert stored["findings"][0]["verdict"] == "supported"
    size = ("--functions", "4", "--contexts", "2")
    status, out, _ = run(monkeypatch, capsys, "evaluate", source, *asked, *size)
    assert status == 0
    assert "model" in out


WRONG = [
    (("mine.py:nearest",), "pass --task FILE.yaml"),
    (("mine.py:no_such", "--task", "task.yaml"), "unknown name in"),
    (("mine.py:number", "--task", "task.yaml"), "predicts nothing"),
    (("missing.py:nearest", "--task", "task.yaml"), "missing.py:nearest"),
    (("broken.py:nearest", "--task", "task.yaml"), "ZeroDivisionError"),
    (("mine.py:nearest", "--task", "task.yaml", "--n-heads", "2"), "--n-heads is for models"),
    (("mine.py:nearest", "--task", "task.yaml", "--beside", "."), "--beside is for models"),
    (("affine", "--beside", "nowhere"), "is not a folder of runs"),
    (("affine", "--control", "mine.py:average"), "control= is for predictors without weights"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_what_is_wrong_is_one_line(folder, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(folder)
    status, _, err = run(monkeypatch, capsys, "analyze", *arguments, "--out", folder / "out")
    refused(status, err, words)


def test_no_such_file_from_python(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        predictors.from_file(f"{tmp_path}/none.py:nearest")
