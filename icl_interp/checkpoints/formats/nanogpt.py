"""The body of nanoGPT between a linear read-in and read-out: as a state dict, or in memory.

Karpathy, github.com/karpathy/nanoGPT. Names are those of a GPT2Model (`h.{i}.attn.c_attn`, ...),
but matrices are `nn.Linear`'s, (out, in), and a model may have no biases (`bias=False`), neither in
linear layers nor in LayerNorms. Its activation is GELU (erf). The read-in is a linear layer in
front of the body, or stands in the place of its table of words, `wte`.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from icl_interp.checkpoints.formats import files, gpt2, in_memory, masked, positions, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import Shape

NAME = "nanoGPT body between a read-in and a read-out"
USUAL: dict[str, Any] = {"act_fn": "gelu", "eps": 1e-5, "use_attn_scale": True}
ACTIVATIONS = ("gelu", "gelu_new", "relu")  # older copies of its code have the second
EVERY_ATTENTION = gpt2.ATTENTION.removeprefix("h.0")
LOOPED = "_backbone.transformer."  # files that do not tell how often their blocks are run
BIAS = ".bias"


def recognises(source: Source) -> bool:
    """Whether the attention of every block has this name, and is three times as high as wide."""
    shapes = files.shapes(source)
    first = next((name for name in shapes if name.endswith(gpt2.ATTENTION)), None)
    if first is None:
        return False
    for name, shape in shapes.items():
        if not name.endswith(EVERY_ATTENTION):
            continue
        if len(shape) != 2 or shape[0] != 3 * shape[1]:
            return False
    return isinstance(source, nn.Module) or not state.plain(first).startswith(LOOPED)


def read(source: Source, given: Given) -> Parts:
    """The model; its task and encoding have to be given, and for a file the number of heads.

    Raises:
        InputError: other tensors than those of a nanoGPT body and two linear layers, something that
            is not told, or (in memory) other outputs than those of its copy.
    """
    found = files.read(source)
    where = source if isinstance(source, Path) else "the model"
    # What names and shapes tell.
    body, ends = _parts(found, where)
    told = gpt2.OF_CLASS | gpt2.direction(found, where) | gpt2.COMMON | gpt2.sizes(body)
    told |= {"d_in": ends["in.weight"].shape[1], "d_out": ends["out.weight"].shape[0]}
    if isinstance(source, nn.Module):
        told |= _heads_within(source)
    n_heads = told.get("n_heads", given.settings.get("n_heads"))
    told |= state.head_width(told["d_model"], n_heads, where)

    # In memory outputs tell which activation it has.
    if isinstance(source, nn.Module):
        build = partial(_built, given, told, body, ends, where)
        tried = [{"act_fn": name} for name in ACTIVATIONS]
        dim = given.task.dim if given.task else None
        model, encoding = in_memory.fitted(source, build, tried, dim)
        return Parts(model, encoding=encoding)

    # Of a file, whoever loads it.
    asks = ("task", "encoding")
    cfg, taken = given.complete(told, where, needed=("n_heads",), usual=USUAL, asks=asks)
    model = state.build(cfg, gpt2.ours(body, ends, cfg.n_heads), where)
    notes = [masked.check(model, found.masks, where)]
    if given.task and given.encoding:
        n_tokens = given.encoding.n_tokens(given.task.n_points)
        notes.append(positions.note(body["wpe.weight"], n_tokens))
    kept = tuple(note for note in notes if note)
    return Parts(model, step=found.step or 0, assumptions=taken, notes=kept)


def _built(
    given: Given,
    told: Mapping[str, Any],
    body: Mapping[str, Tensor],
    ends: Mapping[str, Tensor],
    where: object,
    settings: Mapping[str, Any],
) -> HookedTransformer:
    """A copy of a model in memory with some settings."""
    usual = {**USUAL, **settings}  # what was given replaces what is tried
    cfg, _ = given.complete(told, where, needed=("n_heads",), usual=usual)
    return state.build(cfg, gpt2.ours(body, ends, cfg.n_heads), where)


def _parts(found: state.State, where: object) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A GPT2Model's tensors of the same function by its names, and the two ends.

    Raises:
        InputError: tensors are missing, or there are others.
    """
    body, around, prefix = gpt2.body_of(found, where)
    width = body[gpt2.ATTENTION].shape[1]
    words = found.tensors.get(prefix + gpt2.WORDS)
    # A table of words that is no table reads numbers, where nothing else does.
    layers = set()
    for name in around:
        layers.add(name.rpartition(".")[0])
    reads = words is not None and words.shape[:1] == (width,)
    if reads and len(layers) < 2:
        for part in ("wte.weight", "wte.bias"):
            name = prefix + part
            if name in found.tensors:
                around[name] = found.tensors[name]
    body.pop("wte.bias", None)
    # As a GPT2Model has it.
    turned = {}
    for name, tensor in body.items():
        turned[name] = _turned(name, tensor)
    told = gpt2.sizes(turned)
    wanted = gpt2.shapes_of(told)
    full = _with_biases(turned, wanted)
    state.check_names(full, wanted, where, f"a {NAME}")
    return full, gpt2.linear_ends(around, told["d_model"], where, "a nanoGPT body")


def _turned(name: str, tensor: Tensor) -> Tensor:
    """A matrix of `nn.Linear` as (in, out); anything else as it is."""
    linear = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    return tensor.T if linear and tensor.ndim == 2 else tensor


def _with_biases(tensors: Mapping[str, Tensor], wanted: Mapping[str, Shape]) -> dict[str, Tensor]:
    """The same with biases of 0, where there are none at all.

    Where some are there, a missing one is reported by its name.
    """
    if any(name.endswith(BIAS) for name in tensors):
        return dict(tensors)
    full = dict(tensors)
    like = next(iter(tensors.values()))
    for name, shape in wanted.items():
        if name.endswith(BIAS):
            full[name] = like.new_zeros(shape)
    return full


def _heads_within(model: nn.Module) -> dict[str, int]:
    """The number of heads that the attention of a model in memory says."""
    found = set()
    for part in model.modules():
        n_heads = getattr(part, "n_head", None)
        if isinstance(n_heads, int):
            found.add(n_heads)
    if len(found) > 1:
        raise InputError(
            "the model's blocks have different numbers of heads, which no model here has"
        )
    return {"n_heads": found.pop()} if found else {}


FORMAT = Format(NAME, recognises, read)
