"""A registry on disk: nothing is lost, damage costs one line, and cells settle."""

import json
import subprocess
from dataclasses import replace

import pytest
from helpers import must_fail
from small_registries import entry, filled, registered, report, rule

from icl_interp.errors import InputError
from icl_interp.registry import add, entries_of, read, state
from icl_interp.registry.folder import CHANGES, change, settled, write

pytestmark = pytest.mark.usefixtures("registry")


def statuses(folder) -> dict[str, list[str]]:
    found = {}
    for one in read(folder).entries:
        found.setdefault(one.checkpoint, []).append(one.status)
    return {name: sorted(each) for name, each in found.items()}


def test_adding_a_report_twice_changes_nothing(tmp_path):
    folder = filled(tmp_path / "registry")
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    assert len(before) == 3
    again = entry("low", 0.05)
    # The time of adding is no part of what an entry is.
    assert not list(add(folder, [replace(again, added="2030-01-01T00:00:00+00:00")]))
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    assert len(list(add(folder, [entry("fourth", 0.05)]))) == 1


def one_problem(folder, *words):
    found = read(folder)
    assert len(found.entries) == 2
    (line,) = found.problems
    for word in words:
        assert word in line
    assert "\n" not in line


def test_a_damaged_entry_costs_no_other(tmp_path):
    folder = filled(tmp_path / "registry")
    must_fail(one_problem, folder)
    (path,) = [path for path in folder.rglob("*.json") if '"name": "low"' in path.read_text()]
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    one_problem(folder, str(path), "is not JSON")
    # A verdict that was edited by hand no longer has the name of its file.
    path.write_text(whole.replace('"verdict": "supported"', '"verdict": "contradicted"'))
    one_problem(folder, str(path), "was edited or renamed")
    path.write_text(json.dumps({**json.loads(whole), "schema": "icl_interp.registry/2"}))
    one_problem(folder, "has schema 'icl_interp.registry/2'")
    # Adding goes on beside it, and leaves it as it is.
    assert len(list(add(folder, [entry("fourth", 0.05)]))) == 1
    assert "registry/2" in path.read_text()


def test_a_later_analysis_supersedes_and_an_opposite_one_disputes(tmp_path):
    folder = filled(tmp_path / "registry")
    later = replace(entry("low", 0.06, seed=1), added="2030-01-01T00:00:00+00:00")
    (new, old) = add(folder, [later])
    assert "is superseded (judged from another analysis" in old
    assert statuses(folder)["low"] == ["current", "superseded"]
    opposite = replace(entry("low", 0.3, seed=2), added="2030-01-02T00:00:00+00:00")
    list(add(folder, [opposite]))
    assert statuses(folder)["low"] == ["disputed", "disputed", "superseded"]
    assert statuses(folder)["high"] == ["current"]
    # A person says which one is wrong; then the other counts.
    (wrong,) = [e for e in read(folder).entries if e.seed == 2]
    write(folder, [replace(wrong, status="invalidated", why="its prompts were wrong")])
    list(add(folder, []))
    assert statuses(folder)["low"] == ["current", "invalidated", "superseded"]


def test_a_newer_version_supersedes_whatever_its_verdict(tmp_path):
    folder = filled(tmp_path / "registry")
    registered(criterion=rule(support=0.01, against=0.02))
    made = report("low", 0.05)
    registered(criterion=rule(support=0.01, against=0.02))
    (new,), _ = entries_of(made, "low")
    assert new.verdict == "contradicted"
    list(add(folder, [replace(new, added="2030-01-01T00:00:00+00:00", fixed="2030-01-01")]))
    assert statuses(folder)["low"] == ["current", "superseded"]


def test_the_day_of_a_rule_is_that_of_its_first_entry(tmp_path):
    folder = tmp_path / "registry"
    list(add(folder, [replace(entry("low", 0.05), fixed="2020-05-05")]))
    list(add(folder, [replace(entry("high", 0.3), fixed="2026-05-05")]))
    assert {one.fixed for one in read(folder).entries} == {"2020-05-05"}


def is_settled(folder):
    assert not list(settled(read(folder)))


def test_two_entries_of_one_cell_are_seen(tmp_path):
    """As after a merge of two branches, each of which added one."""
    folder = filled(tmp_path / "registry")
    is_settled(folder)
    write(folder, [entry("low", 0.06, seed=1)])
    must_fail(is_settled, folder)
    list(add(folder, []))
    is_settled(folder)


def test_lines_that_explain_are_read_one_by_one(tmp_path):
    folder = filled(tmp_path / "registry")
    (folder / CHANGES).write_text(
        "# why\n\nown.small * supported -> inconclusive: a wider margin\nown.small low better\n"
    )
    found = read(folder)
    (line,) = found.problems
    assert "line 4 should read 'CLAIM CHECKPOINT BEFORE -> AFTER: WHY'" in line
    one = entry("low", 0.05)
    assert found.changes[0].explains(one, "inconclusive")
    assert not found.changes[0].explains(one, "contradicted")
    for named, expected in (("low", True), (one.sha256[:8], True), ("high", False), ("6", False)):
        told = change(f"own.small {named} supported -> inconclusive: why", "here")
        assert told.explains(one, "inconclusive") is expected
    with pytest.raises(InputError, match="should read"):
        change("own.small * supported -> certain: why", "here")


def test_states_of_git_are_read(tmp_path):
    folder = filled(tmp_path / "registry")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "registry"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    list(add(folder, [entry("fourth", 0.05)]))
    assert len(read(folder).entries) == 4
    there = state("HEAD", folder)
    assert len(there.entries) == 3
    assert not there.problems
    assert {e.path for e in there.entries} < {e.path for e in state(str(folder), folder).entries}
    for name in ("no-such-revision", "--output=x"):
        with pytest.raises(InputError, match=r"is not a folder, and git says|is a folder or a rev"):
            state(name, folder)
    with pytest.raises(InputError, match="there is no registry"):
        read(tmp_path / "nowhere")
