"""`HookedTransformer` in others' tools: the code of docs/howto/other_tools.md.

A tool that is not installed is skipped (extra `beside`).
"""

import re
import runpy
from pathlib import Path

import pytest
from helpers import must_fail

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "other_tools.md"
TEXT = PAGE.read_text("utf-8")
TOOLS = {  # by heading: what is imported, and a change of the code that makes its check fail
    "nnsight": ("nnsight", ("output[:] = 0", "output[:] = 1")),
    "pyvene": ("pyvene", ("base, source: source", "base, source: base")),
    "captum": ("captum.attr", ("found.float()", "2 * found.float()")),
    "circuitsvis": ("circuitsvis.attention", ("tokens=names,", "tokens=names[1:] * 2,")),
}


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(file: Path, code: str) -> None:
    """The common first block and the code of one tool, as a file: nnsight reads its source."""
    (start,) = blocks(TEXT.partition("\n## ")[0])
    file.write_text(f"{start}\n{code}", "utf-8")
    runpy.run_path(str(file))


def test_the_page_has_a_part_for_each_tool():
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == list(TOOLS)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_the_code_of_a_tool_runs(tool, tmp_path):
    module, (right, wrong) = TOOLS[tool]
    pytest.importorskip(module, reason=f"needs {tool}: the extra `beside`")
    (code,) = blocks(TEXT.partition(f"\n## {tool}\n")[2].partition("\n## ")[0])
    run(tmp_path / "right.py", code)
    assert code.count(right) == 1
    must_fail(run, tmp_path / "wrong.py", code.replace(right, wrong))
