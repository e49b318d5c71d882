"""The formats, and the one loop that chooses among them."""

from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from icl_interp.checkpoints.formats import (
    files,
    garg,
    gpt2,
    ours,
    state,
    transformer_lens_3,
    transformer_lens_4,
    two_norms,
    unread,
)
from icl_interp.checkpoints.formats.base import Format
from icl_interp.errors import InputError, shown
from icl_interp.stored import LARGEST_WEIGHTS, opened

# In this order: the first that recognises a source reads it.
FORMATS: list[Format] = [
    ours.FORMAT,
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
    gpt2.FORMAT,
]
READ = (
    "a run folder (config.json + model.safetensors), the folder or state dict of a model of Garg "
    "et al. (2022), a state dict with TransformerLens' names, of a GPT2Model between a read-in and "
    "a read-out or of attention between two norms, or a bundled name"
)


def find(source: Any) -> Format:
    """The format of a file, a folder or a model.

    Raises:
        InputError: none recognises it. The message says what was found, and what can be read.
    """
    if not isinstance(source, (Path, nn.Module)):
        raise _no_model(source)
    for format in FORMATS:
        if format.recognises(source):
            return format
    raise _no_checkpoint(source) if isinstance(source, Path) else _no_model(source)


def _no_model(model: object) -> InputError:
    return InputError(
        "a model is given as a run folder, a bundled model's name, a Checkpoint, a GPT2Model "
        "between a read-in and a read-out, or a model with TransformerLens' hook names and a cfg, "
        f"but got {type(model).__name__}; for another kind of predictor, evaluate takes any object "
        "with predict(prompts)"
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
