"""Models in memory whose code leaves something open: the settings that their outputs fit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from icl_interp.checkpoints.formats import modules
from icl_interp.errors import InputError
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer


def fitted(
    model: nn.Module,
    build: Callable[[Mapping[str, Any]], HookedTransformer],
    tried: Iterable[Mapping[str, Any]],
    dim: int | None = None,
) -> tuple[HookedTransformer, Encoding | None]:
    """The first copy whose outputs are those of a model, and the encoding that it brings.

    Nothing is guessed: a copy is only taken where its outputs are the model's, to 1e-5.

    Args:
        model: the original.
        build: makes a copy with some settings.
        tried: the settings, in the order in which they are tried.
        dim: coordinates of an input, where values may be wider.

    Raises:
        InputError: none fits; the message is that of the first one.
    """
    first: InputError | None = None
    for settings in tried:
        copy = build(settings)
        try:
            return copy, modules.compare(copy, model, dim=dim)
        except InputError as error:
            first = first or error
    raise first or InputError("there is nothing to try")
