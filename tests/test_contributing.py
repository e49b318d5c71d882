"""The examples of CONTRIBUTING.md, the README and the guides, run from top to bottom."""

import re
from pathlib import Path

import pytest

from icl_interp.models import tokens
from icl_interp.tasks import registry

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
OTHERS = {"other_tools"}  # needs others' tools: tests/test_other_tools.py runs it
GUIDES = [
    path for path in sorted((ROOT / "docs" / "howto").glob("*.md")) if path.stem not in OTHERS
]
PAGES = (PAGE, ROOT / "README.md", *GUIDES)


@pytest.fixture(autouse=True)
def _as_it_was():
    registers = (registry.KINDS, tokens.ENCODINGS)
    before = [dict(held) for held in registers]
    yield
    for held, was in zip(registers, before, strict=True):
        held.clear()
        held.update(was)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if "```python" in p.read_text("utf-8")], ids=lambda page: page.stem
)
def test_every_example_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) == text.count("```python")
    names = {"__name__": "contributing"}
    for block in blocks:
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_every_file_that_it_names_is_there():
    named = set(re.findall(r"`((?:icl_interp|tests)/[a-z_/.]+)`", PAGE.read_text("utf-8")))
    assert len(named) > 10
    assert [name for name in named if not (PAGE.parent / name).exists()] == []
