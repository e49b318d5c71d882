"""`icl-interp registry` as a user meets it."""

import pytest
from small_registries import filled, registered, report, rule
from test_cli import refused, run

from icl_interp.registry.folder import CHANGES

pytestmark = pytest.mark.usefixtures("registry")


def test_from_a_report_to_a_table(monkeypatch, capsys, tmp_path):
    folder = tmp_path / "registry"
    asked = ("--registry", str(folder))
    saved = tmp_path / "report"
    report("low", 0.05).save(saved, formats=("json",))
    status, out, _ = run(monkeypatch, capsys, "registry", "add", str(saved), "--name", "x", *asked)
    assert (status, out) == (0, "own.small of x: supported\n")
    status, out, _ = run(monkeypatch, capsys, "registry", "judge", *asked)
    assert status == 0
    assert out.startswith("1 verdicts judged again: 1 from stored results")
    page = tmp_path / "page.md"
    status, out, _ = run(monkeypatch, capsys, "registry", "table", "--page", str(page), *asked)
    assert status == 0
    assert "own.small  ✔" in out
    assert "`x`" in page.read_text()
    status, out, _ = run(monkeypatch, capsys, "registry", "diff", str(folder), *asked)
    assert (status, out) == (0, "No cell differs.\n")


def test_a_change_that_no_line_explains_is_status_1(monkeypatch, capsys, tmp_path):
    folder = filled(tmp_path / "registry")
    asked = ("registry", "judge", "--registry", str(folder))
    assert run(monkeypatch, capsys, *asked)[0] == 0
    registered(criterion=rule(support=0.04))
    status, out, _ = run(monkeypatch, capsys, *asked)
    assert status == 1
    assert "changed: own.small of low: supported -> inconclusive" in out
    (folder / CHANGES).write_text("own.small low supported -> inconclusive: stricter now\n")
    assert run(monkeypatch, capsys, *asked, "--write")[0] == 0
    (folder / CHANGES).unlink()
    assert run(monkeypatch, capsys, *asked)[0] == 0


def test_a_report_that_cannot_be_read_costs_no_other(monkeypatch, capsys, tmp_path):
    registered()
    good, bad = tmp_path / "good", tmp_path / "bad"
    report("low", 0.05).save(good, formats=("json",))
    bad.mkdir()
    (bad / "report.json").write_text('{"schema": "icl_interp.report/9"}')
    asked = ("--registry", str(tmp_path / "registry"))
    status, out, err = run(monkeypatch, capsys, "registry", "add", str(bad), str(good), *asked)
    assert status == 2
    assert "own.small of" in out
    assert err.count("\n") == 1
    assert "has schema 'icl_interp.report/9'" in err
    status, _, err = run(monkeypatch, capsys, "registry", "judge", "--registry", "nowhere")
    refused(status, err, "there is no registry 'nowhere'")
