"""Modules with another name in the last version; old names work until the next, with a warning."""

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
# By the name of the last version, below the package.
MODULES = {
    "analyses.scale": "analyses.output_unit",
    "analyses.twins": "analyses.controls",
    "experiments.scales": "experiments.presets",
    "models.units": "models.single_layers",
    "testing.edits": "testing.reparameterisations",
    "testing.ignorant": "testing.null_models",
    "testing.parts": "testing.job_cache",
    "testing.trials": "testing.metamorphic",
}


def new_name(old: str) -> str | None:
    """The name that a module has now; None where its name is not one of the last version.

    >>> new_name("icl_interp.testing.edits.stream")
    'icl_interp.testing.reparameterisations.stream'
    >>> new_name("icl_interp.testing.battery") is None
    True
    """
    package, _, inner = old.partition(".")
    if package != PACKAGE:
        return None
    for before, after in MODULES.items():
        if inner == before or inner.startswith(f"{before}."):
            return f"{PACKAGE}.{after}{inner.removeprefix(before)}"
    return None


class _Finder(MetaPathFinder):
    """Finds modules by their old names.

    Python asks it first: it would find the files of a renamed folder by itself, and make second
    copies of what they define.
    """

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = new_name(fullname)
        return ModuleSpec(fullname, _Loader(new)) if new else None


class _Loader(Loader):
    """Gives the module itself under its old name, not a second copy of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} is called {self._name} now; the old name goes with the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import of the old name has put its own spec there, and the module keeps the first one.
        module.__spec__ = self._spec


def install() -> None:
    """Have old names found from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
