"""State dicts: plain names, masks apart from weights, and the comparison with a format.

A plain name lacks the prefixes that wrappers add.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.models import weights
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import Shape, Wanted

# torch.compile and TransformerLens' bridges add a segment anywhere in a name, DataParallel one in
# front.
_ANYWHERE = ("_orig_mod", "_original_component")
_IN_FRONT = "module"
_ATTRIBUTE = "model."  # Lightning keeps the model under this name, in front of every other
NAMED = 8  # names that a message lists


class State(NamedTuple):
    """The tensors of a model by name, its masks apart, and the training step where it is known."""

    tensors: dict[str, Tensor]
    masks: dict[str, Tensor]
    step: int | None = None


def plain(name: str) -> str:
    """A tensor's name without what wrappers add.

    >>> plain("module._orig_mod._read_in.weight")
    '_read_in.weight'
    """
    parts = [part for part in name.split(".") if part not in _ANYWHERE]
    if parts[0] == _IN_FRONT:
        parts = parts[1:]
    return ".".join(parts)


def plain_names(names: Iterable[str], rename: Callable[[str], str] = plain) -> dict[str, str]:
    """Plain names (or names changed by `rename`), by the names in a file.

    The prefix `model.` is removed, too, where every name begins with it.

    >>> plain_names(["model._read_in.weight", "model._read_in.bias"])
    {'model._read_in.weight': '_read_in.weight', 'model._read_in.bias': '_read_in.bias'}
    """
    found = {name: rename(name) for name in names}
    if all(short.startswith(_ATTRIBUTE) for short in found.values()):
        for name, short in found.items():
            found[name] = rename(short.removeprefix(_ATTRIBUTE))
    return found


def is_mask(name: str, shape: Shape) -> bool:
    """Whether a tensor is a buffer that holds a mask or its constant.

    The end of its name and its shape decide.

    GPT-2 has attn.bias (1, 1, T, T) and attn.masked_bias; TransformerLens attn.mask (T, T),
    attn.IGNORE and attn.causal_mask.

    >>> is_mask("h.0.attn.bias", (1, 1, 8, 8)), is_mask("h.0.attn.bias", (8,))
    (True, False)
    """
    square = len(shape) >= 2 and shape[-1] == shape[-2] and math.prod(shape[:-2]) == 1
    if f".{name}".endswith(".attn.bias"):
        return square and len(shape) == 4
    last = name.rpartition(".")[2]
    if last in ("mask", "causal_mask"):
        return square
    if last == "IGNORE" or name.endswith("attn.masked_bias"):
        return math.prod(shape) == 1
    return False


def cleaned(
    tensors: Mapping[str, Tensor],
    where: object,
    step: int | None = None,
    rename: Callable[[str], str] = plain,
) -> State:
    """A state dict with plain names (or other ones), and its masks apart.

    Raises:
        InputError: two different tensors come to have one name, or one is no plain tensor.
    """
    kept: dict[str, Tensor] = {}
    masks: dict[str, Tensor] = {}
    for name, short in plain_names(tensors, rename).items():
        tensor = tensors[name]
        weights.check_plain(name, tensor, where)
        place = masks if is_mask(short, tuple(tensor.shape)) else kept
        # Wrappers may list one tensor twice, by a short and by a long name.
        if short in place and not _same(place[short], tensor):
            raise InputError(
                f"{where} holds two tensors called {short}, once under another name: keep one of "
                "them"
            )
        place[short] = tensor
    return State(kept, masks, step)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a, b))


def direction(masks: Mapping[str, Tensor], where: object) -> str | None:
    """What masks say about attention: "causal", "bidirectional", or None where there are none.

    Raises:
        InputError: a mask hides other keys than those to come, as that of local attention does.
    """
    found = set()
    for name, mask in masks.items():
        if mask.ndim < 2:
            continue
        visible = mask.reshape(mask.shape[-2:]).bool()
        if name.endswith("causal_mask"):  # true where a key is hidden
            visible = ~visible
        causal = bool(torch.equal(visible, torch.ones_like(visible).tril()))
        if not causal and not visible.all():
            raise InputError(
                f"{where}: the mask {name} hides other keys than those to come, which no model "
                "here does"
            )
        found.add("causal" if causal else "bidirectional")
    if len(found) > 1:
        raise InputError(
            f"{where}: some of its blocks have a causal mask and others none, which no model here "
            "does"
        )
    return found.pop() if found else None


def n_blocks(names: Iterable[str], prefix: str) -> int:
    """How many different numbers follow the prefix."""
    numbers = set()
    for name in names:
        first, _, _ = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and first.isdecimal():
            numbers.add(first)
    return len(numbers)


def sizes(tensors: Mapping[str, Tensor], axes: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """The settings that shapes tell, where there is such a tensor with such an axis.

    Args:
        tensors: by name.
        axes: where each setting is found: the name of a tensor, and the axis whose length it is.

    >>> axes = {"d_in": ("embed.W_E", 0), "d_model": ("embed.W_E", 2)}
    >>> sizes({"embed.W_E": torch.zeros(3, 8)}, axes)
    {'d_in': 3}
    """
    found = {}
    for setting, (name, axis) in axes.items():
        if name in tensors and tensors[name].ndim > axis:
            found[setting] = tensors[name].shape[axis]
    return found


def check_names(
    found: Mapping[str, Tensor], wanted: Mapping[str, Shape], where: object, kind: str
) -> None:
    """Refuse tensors that are not exactly those that a format has, or with numbers that are none.

    Raises:
        InputError: listing those that are missing, that are unknown, and that have another shape;
            or naming one that holds whole, NaN or infinite numbers.
    """
    faults = _faults(found, wanted)
    if faults:
        raise InputError(
            f"{where} looks like {kind}, but its tensors are not those of one: it "
            f"{'; it '.join(faults)}"
        )
    for name, tensor in found.items():
        dtype = weights.kind(tensor).dtype
        if dtype not in weights.FLOATS:
            raise InputError(
                f"{where}: {name} holds numbers of the type {dtype}, but "
                f"{' or '.join(weights.FLOATS)} is needed"
            )
    weights.check_finite(found, where)


def _faults(found: Mapping[str, Tensor], wanted: Mapping[str, Shape]) -> list[str]:
    """What is wrong with names and shapes, a phrase for each kind of fault."""
    # Names that lack, names of another shape, and names that are too many.
    missing = []
    other = []
    for name, shape in wanted.items():
        if name not in found:
            missing.append(name)
        elif tuple(found[name].shape) != shape:
            other.append(f"{name} with shape {tuple(found[name].shape)} instead of {shape}")
    unknown = []
    for name in found:
        if name not in wanted:
            unknown.append(name)
    faults = []
    for what, names in (("lacks", missing), ("has besides", unknown), ("has", other)):
        if names:
            faults.append(f"{what} {listed(names)}")
    return faults


def head_width(columns: int, n_heads: Any, where: object) -> dict[str, int]:
    """The width of each head as a setting, where the heads share that many columns.

    The result is empty where `n_heads` is no whole number.

    Raises:
        InputError: the columns cannot be shared out; numbers of heads among which they can are
            listed.
    """
    if not isinstance(n_heads, int) or isinstance(n_heads, bool) or n_heads < 1:
        return {}  # the model's config refuses it
    if columns % n_heads:
        divisors = [str(n) for n in range(1, columns + 1) if columns % n == 0]
        *few, last = divisors
        ways = f"{', '.join(few)} or {last}" if few else last
        raise InputError(
            f"{where}: width {columns} does not divide into {n_heads} heads: give {ways}"
        )
    return {"d_head": columns // n_heads}


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    short = []
    for name in names:
        short.append(name if len(name) <= 100 else shown(name))
    more = f" and {len(short) - NAMED} more" if len(short) > NAMED else ""
    return ", ".join(short[:NAMED]) + more


def build(
    cfg: HookedTransformerConfig, tensors: Mapping[str, Tensor], where: object
) -> HookedTransformer:
    """A model with these weights, given under our names and in our shapes.

    Raises:
        InputError: tensors that do not fit the config, or hold NaN or infinite numbers.
    """
    model = HookedTransformer(cfg)
    own = model.state_dict()
    wanted = [Wanted(name, tuple(tensor.shape)) for name, tensor in own.items()]
    kinds = {name: weights.kind(tensor) for name, tensor in tensors.items()}
    weights.check_kinds(kinds, wanted, where)
    converted = {name: tensor.to(own[name].dtype) for name, tensor in tensors.items()}
    # Only now: a number that float64 holds may be infinite in float32.
    weights.check_finite(converted, where)
    model.load_state_dict(converted)
    return model.eval()
