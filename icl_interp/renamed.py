"""Names of the last version, which work until the next one, with a warning."""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

PACKAGE = __name__.partition(".")[0]
# By the name of the last version, below the package.
MODULES = {
    "analyses.scale": "analyses.output_unit",
    "analyses.twins": "analyses.controls",
    "experiments.bench": "experiments.setup",
    "experiments.scales": "experiments.presets",
    "models.units": "models.single_layers",
    "testing.edits": "testing.reparameterisations",
    "testing.ignorant": "testing.null_models",
    "testing.parts": "testing.job_cache",
    "testing.trials": "testing.metamorphic",
    "training.curriculum": "training.schedules",
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
    """Have old names found from now on, before any other finder looks for them."""
    others = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    sys.meta_path[:] = [_Finder(), *others]


def with_old_names(*dropped: str, **now: str) -> Callable[[type[T]], type[T]]:
    """Decorator of a class whose arguments and attributes had other names in the last version.

    Args:
        *dropped: arguments of the last version that nothing reads any more.
        **now: today's name by the name of the last version.

    >>> from dataclasses import dataclass
    >>> @with_old_names(weight="mass")
    ... @dataclass
    ... class Body:
    ...     mass: float
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     Body(weight=2.0).weight
    2.0
    >>> str(said[0].message)
    'weight of Body is called mass now; the old name goes with the next version'
    """

    def decorate(cls: type[T]) -> type[T]:
        made = cls.__init__

        @functools.wraps(made)
        def with_renamed(self: Any, *args: Any, **kwargs: Any) -> None:
            for old in now.keys() & kwargs.keys():
                _warn(cls, old, now[old])
                kwargs[now[old]] = kwargs.pop(old)
            for old in kwargs.keys() & set(dropped):
                message = f"{old} of {cls.__name__} is not used any more: leave it out"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                del kwargs[old]
            made(self, *args, **kwargs)

        aliases = {
            old: property(functools.partial(_by_old_name, old=old, new=new))
            for old, new in now.items()
        }
        for name, value in {"__init__": with_renamed, **aliases}.items():
            setattr(cls, name, value)
        return cls

    return decorate


def _by_old_name(thing: Any, old: str, new: str) -> Any:
    _warn(type(thing), old, new)
    return getattr(thing, new)


def _warn(cls: type, old: str, new: str) -> None:
    message = (
        f"{old} of {cls.__name__} is called {new} now; the old name goes with the next version"
    )
    warnings.warn(message, DeprecationWarning, stacklevel=3)
