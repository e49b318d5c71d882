"""Names of the last version mean what they meant, with a warning."""

import importlib
import sys

import pytest
from helpers import must_fail

from icl_interp import renamed
from icl_interp.analyses import Evidence
from icl_interp.analyses.measurement import Results


@pytest.fixture(autouse=True)
def asked_first():
    """The hook that checks annotations has put its finder before all others."""
    renamed.install()


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


def old_names_work(claim_type):
    """Arguments and attributes of the last version mean what they meant, and warn."""
    with pytest.warns(DeprecationWarning, match="twin of Evidence is called control now"):
        evidence = claim_type({}, "It is so.", twin={"a": 1})
    assert evidence.control == {"a": 1}
    with pytest.warns(DeprecationWarning, match="twin of Evidence is called control now"):
        assert evidence.twin == {"a": 1}


def test_old_names_of_arguments_and_attributes_work():
    old_names_work(Evidence)
    with pytest.warns(DeprecationWarning, match="by_twin of Results"):
        assert Results({"a": 1}).by_twin == []
    must_fail(old_names_work, lambda *args, twin: Evidence(*args, control=twin))


def test_arguments_that_nothing_reads_any_more_are_left_out_with_a_warning():
    @renamed.with_old_names("colour")
    class Thing:
        def __init__(self, size):
            self.size = size

    with pytest.warns(DeprecationWarning, match="colour of Thing is not used any more"):
        assert Thing(size=2, colour="red").size == 2
    with pytest.raises(TypeError, match="shape"):
        Thing(size=2, shape="round")
