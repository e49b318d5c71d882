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

from icl_interp.checkpoints.formats import files, in_memory, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.ends import linear_ends
from icl_interp.errors import InputError
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import Shape

NAME = "torch.nn.TransformerEncoder between a read-in and a read-out"
ATTENTION = "layers.0.self_attn.in_proj_weight"
# What nn.TransformerEncoderLayer takes where nothing is said.
USUAL: dict[str, Any] = {"act_fn": "relu", "eps": 1e-5, "norm_position": "post"}
COMMON: dict[str, Any] = {"normalization_type": "LN", "use_attn_scale": True, "score_fn": "softmax"}
N_TOKENS = 64  # in a prompt, where neither positions nor a task limit it
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
    body, table, around = _split(tensors, where)
    told = COMMON | _sizes(body)
    full = _with_biases(body, shapes_of(told, _has_final(body)))
    state.check_names(full, shapes_of(told, _has_final(body)), where, f"a {NAME}")
    ends = linear_ends(around, told["d_model"], where, "a TransformerEncoder")
    told |= {"d_in": ends["in.weight"].shape[1], "d_out": ends["out.weight"].shape[0]}
    told |= _of_positions(table, given)

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
    first = next(name for name in tensors if name.endswith(ATTENTION))
    prefix = first.removesuffix(ATTENTION)
    own = re.compile(re.escape(prefix) + r"(layers\.\d+\..*|norm\.(weight|bias))")
    width = tensors[first].shape[-1]
    body: dict[str, Tensor] = {}
    around: dict[str, Tensor] = {}
    tables: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if own.fullmatch(name):
            body[name.removeprefix(prefix)] = tensor
        elif POSITIONS.fullmatch(name) and tensor.shape[-1:] == (width,):
            tables[name] = tensor
        else:
            around[name] = tensor
    if len(tables) > 1:
        raise InputError(
            f"{where} has several tables of positions, {state.listed(tables)}: one is read"
        )
    table = next(iter(tables.values()), None)
    if table is None:
        return body, None, around
    flat = table.reshape(-1, width)
    if flat.shape[0] != max(table.shape[:-1]):
        raise InputError(f"{where}: positions of shape {tuple(table.shape)} are no vector a place")
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
    e, m = told["d_model"], told["d_mlp"]
    shapes: dict[str, Shape] = {}
    for i in range(told["n_layers"]):
        here = f"layers.{i}."
        shapes |= {f"{here}self_attn.in_proj_weight": (3 * e, e)}
        shapes |= {f"{here}self_attn.in_proj_bias": (3 * e,)}
        shapes |= _linear(f"{here}self_attn.out_proj", e, e)
        shapes |= _linear(f"{here}linear1", m, e) | _linear(f"{here}linear2", e, m)
        shapes |= _norm(f"{here}norm1", e) | _norm(f"{here}norm2", e)
    return shapes | (_norm("norm", e) if final else {})


def _linear(name: str, after: int, before: int) -> dict[str, Shape]:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _with_biases(tensors: Mapping[str, Tensor], wanted: Mapping[str, Shape]) -> dict[str, Tensor]:
    """The same with biases of 0, where layers have none at all; a final norm may have its own."""
    if any(name.endswith("bias") for name in tensors if name != "norm.bias"):
        return dict(tensors)
    like = tensors[ATTENTION]
    zeros = {n: like.new_zeros(shape) for n, shape in wanted.items() if n.endswith("bias")}
    return {**zeros, **tensors}


def _of_positions(table: Tensor | None, given: Given) -> dict[str, Any]:
    """Positions as settings; without them a prompt may have any length."""
    if table is not None:
        return {"positional_embedding_type": "standard", "n_ctx": len(table)}
    n_tokens = N_TOKENS
    if given.task and given.encoding:
        n_tokens = given.encoding.n_tokens(given.task.n_points)
    return {"positional_embedding_type": "none", "n_ctx": max(n_tokens, N_TOKENS)}


def _final(norm_position: str, body: Mapping[str, Tensor]) -> dict[str, Any]:
    """Whether a final norm stands there, where norms of that place would not tell."""
    usual = norm_position == "pre"
    return {} if _has_final(body) == usual else {"final_norm": _has_final(body)}


def _within(model: nn.Module, where: object) -> dict[str, Any]:
    """What the layers of an encoder in memory say.

    Raises:
        InputError: several encoders, layers that differ, or another activation than relu and gelu.
    """
    encoders = [part for part in model.modules() if isinstance(part, nn.TransformerEncoder)]
    layers = [part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer)]
    if len(encoders) > 1 or not layers:
        raise InputError(f"{where} holds {len(encoders)} TransformerEncoders, but one is read")
    found = []
    for layer in layers:
        found.append(
            {
                "n_heads": layer.self_attn.num_heads,
                "norm_position": "pre" if layer.norm_first else "post",
                "act_fn": _activation(layer.activation, where),
                "eps": layer.norm1.eps,
            }
        )
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
    read_in, read_out = ends["in.weight"], ends["out.weight"]
    found = {
        "embed.W_E": read_in.T,
        "embed.b_E": ends.get("in.bias", read_in.new_zeros(len(read_in))),
        "unembed.W_U": read_out.T,
        "unembed.b_U": ends.get("out.bias", read_out.new_zeros(len(read_out))),
    }
    if table is not None:
        found["pos_embed.W_pos"] = table
    if _has_final(body):
        found |= {"ln_final.w": body["norm.weight"], "ln_final.b": body["norm.bias"]}
    for i in range(state.n_blocks(body, "layers.")):
        found |= _block(body, f"layers.{i}.", f"blocks.{i}.", n_heads)
    return found


def _block(body: Mapping[str, Tensor], theirs: str, here: str, n_heads: int) -> dict[str, Tensor]:
    """One layer: rows of Q, K and V are cut into heads, and matrices turned."""
    attn = f"{theirs}self_attn."
    out = body[f"{attn}out_proj.weight"].T
    found = {
        f"{here}attn.W_O": out.unflatten(0, (n_heads, -1)),
        f"{here}attn.b_O": body[f"{attn}out_proj.bias"],
        f"{here}mlp.W_in": body[f"{theirs}linear1.weight"].T,
        f"{here}mlp.b_in": body[f"{theirs}linear1.bias"],
        f"{here}mlp.W_out": body[f"{theirs}linear2.weight"].T,
        f"{here}mlp.b_out": body[f"{theirs}linear2.bias"],
    }
    for number in (1, 2):
        found[f"{here}ln{number}.w"] = body[f"{theirs}norm{number}.weight"]
        found[f"{here}ln{number}.b"] = body[f"{theirs}norm{number}.bias"]
    weights = body[f"{attn}in_proj_weight"].chunk(3)
    biases = body[f"{attn}in_proj_bias"].chunk(3)
    for letter, weight, bias in zip("QKV", weights, biases, strict=True):
        by_head = weight.unflatten(0, (n_heads, -1))  # (head, d_head, d_model)
        found[f"{here}attn.W_{letter}"] = by_head.transpose(1, 2)
        found[f"{here}attn.b_{letter}"] = bias.unflatten(0, (n_heads, -1))
    return found


FORMAT = Format(NAME, recognises, read)
