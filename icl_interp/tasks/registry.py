"""The class that a `kind` in a config means: tasks and laws of this package and of users."""

from typing import TypeVar

from icl_interp import plugins
from icl_interp.errors import InputError
from icl_interp.tasks import autoregressive, functions, garg, regression, ridge, vectors
from icl_interp.tasks.base import Task

_PARTS = (functions, regression, garg, ridge, autoregressive, vectors)
BUNDLED: dict[str, type] = {name: cls for part in _PARTS for name, cls in part.KINDS.items()}
KINDS: dict[str, type] = dict(BUNDLED)  # by the name that configs use: the class's own

T = TypeVar("T")


def register(cls: type[T]) -> type[T]:
    """Register a class of your own by its name.

    Runs on it can then be saved, loaded, resumed and analysed.

    This may be called, or stand above `@dataclass` as a decorator. Registering a class again from
    the same place (a notebook cell that runs a second time) replaces it. Whoever loads the run has
    to register the class first.

    Args:
        cls: a task (a frozen dataclass below `Task`), or a law that such a task has in a field (a
            frozen dataclass with `sample(shape, generator, dtype)`; a law of `inputs` also needs
            what `tasks.Distribution` lists).

    Returns:
        The class itself.

    Raises:
        InputError: no frozen dataclass, methods that are missing, or a name that is taken.

    >>> from dataclasses import dataclass
    >>> from icl_interp.tasks import Normal, Polynomial, Uniform
    >>> @register
    ... @dataclass(frozen=True, kw_only=True)
    ... class Zeros(Polynomial):
    ...     def value(self, parameters, xs):
    ...         return 0 * super().value(parameters, xs)
    >>> task = Zeros(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=5)
    >>> del KINDS["Zeros"]  # so that this example leaves nothing behind
    """
    if not isinstance(cls, type):
        raise InputError(
            f"register takes a class, but got {cls!r}: write register({type(cls).__name__})"
        )
    name = cls.__name__
    # Its own: a subclass inherits the parent's fields, but not its init.
    own = cls.__dict__.get("__dataclass_params__")
    if own is None or not own.frozen:
        raise InputError(
            f"{name} must be a frozen dataclass to be registered: put @dataclass(frozen=True, "
            "kw_only=True) directly above the class, and register above that"
        )
    if not issubclass(cls, Task) and not callable(getattr(cls, "sample", None)):
        raise InputError(
            f"{name} is neither a task (a class below icl_interp.tasks.Task) nor a law with a "
            "sample"
        )
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{name} lacks what every task needs: {', '.join(missing)}")
    # The name is free, or it is this class's own, from a cell that ran before.
    if name in BUNDLED:
        raise InputError(f"{name!r} is the name of a class of icl_interp: choose another one")
    known = KINDS.get(name, cls)
    same_place = known.__module__ == cls.__module__ and known.__qualname__ == cls.__qualname__
    if not same_place:
        raise InputError(
            f"another class called {name!r} is registered already, "
            f"{known.__module__}.{known.__qualname__}: choose another name"
        )
    KINDS[name] = cls
    return cls


def find(kind: object) -> None:
    """Import the packages that bring studies if no class has this name: one may register it."""
    if isinstance(kind, str) and kind not in KINDS:
        plugins.found()


def tasks() -> list[str]:
    """Names of the tasks that are known now."""
    names = []
    for name, cls in KINDS.items():
        if issubclass(cls, Task):
            names.append(name)
    return names
