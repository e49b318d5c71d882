"""Registers: what studies bring, by name.

The first reader of any of them waits for the studies of other packages.
"""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

from icl_interp.errors import InputError, shown, unknown

T = TypeVar("T")
_all: list["Register[Any]"] = []
_waiting: list[Callable[[], None]] = []
# Held while registers are filled: no thread reads what another one has filled by half. What is
# loaded may read itself.
_LOCK = threading.RLock()


class Register(MutableMapping[str, T]):
    """Things of one kind by name, in the order in which they came.

    Args:
        kind: what it holds, for messages: "claim".

    >>> experiments = Register("experiment")
    >>> experiments.add("limits.table1", "errors by sigma")
    >>> experiments.add("limits.table1", "something else")
    Traceback (most recent call last):
    icl_interp.errors.InputError: there is an experiment called 'limits.table1' already: choose another name
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._held: dict[str, T] = {}
        _all.append(self)

    def add(self, name: str, thing: T) -> None:
        """Hold one more thing.

        Raises:
            InputError: there is one of this name.
        """
        if name in self._held:
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise InputError(
                f"there is {article} {self.kind} called {shown(name)} already: choose another name"
            )
        self._held[name] = thing

    def named(self, name: str) -> T:
        """The thing of that name.

        Raises:
            InputError: there is none; the message lists those that there are.
        """
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]

    def __getitem__(self, name: str) -> T:
        _complete()
        return self._held[name]

    def __setitem__(self, name: str, thing: T) -> None:
        self._held[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        _complete()
        return iter(self._held)

    def __len__(self) -> int:
        _complete()
        return len(self._held)


def before_first_read(load: Callable[[], None]) -> None:
    """Call this once, before anybody reads a register."""
    _waiting.append(load)


def _complete() -> None:
    with _LOCK:
        while _waiting:
            _waiting.pop()()  # taken off first: what is loaded may read registers itself


@contextmanager
def whole_or_not_at_all() -> Iterator[None]:
    """Where an error passes, every register is as it was."""
    with _LOCK:
        before = [dict(register._held) for register in _all]
        try:
            yield
        except BaseException:
            _restore(before)
            raise


@contextmanager
def as_before() -> Iterator[None]:
    """Whatever is registered inside is forgotten afterwards."""
    _complete()
    before = [dict(register._held) for register in _all]
    try:
        yield
    finally:
        _restore(before)


def _restore(before: list[dict[str, Any]]) -> None:
    for register, held in zip(_all, before, strict=True):
        register._held = held
