"""Mutants of files and words of users: each is drawn from its seed and its number alone."""

import copy
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

CONTROLS = "\x1b[31m\x07\r\u202e\u200f\x9b\ud800"
VALUES: list[Any] = [
    None,
    [],
    {},
    "x",
    -1,
    0,
    1.5,
    True,
    10**12,
    10**400,
    -(10**400),
    "nan",
    "inf",
    "1e-3",
    [[1], [2, 3]],
]
VALUES += [
    CONTROLS,
    {CONTROLS: CONTROLS},
    [CONTROLS],
    {"kind": CONTROLS},
    "x" * 5000,
    [0] * 2000,
    {"kind": "Sphere", "dim": 3},
]


def draw(family: str, seed: int, number: int) -> random.Random:
    """The randomness of one mutant."""
    return random.Random(f"{family}/{seed}/{number}")


# ---- data ----------------------------------------------------------------------------------------


def places(data: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every key of nested data, and the ends of each list."""
    if path:
        yield path
    if isinstance(data, dict):
        for key in data:
            yield from places(data[key], (*path, key))
    elif isinstance(data, list) and data:
        for i in {0, len(data) - 1}:
            yield from places(data[i], (*path, i))


def spoiled(data: Any, rng: random.Random) -> Any:
    """A copy in which something is another value, gone, twice as long, or under another name."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        path = rng.choice(list(places(data)) or [()])
        target = data
        for key in path[:-1]:
            target = target[key]
        if not path:
            return copy.deepcopy(rng.choice(VALUES))
        way = rng.choice(("value", "value", "value", "drop", "rename", "nest"))
        if way == "drop":
            del target[path[-1]]
        elif way == "rename" and isinstance(target, dict):
            target[f"{path[-1]}{rng.choice((CONTROLS, 'x'))}"] = target.pop(path[-1])
        elif way == "nest":
            for _ in range(rng.choice((1, 30))):
                target[path[-1]] = [target[path[-1]]]
        else:
            target[path[-1]] = copy.deepcopy(rng.choice(VALUES))
    return data


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some flipped, cut off, put in or put twice."""
    if not data:
        return rng.randbytes(20)
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        at, n = rng.randrange(len(found) or 1), rng.choice((1, 4, 100))
        way = rng.choice(("flip", "flip", "cut", "end", "insert", "again", "length"))
        if way == "flip":
            found[at : at + 1] = rng.randbytes(1)
        elif way == "cut":
            del found[at : at + n]
        elif way == "end":
            del found[at:]
        elif way == "insert":
            found[at:at] = rng.choice(
                (rng.randbytes(n), b"\0" * n, b"[" * n, CONTROLS.encode("utf-8", "surrogatepass"))
            )
        elif way == "again":
            found[at:at] = found[at : at + n]
        else:
            found[at : at + 8] = rng.choice((b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 10**9)))
    return bytes(found)


# ---- files ---------------------------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**13)


STRANGE: list[Callable[[Path], None]] = [
    _pipe,
    _endless,
    _sparse,
    Path.mkdir,
    lambda path: None,
    Path.touch,
]


def in_folder(folder: Path, rng: random.Random, names: list[str]) -> str:
    """Change one file of a folder; what was done."""
    path = folder / rng.choice(names)
    whole = path.read_bytes()
    way = rng.choice(("bytes", "bytes", "data", "data", "data", "strange"))
    if way == "data" and path.suffix in (".json", ".yaml"):
        text = json.dumps(spoiled(json.loads(whole), rng)) if path.suffix == ".json" else None
        path.write_text(text or yaml.dump(spoiled(yaml.safe_load(whole), rng), allow_unicode=False))
    elif way == "strange":
        path.unlink()
        rng.choice(STRANGE)(path)
    else:
        path.write_bytes(damaged(whole, rng))
    return f"{way} of {path.name}"


# ---- pickles -------------------------------------------------------------------------------------


class _Calls:
    """Pickled, it is a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.parts = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.parts


def _text(word: str) -> bytes:
    data = word.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


SNIPPETS = [
    b"]" * 3000,
    b"]a" * 3,
    b")" + b"\x85" * 3000,
    b"K\x01" * 50_000,
    b"cposix\nsystem\n" + _text("touch hacked") + b"\x85R",
    b"cbuiltins\neval\n" + _text("open('hacked', 'w')") + b"\x85R",
    b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R",
    b"ctorch\nFloatTensor\nJ\xff\xff\xff\x0f\x85R",
    b"ctorch._utils\n_rebuild_nested_tensor\n)R",
    b"ccollections\nOrderedDict\n" + b"h\x00\x85R",
    _text(CONTROLS) * 3,
    b"(lp0\n",
    b"h\x07",
    b"q\x00",
    b"0",
    b"u",
    b"s",
]


def hostile(content: dict[str, bytes], rng: random.Random) -> bytes:
    """An archive of torch's with a hostile pickle, a strange member or other bytes.

    The member may also be compressed.
    """
    content = dict(content)
    data = next(name for name in content if name.endswith("data.pkl"))
    packed: set[str] = set()
    for _ in range(rng.choice((1, 1, 3))):
        way = rng.choice(
            ("splice", "splice", "splice", "call", "bytes", "deflate", "member", "keys")
        )
        if way == "splice":
            at = rng.randrange(len(content[data]))
            content[data] = content[data][:at] + rng.choice(SNIPPETS) + content[data][at:]
        elif way == "call":
            trap = rng.choice((os.mkdir, eval, open, getattr))
            content[data] = pickle.dumps(
                {"a": _Calls(trap, "hacked"), CONTROLS: 1}, rng.choice((0, 1, 2, 3, 4, 5))
            )
        elif way == "bytes":
            name = rng.choice(list(content))
            content[name] = damaged(content[name], rng)
        elif way == "deflate":
            name = rng.choice(list(content))
            content[name] += b"\0" * 3 * 10**7
            packed.add(name)
        elif way == "keys":
            content[data] = content[data].replace(
                b"weight", rng.choice((b"we\x1bght", b"weig\x07t", b"w\xc2\x9bigh"))
            )
        else:
            content[
                rng.choice(
                    (f"x/{CONTROLS}"[:-1], "other/data.pkl", "../hacked", "archive/DATA.PKL")
                )
            ] = b"N."
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in content.items():
            archive.writestr(
                name, text, zipfile.ZIP_DEFLATED if name in packed else zipfile.ZIP_STORED
            )
    return damaged(stream.getvalue(), rng) if rng.random() < 0.2 else stream.getvalue()


# ---- words ---------------------------------------------------------------------------------------


def word(rng: random.Random, known: list[str]) -> str:
    """A word of the command line: a known one, with a value, and some characters changed."""
    values = ("1", "-1", "1e400", "[1, 2", "{a: 1}", "x", "&a [*a]", "!!python/name:os", CONTROLS)
    text = f"{rng.choice(known)}={rng.choice(values)}"
    for _ in range(rng.choice((0, 1, 3))):
        at = rng.randrange(len(text) + 1)
        text = (
            text[:at]
            + rng.choice((".", "=", ":", "[", "\x1b", "\u202e", "9" * 500, " ", "\n", "é", "-"))
            + text[at + 1 :]
        )
    return text.replace("\ud800", "")  # no argument of a process can hold it
