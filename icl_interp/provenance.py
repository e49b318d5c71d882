"""Where a number came from: configurations as JSON, run ids, named random streams, the environment.

Randomness is a function of (seed, stream name, step, rank). Nothing seeds a global generator, so
nothing has to be saved to resume a run exactly, and two measurements never disturb each other.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import sys
import tempfile
import textwrap
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import torch

from icl_interp.errors import InputError, shown, unknown
from icl_interp.stored import read_bytes

LARGEST = 10**8  # bytes of a JSON file; a report of a bundled model has some 5 million
# Bytes of a config or of facts; a config with the largest covariance has half of that.
LARGEST_FACTS = 10**7
# Lists and mappings in one: each takes thirty times the room that it takes in the file.
MOST_PARTS = 10**6


def generator(seed: int, stream: str, step: int = 0, rank: int = 0) -> torch.Generator:
    """A fresh CPU generator for one named stream of randomness.

    >>> a, b = generator(0, "train/prompts", step=3), generator(0, "train/prompts", step=3)
    >>> torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=b))
    True
    >>> c = generator(0, "train/prompts", step=4)
    >>> torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=c))
    False
    """
    name = f"{seed}/{stream}/{step}/{rank}"
    digest = hashlib.sha256(name.encode()).digest()
    number = int.from_bytes(digest[:8], "big") >> 1
    return torch.Generator().manual_seed(number)


def encode(value: Any, *, identity: bool = False) -> Any:
    """A dataclass as plain JSON data, tagged with its class under "kind"; tuples become lists.

    A field that says what is recorded besides, `field(metadata={"records": True})`, is left out
    while it holds its default, and of the `identity` always: two runs that differ in it alone are
    one. One that came later, `field(metadata={"later": True})`, is left out while it holds its
    default, so that configs from before are what they were.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {"kind": type(value).__name__}
        for field in dataclasses.fields(value):
            own = getattr(value, field.name)
            if not _left_out(field, own, identity):
                fields[field.name] = encode(own, identity=identity)
        return fields
    if isinstance(value, Mapping):
        return {str(key): encode(item, identity=identity) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) is float else encode(item, identity=identity) for item in value]
    return value


def _left_out(field: dataclasses.Field[Any], value: Any, identity: bool) -> bool:
    """Whether `encode` leaves a field with this value out."""
    if field.metadata.get("records"):
        return identity or value == field.default
    return bool(field.metadata.get("later")) and value == field.default


def decode(data: Any, kinds: Mapping[str, type], where: str = "config") -> Any:
    """The inverse of `encode` for the dataclasses listed in `kinds`.

    Unknown kinds and keys are refused by name.
    """
    if isinstance(data, list):
        return tuple(decode(item, kinds, where) for item in data)
    if not isinstance(data, Mapping) or "kind" not in data:
        return data
    if not isinstance(data["kind"], str) or data["kind"] not in kinds:
        raise unknown(f"kind in {where}", data["kind"], kinds)
    cls = kinds[data["kind"]]
    fields = {}
    for key, item in data.items():
        if key != "kind":
            fields[key] = decode(item, kinds, f"{where}.{key}")
    return build(cls, fields, where)


def build(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """`cls(**values)` for a dataclass; unknown keys, missing keys and bad numbers are refused.

    The error names the key.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key, value in values.items():
        if key not in fields:
            raise unknown(f"key in {where}", key, fields)
        check_scalar(value, fields[key].type, f"{where}.{key}")
    for name, field in fields.items():
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if required and name not in values:
            raise InputError(f"{where} lacks the key {name!r} that {cls.__name__} needs")
    try:
        return cls(**values)
    except TypeError as error:
        why = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise InputError(f"{where}: {why}") from error


_SCALARS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def check_scalar(value: Any, annotation: Any, where: str) -> None:
    """Refuse a value that is not the number, truth value or text that a field expects.

    Fields of other types check their values themselves.

    Raises:
        InputError: the value is of another kind, or a number that is not finite or that 64 bits do
            not hold.
    """
    options = get_args(annotation) if get_origin(annotation) is types.UnionType else (annotation,)
    kind = next((option for option in options if option in _SCALARS), None)
    if kind is None or (value is None and type(None) in options):
        return
    is_one = isinstance(value, (int, float) if kind is float else kind)
    # True is a whole number to Python.
    if not is_one or isinstance(value, bool) != (kind is bool):
        hint = (
            " (YAML reads 1e-3 as text: write 1.0e-3)"
            if isinstance(value, str) and kind in (int, float)
            else ""
        )
        raise InputError(f"{where} must be {_SCALARS[kind]}, but got {shown(value)}{hint}")
    # A comparison, because math.isfinite() and float() fail on a whole number beyond the range of a
    # float.
    largest = {float: sys.float_info.max, int: 2**63 - 1}.get(kind)
    if largest is not None and isinstance(value, (int, float)) and not abs(value) <= largest:
        what = (
            "a finite number of at most 1.8e308"
            if kind is float
            else "a whole number of at most 64 bits"
        )
        raise InputError(f"{where} must be {what}, but got {shown(value)}")


def canonical(data: Any) -> str:
    """JSON text that is the same for equal data: sorted keys, no spaces, full precision, no NaN."""
    return json.dumps(encode(data), sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_id(config: Any) -> str:
    """Twelve hexadecimal digits that name a configuration, whatever its run records besides."""
    text = canonical(encode(config, identity=True))
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:12]


def environment() -> dict[str, str]:
    """The versions a result depends on. No host name, user or path."""
    versions = {}
    for package in ("icl-interp", "torch", "transformer-lens", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "unknown"
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        **versions,
    }


def finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become the strings "nan", "inf", "-inf".

    `Stored.of(float)` reads them back.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [
            item if type(item) is float and math.isfinite(item) else finite(item) for item in value
        ]
    return value


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace `path` whole or not at all, also when the process is killed in between."""
    path = Path(path)
    # Half a surrogate pair, which JSON and names of files may hold, has no bytes: it is written as
    # its escape.
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a folder you can write to"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private to their owner; a result is meant to be shared.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(
            f"cannot write {path}: {error.strerror}; is it a folder, or the disk full?"
        ) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def as_json(data: Any) -> str:
    """`data` as readable JSON, without rounding; what is not finite stands as text."""
    plain = finite(encode(data))
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def write_json(path: Path, data: Any) -> None:
    """Write `data` as readable JSON, atomically and without rounding."""
    write_atomically(path, as_json(data))


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that a killed process left in `folder` (see `write_atomically`).

    Args:
        folder: no other process may be writing these files in it.
        names: of the files that were being written. Files with any other name are left alone.
    """
    prefixes = "|".join(map(re.escape, names))
    # What mkstemp() makes of a prefix.
    leftover = re.compile(rf"\.({prefixes})\.[a-z0-9_]{{8}}")
    for path in Path(folder).iterdir():
        if leftover.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Read a JSON file.

    Args:
        path: of a regular file.
        largest: bytes that it may have.

    Raises:
        InputError: the file is missing, no regular one or too large, is not JSON in UTF-8, or holds
            a number that is not finite as a float. The error names the file.
    """
    return parse_json(read_bytes(Path(path), largest), str(path))


def parse_json(data: bytes, where: str) -> Any:
    """The value of JSON text in UTF-8; the errors are those of `read_json` and name `where`."""
    n = data.count(b"[") + data.count(b"{")
    if n > MOST_PARTS:
        raise InputError(
            f"{where} holds {n:,} lists and mappings, but at most {MOST_PARTS:,} are read"
        )
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_int=_whole, parse_float=_fraction, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not JSON (byte {error.start} is not UTF-8); was it cut off, edited, or "
            "saved in another encoding?"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error}); was it cut off or edited?") from error


def _whole(text: str) -> int:
    # Counted first: int() takes long over many digits, and refuses more than 4,300.
    if len(text) > 400 or abs(int(text)) > sys.float_info.max:
        raise ValueError(f"the number {shown(text)} is too large")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {shown(text)} is too large")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"it has no {text}")
