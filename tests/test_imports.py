"""The public names load when they are used, without the garbage collector in between."""

import gc
import importlib
import types

import pytest

import icl_interp


@pytest.fixture
def seen(monkeypatch):
    """Whether the collector was on at each import."""
    found = []

    def load(name):
        found.append(gc.isenabled())
        if name.endswith("errors"):
            raise ImportError("no such file")
        return types.ModuleType(name)

    monkeypatch.setattr(importlib, "import_module", load)
    return found


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_pauses_while_modules_load_and_then_is_as_before(seen, collects):
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert (
            icl_interp.__getattr__("tasks").__name__ == "icl_interp.tasks"
        )  # as if it were not loaded
        assert gc.isenabled() is collects
        with pytest.raises(ImportError):  # of the name InputError
            icl_interp.__getattr__("InputError")
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False, False]


def test_a_name_that_is_not_there_is_an_error_that_lists_what_is(seen):
    with pytest.raises(AttributeError, match=r"no attribute 'analyse'; it has .*analyze"):
        icl_interp.analyse  # noqa: B018
    assert seen == []
