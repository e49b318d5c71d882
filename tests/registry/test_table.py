"""The table: disagreements first, no rank, seeds, and differences between two registries."""

from dataclasses import replace

import pytest
from helpers import must_fail
from small_registries import entry, filled, registered, rule

from icl_interp.registry import Table, add, differences, judge, read
from icl_interp.registry.folder import CHANGES, Registry
from icl_interp.registry.judging import write

pytestmark = pytest.mark.usefixtures("registry")


def with_claim(one, claim):
    return replace(one, claim=claim)


def test_marks_stand_under_their_checkpoints(tmp_path):
    made = Table.of(read(filled(tmp_path / "registry")))
    assert made.checkpoints == ("high", "low", "middle")
    (row,) = made.rows
    assert row.marks == ("✘", "✔", "?")
    assert row.disagreeing
    assert made.n_judged == 3
    said = "\n".join(made.lines(80))
    assert "own.small  ✘✔?" in said
    assert "1 high, 2 low, 3 middle" in said
    assert "| `own.small` | `low` | `high` |  |  | `middle` |  |" in made.page()


def first_is(entries, claim):
    assert Table.of(Registry(entries)).rows[0].claim == claim


def test_claims_with_disagreements_come_first():
    entries = [with_claim(entry("low", 0.05), "a.agreed"), with_claim(entry("high", 0.3), "b.not")]
    must_fail(first_is, entries, "b.not")
    entries.append(with_claim(entry("low", 0.05), "b.not"))
    first_is(entries, "b.not")


@pytest.mark.slow
def test_verdicts_that_chance_may_make_wrong_have_another_mark():
    weak = entry("weak", 0.0, seed=3)
    many = [entry(f"open {i}", 0.15) for i in range(30)]
    marks = Table.of(Registry([replace(weak, p=0.01), *many])).rows[0].marks
    assert marks[-1] == "+"
    marks = Table.of(Registry([replace(weak, p=2e-5), *many])).rows[0].marks
    assert marks[-1] == "✔"
    marks = Table.of(Registry([replace(weak, p=None), *many])).rows[0].marks
    assert marks[-1] == "✔"


def test_wide_tables_are_broken_in_tens():
    entries = [entry(f"model {i:02}", 0.05) for i in range(25)]
    lines = list(Table.of(Registry(entries)).lines(30))
    rows = [line for line in lines if line.startswith("own.small")]
    assert len(rows) == 3
    assert sum(line.count("✔") for line in rows) == 25
    assert all(len(part) <= 30 for line in lines for part in line.splitlines())


def test_seeds_that_differ_are_no_dispute(tmp_path):
    alike = [
        entry("one", 0.05, kind_of_training="abc"),
        entry("two", 0.3, kind_of_training="abc"),
        entry("other", 0.3, kind_of_training="xyz"),
    ]
    list(add(tmp_path / "registry", alike))
    found = read(tmp_path / "registry")
    assert len(found.current) == 3
    (line,) = Table.of(found).seeds
    expected = "own.small is contradicted of two, supported of one"
    assert line == f"seeds of one recipe have different verdicts: {expected}"


def test_disputed_cells_are_marked(tmp_path):
    folder = tmp_path / "registry"
    list(add(folder, [entry("low", 0.05), entry("low", 0.3, seed=1)]))
    (row,) = Table.of(read(folder)).rows
    assert row.marks == ("!",)
    assert row.disagreeing


def test_planted_models_are_counted_and_not_listed(tmp_path):
    folder = filled(tmp_path / "registry")
    list(add(folder, [entry("truth", 0.05, planted="contradicted")]))
    made = Table.of(read(folder))
    assert "truth" not in made.checkpoints
    assert "1 cells are decided, 1 of them wrongly" in made.planted


def test_differences_are_listed_by_cell(tmp_path):
    folder = filled(tmp_path / "registry")
    before = read(folder)
    assert not len(differences(before, read(folder)))
    list(add(folder, [entry("fourth", 0.05)]))
    registered(criterion=rule(support=0.04))
    (folder / CHANGES).write_text("own.small low supported -> inconclusive: stricter\n")
    list(write(folder, judge(read(folder))))
    found = differences(before, read(folder)).set_index("checkpoint")
    assert found.loc["fourth", "before"] == "no entry"
    assert found.loc["low", "before"].startswith("supported")
    assert found.loc["low", "after"].startswith("inconclusive")
    # The others have the same verdict by another version.
    assert found.loc["high", "after"] != found.loc["high", "before"]
