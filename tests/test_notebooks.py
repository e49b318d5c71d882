"""Notebooks: the .ipynb says what the .py beside it says, holds no outputs, and is run."""

import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from helpers import must_fail

SOURCES = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


def same_cells(source: nbformat.NotebookNode, notebook: nbformat.NotebookNode) -> None:
    """Equal cells, in order; ids and metadata aside."""
    assert [(c.cell_type, c.source) for c in source.cells] == [
        (c.cell_type, c.source) for c in notebook.cells
    ]


def without_outputs(notebook: nbformat.NotebookNode) -> None:
    """Nothing but sources."""
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_there_are_notebooks():
    assert [path.stem for path in SOURCES][:1] == ["00_quickstart"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebook_is_its_source(path):
    source, notebook = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    same_cells(source, notebook)
    without_outputs(notebook)
    source.cells[0].source += " changed"
    must_fail(same_cells, source, notebook)


def test_the_documentation_executes_them_all():
    """It stops at the first error in one of them (tests/test_docs.py builds it)."""
    index = (SOURCES[0].parents[1] / "docs" / "index.md").read_text("utf-8")
    assert {path.stem for path in SOURCES} == set(
        re.findall(r"^tutorials/(\w+)$", index, re.MULTILINE)
    )
