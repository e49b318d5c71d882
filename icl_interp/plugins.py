"""Packages that bring studies or formats: found by entry points, imported when first needed."""

import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from icl_interp.errors import logger

GROUP = "icl_interp.studies"
FORMATS = "icl_interp.formats"
_KINDS = {GROUP: "study", FORMATS: "format"}
log = logger(__name__)
_found: dict[str, list[tuple[EntryPoint, Any]]] = {}
_LOCK = threading.RLock()  # another thread waits until all are imported


def found(group: str = GROUP) -> list[tuple[EntryPoint, Any]]:
    """The entry points of a group, and what each holds.

    An entry point that cannot be imported is left out with a warning.

    Importing happens once in a process. It also registers the tasks that such a package has of its
    own.
    """
    with _LOCK:
        if group not in _found:
            # A package that asks again while it is imported does not start a second round.
            _found[group] = []
            for point in sorted(
                entry_points(group=group), key=lambda point: (point.name, point.value)
            ):
                with left_out(point):
                    _found[group].append((point, point.load()))
        return _found[group]


@contextmanager
def left_out(point: EntryPoint) -> Iterator[None]:
    """Leave out what fails of another package, and log the cause in one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "another package"
        reason = f"{type(error).__name__}: {error}".removeprefix("InputError: ")
        reason = textwrap.shorten(reason, 300, placeholder=" ...")
        kind = _KINDS.get(point.group, "part")
        log.warning("the %s %r of %s is left out: %s", kind, point.name, package, reason)
