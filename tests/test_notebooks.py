"""Notebooks: the .ipynb says what the .py beside it says, holds no outputs, and is run.

Each has an exercise whose solution passes its check, and a wrong answer does not.
"""

import re
from pathlib import Path
from typing import Any

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


FOLDED = re.compile(r"<details><summary>(\w+)</summary>\n\n(.*?)\n\n</details>", re.DOTALL)
# Cells besides the first that a solution builds on, by how they begin.
NEEDS = {"own_claim": ("class Pairing",)}
WRONG = {  # an answer that one may well give
    "00_quickstart": "answer = 0.0",
    "mechanism": "answer = (1, 0)",
    "training_dynamics": "answer = max(icl_interp.load('lsa_flow').snapshots())",
    "own_model": "def answer(model):\n    torch.nn.init.ones_(model.blocks[0].attn.W_Q)",
    "own_claim": "answer = 0.1",
    "limits": "answer = 0.001",
    "linear_attention": "answer = 2**0.5",
    "lipschitz": "answer = 'wider'",
    "autoregression": "def answer(path):\n    return path[-2].conj() * path[-1] ** 2",
}


def exercise(path: Path) -> tuple[str, str, str]:
    """The code that an exercise builds on, its check, and its solution."""
    cells = jupytext.read(path).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    exercises = text.partition("## Exercise\n")[2]
    assert "## Exercise\n" not in exercises
    folded = dict(FOLDED.findall(exercises))
    assert list(folded) == ["Hint", "Solution"]
    empty, check = code[code.index(next(c for c in code if c.startswith("answer = None"))) :][:2]
    begun = [c for c in code[1:] if c.startswith(NEEDS.get(path.stem, ("\0",)))]
    (solution,) = re.findall(r"```python\n(.*?)\n```", folded["Solution"], re.DOTALL)
    before = "\n".join([code[0], *begun, empty])
    return before, check, solution


def run(before: str, answer: str, check: str) -> None:
    """Cells of a notebook, with an answer in place of None."""
    names: dict[str, Any] = {"__name__": "exercise"}
    exec(compile(f"{before}\n{answer}\n{check}", "<exercise>", "exec"), names)
    assert callable(names["check"])


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_solution_of_an_exercise_passes_its_check(path):
    before, check, solution = exercise(path)
    run(before, "", check)  # as the documentation runs it, without an answer
    run(before, solution, check)
    must_fail(run, before, WRONG[path.stem], check)
