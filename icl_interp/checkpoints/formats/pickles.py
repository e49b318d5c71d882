"""What a file of torch.save would take to read, counted before anything of it is read.

A file of some megabytes may hold text that unpacks to gigabytes, a pickle of millions of objects,
or one that nests so deep that Python itself ends. Such a file is refused from the directory of its
archive, and from the opcodes of its pickles, which are walked through without making any object.

Of the archive one reading is possible only: its directory ends the file, stands where its last
record says, and has each name once. Else torch's reader could find another pickle in it than the
one that was counted.
"""

import io
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError
from icl_interp.stored import LARGEST_WEIGHTS, opened

# An open file, or bytes in memory. (Whoever checks types at run time knows no BytesIO as a
# BinaryIO.)
Bytes = Any

MOST = (
    10**6
)  # objects in a pickle; a state dict of 1,000 tensors with its optimiser's state has 100,000
DEEPEST = 100  # levels of lists, tuples and mappings
LARGEST_PICKLE = 5 * 10**7  # bytes of names, shapes and numbers beside the tensors
LARGEST_DIRECTORY = 10**7  # bytes of an archive's directory: that of 100,000 members
PICKLE = "data.pkl"  # what torch.save calls the pickle in its archive

_MAGIC = 119547037146038801333356  # the first object of a file in torch's old format
# Pickles at the beginning of such a file: this number, a version, sizes, the data, names of
# storages.
_N_OLD = 5
# How records at the end of an archive begin, and how many bytes they have.
_END = b"PK\x05\x06"
_N_END = 22
_END_64 = b"PK\x06\x06"
_N_END_64 = 56
_PLACE_64 = b"PK\x06\x07"
_N_PLACE_64 = 20
# torch allows it, and it makes any number of bytes of a number.
_FILLS = ("builtins bytearray", "__builtin__ bytearray")
_NUMBERS = ("BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "NONE", "NEWTRUE", "NEWFALSE")
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_GETS = ("GET", "BINGET", "LONG_BINGET")
_CALLS = ("REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST")  # what may copy its arguments
# What changes an object that is there.
_GROWS = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")


def check(file: Path, kind: str) -> None:
    """Refuse a file that takes more than its own size promises.

    Args:
        file: of torch.save, as its first bytes say.
        kind: "zip" for its archives, "pickle" for its old format.

    Raises:
        InputError: it is compressed, or holds too many objects, or nests too deep.
        pickle.UnpicklingError: it asks for something that is no part of a state dict; the message
            names it.
        ValueError, zipfile.BadZipFile: it is no whole file of torch.save.
    """
    with opened(file, LARGEST_WEIGHTS) as stream:
        if kind == "zip":
            _check_archive(stream, file)
        else:
            _check_old(stream, file)


def members(file: Path) -> list[zipfile.ZipInfo]:
    """What the directory of an archive lists.

    Raises:
        InputError: the directory is too large.
        ValueError, zipfile.BadZipFile: it is no whole archive.
    """
    with opened(file, LARGEST_WEIGHTS) as stream:
        return _listed(stream, file)


def _listed(stream: Bytes, file: Path) -> list[zipfile.ZipInfo]:
    _check_directory(stream, file)
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.infolist()
    except NotImplementedError as error:  # a later version of the format
        raise zipfile.BadZipFile(str(error)) from error


def _check_directory(stream: Bytes, file: Path) -> None:
    """Refuse a directory of a zip file that is too large or not just before the file's end."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - _N_END - _N_PLACE_64 - _N_END_64))
    tail = stream.read()
    end = tail[-_N_END:]
    place = tail[-_N_END - _N_PLACE_64 : -_N_END]
    # Length and start of the directory, as the last record has them.
    length = int.from_bytes(end[12:16], "little")
    start = int.from_bytes(end[16:20], "little")
    after = _N_END
    if place[:4] == _PLACE_64:  # the numbers of archives of any size
        record = tail[:_N_END_64]
        after += _N_PLACE_64 + _N_END_64
        length = int.from_bytes(record[40:48], "little")
        start = int.from_bytes(record[48:56], "little")
        if record[:4] != _END_64 or int.from_bytes(place[8:16], "little") != size - after:
            raise zipfile.BadZipFile("two ends of its directory")
    if end[:4] != _END or start + length + after != size:
        raise zipfile.BadZipFile("no directory at its end")
    if length > LARGEST_DIRECTORY:
        raise InputError(
            f"{file} has a directory of {length:,} bytes, but at most {LARGEST_DIRECTORY:,} are "
            "read"
        )


def _check_archive(stream: Bytes, file: Path) -> None:
    # Nothing is compressed.
    found = _listed(stream, file)
    size = stream.seek(0, io.SEEK_END)
    unpacked = sum(member.file_size for member in found)
    if not all(map(_is_stored, found)) or unpacked > size:
        raise InputError(
            f"{file} is a compressed archive of {size:,} bytes that unpacks to {unpacked:,}, but "
            "torch.save compresses nothing: read it where it comes from, and save the model's "
            "state dict with torch.save"
        )

    # There is one pickle. torch does not tell capitals from small letters.
    by_name = {member.filename.lower(): member for member in found}
    if len(by_name) < len(found):
        raise zipfile.BadZipFile("one name twice")
    pickled = [name for name in by_name if name.endswith(PICKLE)]
    if len(pickled) != 1:
        raise zipfile.BadZipFile("no pickle, or several")
    member = by_name[pickled[0]]
    if member.file_size > LARGEST_PICKLE:
        raise _too_large(file, member.file_size)
    with zipfile.ZipFile(stream) as archive:
        _count(io.BytesIO(archive.read(member)), file)


def _is_stored(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size


def _check_old(stream: Bytes, file: Path) -> None:
    data = stream.read(LARGEST_PICKLE + 1)
    pickles = io.BytesIO(data)
    first = _count(pickles, file)
    # Some other pickle: torch would go through it before it sees that it is none of its own.
    if first.names:
        raise pickle.UnpicklingError(f"weights_only: GLOBAL {first.names[0]}")
    if first.number != _MAGIC:
        raise ValueError("not of torch.save")
    for _ in range(_N_OLD - 1):
        _count(pickles, file)
    if pickles.tell() > LARGEST_PICKLE:
        raise _too_large(file, pickles.tell())


def _too_large(file: Path, size: int) -> InputError:
    return InputError(
        f"{file} holds a pickle of {size:,} bytes beside its tensors, but at most "
        f"{LARGEST_PICKLE:,} are read: save the model's state dict alone, with "
        "torch.save(model.state_dict(), ...)"
    )


class _Made:
    """What is known of an object that a pickle would make.

    Attributes:
        depth: levels of containers in it. weight: about how many objects it holds.
    """

    __slots__ = ("depth", "weight")

    def __init__(self, depth: int, weight: int) -> None:
        self.depth = depth
        self.weight = weight


class _Walk:
    """A walk through a pickle as its reader would go, with depths and weights in place of objects.

    Attributes:
        stack: what the pickle has on its stack; None is a mark. memo: what it keeps by number.
        names: of the classes and functions that it asks for.
        spent: opcodes so far, and the weight of what was copied.
        made: opcodes that make or move something. single: the argument of the last of them.
    """

    def __init__(self) -> None:
        self.stack: list[_Made | None] = []
        self.memo: dict[int, _Made] = {}
        self.names: list[str] = []
        self.spent = 0
        self.made = 0
        self.single: Any = None

    @property
    def number(self) -> Any:
        """The object, where the whole pickle is one number; None else."""
        return self.single if self.made == 1 else None

    def step(self, name: str, argument: Any) -> None:
        """Do what an opcode does."""
        self.spent += 1
        if name in ("PROTO", "STOP"):
            return
        self.made += 1
        self.single = argument
        if name in _NUMBERS:  # most of what a large pickle holds
            self.stack.append(_NUMBER)
        elif name in _PUTS:
            top = self.stack[-1]
            if top is None:
                raise ValueError("a mark in place of an object")
            self.memo[argument] = top
        elif name in _GETS:
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.stack.append(None)
        else:
            _check_name(name, argument)
            if name in ("GLOBAL", "INST"):
                self.names.append(argument.replace(" ", "."))
            self.spent += _apply(name, argument, self.stack)


def _count(stream: Bytes, file: Path) -> _Walk:
    """Walk through a pickle, and stop where it is too much."""
    walk = _Walk()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            walk.step(opcode.name, argument)
            if walk.spent > MOST:
                raise InputError(
                    f"{file} holds a pickle of more than {MOST:,} objects: save the model's state "
                    "dict alone, with torch.save(model.state_dict(), ...)"
                )
            top = walk.stack[-1] if walk.stack else None
            if top is not None and top.depth > DEEPEST:
                raise InputError(
                    f"{file} holds a pickle that nests deeper than the {DEEPEST} levels that are "
                    "read"
                )
    except (IndexError, KeyError) as error:
        raise ValueError("no whole pickle") from error
    return walk


def _check_name(name: str, argument: Any) -> None:
    """Refuse opcodes that fill memory or are of later pickles, which torch.save does not write."""
    if name in ("GLOBAL", "INST") and argument in _FILLS:
        raise pickle.UnpicklingError(f"weights_only: GLOBAL {argument.replace(' ', '.')}")
    if name in ("STACK_GLOBAL", "FRAME", "MEMOIZE", "EXT1", "EXT2", "EXT4"):
        raise pickle.UnpicklingError(f"weights_only: {name}")


def _apply(name: str, argument: Any, stack: list[_Made | None]) -> int:
    """Do to the stack what an opcode does, and return what it costs beside itself."""
    # What it takes from the stack, from the top down.
    n_before, to_mark, n_after = _EFFECTS[name]
    taken: list[_Made] = []
    if to_mark:
        while (one := stack.pop()) is not None:
            taken.append(one)
    for _ in range(n_before):
        if (one := stack.pop()) is not None:
            taken.append(one)
    weight = min(sum(one.weight for one in taken), MOST)

    # What it leaves there.
    if name in _GROWS:
        changed = taken.pop()
        if changed is _NUMBER:
            raise ValueError("a number in place of a container")
        changed.depth = max(changed.depth, _depth_around(taken))
        changed.weight = weight
        stack.append(changed)
    elif name == "DUP":
        stack += [taken[0], taken[0]]
    else:
        depth = _depth_around(taken)
        own = 1
        if isinstance(argument, (str, bytes, bytearray)):
            own += len(argument) // 64
        for _ in range(n_after):
            stack.append(_Made(depth, weight + own))
    return weight if name in _CALLS else 0


def _depth_around(inside: list[_Made]) -> int:
    """The depth of a container that holds these; 0 of an empty one."""
    return 1 + max((one.depth for one in inside), default=-1)


def _effect(opcode: pickletools.OpcodeInfo) -> tuple[int, bool, int]:
    """How many objects an opcode takes, whether also all above a mark, and how many it leaves."""
    before = opcode.stack_before
    to_mark = pickletools.markobject in before
    n_before = before.index(pickletools.markobject) if to_mark else len(before)
    return n_before, to_mark, len(opcode.stack_after)


_EFFECTS = {opcode.name: _effect(opcode) for opcode in pickletools.opcodes}
_NUMBER = _Made(0, 1)  # stands for every number; nothing is put into one
