"""A finished run with damaged provenance: its error is evaluated again, or a line explains."""

import json

import pytest
import tiny_runs
from helpers import must_fail
from test_cli import refused, run

from icl_interp.errors import InputError
from icl_interp.training import trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    trainer.train(tiny_runs.data(), out, progress=False)
    return out


@pytest.fixture
def damaged(folder, request):
    """The run with another `in_distribution`; afterwards as it was."""
    path = folder / "provenance.json"
    whole = path.read_text()
    yield lambda change: path.write_text(json.dumps(change(json.loads(whole))))
    path.write_text(whole)


def without(key):
    return lambda facts: {name: value for name, value in facts.items() if name != key}


def error_without(*keys):
    def change(facts):
        return {
            **facts,
            "in_distribution": {k: v for k, v in facts["in_distribution"].items() if k not in keys},
        }

    return change


ALL = ("error", "low", "high", "r2")


@pytest.mark.parametrize(
    "change", [without("in_distribution"), error_without(*ALL), *map(error_without, ALL)]
)
def test_what_is_missing_is_evaluated_again(folder, damaged, change):
    """And no step is trained again."""
    before = json.loads((folder / "provenance.json").read_text())
    damaged(change)
    files = {name: (folder / name).read_bytes() for name in tiny_runs.EXACT}
    found = trainer.train(tiny_runs.data(), folder, progress=False)
    assert found.provenance["in_distribution"] == before["in_distribution"]
    assert json.loads((folder / "provenance.json").read_text()) == before
    assert {name: (folder / name).read_bytes() for name in tiny_runs.EXACT} == files


def test_it_would_be_missed(folder, damaged, monkeypatch):
    damaged(without("in_distribution"))
    monkeypatch.setattr(trainer, "MEASURED", ())
    with pytest.raises(KeyError):
        trainer.train(tiny_runs.data(), folder, progress=False).provenance["in_distribution"]


@pytest.mark.parametrize(
    "value", [None, 3, [], "x", {"error": None}, {"error": "x", "low": 1, "high": 1, "r2": 1}]
)
def test_what_is_garbled_is_a_line(folder, damaged, value):
    damaged(lambda facts: {**facts, "in_distribution": value})
    with pytest.raises(
        InputError, match=r"provenance.json is not what a run writes there: .*restore or remove it"
    ):
        trainer.train(tiny_runs.data(), folder, progress=False)


def test_at_the_command_line(monkeypatch, capsys, folder, damaged, tmp_path):
    (tmp_path / "tiny.yaml").write_text(json.dumps(tiny_runs.data()))  # JSON is YAML
    damaged(without("in_distribution"))
    status, out, err = run(monkeypatch, capsys, "train", tmp_path / "tiny.yaml", "--out", folder)
    assert (status, err) == (0, "")
    assert out.startswith("in-distribution error ")
    damaged(lambda facts: {**facts, "in_distribution": "\x1b[31m"})
    status, _, err = run(monkeypatch, capsys, "train", tmp_path / "tiny.yaml", "--out", folder)
    refused(status, err, "in_distribution must be a mapping")
    must_fail(refused, 0, err)
