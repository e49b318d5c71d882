"""Attention between two norms: blocks norm2(x + 0.1 W_o attention(norm1(x))) of tokens themselves.

Of github.com/Shou-Yue/Incontext-Learning-of-Attention-Mechanisms. A file of torch.save holds
`model_state_dict` beside words such as `model_type` and `num_layers`. With T = d + 1 numbers in a
token and H columns of queries and keys: `layers.{i}.W_q.weight` and `W_k.weight` (H, T), `W_v` and
`W_o` (T, T), all without biases; `norm1` and `norm2`; `pred_head.weight` (1, T). Tokens are (x; y),
the query (x; 0): the encoding "stacked". The tokens are the stream, there are no positions, and the
output at the last token is the prediction. Scores are q.k / sqrt(H); `lsa` takes them as they are,
`softmax` their softmax.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad

from icl_interp.checkpoints.assumptions import Assumption
from icl_interp.checkpoints.formats import files, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError, shown
from icl_interp.models.tokens import Encoding, Stacked
from icl_interp.models.weights import Shape

NAME = "attention between two norms"
MARKS = ("layers.0.W_q.weight", "layers.0.norm2.weight", "pred_head.weight")
# What all of these models have in common.
COMMON: dict[str, Any] = {
    "n_heads": 1,
    "d_out": 1,
    "attn_only": True,
    "read_in": "token",
    "positional_embedding_type": "none",
    "normalization_type": "LN",
    "norm_position": "both",
    "residual_scale": 0.1,
    "no_bias": "linear",
    "use_attn_scale": True,
    "score_norm": None,
    "eps": 1e-5,
}
# What a file's `model_type` says. Only of `lsa` the direction is fixed by its class.
KINDS: dict[str, dict[str, Any]] = {
    "lsa": {"score_fn": "linear", "attention_dir": "causal"},
    "softmax": {"score_fn": "softmax"},
}
USUAL = {"score_fn": "linear", "attention_dir": "causal"}
OTHERS = {
    "score_fn": ("softmax (another class of the same code, with the same weights)",),
    "attention_dir": ("bidirectional (an option of the same code, which its files do not tell)",),
}


def recognises(source: Source) -> bool:
    """Whether there are the names of a first block, of its second norm and of the read-out."""
    names = files.shapes(source)
    return all(mark in names for mark in MARKS)


def read(source: Source, given: Given) -> Parts:
    """The model; its task has to be given.

    Raises:
        InputError: other tensors than these models have, another kind of attention by the file's
            own words, no task, or a model in memory.
    """
    if isinstance(source, nn.Module):
        raise InputError(
            f"a model in memory of the kind '{NAME}' does not tell its arithmetic: save it with "
            "torch.save({'model_state_dict': model.state_dict(), 'model_type': 'lsa'}, FILE), or "
            "'softmax', and load the file"
        )
    found = files.read(source)
    # What the file tells, by its words and by the shapes of its weights.
    told = COMMON | _kind(files.words(source), source) | _sizes(found.tensors)
    state.check_names(found.tensors, _shapes(told), source, f"a file of {NAME}")
    columns = told.pop("columns")
    told["d_head"] = max(columns, told["d_in"])
    encoding = given.encoding or Stacked()
    told["n_ctx"] = _n_ctx(given, encoding)
    usual = {name: value for name, value in USUAL.items() if name not in told}
    cfg, taken = given.complete(told, source, usual=usual, asks=("task",))
    # The weights by our names.
    model = state.build(cfg, _ours(found.tensors, cfg.n_layers, columns, cfg.head_width), source)
    notes = ()
    if cfg.head_width != columns:
        notes = (
            f"Queries and keys have {columns} coordinates and values {cfg.head_width}; a head here "
            "has one width, so zeros were added to queries and keys.",
        )
    return Parts(
        model,
        encoding=encoding,
        step=found.step or 0,
        assumptions=tuple(_with_others(each) for each in taken),
        notes=notes,
    )


def _kind(words: Mapping[str, Any], where: object) -> dict[str, Any]:
    """What the file's `model_type` says of scores; nothing where it says nothing.

    Raises:
        InputError: another kind.
    """
    kind = words.get("model_type")
    if kind is None:
        return {}
    if kind not in KINDS:
        raise InputError(
            f"{where}: its model_type is {shown(kind)}, but only {' and '.join(KINDS)} are read: "
            "another kind computes other things with weights of these names"
        )
    return KINDS[kind]


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Layers and widths, by the names and shapes of the first layer's weights."""
    axes = {"d_in": ("pred_head.weight", 1), "columns": ("layers.0.W_q.weight", 0)}
    found = {"d_in": 1, "columns": 1}
    found |= state.sizes(tensors, axes)
    found["d_model"] = found["d_in"]
    found["n_layers"] = state.n_blocks(tensors, "layers.")
    return found


def _shapes(told: Mapping[str, Any]) -> dict[str, Shape]:
    """Every tensor of a model of these sizes."""
    token = told["d_in"]
    columns = told["columns"]
    rows = {"W_q": columns, "W_k": columns, "W_v": token, "W_o": token}
    shapes: dict[str, Shape] = {"pred_head.weight": (1, token)}
    for i in range(told["n_layers"]):
        for name, n_rows in rows.items():
            shapes[f"layers.{i}.{name}.weight"] = (n_rows, token)
        for norm in ("norm1", "norm2"):
            shapes[f"layers.{i}.{norm}.weight"] = (token,)
            shapes[f"layers.{i}.{norm}.bias"] = (token,)
    return shapes


def _n_ctx(given: Given, encoding: Encoding) -> int:
    """Tokens of the task's prompts: without positions nothing in a file bounds them."""
    asked = given.settings.get("n_ctx")
    if asked is not None or given.task is None:
        return asked or 1
    return encoding.n_tokens(given.task.n_points)


def _with_others(taken: Assumption) -> Assumption:
    """The assumption with the values that the same code has for it elsewhere."""
    return replace(taken, others=OTHERS[taken.name])


def _ours(
    tensors: Mapping[str, Tensor], n_layers: int, columns: int, width: int
) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes.

    Queries and keys get columns of zeros up to the width of a head. Queries then make up for the
    other number under the root that scores are divided by.
    """
    read_out = tensors["pred_head.weight"]
    token = read_out.shape[1]
    # Tokens are the stream, and no map has a bias.
    found = {}
    found["embed.W_E"] = read_out.new_ones(token).diag()
    found["embed.b_E"] = read_out.new_zeros(token)
    found["unembed.W_U"] = read_out.T
    found["unembed.b_U"] = read_out.new_zeros(1)
    for i in range(n_layers):
        theirs = f"layers.{i}."
        here = f"blocks.{i}."
        # One head of attention.
        maps = {}
        for name in "qkvo":
            maps[name] = tensors[f"{theirs}W_{name}.weight"].T
        maps["q"] = maps["q"] * math.sqrt(width / columns)
        for name in "qkv":
            letter = name.upper()
            missing = width - maps[name].shape[1]
            wide = pad(maps[name], (0, missing))
            found[f"{here}attn.W_{letter}"] = wide[None]
            found[f"{here}attn.b_{letter}"] = read_out.new_zeros(1, width)
        missing = width - token
        long = pad(maps["o"], (0, 0, 0, missing))
        found[f"{here}attn.W_O"] = long[None]
        found[f"{here}attn.b_O"] = read_out.new_zeros(token)
        # The norms before and after it.
        for number in "12":
            norm = f"{theirs}norm{number}"
            found[f"{here}ln{number}.w"] = tensors[f"{norm}.weight"]
            found[f"{here}ln{number}.b"] = tensors[f"{norm}.bias"]
    return found


FORMAT = Format(NAME, recognises, read)
