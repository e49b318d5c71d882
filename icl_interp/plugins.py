"""Other packages that bring studies: found by their entry points and imported when first needed."""

import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from icl_interp.errors import logger

GROUP = "icl_interp.studies"
log = logger(__name__)
_found: list[tuple[EntryPoint, Any]] | None = None
_LOCK = threading.RLock()  # another thread waits until all are imported


def found() -> list[tuple[EntryPoint, Any]]:
    """The entry points of the group, and what each holds; one that cannot be imported is left out with a warning.

    Importing happens once in a process. It also registers the tasks that such a package has of its
    own.
    """
    global _found
    with _LOCK:
        if _found is None:
            # A package that asks again while it is imported does not start a second round.
            _found = []
            for point in sorted(
                entry_points(group=GROUP), key=lambda point: (point.name, point.value)
            ):
                with left_out(point):
                    _found.append((point, point.load()))
        return _found


@contextmanager
def left_out(point: EntryPoint) -> Iterator[None]:
    """What goes wrong with a study of another package costs that study only: a line in the log says what."""
    try:
        yield
    except (Exception, SystemExit) as error:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "another package"
        reason = f"{type(error).__name__}: {error}".removeprefix("InputError: ")
        reason = textwrap.shorten(reason, 300, placeholder=" ...")
        log.warning("the study %r of %s is left out: %s", point.name, package, reason)
