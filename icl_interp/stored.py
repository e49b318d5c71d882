"""Files of a user: the one door through which they are opened.

Whatever a user names, or a run folder holds, is opened by `opened` or looked at by `check_file`
first: a pipe would wait without end, and a device never ends.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from icl_interp.errors import InputError

# Bytes of a file of weights, which is read whole: 2.5 billion numbers of float32.
LARGEST_WEIGHTS = 10**10
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_file(path: Path, largest: int) -> None:
    """Refuse what is no regular file, or one that is too large. It is not opened.

    Args:
        path: of the file; links are followed.
        largest: bytes that it may have.

    Raises:
        InputError: there is no such file, it is another kind of thing, or larger.
    """
    try:
        about = Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise _unread(path, error) from error
    _check_about(path, about, largest)


@contextmanager
def opened(path: Path, largest: int) -> Iterator[BinaryIO]:
    """A regular file, open for reading bytes; arguments and errors are those of `check_file`.

    An error of the system while it is read is an `InputError` too.
    """
    check_file(path, largest)
    try:
        # Should it have become a pipe since, opening it does not wait for somebody to write.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            _check_about(path, os.fstat(file.fileno()), largest)
            yield file
    except OSError as error:
        raise _unread(path, error) from error


def read_bytes(path: Path, largest: int) -> bytes:
    """All of a regular file of at most `largest` bytes, with the errors of `check_file`."""
    with opened(path, largest) as file:
        data = file.read(largest + 1) or b""
    if len(data) > largest:  # files of the system may say that they are empty
        raise InputError(f"{path} has more than the {largest:,} bytes that are read")
    return data


def _check_about(path: Path, about: os.stat_result, largest: int) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise InputError(f"cannot read {path}: {os.strerror(errno.EISDIR)}")
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise InputError(f"cannot read {path}: it is {kind}, and only regular files are read")
    if about.st_size > largest:
        raise InputError(f"{path} has {about.st_size:,} bytes, but at most {largest:,} are read")


def _unread(path: Path, error: Exception) -> InputError:
    return InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}")
