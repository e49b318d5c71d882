"""Plain data from a file, read with a check at every step: whatever is wrong gets one line that names the place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from icl_interp.errors import InputError, shown, unknown

DEPTH = 20  # levels of lists and mappings: far more than a config or a report has
LARGEST = 2**63  # of whole numbers
_SINGLE = {str, float, bool, type(None)}  # values that need no look inside; a whole number may be too large
NOT_FINITE = ("nan", "inf", "-inf")  # how JSON data of ours writes these numbers


@dataclass(frozen=True)
class Stored:
    """A piece of JSON or YAML data, and where it stands.

    Each reader returns plain Python data or raises an `InputError`, such as "report.json: findings[3].estimate.low must
    be a number, but got 'x'".

    Attributes:
        value: the data. where: its place, for messages; one that ends with a space names the file only.

    >>> Stored({"low": "x"}, "report.json: ")["low"].number()
    Traceback (most recent call last):
    icl_interp.errors.InputError: report.json: low must be a number, but got 'x'
    """

    value: Any
    where: str

    def refused(self, expected: str) -> InputError:
        """The error that says what should stand here."""
        return InputError(f"{self.where.rstrip(' :')} must be {expected}, but got {shown(self.value)}")

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
        if not isinstance(self.value, Mapping) or not all(isinstance(key, str) for key in self.value):
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
        return float(self.value) if isinstance(self.value, str) and self.value in NOT_FINITE else self.value

    def one_of(self, valid: Iterable[str]) -> Any:
        """One of several words."""
        if self.value not in (options := list(valid)):
            raise self.refused(f"one of {', '.join(options)}")
        return self.value

    def plain(self, depth: int = DEPTH) -> Any:
        """The data itself, where it holds what JSON can and nests no deeper than `depth`."""
        if isinstance(self.value, Mapping):
            inner = [Stored(key, f"the key {shown(key)} in {self.where.rstrip(' :')}").text() for key in self.value]
            below = (self._below(key) for key in inner)
        elif isinstance(self.value, (list, tuple)):
            # There may be millions of numbers, and a `Stored` costs more than the look at one.
            deeper = () if set(map(type, self.value)) <= _SINGLE else enumerate(self.value)
            below = (Stored(item, f"{self.where}[{i}]") for i, item in deeper if type(item) not in _SINGLE)
        else:
            if not isinstance(self.value, (str, int, float, bool, type(None))):
                raise self.refused("a number, text, a truth value, a list or a mapping")
            if isinstance(self.value, int) and not -LARGEST < self.value < LARGEST:
                raise self.refused("a whole number below 2**63 in size")
            return self.value
        if depth < 1:
            raise InputError(f"{self.where[:200].rstrip(' :')} nests deeper than the {DEPTH} levels that are read")
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
