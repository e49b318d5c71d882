"""Modules under names of the last version: the same modules, with a warning."""

import importlib
import sys

import pytest
from helpers import must_fail

from icl_interp import renamed


def check_same(old: str):
    """The old name gives the module itself, which keeps its own name and spec."""
    sys.modules.pop(f"icl_interp.{old}", None)
    new = importlib.import_module(f"icl_interp.{renamed.MODULES[old]}")
    with pytest.warns(DeprecationWarning, match=f"icl_interp.{renamed.MODULES[old]} now"):
        found = importlib.import_module(f"icl_interp.{old}")
    assert found is new
    assert new.__spec__.name == new.__name__ == f"icl_interp.{renamed.MODULES[old]}"


@pytest.mark.parametrize("old", renamed.MODULES)
def test_an_old_name_gives_the_module_itself(old, monkeypatch):
    check_same(old)
    module = importlib.import_module(f"icl_interp.{renamed.MODULES[old]}")
    monkeypatch.setattr(module, "__spec__", module.__spec__)  # put back after the mutant
    monkeypatch.setattr(renamed._Loader, "exec_module", lambda self, module: None)
    must_fail(check_same, old)


def test_a_module_of_a_renamed_package_is_found_too():
    sys.modules.pop("icl_interp.testing.edits.stream", None)
    with pytest.warns(DeprecationWarning, match=r"reparameterisations\.stream now"):
        import icl_interp.testing.edits.stream as stream
    from icl_interp.testing.reparameterisations import stream as new

    assert stream is new


def test_a_name_that_never_was_is_refused():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("icl_interp.testing.tirals")
