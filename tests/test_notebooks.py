"""Notebooks: the .ipynb says what the .py beside it says, and holds what its cells gave.

Each has an exercise whose solution passes its check, and a wrong answer does not. The first cell of
code installs the package where it is missing.
"""

import ast
import base64
import re
import subprocess
import sys
from collections.abc import Iterator
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


LARGEST, LARGEST_PICTURE = 500_000, 60_000  # bytes


def gives(source: str) -> bool:
    """Whether a cell prints in any case, or ends in an expression that a notebook shows."""
    body = ast.parse(source).body
    return any(map(prints, body)) or (bool(body) and isinstance(body[-1], ast.Expr))


def prints(statement: ast.stmt) -> bool:
    """Whether it is a call of print, or a loop or block that holds one and always runs."""
    if isinstance(statement, ast.For | ast.With):
        return any(map(prints, statement.body))
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = call.func if isinstance(call, ast.Call) else None
    return isinstance(name, ast.Name) and name.id == "print"


def has_outputs(notebook: nbformat.NotebookNode) -> None:
    """Each cell that gives something holds it, run in order and without an error."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        assert bool(cell.outputs) or not gives(cell.source), cell.source
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"


def outputs_of(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str]]:
    """Kind and text of every output."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield from output.get("data", {}).items()
            yield "text", output.get("text", "")


def is_light(notebook: nbformat.NotebookNode) -> None:
    """Pictures are PNG, since a code host runs no script; none of it is large."""
    assert len(nbformat.writes(notebook).encode()) <= LARGEST
    for kind, text in outputs_of(notebook):
        assert kind in ("text", "text/plain", "text/html", "image/png")
        assert "<script" not in text
        assert "<iframe" not in text
        if kind == "image/png":
            assert len(base64.b64decode(text)) <= LARGEST_PICTURE


def names_no_machine(notebook: nbformat.NotebookNode) -> None:
    """No output tells where it was made."""
    for kind, text in outputs_of(notebook):
        if kind != "image/png":
            assert not re.search(r"(?<![\w.<])/(home|root|tmp|usr|work|Users|private)\b", text)


def test_there_are_notebooks():
    assert [path.stem for path in SOURCES][:1] == ["00_quickstart"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebook_is_its_source(path):
    source, notebook = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    same_cells(source, notebook)
    source.cells[0].source += " changed"
    must_fail(same_cells, source, notebook)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_holds_what_its_cells_gave(path):
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    has_outputs(notebook)
    is_light(notebook)
    names_no_machine(notebook)
    assert any(kind == "image/png" for kind, _ in outputs_of(notebook))
    giving = [cell for cell in notebook.cells if cell.get("outputs") and gives(cell.source)]
    assert len(giving) > 2
    first = giving[0].outputs
    giving[0].outputs = []
    must_fail(has_outputs, notebook)
    said = nbformat.v4.new_output("stream", text="saved in /home/someone/runs")
    giving[0].outputs = [*first, said]
    must_fail(names_no_machine, notebook)
    picture = base64.b64encode(bytes(LARGEST_PICTURE + 1)).decode()
    shown = nbformat.v4.new_output("display_data", {"image/png": picture})
    giving[0].outputs = [*first, shown]
    must_fail(is_light, notebook)


def test_the_first_cell_installs_what_is_missing(monkeypatch, tmp_path):
    cells = {jupytext.read(path).cells[1].source for path in SOURCES}
    assert len(cells) == 1
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **settings: asked.append(command))
    monkeypatch.chdir(tmp_path)

    def run_cell() -> None:
        exec(compile(cells.copy().pop(), "<first cell>", "exec"), {})

    run_cell()  # it is here
    assert asked == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run_cell()
    assert asked == [[sys.executable, "-m", "pip", "install", "-q", ".."]]
    (tmp_path / "icl_interp-0.1.0-py3-none-any.whl").touch()
    run_cell()
    assert asked[1][-1] == "icl_interp-0.1.0-py3-none-any.whl"


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
    "algorithm": "answer = 1",
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
    # The first cell of code installs the package.
    code = [cell.source for cell in cells if cell.cell_type == "code"][1:]
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
