"""The formats, and the one loop that chooses among them."""

import threading
from dataclasses import replace
from importlib.metadata import EntryPoint
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from icl_interp import plugins
from icl_interp.checkpoints.formats import (
    files,
    garg,
    gpt2,
    nanogpt,
    ours,
    state,
    torch_encoder,
    transformer_lens_3,
    transformer_lens_4,
    two_norms,
    unread,
)
from icl_interp.checkpoints.formats.base import Format
from icl_interp.errors import InputError, shown
from icl_interp.stored import LARGEST_WEIGHTS, opened

# In this order: the first that recognises a source reads it. Those of other packages are asked
# behind our own run folders, for whoever wrote a fork knows its files better than we do.
FORMATS: list[Format] = [
    ours.FORMAT,
    nanogpt.FORMAT,
    unread.LOOPED,
    unread.PREFIXED,
    garg.FORMAT,
    unread.STATISTICIANS,
    unread.ICAL,
    unread.TIMAEUS,
    unread.ALLPARAM,
    unread.GATED,
    unread.LOW_RANK,
    unread.KERNEL,
    two_norms.FORMAT,
    transformer_lens_3.FORMAT,
    transformer_lens_4.FORMAT,
    torch_encoder.FORMAT,
    gpt2.FORMAT,
]
READ = (
    "a run folder (config.json + model.safetensors), the folder or state dict of a model of Garg "
    "et al. (2022), a state dict with TransformerLens' names or of attention between two norms, a "
    "GPT2Model, a nanoGPT body or a torch.nn.TransformerEncoder between a read-in and a read-out, "
    "or a bundled name"
)


def find(source: Any) -> Format:
    """The format of a file, a folder or a model.

    Raises:
        InputError: none recognises it. The message says what was found, and what can be read.
    """
    if not isinstance(source, (Path, nn.Module)):
        raise _no_model(source)
    ours, *rest = FORMATS
    for format in (ours, *of_packages(), *rest):
        if format.recognises(source):
            return format
    raise _no_checkpoint(source) if isinstance(source, Path) else _no_model(source)


_LOCK = threading.Lock()
_of_packages: list[Format] | None = None


def of_packages() -> list[Format]:
    """The formats that other packages bring, by the entry points `icl_interp.formats`.

    They are loaded when somebody first asks for a format. One that is broken, or has the name of
    another one, is left out with a warning.
    """
    global _of_packages
    found = plugins.found(plugins.FORMATS)  # which may take long, and waits for other threads
    with _LOCK:
        if _of_packages is None:
            _of_packages = []
            for point, format in found:
                with plugins.left_out(point):
                    names = [known.name for known in (*FORMATS, *_of_packages)]
                    _of_packages.append(_checked(point, format, names))
        return list(_of_packages)


def _checked(point: EntryPoint, format: Any, names: list[str]) -> Format:
    """A format of another package, whose mistakes are told as its own.

    Raises:
        InputError: the entry point holds something else, or its name is taken.
    """
    if not isinstance(format, Format):
        raise InputError(
            f"its entry point names {shown(format)}, not an icl_interp.checkpoints.formats.Format"
        )
    if format.name in names:
        raise InputError(f"there is a format called {format.name!r} already: choose another name")

    def recognises(source: Any) -> bool:
        found = False
        with plugins.left_out(point):  # what fails recognises nothing
            found = bool(format.recognises(source))
        return found

    return replace(format, recognises=recognises)


def _no_model(model: object) -> InputError:
    return InputError(
        "a model is given as a run folder, a bundled model's name, a Checkpoint, a GPT2Model, "
        "a nanoGPT body or a torch.nn.TransformerEncoder between a read-in and a read-out, or a "
        "model with TransformerLens' hook names and a cfg, "
        f"but got {type(model).__name__}; icl_interp.adapt takes any other torch module, and for "
        "another kind of predictor, evaluate takes any object with predict(prompts)"
    )


def _no_checkpoint(path: Path) -> InputError:
    if path.is_dir():
        holding = files.holding_weights(path)
        if not holding:
            if (error := files.why_unread(path)) is not None:
                return error
            return InputError(
                f"{path} is not a checkpoint: it has no config.json and no file of weights that is "
                f"known here; it holds {_contents(path)}; give {READ}"
            )
        if len(holding) > 1:
            files.read(path)  # says that there are several
        path = holding[0]
    elif files.kind(path) is None:
        try:
            with opened(path, LARGEST_WEIGHTS) as file:
                if not file.read(1):
                    return InputError(
                        f"{path} is not a checkpoint: it is empty; copy or download it again"
                    )
            return InputError(f"{path} is not a checkpoint: give {READ}")
        except InputError as error:
            return error
    found = files.read(path)  # says what is wrong with the file itself
    names = state.listed(found.tensors)
    return InputError(
        f"{path} is not a checkpoint: give {READ}; its tensors {names} are those of none of these"
    )


def _contents(folder: Path) -> str:
    try:
        names = sorted(item.name + "/" * item.is_dir() for item in islice(folder.iterdir(), 1000))
    except OSError as error:
        return f"what cannot be listed ({error.strerror})"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(shown(name) for name in names[:10]) or "nothing") + more
