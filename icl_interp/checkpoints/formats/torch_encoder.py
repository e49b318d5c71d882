"""`torch.nn.TransformerEncoder` between a linear read-in and read-out: a state dict, or in memory.

Names and shapes with E = d_model and M = dim_feedforward, `nn.Linear`'s matrices being (out, in):
`layers.{i}.self_attn.in_proj_weight` (3 E, E), the rows of Q, K and V in this order;
`self_attn.out_proj` (E, E); `linear1` (M, E) and `linear2` (E, M); `norm1`, `norm2`; `norm`, the
final one, where there is one. With `bias=False` no part of a layer has a bias. Vectors of positions
are told by their name (`pos...`, `wpe` or `pe`).

Weights do not tell where norms stand, the activation, nor whether there is a mask. In memory the
first two are read off the layers, and outputs tell the third.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.checkpoints.formats import files, gpt2, in_memory, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import Shape

NAME = "torch.nn.TransformerEncoder between a read-in and a read-out"
ATTENTION = "layers.0.self_attn.in_proj_weight"
# What nn.TransformerEncoderLayer takes where nothing is said.
USUAL: dict[str, Any] = {"act_fn": "relu", "eps": 1e-5, "norm_position": "post"}
COMMON: dict[str, Any] = {"normalization_type": "LN", "use_attn_scale": True, "score_fn": "softmax"}
N_TOKENS = 64  # in a prompt, where neither positions nor a task limit it
# By the names in a layer, ours in a block.
NAMES = {
    "self_attn.out_proj.weight": "attn.W_O",
    "self_attn.out_proj.bias": "attn.b_O",
    "linear1.weight": "mlp.W_in",
    "linear1.bias": "mlp.b_in",
    "linear2.weight": "mlp.W_out",
    "linear2.bias": "mlp.b_out",
    "norm1.weight": "ln1.w",
    "norm1.bias": "ln1.b",
    "norm2.weight": "ln2.w",
    "norm2.bias": "ln2.b",
}
ENDS = (("in", "embed.W_E", "embed.b_E"), ("out", "unembed.W_U", "unembed.b_U"))
POSITIONS = re.compile(r"(.*[._])?(pos\w*|wpe|pe)(\.weight)?")


def recognises(source: Source) -> bool:
    """Whether there are the names of an encoder's first layer."""
    return any(name.endswith(ATTENTION) for name in files.shapes(source))


def read(source: Source, given: Given) -> Parts:
    """The model; its task and encoding have to be given.

    A file needs the number of heads and whether attention is causal, too.

    Raises:
        InputError: other tensors than those of an encoder, vectors of positions and two linear
            layers; something that is not told; or (in memory) other outputs than those of its copy.
    """
    found = files.read(source)
    where = source if isinstance(source, Path) else "the model"
    tensors = found.tensors
    if isinstance(source, nn.Module):  # fixed vectors of positions need not be among the weights
        tensors = {**dict(source.named_buffers()), **tensors}
    # What names and shapes tell.
    body, table, around = _split(tensors, where)
    told = COMMON | _sizes(body)
    wanted = shapes_of(told, _has_final(body))
    full = _with_biases(body, wanted)
    state.check_names(full, wanted, where, f"a {NAME}")
    ends = gpt2.linear_ends(around, told["d_model"], where, "a TransformerEncoder")
    told |= {"d_in": ends["in.weight"].shape[1], "d_out": ends["out.weight"].shape[0]}
    told |= _of_positions(table, given)

    # In memory the layers tell the rest, and outputs whether there is a mask.
    if isinstance(source, nn.Module):
        told |= _within(source, where)
        told |= state.head_width(told["d_model"], told["n_heads"], where)

        def build(settings: Mapping[str, Any]) -> HookedTransformer:
            words = {**told, **settings, **_final(told["norm_position"], body)}
            cfg, _ = given.complete(words, where)
            return state.build(cfg, _ours(full, ends, table, cfg.n_heads), where)

        tried = [{"attention_dir": way} for way in ("causal", "bidirectional")]
        dim = given.task.dim if given.task else None
        model, encoding = in_memory.fitted(source, build, tried, dim)
        return Parts(model, encoding=encoding)

    # Of a file, whoever loads it.
    told |= state.head_width(told["d_model"], given.settings.get("n_heads"), where)
    told |= _final(given.settings.get("norm_position", USUAL["norm_position"]), body)
    needed = ("n_heads", "attention_dir")
    asks = ("task", "encoding")
    cfg, taken = given.complete(told, where, needed=needed, usual=USUAL, asks=asks)
    model = state.build(cfg, _ours(full, ends, table, cfg.n_heads), where)
    return Parts(model, step=found.step or 0, assumptions=taken)


def _split(
    tensors: Mapping[str, Tensor], where: object
) -> tuple[dict[str, Tensor], Tensor | None, dict[str, Tensor]]:
    """An encoder's tensors by its own names, the vectors of positions, and all others."""
    # By their names, below the prefix that the encoder has in its model.
    first = next(name for name in tensors if name.endswith(ATTENTION))
    prefix = first.removesuffix(ATTENTION)
    own = re.compile(re.escape(prefix) + r"(layers\.\d+\..*|norm\.(weight|bias))")
    width = tensors[first].shape[-1]
    body: dict[str, Tensor] = {}
    around: dict[str, Tensor] = {}
    tables: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if own.fullmatch(name):
            short = name.removeprefix(prefix)
            body[short] = tensor
        elif POSITIONS.fullmatch(name) and tensor.shape[-1:] == (width,):
            tables[name] = tensor
        else:
            around[name] = tensor
    # A table is a vector a place, whatever axes of length 1 it has besides.
    if len(tables) > 1:
        raise InputError(
            f"{where} has several tables of positions, {state.listed(tables)}, but only one can "
            "be read"
        )
    table = next(iter(tables.values()), None)
    if table is None:
        return body, None, around
    flat = table.reshape(-1, width)
    if flat.shape[0] != max(table.shape[:-1]):
        raise InputError(
            f"{where}: positions of shape {tuple(table.shape)} are not one vector for each place"
        )
    return body, flat, around


def _has_final(body: Mapping[str, Tensor]) -> bool:
    return "norm.weight" in body


def _sizes(body: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings that shapes tell."""
    width = body[ATTENTION].shape[-1]
    hidden = body.get("layers.0.linear1.weight")
    return {
        "n_layers": state.n_blocks(body, "layers."),
        "d_model": width,
        "d_mlp": 4 * width if hidden is None else hidden.shape[0],
    }


def shapes_of(told: Mapping[str, Any], final: bool) -> dict[str, Shape]:
    """Every tensor of an encoder of these sizes."""
    e = told["d_model"]
    m = told["d_mlp"]
    shapes: dict[str, Shape] = {}
    for i in range(told["n_layers"]):
        here = f"layers.{i}."
        rows = 3 * e  # of Q, K and V
        shapes[f"{here}self_attn.in_proj_weight"] = (rows, e)
        shapes[f"{here}self_attn.in_proj_bias"] = (rows,)
        shapes |= _linear(f"{here}self_attn.out_proj", e, e)
        shapes |= _linear(f"{here}linear1", m, e)
        shapes |= _linear(f"{here}linear2", e, m)
        shapes |= _norm(f"{here}norm1", e)
        shapes |= _norm(f"{here}norm2", e)
    if final:
        shapes |= _norm("norm", e)
    return shapes


def _linear(name: str, after: int, before: int) -> dict[str, Shape]:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _with_biases(tensors: Mapping[str, Tensor], wanted: Mapping[str, Shape]) -> dict[str, Tensor]:
    """The same with biases of 0, where layers have none at all; a final norm may have its own."""
    if any(name.endswith("bias") for name in tensors if name != "norm.bias"):
        return dict(tensors)
    full = dict(tensors)
    like = tensors[ATTENTION]
    for name, shape in wanted.items():
        if name.endswith("bias") and name not in full:
            full[name] = like.new_zeros(shape)
    return full


def _of_positions(table: Tensor | None, given: Given) -> dict[str, Any]:
    """Positions as settings; without them a prompt may have any length."""
    if table is not None:
        return {"positional_embedding_type": "standard", "n_ctx": len(table)}
    longest = N_TOKENS
    if given.task and given.encoding:
        n_points = given.task.n_points
        n_tokens = given.encoding.n_tokens(n_points)
        longest = max(longest, n_tokens)
    return {"positional_embedding_type": "none", "n_ctx": longest}


def _final(norm_position: str, body: Mapping[str, Tensor]) -> dict[str, Any]:
    """Whether a final norm stands there, where norms of that place would not tell."""
    has = _has_final(body)
    usual = norm_position == "pre"
    if has == usual:
        return {}
    return {"final_norm": has}


def _within(model: nn.Module, where: object) -> dict[str, Any]:
    """What the layers of an encoder in memory say.

    Raises:
        InputError: several encoders, layers that differ, or another activation than relu and gelu.
    """
    encoders = [part for part in model.modules() if isinstance(part, nn.TransformerEncoder)]
    layers = [part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer)]
    if len(encoders) > 1 or not layers:
        raise InputError(
            f"{where} holds {len(encoders)} TransformerEncoders, but only one can be read"
        )
    found = []
    for layer in layers:
        words: dict[str, Any] = {}
        words["n_heads"] = layer.self_attn.num_heads
        words["norm_position"] = "pre" if layer.norm_first else "post"
        words["act_fn"] = _activation(layer.activation, where)
        words["eps"] = layer.norm1.eps
        found.append(words)
    if any(words != found[0] for words in found):
        raise InputError(
            f"{where}: layers of its TransformerEncoder differ, which no model here has"
        )
    return found[0]


def _activation(function: Any, where: object) -> str:
    """Our name of an activation, told by what it computes."""
    x = torch.linspace(-3, 3, 13)
    known = {
        "relu": nn.functional.relu(x),
        "gelu": nn.functional.gelu(x),
        "gelu_new": nn.functional.gelu(x, approximate="tanh"),
    }
    with torch.no_grad():
        made = function(x)
    for name, values in known.items():
        if torch.equal(made, values):
            return name
    raise InputError(
        f"{where}: the activation of its TransformerEncoder is none of {', '.join(known)}"
    )


def _ours(
    body: Mapping[str, Tensor], ends: Mapping[str, Tensor], table: Tensor | None, n_heads: int
) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes."""
    found: dict[str, Tensor] = {}
    for end, matrix, bias in ENDS:
        weight = ends[f"{end}.weight"]
        zeros = weight.new_zeros(len(weight))
        found[matrix] = weight.T
        found[bias] = ends.get(f"{end}.bias", zeros)
    if table is not None:
        found["pos_embed.W_pos"] = table
    if _has_final(body):
        found["ln_final.w"] = body["norm.weight"]
        found["ln_final.b"] = body["norm.bias"]
    for i in range(state.n_blocks(body, "layers.")):
        found |= _block(body, f"layers.{i}.", f"blocks.{i}.", n_heads)
    return found


def _block(body: Mapping[str, Tensor], theirs: str, here: str, n_heads: int) -> dict[str, Tensor]:
    """One layer: rows of Q, K and V are cut into heads, and matrices turned."""
    found: dict[str, Tensor] = {}
    for old, new in NAMES.items():
        tensor = body[theirs + old]
        turned = tensor.ndim == 2
        found[here + new] = tensor.T if turned else tensor

    # What all heads have side by side.
    attn = f"{here}attn."
    output = found[f"{attn}W_O"]
    found[f"{attn}W_O"] = output.unflatten(0, (n_heads, -1))
    weights = body[f"{theirs}self_attn.in_proj_weight"].chunk(3)
    biases = body[f"{theirs}self_attn.in_proj_bias"].chunk(3)
    for letter, weight, bias in zip("QKV", weights, biases, strict=True):
        by_head = weight.unflatten(0, (n_heads, -1))  # (head, d_head, d_model)
        found[f"{attn}W_{letter}"] = by_head.transpose(1, 2)
        found[f"{attn}b_{letter}"] = bias.unflatten(0, (n_heads, -1))
    return found


FORMAT = Format(NAME, recognises, read)
