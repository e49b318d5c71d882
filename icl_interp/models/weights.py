"""Weights on disk: safetensors files, whose mismatches are named before anything is allocated."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as parse
from safetensors.torch import save as serialise
from torch import Tensor, nn

from icl_interp.errors import InputError, shown
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.provenance import write_atomically
from icl_interp.stored import LARGEST_WEIGHTS, opened, read_bytes

Shape = tuple[int, ...]
Model = TypeVar("Model", bound=nn.Module)
FLOATS = ("float32", "float64", "float16", "bfloat16")  # what weights may be stored as
LARGEST_HEADER = 10**7  # bytes of names and shapes: those of 100,000 tensors
_NAMES = {
    "F32": "float32",
    "F64": "float64",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
}  # in a header


class Kind(NamedTuple):
    """What a tensor is, apart from its numbers."""

    dtype: str
    shape: Shape


class Wanted(NamedTuple):
    """A tensor that a file has to hold, stored as one of `dtypes`."""

    name: str
    shape: Shape
    dtypes: tuple[str, ...] = FLOATS


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors atomically."""
    stored = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, serialise(stored))


def read(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file.

    The file is read whole, not memory-mapped: it may be replaced while the tensors live.

    Raises:
        InputError: the file is missing, is a pickle, or is cut off or corrupted.
    """
    path = Path(path)
    data = read_bytes(path, LARGEST_WEIGHTS)
    _check_length(path, data[:8])
    try:
        return parse(data)
    # KeyError: a dtype torch does not know.
    except (SafetensorError, ValueError, KeyError) as error:
        raise _not_whole(path, data[:8], error) from error


def header(path: Path) -> dict[str, Kind]:
    """Type and shape of the tensors in a safetensors file, without their numbers.

    The errors are those of `read`.
    """
    path = Path(path)
    with opened(path, LARGEST_WEIGHTS) as file:
        start = file.read(8)
    _check_length(path, start)
    found = {}
    try:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                part = file.get_slice(name)
                dtype = str(part.get_dtype())
                found[name] = Kind(_NAMES.get(dtype, dtype), tuple(part.get_shape()))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise _not_whole(path, start, error) from error
    return found


def _check_length(path: Path, start: bytes) -> None:
    """Refuse a header longer than any model's, since parsing takes thirty times its memory."""
    length = int.from_bytes(start, "little")
    # One that cannot be a length is refused with its own words, since it may be another kind of
    # file.
    if LARGEST_HEADER < length < path.stat().st_size:
        raise InputError(
            f"{path} has a header of {length:,} bytes, but at most {LARGEST_HEADER:,} are read"
        )


def _not_whole(path: Path, start: bytes, error: Exception) -> InputError:
    # Only now: a safetensors file begins with the length of its header, which may look like a
    # pickle's first bytes.
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return InputError(
            f"{path} is a pickle, which can run code when it is read: convert it to safetensors "
            "first"
        )
    reason = " ".join(str(error).split())
    return InputError(
        f"{path} is not a whole safetensors file ({reason}): copy or download it again"
    )


def check_kinds(found: Mapping[str, Kind], wanted: Iterable[Wanted], where: object) -> None:
    """Compare the tensors of a file with those that are asked for.

    `wanted` is read only as far as it agrees with `found`, so it may be longer than any memory
    could hold.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape, or of another type of number;
            it is named.
    """
    seen = set()
    for name, shape, dtypes in wanted:
        if name not in found:
            raise InputError(f"{where} lacks the tensor {name} that the config asks for")
        here = found[name]
        if here.shape != shape:
            raise InputError(
                f"{where}: {name} has shape {here.shape}, but the config asks for {shape}"
            )
        if here.dtype not in dtypes:
            raise InputError(
                f"{where}: {name} holds numbers of the type {here.dtype}, but "
                f"{' or '.join(dtypes)} is needed"
            )
        seen.add(name)
    for name in found:
        if name not in seen:
            raise InputError(f"{where} holds the tensor {name}, which the config does not ask for")


def check_plain(name: str, tensor: Tensor, where: object) -> None:
    """Refuse a tensor without plain numbers: a nested, sparse or quantised one, or one on "meta".

    Raises:
        InputError: naming it.
    """
    # Nested tensors say that they are strided, and fail where their shape is asked for.
    strange = (
        tensor.is_nested or tensor.is_quantized or tensor.is_meta or tensor.layout != torch.strided
    )
    if strange:
        raise InputError(
            f"{where}: {shown(name)} is no plain tensor with all of its numbers: make it a dense "
            "one"
        )


def check_finite(named: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], where: object) -> None:
    """Refuse weights that no computation can go on with.

    Args:
        named: tensors, or pairs of a name and a tensor.
        where: what they belong to, for the error.

    Raises:
        InputError: a tensor holds NaN or infinite numbers; it is named.
    """
    pairs: Any = named.items() if isinstance(named, Mapping) else named
    for name, tensor in pairs:
        check_plain(name, tensor, where)
        if not torch.isfinite(tensor).all():
            raise InputError(
                f"{where}: {name} holds NaN or infinite numbers (as {_dtype(tensor)}); was the "
                "training run stopped too late?"
            )


def shapes(
    make: Callable[[HookedTransformerConfig], nn.Module], cfg: HookedTransformerConfig
) -> list[dict[str, Shape]]:
    """Shapes of a model's tensors by name: those outside the blocks, and those of the first block.

    Nothing is allocated, whatever the sizes are: the model that is asked has one block, and tensors
    without numbers.

    Raises:
        InputError: the sizes are beyond what a tensor can have.
    """
    try:
        with torch.device("meta"):
            state = make(replace(cfg, n_layers=1)).state_dict()
    except (RuntimeError, TypeError, OverflowError) as error:
        sizes = ("d_model", "n_heads", "d_head", "d_mlp", "n_ctx", "d_in", "d_out")
        asked = ", ".join(f"{name}={shown(getattr(cfg, name))}" for name in sizes)
        raise InputError(
            f"no tensor can be as large as this config asks for ({asked}): use smaller sizes"
        ) from error
    outside: dict[str, Shape] = {}
    block: dict[str, Shape] = {}
    for name, tensor in state.items():
        place = block if name.startswith("blocks.0.") else outside
        place[name] = tuple(tensor.shape)
    return [outside, block]


def n_parameters(
    make: Callable[[HookedTransformerConfig], nn.Module], cfg: HookedTransformerConfig
) -> int:
    """How many numbers a model of this config has, without making it."""
    outside, block = shapes(make, cfg)
    n_outside = sum(map(prod, outside.values()))
    n_in_block = sum(map(prod, block.values()))
    return n_outside + cfg.n_layers * n_in_block


def asked_for(
    make: Callable[[HookedTransformerConfig], nn.Module], cfg: HookedTransformerConfig
) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor of a model, one at a time.

    A config may ask for a billion layers.
    """
    outside, block = shapes(make, cfg)
    yield from outside.items()
    for i in range(cfg.n_layers):
        for name, shape in block.items():
            yield name.replace("blocks.0.", f"blocks.{i}.", 1), shape


def load_model(
    make: Callable[[HookedTransformerConfig], Model], cfg: HookedTransformerConfig, path: Path
) -> Model:
    """A model with a file's weights.

    The config is compared with the file's header before the model is made.

    Raises:
        InputError: as `load_into`.
    """
    # Read only as far as the file agrees: a config may ask for a billion layers.
    wanted = (Wanted(name, shape) for name, shape in asked_for(make, cfg))
    check_kinds(header(path), wanted, path)
    model = make(cfg)
    load_tensors(model, read(path), path)
    return model


def load_into(model: nn.Module, path: Path) -> None:
    """Load a file's weights into a model of the same shape.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape or type, or holds numbers that
            are NaN or infinite in the type of the model's own; it is named.
    """
    check_kinds(header(path), _tensors_of(model), path)
    load_tensors(model, read(path), path)


def load_tensors(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load weights that were read from `path`, with the same errors as `load_into`."""
    kinds = {name: kind(tensor) for name, tensor in tensors.items()}
    check_kinds(kinds, _tensors_of(model), path)
    own = model.state_dict()
    converted = {name: tensor.to(own[name].dtype) for name, tensor in tensors.items()}
    # Only now: a number that float64 holds may be infinite in float32.
    check_finite(converted, path)
    model.load_state_dict(converted)


def lay_out(model: Model) -> Model:
    """The same model, with large weight matrices laid out in memory output by output.

    Products read them so (`F.linear` takes (out, in)), and take down to two thirds of the time.
    Names, shapes and numbers stay; copies in another precision keep the order.

    >>> from icl_interp.models.transformer import HookedTransformer
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=16, n_heads=2))
    >>> before = model.W_O.clone()
    >>> w_o = lay_out(model).blocks[0].attn.W_O
    >>> w_o.flatten(0, 1).T.is_contiguous(), torch.equal(model.W_O, before)
    (True, True)
    """
    for name, parameter in model.named_parameters():
        if name.endswith((".attn.W_O", ".mlp.W_in", ".mlp.W_out")):
            *inputs, n_outputs = parameter.shape
            by_output = parameter.detach().flatten(0, -2).T.contiguous()
            parameter.data = by_output.view(n_outputs, *inputs).movedim(0, -1)
    return model


def kind(tensor: Tensor) -> Kind:
    """What a tensor is."""
    return Kind(_dtype(tensor), tuple(tensor.shape))


def _tensors_of(model: nn.Module) -> Iterator[Wanted]:
    return (Wanted(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items())


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def weights_hash(model: nn.Module) -> str:
    """SHA-256 of a model's parameters in float32, by name, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().float().contiguous().numpy()
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.astype("<f4").tobytes())
    return digest.hexdigest()


COPY = 1e-3  # of the weights' size: models that differ by less are one model, and no two seeds


def are_copies(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models have the same weights, but for changes below a thousandth of their size.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> config = HookedTransformerConfig(n_layers=1, d_model=16, n_heads=2)
    >>> models = [HookedTransformer(config, seed=seed) for seed in (0, 0, 1)]
    >>> are_copies(models[0], models[1]), are_copies(models[0], models[2])
    (True, False)
    """
    weights = one.state_dict()
    others = other.state_dict()
    if weights.keys() != others.keys():
        return False
    change = 0.0
    size = 0.0
    for name, weight in weights.items():
        if weight.shape != others[name].shape:
            return False
        mine = weight.double()
        change += float((mine - others[name].double()).square().sum())
        size += float(mine.square().sum())
    return change <= COPY**2 * size
