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
TOOLS = {  # by heading: what is imported, and changes of the code, each of which its checks refuse
    "nnsight": (
        "nnsight",
        [("[:, :, 2] = 0", "[:, :, 3] = 0"), ("hook_resid_pre", "hook_resid_mid")],
    ),
    "pyvene": (
        "pyvene",
        [
            ('{"sources->base": last}', '{"sources->base": 1}'),
            ('[{"tokens": source}]', '[{"tokens": base}]'),
        ],
    ),
    "captum": ("captum.attr", [("[:, 1::2, 0]", "[:, :-1:2, 0]"), ("n_steps=64", "n_steps=2")]),
    "circuitsvis": ("circuitsvis.attention", [("attention=pattern,", "attention=pattern.mT,")]),
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
    module, mutants = TOOLS[tool]
    pytest.importorskip(module, reason=f"needs {tool}: the extra `beside`")
    code = "\n".join(blocks(TEXT.partition(f"\n## {tool}\n")[2].partition("\n## ")[0]))
    run(tmp_path / "right.py", code)
    for i, (right, wrong) in enumerate(mutants):
        assert code.count(right) == 1
        # A name of its own: linecache holds what nnsight has read of a file.
        must_fail(run, tmp_path / f"wrong_{i}.py", code.replace(right, wrong))
