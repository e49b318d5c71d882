"""Where to compute: the name of a device, checked by a computation on it before anything else is done."""

import textwrap

import torch

from icl_interp.errors import InputError


def checked_device(
    name: str | torch.device | None, dtype: torch.dtype = torch.float32
) -> torch.device:
    """The device of this name; the CPU where none is named.

    Args:
        name: such as "cpu", "cuda" or "cuda:1".
        dtype: what the device must be able to hold and to add.

    Raises:
        InputError: torch knows no such device, this machine has none, or it cannot compute with
            `dtype`.

    >>> checked_device(None)
    device(type='cpu')
    """
    try:
        device = torch.device("cpu" if name is None else name)
        # One check for a name with a typo, a torch built without the device, a number too high, and
        # the meta device, whose tensors hold no numbers.
        torch.ones(1, dtype=dtype, device=device).add(1).item()
    except (
        Exception
    ) as error:  # whatever the backend of the device raises: each has errors of its own
        reason = textwrap.shorten(str(error) or type(error).__name__, 200).rstrip(".")
        raise InputError(
            f"cannot compute with {str(dtype).removeprefix('torch.')} on the device {str(name)!r} "
            f"({reason}): give a device that this machine has, or none for the CPU"
        ) from error
    return device
