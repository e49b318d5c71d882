"""The examples of CONTRIBUTING.md, run from top to bottom as a reader would."""

import re
from pathlib import Path

import pytest

from icl_interp.tasks import registry

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def _as_it_was():
    before = dict(registry.KINDS)
    yield
    registry.KINDS.clear()
    registry.KINDS.update(before)


@pytest.mark.slow
def test_every_example_runs():
    text = PAGE.read_text("utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) == text.count("```python")
    names = {"__name__": "contributing"}
    for block in blocks:
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)


def test_every_file_that_it_names_is_there():
    named = set(re.findall(r"`((?:icl_interp|tests)/[a-z_/.]+)`", PAGE.read_text("utf-8")))
    assert len(named) > 10
    assert [name for name in named if not (PAGE.parent / name).exists()] == []
