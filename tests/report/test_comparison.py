"""Several models side by side: tables, seeds of one recipe, the command."""

import json
import sys

import numpy as np
import pytest
import small_reports
from compared_reports import CLAIM, named, seeds
from helpers import must_fail

import icl_interp
from icl_interp import cli, pipeline
from icl_interp.console import console
from icl_interp.errors import InputError
from icl_interp.report.comparison import Comparison


def test_the_table_has_a_row_a_claim_and_model():
    found = seeds()
    table = found.table
    assert len(table) == len(found.claims) * 4
    rows = table[table["claim"] == CLAIM].set_index("model")
    assert rows["value"].tolist() == [1.0, 2.0, 6.0, 50.0]
    assert rows["high"].tolist() == [2.0, 4.0, 12.0, 100.0]
    assert rows["verdict"].tolist() == ["contradicted", "contradicted", "supported", "supported"]
    for report in found.reports:
        for f in report.findings:
            row = table[
                (table["claim"] == f.id) & (table["model"] == report.checkpoint["name"])
            ].iloc[0]
            assert row["verdict"] == f.verdict


def check_pooled(pooled):
    row = pooled[pooled["claim"] == CLAIM].to_dict("records")
    assert len(row) == 1  # the other recipe has one seed
    assert (row[0]["seeds"], row[0]["supported"], row[0]["contradicted"]) == (3, 1, 2)
    np.testing.assert_allclose([row[0]["mean"], row[0]["sd"]], [3.0, np.sqrt(7.0)])
    assert (row[0]["min"], row[0]["max"]) == (1.0, 6.0)


def test_seeds_of_one_recipe_are_pooled_with_their_spread():
    check_pooled(seeds().pooled)
    must_fail(check_pooled, Comparison(seeds().reports[:2]).pooled)
    one_recipe = Comparison(tuple(named(name, 1.0, "contradicted", name) for name in "ab"))
    assert one_recipe.pooled.empty


def test_what_does_not_apply_is_not_pooled():
    pooled = seeds().pooled
    absent = {f.id for f in small_reports.report().findings if f.verdict == "not_applicable"}
    assert absent
    assert not absent & set(pooled["claim"])


def test_in_markdown_and_on_a_screen(capsys):
    found = seeds()
    lines = found.to_markdown().splitlines()
    assert lines[0] == "| | `a` | `b` | `c` | `d` |"
    assert f"| `{CLAIM}` | \u2718 1 | \u2718 2 | \u2714 6 | \u2714 50 |" in lines
    assert len(lines) == 3 + len(found.claims)
    console(320).print(found.screen())
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if small_reports.report()[CLAIM].short in line)
    assert "\u2718 1 [0.5, 2] u" in line
    assert "one: 3 seeds of one recipe (a, b, c)" in text
    assert f"{CLAIM}: 1 supported, 2 contradicted; 3 +- 2.6 (1 to 6)" in text


def fits(found, capsys, width):
    """All numbers of all models are there, unbroken, and no line is wider than the screen."""
    console(width).print(found.screen())
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    for number in ("  a  \u2718 1 [0.5, 2] u", "  b  \u2718 2 [", "  d  \u2714 50 ["):
        assert any(number in line for line in lines)


def test_the_screen_has_a_line_a_model_where_columns_are_too_wide(capsys, monkeypatch):
    fits(seeds(), capsys, 80)
    monkeypatch.setattr(Comparison, "_blocks", Comparison._columns)
    must_fail(fits, seeds(), capsys, 80)


def test_only_claims_that_all_reports_hold_are_compared():
    one, two = named("a"), named("b")
    two.findings = two.findings[1:]
    assert Comparison((one, two)).claims == tuple(f.id for f in one.findings[1:])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "at least, but got 0"),
        ("affine", "compare takes a list of models, but got 'affine'"),
        (["one"], "at least, but got 1"),
    ],
)
def test_what_is_no_list_of_models_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        icl_interp.compare(given)


def test_two_models_of_one_name_are_refused():
    with pytest.raises(InputError, match="needs its own name, but got 'a' twice: rename a folder"):
        icl_interp.compare([named("a"), named("a")])


def test_compare_analyses_what_is_no_report(monkeypatch):
    asked = []

    def analyze(name, **settings):
        asked.append((name, settings))
        return named(name)

    monkeypatch.setattr(pipeline, "analyze", analyze)
    found = icl_interp.compare([named("a"), "b"], seed=3)
    assert found.names == ("a", "b")
    assert asked == [("b", {"seed": 3})]


@pytest.mark.slow
def test_the_command_writes_each_report_and_the_tables(monkeypatch, capsys, tmp_path):
    small_reports.report()  # it is made by the real `analyze`
    monkeypatch.setattr(pipeline, "analyze", lambda checkpoint, **settings: named(checkpoint.name))
    names = ("affine", "degree_2")
    monkeypatch.setattr(
        sys, "argv", ["icl-interp", "analyze", *names, "--out", str(tmp_path), "--format", "json"]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    for name in names:
        assert icl_interp.Report.load(tmp_path / name).checkpoint["name"] == name
    data = json.loads((tmp_path / "comparison.json").read_text())
    assert {row["model"] for row in data["table"]} == set(names)
    printed = capsys.readouterr().out
    words = small_reports.report()[CLAIM].short.split()
    assert " ".join(words[:3]) in printed  # the rest may stand in the next line
    page = tmp_path / "comparison.html"
    assert printed.splitlines()[-1] == f"comparison: {page}"
    assert page.is_file()
    monkeypatch.setattr(
        sys, "argv", ["icl-interp", "analyze", "affine", "affine", "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "needs its own name" in capsys.readouterr().err


@pytest.mark.slow
def test_reports_know_the_kind_of_training_of_their_run():
    """Seeds of one recipe share it; a model without a known run has none."""
    kinds = [small_kind(name) for name in ("lsa_fixed", "lsa_fixed_seed1", "lsa_random")]
    assert kinds[0] == kinds[1] != kinds[2]


def small_kind(name):
    report = icl_interp.analyze(
        name, claims=("linear_attention.balanced",), n_prompts=16, progress=False
    )
    return report.checkpoint["kind_of_training"]
