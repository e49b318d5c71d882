"""Plain data of a file, and the classes of the package that are made of it, by pydantic.

Classes are taken as they are: their annotations say what a file must hold. Nothing is converted
but what JSON cannot say: lists become tuples, and "nan", "inf" and "-inf" become numbers. An error
of pydantic becomes one line here, which names the place, says what was expected there, and shows
what came.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from icl_interp.descriptions import NOT_FINITE
from icl_interp.errors import InputError, shown, unknown

DEPTH = 20  # levels of lists and mappings: far more than a config or a report has
LARGEST = 2**63  # of whole numbers
# Bytes of what becomes an object at a time: pydantic collects an error for each item of a list.
LARGEST_PART = 3 * 10**6
# Values that need no look inside; a whole number may be too large.
_SINGLE = {str, float, bool, type(None)}
STRICT = ConfigDict(strict=True, extra="forbid")
WORDS = {
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
}


@dataclass(frozen=True)
class Stored:
    """A piece of JSON or YAML data, and where it stands.

    Each method gives a part, or the data as what they should be, or raises an `InputError` of one
    line that names the place.

    Attributes:
        value: the data.
        where: its place, for messages; one that ends with a space names the file only.

    >>> Stored({"low": "x"}, "report.json: ")["low"].of(float)
    Traceback (most recent call last):
    icl_interp.errors.InputError: report.json: low must be a number, but got 'x'
    """

    value: Any
    where: str

    @property
    def place(self) -> str:
        """Where it stands, as the subject of a sentence."""
        return self.where.rstrip(" :")

    def refused(self, expected: str) -> InputError:
        """The error that says what should stand here."""
        return InputError(f"{self.place} must be {expected}, but got {shown(self.value)}")

    def __getitem__(self, key: str) -> "Stored":
        """What stands under a key that has to be there."""
        if key not in self.mapping():
            raise InputError(f"{self.place} lacks the key {key!r}")
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
                raise unknown(f"key in {self.place}", key, valid)
        return {key: self._below(key) for key in self.mapping()}

    def items(self) -> "list[Stored]":
        """The items of a list."""
        if not isinstance(self.value, (list, tuple)):
            raise self.refused("a list")
        return [self._below(i) for i in range(len(self.value))]

    def one_of(self, words: Iterable[str]) -> Any:
        """One of several words."""
        return self.of(Literal[tuple(words)])

    def plain(self) -> Any:
        """The data itself, where it holds what JSON can and nests no deeper than `DEPTH`."""
        _check_plain(self, DEPTH)
        return self.value

    def facts(self) -> dict[str, Any]:
        """The data as a mapping that holds what JSON can."""
        found = dict(self.mapping())
        self.plain()
        return found

    def of(self, kind: Any) -> Any:
        """The data as an object of a type: a class, `float`, `dict[str, int]` or the like.

        Numbers that are not finite may stand as text, as `provenance.finite` writes them.
        """
        text = _as_json(self)
        if len(text) > LARGEST_PART:
            raise InputError(
                f"{self.place} has {len(text):,} bytes, but at most {LARGEST_PART:,} are read"
            )
        try:
            made = _reader(kind).validate_json(text)[0]
        except ValidationError as error:
            raise _in_words(error, self) from error
        self.plain()
        return made

    def _below(self, key: str | int) -> "Stored":
        if isinstance(key, int):
            return Stored(self.value[key], f"{self.where}[{key}]")
        plain = key.replace("_", "a").isalnum() and len(key) <= 60
        joint = "" if self.where.endswith(" ") or not plain else "."
        return Stored(self.value[key], f"{self.where}{joint}{key if plain else f'[{shown(key)}]'}")


def of_schema(data: Any, schema: str, where: object) -> Stored:
    """What was read from a file, where that is of a certain schema.

    Raises:
        InputError: it is of another one; the message names the file.
    """
    found = data.get("schema") if isinstance(data, Mapping) else None
    if found != schema:
        raise InputError(f"{where} has schema {shown(found)}, but this version reads {schema!r}")
    return Stored(data, f"{where}: ")


def is_number(value: object) -> bool:
    """Whether JSON data is a number, also one that is not finite and so was written as text."""
    if isinstance(value, str):
        return value in NOT_FINITE
    if isinstance(value, int):
        return not isinstance(value, bool) and -LARGEST < value < LARGEST
    return isinstance(value, float)


def _check_plain(stored: Stored, depth: int) -> None:
    """Refuse what JSON cannot hold, and what nests deeper than `depth` levels."""
    value, inner = stored.value, ()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Stored(key, f"the key {shown(key)} in {stored.place}").refused("text")
        inner = value.items()
    elif isinstance(value, (list, tuple)):
        # There may be millions of numbers, and a look at each takes long.
        inner = () if set(map(type, value)) <= _SINGLE else enumerate(value)
    elif not isinstance(value, (str, int, float, bool, type(None))):
        raise stored.refused("a number, text, a truth value, a list or a mapping")
    elif isinstance(value, int) and not -LARGEST < value < LARGEST:
        raise stored.refused("a whole number below 2**63 in size")
    else:
        return
    if depth < 1:
        place = stored.where[:200].rstrip(" :")
        raise InputError(f"{place} nests deeper than the {DEPTH} levels that are read")
    for key, item in inner:
        if type(item) not in _SINGLE:
            _check_plain(stored._below(key), depth - 1)


# ---- pydantic ------------------------------------------------------------------------------------


@functools.cache
def _reader(kind: Any) -> Any:
    """The `TypeAdapter` of a list of one object: only around a class it can be told how strict."""
    holder: Any = tuple.__class_getitem__(kind)
    return TypeAdapter(holder, config=STRICT)


def _as_json(stored: Stored) -> bytes:
    """The data as text once more: of text pydantic takes lists for tuples, but nothing else."""
    try:
        text = json.dumps([_revived(stored.value)], ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        stored.plain()  # says what is wrong, and where
        raise
    return text.encode("utf-8", "replace")  # half a surrogate pair has no bytes


def _revived(value: Any) -> Any:
    """The inverse of `provenance.finite`: names of numbers that are not finite become these."""
    if isinstance(value, str):
        return float(value) if value in NOT_FINITE else value
    if isinstance(value, Mapping):
        return {key: _revived(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_revived(item) for item in value]
    return value


def _in_words(error: ValidationError, stored: Stored) -> InputError:
    """The first error as a line. A key that is not known says more than the lack of another."""
    errors = error.errors(include_url=False)
    extra = [one for one in errors if one["type"] == "unexpected_keyword_argument"]
    first = (extra or errors)[0]
    kind, about = first["type"], first.get("ctx", {})
    _, *keys = first["loc"]
    *above, last = keys or [""]
    if kind in ("missing", "unexpected_keyword_argument") and isinstance(last, str):
        holder = functools.reduce(Stored._below, above, stored)
        if kind == "missing":
            return InputError(f"{holder.place} lacks the key {last!r}")
        return InputError(
            f"unknown key in {holder.place} {shown(last)}: was it edited, or written by another "
            "version?"
        )
    if kind == "missing":  # of a list: there is an error for each item that it lacks
        holder = functools.reduce(Stored._below, above, stored)
        lacking = [one["loc"][-1] for one in errors if list(one["loc"][1:-1]) == above]
        length = 1 + max(map(int, lacking))
        return holder.refused(f"a list of {length}")
    found = functools.reduce(Stored._below, keys, stored)
    if kind == "too_long":
        return found.refused(f"a list of {about['max_length']}")
    if kind == "value_error":  # what a class says of its own values
        return InputError(f"{found.place}: {about['error']}")
    if kind == "literal_error":
        words = re.findall("'([^']*)'", about["expected"])
        return found.refused(f"one of {', '.join(words)}")
    return found.refused(WORDS.get(kind, first["msg"]))
