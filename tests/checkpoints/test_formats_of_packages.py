"""Formats of other packages come in by entry point; a broken one warns and is left out."""

import importlib
import logging
import re
import sys
from pathlib import Path

import pytest
import torch
from helpers import SURFACE, must_fail

import icl_interp
from icl_interp import HookedTransformer, HookedTransformerConfig, plugins
from icl_interp.checkpoints.formats import registry
from icl_interp.provenance import generator

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
LINES = 40


def reader():
    """The reader of CONTRIBUTING.md, as text of a module."""
    section = PAGE.read_text("utf-8").partition("## Add a format")[2]
    return re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def packages(tmp_path, monkeypatch, caplog):
    """Gives a function that makes a package of one module installed, and forgets it afterwards."""
    made = []

    def install(package, module):
        (tmp_path / f"{package}.py").write_text(module)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[icl_interp.formats]\nit = {package}:ARCHIVE\n")
        importlib.invalidate_caches()
        made.append(package)

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_found", {})
    monkeypatch.setattr(registry, "_of_packages", None)
    log = logging.getLogger("icl_interp")
    log.removeHandler(SURFACE)
    yield install
    log.addHandler(SURFACE)
    for package in made:
        sys.modules.pop(package, None)


def archive(folder):
    """A model, and a file with its weights as the reader of CONTRIBUTING.md takes them."""
    import numpy as np

    config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, n_ctx=40, attn_only=True)
    theirs = HookedTransformer(config)
    path = folder / "weights"
    with path.open("wb") as file:
        np.savez(file, **{name: t.numpy() for name, t in theirs.state_dict().items()})
    return theirs, path


def warned(caplog):
    """What was said of packages."""
    return {one.getMessage() for one in caplog.records if one.name == plugins.log.name}


def is_read(theirs, path):
    task = icl_interp.load("affine").task
    found = icl_interp.load(path, task, encoding="interleaved")
    tokens = found.encoding.encode(task.sample(4, generator(0, "example")))
    torch.testing.assert_close(found.model(tokens), theirs(tokens))


def is_short(text):
    assert len([line for line in text.splitlines() if line.strip()]) <= LINES


def test_the_reader_of_forty_lines_works_as_an_entry_point(packages, tmp_path, caplog):
    is_short(reader())
    must_fail(is_short, "x = 1\n" * (LINES + 1))
    packages("reader_package", reader())
    assert "reader_package" not in sys.modules
    theirs, path = archive(tmp_path)
    is_read(theirs, path)
    assert "reader_package" in sys.modules
    with torch.no_grad():
        theirs.unembed.W_U *= 1.01
    must_fail(is_read, theirs, path)
    assert warned(caplog) == set()


BROKEN = {
    "import": ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    "nothing": ("", "AttributeError"),
    "no format": ("ARCHIVE = 3", "its entry point names 3, not an icl_interp.checkpoints.formats"),
    "a name": (
        "from icl_interp.checkpoints.formats import gpt2\nARCHIVE = gpt2.FORMAT",
        "there is a format called 'GPT2Model between a read-in and a read-out' already",
    ),
    "recognises": (
        "from icl_interp.checkpoints.formats import Format\n"
        "ARCHIVE = Format('bad', lambda source: 1 / 0, lambda source, given: None)",
        "ZeroDivisionError: division by zero",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_left_out_with_a_warning(case, packages, caplog, tmp_path):
    module, says = BROKEN[case]
    packages("broken_package", module)
    packages("reader_package", reader())
    is_read(*archive(tmp_path))
    (line,) = warned(caplog)
    assert line.startswith("the format 'it' of broken_package 1.0 is left out: ")
    assert says in line
