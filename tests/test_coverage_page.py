"""The page of what the works hold: every name in it exists, and its states are explained."""

import importlib.util
from pathlib import Path

import pytest
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.experiments import base
from icl_interp.studies import BUNDLED

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def coverage():
    with pytest.MonkeyPatch.context() as m:
        m.syspath_prepend(DOCS)
        spec = importlib.util.spec_from_file_location("coverage_page", DOCS / "coverage.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def is_whole(coverage, rows):
    """States are known, what is not whole says why, and what is there can be run."""
    assert len({(row.study, row.item) for row in rows}) == len(rows)
    assert {row.study for row in rows} < {study.name for study in BUNDLED}
    for row in rows:
        assert row.state in coverage.STATES, row
        assert row.note or row.state == "whole", row
        assert row.by or row.state == "missing", row
        for name in row.by:
            coverage.command(name)


def has_every_experiment(rows):
    named = {name for row in rows for name in row.by}
    works = {row.study for row in rows}
    assert {name for name in base.names() if base.get(name).study in works} <= named


def test_the_table_is_whole(coverage):
    rows = coverage.rows()
    assert len(rows) == 134
    is_whole(coverage, rows)
    has_every_experiment(rows)
    must_fail(has_every_experiment, [row for row in rows if "limits.table1" not in row.by])
    first = rows[0]
    for change in ({"state": "done"}, {"state": "partly", "note": ""}, {"by": ()}):
        must_fail(is_whole, coverage, [first._replace(**change), *rows[1:]])


def test_a_name_that_nothing_has_is_refused(coverage):
    assert coverage.command("limits.table1") == "icl-interp reproduce limits.table1"
    assert coverage.command("limits.last_layer") == "icl-interp explain limits.last_layer"
    assert coverage.command("affine") == "icl-interp analyze affine"
    assert coverage.command("icl_interp.tasks.Polynomial") == "icl_interp.tasks.Polynomial"
    for name in ("limits.table9", "icl_interp.tasks.Polynomials", "no_such_recipe"):
        with pytest.raises(InputError):
            coverage.command(name)


def shows(page, rows):
    for row in rows:
        assert row.state in page
        for name in row.by:
            assert f"{name}`" in page, row
    assert sum(line.startswith("| ") for line in page.splitlines()) == len(rows) + 3 + 1


def test_the_page_shows_every_row(coverage):
    rows = coverage.rows()
    page = coverage.page()
    shows(page, rows)
    must_fail(shows, page.replace("`icl-interp reproduce limits.figure8`", ""), rows)
    must_fail(shows, page.replace("\n| Figure 6", "\n Figure 6"), rows)
