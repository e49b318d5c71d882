"""A `transformers.GPT2Model` between a linear read-in and read-out: as a state dict, or in memory.

Names and shapes with E = n_embd (Hugging Face's GPT-2 keeps matrices as x @ W):
`h.{i}.attn.c_attn.weight` (E, 3 E), the columns of Q, K and V in this order;
`h.{i}.attn.c_proj.weight` (E, E); `h.{i}.mlp.c_fc.weight` (E, M) and `c_proj` (M, E); `ln_1`,
`ln_2`, `ln_f`; `wpe.weight`, a row a position; `wte.weight`, the table of words, which prompts of
numbers never use. The read-in and read-out are `torch.nn.Linear`.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from itertools import permutations
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from icl_interp.checkpoints.formats import files, masked, modules, positions, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError, shown
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.weights import Shape
from icl_interp.provenance import LARGEST_FACTS, read_json

ATTENTION = "h.0.attn.c_attn.weight"
WORDS = "wte.weight"
# What GPT2Config takes where nothing is said; the rest of the arithmetic every GPT2Model has in
# common.
USUAL: dict[str, Any] = {"act_fn": "gelu_new", "eps": 1e-5, "use_attn_scale": True}
# What every GPT2Model is, unless the masks in a file say otherwise.
OF_CLASS: dict[str, Any] = {"attention_dir": "causal", "positional_embedding_type": "standard"}
# Settings of GPT2Config that change the arithmetic, with the value that changes nothing.
PLAIN = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "n_ctx", "d_in", "d_out")
COMMON: dict[str, Any] = {
    f.name: f.default
    for f in fields(HookedTransformerConfig)
    if f.name not in (*USUAL, *OF_CLASS, *_SIZES)
}
# By the name that GPT2Config has for it, where ours is another.
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new"}
NAME = "GPT2Model between a read-in and a read-out"


def recognises(source: Source) -> bool:
    """Whether there are the names of a GPT2Model's first block."""
    return any(name.endswith(ATTENTION) for name in files.shapes(source))


def read(source: Source, given: Given) -> Parts:
    """The model; its task and encoding have to be given, and for a file the number of heads.

    Raises:
        InputError: other tensors than those of a GPT2Model and two linear layers, something that is
            not told, or (in memory) other outputs than those of its copy.
    """
    found = files.read(source)
    where = source if isinstance(source, Path) else "the model"

    # What the config says, within the model or beside the file.
    told = dict(OF_CLASS)
    asks: tuple[str, ...] = ()
    if isinstance(source, nn.Module):
        config = vars(_config_within(source))
    else:
        config = _config_beside(source)
        asks = ("task", "encoding")
        told |= direction(found, where)
    told |= _told(config, where)

    # What names and shapes tell.
    body, around, prefix = body_of(found, where)
    told |= COMMON
    told |= sizes(body)
    _check_sizes(config, told, where)
    ends = linear_ends(around, told["d_model"], where, "a GPT2Model")
    named = {prefix + name: tensor for name, tensor in body.items()}
    wanted = {prefix + name: shape for name, shape in shapes_of(told).items()}
    state.check_names(named, wanted, where, f"a {NAME}")
    told["d_in"] = ends["in.weight"].shape[1]
    told["d_out"] = ends["out.weight"].shape[0]
    n_heads = told.get("n_heads", given.settings.get("n_heads"))
    told |= state.head_width(told["d_model"], n_heads, where)
    cfg, taken = given.complete(told, where, needed=("n_heads",), usual=USUAL, asks=asks)

    # The weights, compared with the model in memory or with the masks in the file.
    model = state.build(cfg, ours(body, ends, cfg.n_heads), where)
    encoding = None
    notes = []
    if isinstance(source, nn.Module):
        # What is in memory need not be trained: there are no notes on positions.
        dim = given.task.dim if given.task else None
        encoding = modules.compare(model, source, dim=dim)
    else:
        if given.task and given.encoding:
            n_tokens = given.encoding.n_tokens(given.task.n_points)
            notes.append(positions.note(body["wpe.weight"], n_tokens))
        notes.append(masked.check(model, found.masks, where))
    told_notes = tuple(filter(None, notes))
    return Parts(
        model, encoding=encoding, step=found.step or 0, assumptions=taken, notes=told_notes
    )


def _config_within(model: nn.Module) -> Any:
    """The config of the GPT2Model in a model."""
    bodies = []
    for module in model.modules():
        if all(hasattr(module, part) for part in ("h", "wpe", "ln_f", "config")):
            bodies.append(module)
    if len(bodies) != 1:
        raise InputError(
            f"the model holds {len(bodies)} parts with the config of a GPT2Model, but one is "
            "expected"
        )
    return bodies[0].config


def _config_beside(source: Path) -> Mapping[str, Any]:
    """Hugging Face's config.json of a GPT-2 in the folder of a file; empty where there is none."""
    folder = source if source.is_dir() else source.parent
    file = folder / "config.json"
    if not file.is_file():
        return {}
    try:
        data = read_json(file, LARGEST_FACTS)
    except InputError:  # no JSON: it belongs to somebody else
        return {}
    if isinstance(data, dict) and data.get("model_type") == "gpt2":
        return data
    return {}


def _told(config: Mapping[str, Any], where: object) -> dict[str, Any]:
    """What a GPT2Config says, in our words.

    Raises:
        InputError: a setting that changes the arithmetic and that no model here has.
    """
    for word, usual in PLAIN.items():
        if config.get(word, usual) != usual:
            raise InputError(
                f"{where}: its config says {word}={shown(config[word])}, which changes what "
                "attention computes, and no model here does that"
            )
    words = {
        "n_heads": "n_head",
        "eps": "layer_norm_epsilon",
        "act_fn": "activation_function",
        "use_attn_scale": "scale_attn_weights",
    }
    told = {ours: config[theirs] for ours, theirs in words.items() if theirs in config}
    if "act_fn" in told:
        activation = told["act_fn"]
        told["act_fn"] = ACTIVATIONS.get(activation, activation)
    return told


def _check_sizes(config: Mapping[str, Any], told: Mapping[str, Any], where: object) -> None:
    """Refuse a GPT2Config of another model than the weights beside it."""
    for theirs, name in (("n_embd", "d_model"), ("n_layer", "n_layers"), ("n_positions", "n_ctx")):
        if config.get(theirs, told[name]) != told[name]:
            raise InputError(
                f"{where}: its config says {theirs}={shown(config[theirs])}, but its weights have "
                f"{told[name]}: is it the config of another model?"
            )


def direction(found: State, where: object) -> dict[str, Any]:
    """What mask buffers say of `attention_dir`; empty where there are none."""
    way = state.direction(found.masks, where)
    if way is None:
        return {}
    return {"attention_dir": way}


def body_of(found: State, where: object) -> tuple[dict[str, Tensor], dict[str, Tensor], str]:
    """A GPT2Model's tensors by its own names, the tensors around it, and the prefix of its names.

    The table of word embeddings is left out.

    Raises:
        InputError: no first block.
    """
    prefixes = []
    for name, tensor in found.tensors.items():
        if name.endswith(ATTENTION) and tensor.ndim:
            prefixes.append(name.removesuffix(ATTENTION))
    if not prefixes:
        raise InputError(f"{where} looks like a {NAME}, but it lacks {ATTENTION}")
    prefix = prefixes[0]
    # Without a prefix only names tell what belongs to the body.
    names = r".*" if prefix else r"(h\.\d+|wte|wpe|ln_f)\..*"
    own = re.compile(re.escape(prefix) + names)
    body = {}
    around = {}
    for name, tensor in found.tensors.items():
        if own.fullmatch(name):
            body[name.removeprefix(prefix)] = tensor
        else:
            around[name] = tensor
    body.pop(WORDS, None)
    return body, around, prefix


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
    layers = sorted({name.rpartition(".")[0] for name in around})
    order = _order(around, layers, width)
    if len(layers) != 2 or order is None:
        raise InputError(
            f"{where}: around {body} of width {width} there must be a linear read-in and "
            "read-out, called for example read_in and read_out, but there are "
            f"{state.listed(sorted(around)) or 'no other tensors'}"
        )
    # Under our names, with a bias where there is one.
    ends: dict[str, Tensor] = {}
    for layer, end in zip(order, ("in", "out"), strict=True):
        for part in ("weight", "bias"):
            if f"{layer}.{part}" in around:
                ends[f"{end}.{part}"] = around[f"{layer}.{part}"]
    if len(ends) != len(around) or not _biases_fit(ends):
        raise InputError(
            f"{where}: the tensors around {body} are not two linear layers: {state.listed(around)}"
        )
    return ends


def _order(around: Mapping[str, Tensor], layers: list[str], width: int) -> tuple[str, str] | None:
    """The layer that reads, and the one that writes; None where that cannot be told."""
    orders: list[tuple[str, str]] = []
    for first, second in permutations(layers, 2):
        read = _shape(around, first)
        written = _shape(around, second)
        if len(read) == len(written) == 2 and read[0] == width == written[1]:
            orders.append((first, second))
    if len(orders) == 2:  # a model as wide as its tokens: names tell
        orders = [order for order in orders if _named_so(*order)]
    if len(orders) != 1:
        return None
    return orders[0]


def _biases_fit(ends: Mapping[str, Tensor]) -> bool:
    """Whether each bias is as long as its matrix is high."""
    for end in ("in", "out"):
        bias = ends.get(f"{end}.bias")
        if bias is not None and tuple(bias.shape) != ends[f"{end}.weight"].shape[:1]:
            return False
    return True


def _named_so(first: str, second: str) -> bool:
    return _says(first, "in", "embed", "wte") and _says(second, "out", "unembed", "head")


def _shape(tensors: Mapping[str, Tensor], layer: str) -> Shape:
    weight = tensors.get(f"{layer}.weight")
    if weight is None:
        return ()
    return tuple(weight.shape)


def _says(layer: str, *words: str) -> bool:
    parts = re.split(r"[._]", layer.lower())
    return not set(parts).isdisjoint(words)


def sizes(body: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings that a body's shapes tell.

    They are what they seem once the names are checked.
    """
    width = body[ATTENTION].shape[0]
    gain = body.get("ln_f.weight")
    if gain is not None and gain.ndim == 1:
        width = gain.shape[0]
    # Where a matrix is missing, usual sizes stand in until the names are checked.
    d_mlp = 4 * width
    hidden = body.get("h.0.mlp.c_fc.weight")
    if hidden is not None and hidden.ndim == 2:
        d_mlp = hidden.shape[1]
    n_ctx = 1
    table = body.get("wpe.weight")
    if table is not None and table.ndim == 2:
        n_ctx = table.shape[0]
    n_layers = state.n_blocks(body, "h.")
    return {"n_layers": n_layers, "d_model": width, "d_mlp": d_mlp, "n_ctx": n_ctx}


def shapes_of(told: Mapping[str, Any]) -> dict[str, Shape]:
    """Every tensor of a GPT2Model of these sizes, but for the table of words."""
    e = told["d_model"]
    d_mlp = told["d_mlp"]
    shapes: dict[str, Shape] = {"wpe.weight": (told["n_ctx"], e), **_norm("ln_f", e)}
    for i in range(told["n_layers"]):
        block = f"h.{i}"
        shapes |= _norm(f"{block}.ln_1", e)
        shapes |= _norm(f"{block}.ln_2", e)
        shapes |= _product(f"{block}.attn.c_attn", e, 3 * e)
        shapes |= _product(f"{block}.attn.c_proj", e, e)
        shapes |= _product(f"{block}.mlp.c_fc", e, d_mlp)
        shapes |= _product(f"{block}.mlp.c_proj", d_mlp, e)
    return shapes


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _product(name: str, before: int, after: int) -> dict[str, Shape]:
    return {f"{name}.weight": (before, after), f"{name}.bias": (after,)}


def ours(body: Mapping[str, Tensor], ends: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes."""
    read_in = ends["in.weight"]
    read_out = ends["out.weight"]
    no_b_E = read_in.new_zeros(body["ln_f.weight"].shape[0])
    no_b_U = read_out.new_zeros(read_out.shape[0])
    found = {
        "embed.W_E": read_in.T,
        "embed.b_E": ends.get("in.bias", no_b_E),
        "pos_embed.W_pos": body["wpe.weight"],
        "ln_final.w": body["ln_f.weight"],
        "ln_final.b": body["ln_f.bias"],
        "unembed.W_U": read_out.T,
        "unembed.b_U": ends.get("out.bias", no_b_U),
    }
    for i in range(state.n_blocks(body, "h.")):
        theirs = f"h.{i}."
        here = f"blocks.{i}."
        found |= _heads(body, f"{theirs}attn.", f"{here}attn.", n_heads)
        found |= _renamed(body, theirs, here, _NORMS | _MLP)
    return found


_NORMS = {
    "ln_1.weight": "ln1.w",
    "ln_1.bias": "ln1.b",
    "ln_2.weight": "ln2.w",
    "ln_2.bias": "ln2.b",
}
_MLP = {
    "mlp.c_fc.weight": "mlp.W_in",
    "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out",
    "mlp.c_proj.bias": "mlp.b_out",
}


def _renamed(
    body: Mapping[str, Tensor], theirs: str, here: str, names: Mapping[str, str]
) -> dict[str, Tensor]:
    return {here + new: body[theirs + old] for old, new in names.items()}


def _heads(body: Mapping[str, Tensor], theirs: str, here: str, n_heads: int) -> dict[str, Tensor]:
    """Attention: the columns of Q, K and V, cut into heads."""
    output = body[f"{theirs}c_proj.weight"]
    found = {f"{here}W_O": output.unflatten(0, (n_heads, -1))}
    found[f"{here}b_O"] = body[f"{theirs}c_proj.bias"]
    weights = body[f"{theirs}c_attn.weight"].chunk(3, 1)
    biases = body[f"{theirs}c_attn.bias"].chunk(3)
    for letter, weight, bias in zip("QKV", weights, biases, strict=True):
        by_head = weight.unflatten(1, (n_heads, -1))
        found[f"{here}W_{letter}"] = by_head.transpose(0, 1)
        found[f"{here}b_{letter}"] = bias.unflatten(0, (n_heads, -1))
    return found


FORMAT = Format(NAME, recognises, read)
