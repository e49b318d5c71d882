"""A run and its process: one process a folder, which ends on request after saving the run."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from icl_interp.errors import InputError, logger

log = logger(__name__)
LOCK = ".lock"


class Terminated(SystemExit):
    """The system asked the process to end (SIGTERM).

    The run has been saved, and resumes exactly where it was.

    As a `SystemExit` of code 143 it ends a program that does not catch it, and `except Exception`
    does not hold it up.
    """

    def __init__(self, message: str) -> None:
        super().__init__(143)
        self.message = message

    def __str__(self) -> str:
        return self.message


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make `folder` where it does not exist, and keep every other process from training in it.

    The lock belongs to the process: it goes with it, however it ends.

    Raises:
        InputError: another run holds the lock, or the folder can't be made or written to.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but a run needs a folder")
    new = not folder.exists()
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"another process is training in {folder}: wait until it has ended, or choose another "
            "folder"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; choose a folder you can write to"
        ) from error
    try:
        yield
    finally:
        # Removed while it is held. Who waits for this very file finds it gone, and makes a new one.
        (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        if new:
            with contextlib.suppress(OSError):  # it is not empty: the run wrote something
                folder.rmdir()


class EndRequest:
    """A context in which SIGTERM is remembered instead of ending the process.

    The handler from before comes back at the end, unless another one was set meanwhile. Only the
    main thread can have one: elsewhere, nothing is done.

    Attributes:
        came: whether there was a SIGTERM.
    """

    def __init__(self) -> None:
        self.came = False
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "EndRequest":
        if self._main:
            self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        if self._main and signal.getsignal(signal.SIGTERM) == self._remember:
            # None: a handler that was not set from Python, which Python can't set again.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def _remember(self, *_: object) -> None:
        self.came = True

    def grant(self, message: str) -> None:
        """End the process if that was asked for.

        Raises:
            Terminated: there was a SIGTERM.
        """
        if self.came:
            log.warning(message)
            raise Terminated(message)
