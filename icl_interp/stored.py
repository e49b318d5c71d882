"""Plain data from a file, read with a check at every step: whatever is wrong gets one line that names the place.

Whatever a user names, or a run folder holds, is opened by `opened` or looked at by `check_file`
first: a pipe would wait without end, and a device never ends.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from icl_interp.errors import InputError, shown, unknown

DEPTH = 20  # levels of lists and mappings: far more than a config or a report has
LARGEST = 2**63  # of whole numbers
_SINGLE = {
    str,
    float,
    bool,
    type(None),
}  # values that need no look inside; a whole number may be too large
NOT_FINITE = ("nan", "inf", "-inf")  # how JSON data of ours writes these numbers
LARGEST_WEIGHTS = (
    10**10
)  # bytes of a file of weights, which is read whole: numbers of float32, 2.5 billion
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


@dataclass(frozen=True)
class Stored:
    """A piece of JSON or YAML data, and where it stands.

    Each reader returns plain Python data or raises an `InputError`, such as "report.json:
    findings[3].estimate.low must be a number, but got 'x'".

    Attributes:
        value: the data.
        where: its place, for messages; one that ends with a space names the file only.

    >>> Stored({"low": "x"}, "report.json: ")["low"].number()
    Traceback (most recent call last):
    icl_interp.errors.InputError: report.json: low must be a number, but got 'x'
    """

    value: Any
    where: str

    def refused(self, expected: str) -> InputError:
        """The error that says what should stand here."""
        return InputError(
            f"{self.where.rstrip(' :')} must be {expected}, but got {shown(self.value)}"
        )

    def __getitem__(self, key: str) -> "Stored":
        """What stands under a key that has to be there."""
        if key not in self.mapping():
            raise InputError(f"{self.where.rstrip(' :')} lacks the key {key!r}")
        return self._below(key)

    def get(self, key: str) -> "Stored | None":
        """What stands under a key, where it is there and not null."""
        return self._below(key) if self.mapping().get(key) is not None else None

    def mapping(self) -> Mapping[str, Any]:
        """The data as a mapping from text."""
        if not isinstance(self.value, Mapping) or not all(
            isinstance(key, str) for key in self.value
        ):
            raise self.refused("a mapping")
        return self.value

    def members(self, known: Iterable[str] | None = None) -> "dict[str, Stored]":
        """The members of a mapping by key; keys that are not among the `known` ones are refused."""
        valid = None if known is None else list(known)
        for key in self.mapping():
            if valid is not None and key not in valid:
                raise unknown(f"key in {self.where.rstrip(' :')}", key, valid)
        return {key: self._below(key) for key in self.mapping()}

    def items(self, length: int | None = None) -> "list[Stored]":
        """The items of a list, of a certain length where one is given."""
        if not isinstance(self.value, (list, tuple)) or length not in (None, len(self.value)):
            raise self.refused("a list" if length is None else f"a list of {length}")
        return [Stored(item, f"{self.where}[{i}]") for i, item in enumerate(self.value)]

    def text(self) -> str:
        """The data as text."""
        if not isinstance(self.value, str):
            raise self.refused("text")
        return self.value

    def number(self) -> float:
        """The data as a number, also one that is not finite and so was written as text."""
        if not is_number(self.value):
            raise self.refused("a number")
        return float(self.value)

    def scalar(self) -> Any:
        """A number, text, a truth value or null; "nan" and the like become the number."""
        if isinstance(self.value, (Mapping, list, tuple)):
            raise self.refused("a number or text")
        return (
            float(self.value)
            if isinstance(self.value, str) and self.value in NOT_FINITE
            else self.value
        )

    def one_of(self, valid: Iterable[str]) -> Any:
        """One of several words."""
        if self.value not in (options := list(valid)):
            raise self.refused(f"one of {', '.join(options)}")
        return self.value

    def plain(self, depth: int = DEPTH) -> Any:
        """The data itself, where it holds what JSON can and nests no deeper than `depth`."""
        if isinstance(self.value, Mapping):
            inner = [
                Stored(key, f"the key {shown(key)} in {self.where.rstrip(' :')}").text()
                for key in self.value
            ]
            below = (self._below(key) for key in inner)
        elif isinstance(self.value, (list, tuple)):
            # There may be millions of numbers, and a `Stored` costs more than the look at one.
            deeper = () if set(map(type, self.value)) <= _SINGLE else enumerate(self.value)
            below = (
                Stored(item, f"{self.where}[{i}]")
                for i, item in deeper
                if type(item) not in _SINGLE
            )
        else:
            if not isinstance(self.value, (str, int, float, bool, type(None))):
                raise self.refused("a number, text, a truth value, a list or a mapping")
            if isinstance(self.value, int) and not -LARGEST < self.value < LARGEST:
                raise self.refused("a whole number below 2**63 in size")
            return self.value
        if depth < 1:
            raise InputError(
                f"{self.where[:200].rstrip(' :')} nests deeper than the {DEPTH} levels that are "
                "read"
            )
        for stored in below:
            stored.plain(depth - 1)
        return self.value

    def facts(self) -> dict[str, Any]:
        """The data as a mapping that holds what JSON can."""
        found = dict(self.mapping())
        self.plain()
        return found

    def _below(self, key: str) -> "Stored":
        plain = key.replace("_", "a").isalnum() and len(key) <= 60
        place = key if plain else f"[{shown(key)}]"
        joint = "" if self.where.endswith(" ") or not plain else "."
        return Stored(self.value[key], f"{self.where}{joint}{place}")


def is_number(value: object) -> bool:
    """Whether JSON data is a number, also one that is not finite and so was written as text."""
    if isinstance(value, str):
        return value in NOT_FINITE
    if isinstance(value, int):
        return not isinstance(value, bool) and -LARGEST < value < LARGEST
    return isinstance(value, float)
