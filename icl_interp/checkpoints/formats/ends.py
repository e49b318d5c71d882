"""The linear read-in and read-out of a state dict, told from each other by their shapes."""

import re
from collections.abc import Mapping

from torch import Tensor

from icl_interp.checkpoints.formats import state
from icl_interp.errors import InputError
from icl_interp.models.weights import Shape


def linear_ends(
    around: Mapping[str, Tensor], width: int, where: object, body: str
) -> dict[str, Tensor]:
    """The two linear layers around a body, under the names `in` and `out`.

    Args:
        around: all tensors but those of the body, by name.
        width: of the body's stream.
        where: the file, for messages.
        body: what they stand around, for messages: "a GPT2Model".

    Raises:
        InputError: there are other tensors than those of two linear layers, or it cannot be told
            which of them reads.
    """
    layers = {name.rpartition(".")[0] for name in around}
    shapes = {layer: _shape(around, layer) for layer in layers}
    # A layer that could be either, of a model as wide as its tokens, is told by its name.
    reads = [layer for layer, shape in shapes.items() if len(shape) == 2 and shape[0] == width]
    writes = [layer for layer, shape in shapes.items() if len(shape) == 2 and shape[1] == width]
    orders = [(a, b) for a in reads for b in writes if a != b]
    if len(orders) == 2:
        orders = [
            (a, b)
            for a, b in orders
            if _says(a, "in", "embed", "wte") and _says(b, "out", "unembed", "head")
        ]
    if len(layers) != 2 or len(orders) != 1:
        raise InputError(
            f"{where}: around {body} of width {width} there must be a linear read-in and "
            "read-out, called for example read_in and read_out, but there are "
            f"{state.listed(sorted(around)) or 'no other tensors'}"
        )
    ends = {}
    for layer, end in zip(orders[0], ("in", "out"), strict=True):
        for part in ("weight", "bias"):
            if f"{layer}.{part}" in around:
                ends[f"{end}.{part}"] = around[f"{layer}.{part}"]
    known = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    sizes = {"in.bias": width, "out.bias": ends["out.weight"].shape[0]}
    if set(around) <= known and all(
        tuple(ends[k].shape) == (size,) for k, size in sizes.items() if k in ends
    ):
        return ends
    raise InputError(
        f"{where}: the tensors around {body} are not two linear layers: {state.listed(around)}"
    )


def _shape(tensors: Mapping[str, Tensor], layer: str) -> Shape:
    weight = tensors.get(f"{layer}.weight")
    return () if weight is None else tuple(weight.shape)


def _says(layer: str, *words: str) -> bool:
    return bool(set(re.split(r"[._]", layer.lower())) & set(words))
