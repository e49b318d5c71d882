"""`icl-interp reproduce` as a user meets it."""

import sys

import pytest

from icl_interp import cli
from icl_interp.experiments import base


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["icl-interp", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


@pytest.mark.parametrize("width", [80, 160])
def test_list(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, _ = run(monkeypatch, capsys, "--list")
    assert status == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    # A title that is too long goes on in its own column.
    assert [line.split()[0] for line in lines if line[0] != " "] == base.names()
    for title in base.listed().values():
        assert " ".join(title.split()[:3]) in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("limits.tabel1",), ("limits.tabel1", "did you mean 'limits.table1'")),
        (("limits.table4", "--scale", "large"), ("scale", "large", "smoke")),
        (("limits.table4", "--models", "no-such-folder"), ("no-such-folder",)),
        (("limits.table4", "--out", f"{__file__}/below"), ("cannot write", "is a file")),
        (("limits.table4", "--text", __file__), ("limits.table4 reads no text", "figure4 does")),
        (("--embedding", "gpt2"), ("--embedding gpt2", "give --text FILE as well")),
        (("autoregression.figure4", "--text", "no-such-file"), ("no-such-file",)),
        (
            ("autoregression.figure4", "--text", __file__, "--embedding", "no-such-model"),
            ("no-such-model",),
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(monkeypatch, capsys, *arguments)
    assert status == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_experiment_without_models(monkeypatch, capsys, tmp_path):
    status, out, _ = run(
        monkeypatch, capsys, "limits.table4", "--out", tmp_path / "out", "--scale", "smoke"
    )
    assert status == 0
    assert "Formula holds: 15 of 15" in out
    assert out.splitlines()[-1] == f"reproductions: {tmp_path / 'out' / 'index.html'}"
