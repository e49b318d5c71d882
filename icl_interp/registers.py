"""The register of studies, and what they bring as seen by kind: claims, figures, experiments.

There is one list of what this package knows: `STUDIES`. A `View` shows things of one kind that the
studies hold, and those that came without a study. The first reader of any of them waits for the
studies of this package and of others.
"""

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeVar

from icl_interp.errors import InputError, shown, unknown

T = TypeVar("T")
BUNDLED = f"{__package__}.studies"  # importing it registers the studies of this package
_views: list["View[Any]"] = []
_waiting: list[Callable[[], None]] = []
# Held while studies of other packages are loaded: no thread reads what another one has filled by
# half. What is loaded may read itself.
_LOCK = threading.RLock()


class Register(MutableMapping[str, T]):
    """Things of one kind by name, in the order in which they came.

    Args:
        kind: what it holds, for messages: "claim".

    >>> experiments = Register("experiment")
    >>> experiments.add("limits.table1", "errors by sigma")
    >>> experiments.add("limits.table1", "something else")
    Traceback (most recent call last):
    icl_interp.errors.InputError: there is an experiment called 'limits.table1' already: \
choose another name
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[str, T] = {}

    def add(self, name: str, thing: T) -> None:
        """Hold one more thing.

        Raises:
            InputError: there is one of this name.
        """
        if name in self._held():
            raise self._taken(name)
        self._own[name] = thing

    def named(self, name: str) -> T:
        """The thing of that name.

        Raises:
            InputError: there is none; the message lists those that there are.
        """
        if name not in self:
            raise unknown(self.kind, name, self)
        return self[name]

    def _held(self) -> Mapping[str, T]:
        return self._own

    def _taken(self, name: str) -> InputError:
        article = "an" if self.kind[0] in "aeiou" else "a"
        return InputError(
            f"there is {article} {self.kind} called {shown(name)} already: choose another name"
        )

    def __getitem__(self, name: str) -> T:
        _complete()
        return self._held()[name]

    def __setitem__(self, name: str, thing: T) -> None:
        self._own[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        _complete()
        return iter(dict(self._held()))

    def __len__(self) -> int:
        _complete()
        return len(self._held())


STUDIES: Register[Any] = Register("study")


class View(Register[T]):
    """What the studies bring of one kind, and things of that kind that came without a study.

    What came without a study stands last, and hides what a study has under the same name.

    Args:
        kind: what it shows, for messages: "claim".
        of: the things that a study brings, by name.
        first: what the engine itself has: it stands before all studies.
    """

    def __init__(
        self, kind: str, of: Callable[[Any], Mapping[str, T]], first: Mapping[str, T] | None = None
    ) -> None:
        super().__init__(kind)
        self.of = of
        self._first = dict(first or {})
        _views.append(self)

    def _held(self) -> Mapping[str, T]:
        held = dict(self._first)
        for study in STUDIES._own.values():
            held |= self.of(study)
        return held | self._own

    def alone(self, name: str) -> bool:
        """Whether a thing of this name came without a study."""
        return name in self._own


def check_names(study: Any) -> None:
    """Refuse a study whose name, or one of whose things, another study or the engine has already.

    Raises:
        InputError: a name is taken.
    """
    if study.name in STUDIES:
        raise STUDIES._taken(study.name)
    for view in _views:
        held = view._held()
        for name in view.of(study):
            if name in held:
                raise view._taken(name)


def before_first_read(load: Callable[[], None]) -> None:
    """Call this once, before anybody reads a register."""
    _waiting.append(load)


def _complete() -> None:
    # Not under the lock: a thread that imports the studies already asks for it on the way.
    importlib.import_module(BUNDLED)
    with _LOCK:
        while _waiting:
            _waiting.pop()()  # taken off first: what is loaded may read registers itself


@contextmanager
def as_before() -> Iterator[None]:
    """Whatever is registered inside is forgotten afterwards."""
    _complete()
    before = _everything()
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def whole_or_not_at_all() -> Iterator[None]:
    """Whatever is registered inside is forgotten where an error passes."""
    before = _everything()
    try:
        yield
    except BaseException:
        _restore(before)
        raise


def _everything() -> list[dict[str, Any]]:
    return [dict(register._own) for register in (STUDIES, *_views)]


def _restore(before: list[dict[str, Any]]) -> None:
    for register, own in zip((STUDIES, *_views), before, strict=True):
        register._own = own
