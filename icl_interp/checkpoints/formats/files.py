"""Files of other programs: their content decides how they are read, and cannot run any code."""

import functools
import itertools
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from icl_interp.checkpoints.formats import pickles, state
from icl_interp.checkpoints.formats.base import Source
from icl_interp.checkpoints.formats.recipes import whole_config
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError, shown
from icl_interp.models import weights
from icl_interp.models.weights import Shape
from icl_interp.stored import LARGEST_WEIGHTS, check_file, opened
from icl_interp.structured import Stored

STATE, CONFIG = "state.pt", "config.yaml"
# How often a number of a file may stand in its tensors: a read-out may be the table of words once
# more.
SHARED = 4
_MOST = 1000  # files of a folder that are looked at
# Keys under which training scripts keep a state dict.
_WRAPPERS = ("model_state_dict", "state_dict", "model")
_STEPS = ("train_step", "step", "global_step")
_DTYPES = ("b1", "i4", "i8", "f4", "f8")  # of numbers of numpy that stand beside tensors


def _dtype(code: str, *_: bool) -> np.dtype[Any]:
    """`numpy.dtype` for a type that a file names.

    Only plain types are allowed, because another type may have any size.
    """
    if code not in _DTYPES:
        raise pickle.UnpicklingError("Unsupported global: GLOBAL numpy.dtype")
    return np.dtype(code)


# Training scripts keep numbers of numpy beside the tensors. What makes one of its bytes runs no
# code; it has one name in files of numpy 1 and another in those of numpy 2.
_SCALAR = np.float64(0).__reduce__()[0]
_NUMBERS = [
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
    (_dtype, "numpy.dtype"),
    *(type(np.dtype(code)) for code in _DTYPES),
]


def kind(path: Path) -> str | None:
    """The kind of a file by its first bytes, or None.

    The kinds are "safetensors", "zip" (torch's format) and "pickle" (torch's old format).
    """
    try:
        with opened(path, LARGEST_WEIGHTS) as file:
            head = file.read(9)
            size = path.stat().st_size
    except InputError:
        return None
    # Bytes 0 to 7 of a safetensors file are a length, which may look like the first bytes of
    # another kind.
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") + 8 <= size:
        return "safetensors"
    if head[:2] == b"PK":
        return "zip"
    if head[:1] == b"\x80":
        return "pickle"
    return None


def holding_weights(path: Path) -> list[Path]:
    """The file that a path stands for, or the files of a folder whose content is that of weights.

    A folder's state.pt stands for the folder: there training scripts keep the last step. Its
    config.yaml stands for the folder too.
    """
    try:
        if path.name == CONFIG and path.is_file():
            path = path.parent
        if not path.is_dir():
            return [path] if path.is_file() else []
        if (path / STATE).is_file():
            return [path / STATE]
    except OSError:
        return []
    return list(filter(shapes, _binary(path)))


def _binary(folder: Path) -> Iterator[Path]:
    """The files of a folder that begin as files of weights do."""
    try:
        items = itertools.islice(folder.iterdir(), _MOST)
        files = sorted(item for item in items if item.is_file())
    except OSError:
        return
    for file in files:
        if kind(file):
            yield file


def why_unread(folder: Path) -> InputError | None:
    """Why the first file of a folder that begins like a file of weights is not read."""
    for file in _binary(folder):
        if not _is_other_zip(file):
            try:
                read(file)
            except InputError as error:
                return error
    return None


def _is_other_zip(file: Path) -> bool:
    """Whether a file is a whole zip file that torch.save did not write, such as one of numpy."""
    try:
        members = pickles.members(file)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return not any(member.filename.endswith(f"/{pickles.PICKLE}") for member in members)


def shapes(source: Source) -> Mapping[str, Shape]:
    """Names and shapes of a source's tensors, masks left out: what a format is told by.

    Empty where nothing is read.
    """
    if isinstance(source, nn.Module):
        return _names(source)
    if source.is_dir() or source.name == CONFIG:
        files = holding_weights(source)
        return shapes(files[0]) if len(files) == 1 else {}
    try:
        about = source.stat()
    except OSError:
        return {}
    return _shapes(source, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=8)
def _shapes(file: Path, changed: int, size: int) -> Mapping[str, Shape]:
    """Kept, because every format asks."""
    if kind(file) != "safetensors":
        return _names(file)
    try:
        found = weights.header(file)
    except InputError:
        return {}
    kept = {}
    for name, short in state.plain_names(found).items():
        shape = found[name].shape
        if not state.is_mask(short, shape):
            kept[short] = shape
    return kept


def _names(source: Source) -> Mapping[str, Shape]:
    try:
        return {name: tuple(tensor.shape) for name, tensor in read(source).tensors.items()}
    except InputError:
        return {}


def read(source: Source) -> State:
    """The tensors of a module, of a file, or of the file of weights in a folder.

    The training step is included where the source contains it.

    Raises:
        InputError: no such file or several, a file that is cut off, no state dict, or a pickle of
            more than tensors.
    """
    if isinstance(source, nn.Module):
        return state.cleaned(source.state_dict(), "the model")
    # The one file of weights.
    files = holding_weights(source)
    if not files:
        check_file(source, LARGEST_WEIGHTS)  # says what it is, if it is no folder
    if len(files) != 1:
        names = ", ".join(file.name for file in files)
        raise InputError(f"{source} holds several files of weights: name one of {names}")
    file = files[0]
    if kind(file) == "safetensors":
        return state.cleaned(weights.read(file), file, _step_in(file.name))

    # A pickle: its tensors, and the step where it holds one.
    data = _unpickled(file)
    tensors = _state_dict(data)
    if not tensors:
        raise _no_state_dict(file, data)
    for name, tensor in tensors.items():
        _check(name, tensor, file)
    _check_bytes(tensors, file)
    for key in _STEPS:
        step = _whole(data.get(key))
        if step is not None:
            return state.cleaned(tensors, file, step)
    return state.cleaned(tensors, file, _step_in(file.name))


def words(source: Path) -> dict[str, Any]:
    """What a file of torch.save holds beside its state dict: text, numbers, truth values, by name.

    Empty for files of another kind.

    Raises:
        InputError: a file that cannot be read, or a pickle of more than tensors.
    """
    found = holding_weights(source)
    if len(found) != 1 or kind(found[0]) == "safetensors":
        return {}
    data = _unpickled(found[0])
    if not isinstance(data, Mapping):
        return {}
    plain = (str, int, float, bool)
    return {key: value for key, value in data.items() if isinstance(value, plain)}


def _whole(value: Any) -> int | None:
    """A whole number from 0 up, which may be one of numpy or a tensor; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type == "cpu":
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        return None
    return int(value)


def _step_in(name: str) -> int | None:
    """The step that a file is named after, such as model_1000.pt."""
    found = re.fullmatch(r"(?:model|checkpoint|step)[_-](\d{1,12})(?:\.\w+)?", name)
    return int(found[1]) if found else None


def _unpickled(file: Path) -> Any:
    """What torch's reader makes of a file when it may make tensors, numbers and containers only."""
    found = kind(file)
    try:
        pickles.check(file, found or "pickle")
        # torch wonders about files that are refused in a moment
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals(_NUMBERS):
            # Mapped, not read: formats look at names and shapes, and whoever takes the numbers
            # copies them.
            return torch.load(file, map_location="cpu", weights_only=True, mmap=found == "zip")
    except (FileNotFoundError, PermissionError) as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except InputError:
        raise
    except Exception as error:  # its own words say how to switch the check off
        raise _refused(file, str(error)) from None


def _refused(file: Path, reason: str) -> InputError:
    if _is_other_zip(file):
        return InputError(
            f"{file} is a zip file, but not one of torch.save: give the file with the model's "
            "state dict"
        )
    if "weights_only" not in reason and "Weights only" not in reason:
        # torch's own words are about its archives, and say nothing more.
        why = "it is empty" if file.stat().st_size == 0 else "it is cut off or damaged"
        return InputError(
            f"{file} is not a whole file of torch.save ({why}): copy or download it again"
        )
    # Only the name, and only if it is one: the rest of the reason comes from the file.
    found = re.search(r"GLOBAL ([A-Za-z_][\w.]{0,80})", reason)
    what = f"this one asks for {found[1]}" if found else "this one holds something else"
    return InputError(
        f"{file} is a pickle, which can run code when it is read, so only pickles of tensors are "
        f"read; {what}: if you trust it, save its tensors alone, with "
        "torch.save(model.state_dict(), ...)"
    )


def _no_state_dict(file: Path, data: Any) -> InputError:
    """What stands in the way of a state dict, by name."""
    known = data if isinstance(data, Mapping) else {}
    parts = _parts(known)
    if parts:
        names = state.listed(map(str, parts))
        return InputError(
            f"{file} holds several state dicts, called {names}: save the one that you want in a "
            "file of its own"
        )
    odd = [key for key, value in known.items() if not _is_named(key, value)]
    if 0 < len(odd) < len(known):
        names = state.listed(f"{shown(key)}: {shown(known[key])}" for key in odd)
        return InputError(
            f"{file} is no state dict, because beside tensors by name it holds {names}: save the "
            "tensors alone, with torch.save(model.state_dict(), ...)"
        )
    return InputError(f"{file} holds no state dict, that is no tensors by name, but {shown(data)}")


def _parts(data: Mapping[Any, Any]) -> dict[Any, Mapping[str, Tensor]]:
    parts = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and _is_state_dict(value):
            parts[key] = value
    return parts


def _state_dict(data: Any) -> dict[str, Tensor]:
    """Tensors by name: the data itself, or the one part of it that holds nothing else."""
    if not isinstance(data, Mapping):
        return {}
    parts = _parts(data)
    for key in _WRAPPERS:
        if key in parts:
            return dict(parts[key])
    if len(parts) == 1:
        return dict(next(iter(parts.values())))
    return dict(data) if _is_state_dict(data) else {}


def _is_state_dict(data: Mapping[Any, Any]) -> bool:
    return bool(data) and all(itertools.starmap(_is_named, data.items()))


def _is_named(key: Any, value: Any) -> bool:
    """Whether it is a tensor by name."""
    return isinstance(key, str) and bool(key) and isinstance(value, Tensor)


def _check(name: str, tensor: Tensor, file: Path) -> None:
    """Refuse a tensor that is larger than its data in the file, or that has no plain storage."""
    weights.check_plain(name, tensor, file)
    if tensor.device.type != "cpu" or _n_bytes(tensor) > tensor.untyped_storage().nbytes():
        raise InputError(
            f"{file}: {shown(name)} is no plain tensor with all of its numbers in the file"
        )


def _check_bytes(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Refuse tensors that are not in the file, or that are the same numbers many times over."""
    size = file.stat().st_size
    total = sum(map(_n_bytes, tensors.values()))
    if total > SHARED * size:
        raise InputError(
            f"{file} has {size:,} bytes, but its tensors have {total:,}, because they share "
            "memory: save copies of them, made with tensor.clone()"
        )


def _n_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def config(source: Path) -> Stored | None:
    """The config.yaml in a folder or beside a file, where there is one.

    Raises:
        InputError: it cannot be read, is no YAML, or is no mapping.
    """
    folder = source if source.is_dir() else source.parent
    file = folder / CONFIG
    return whole_config(file) if file.is_file() else None
