"""Weights on disk: safetensors in, safetensors out, and every mismatch named."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from icl_interp.errors import InputError
from icl_interp.provenance import write_atomically


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors atomically."""
    write_atomically(path, serialise({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def read(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file.

    The file is read whole, not memory-mapped: it may be replaced while the tensors live.

    Raises:
        InputError: the file is missing, is a pickle, or is cut off or corrupted.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    try:
        return parse(data)
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a dtype torch does not know
        # Only now: a safetensors file begins with the length of its header, which may look like a pickle's first bytes.
        problem = f"is not a whole safetensors file ({error}): copy or download it again"
        if data[:2] == b"PK" or data[:1] == b"\x80":
            problem = "is a pickle, which can run code when read: convert it to safetensors first"
        raise InputError(f"{path} {problem}") from error


def load_into(model: nn.Module, path: Path) -> None:
    """Load a file's weights into a model of the same shape.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape, or holds NaN or infinity; it is named.
    """
    load_tensors(model, read(path), path)


def load_tensors(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load weights that were read from `path`, with the same errors as `load_into`."""
    wanted = model.state_dict()
    for name, tensor in wanted.items():
        if name not in tensors:
            raise InputError(f"{path} lacks the tensor {name} that the config asks for")
        if tensors[name].shape != tensor.shape:
            raise InputError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, but the config asks for {tuple(tensor.shape)}"
            )
        if not torch.isfinite(tensors[name]).all():
            raise InputError(f"{path}: {name} holds NaN or infinite numbers; was the training run stopped too late?")
    for name in tensors:
        if name not in wanted:
            raise InputError(f"{path} holds the tensor {name}, which the config does not ask for")
    model.load_state_dict(tensors)
