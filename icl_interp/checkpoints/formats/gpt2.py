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

ATTENTION, WORDS = "h.0.attn.c_attn.weight", "wte.weight"
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
ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_new"
}  # by the name that GPT2Config has for it, where ours is another
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
    asks: tuple[str, ...] = ()
    if isinstance(source, nn.Module):
        config = vars(_config_within(source))
        told = dict(OF_CLASS)
    else:
        config = _config_beside(source)
        asks = ("task", "encoding")
        told = OF_CLASS | direction(found, where)
    told |= _told(config, where)
    body, around, prefix = body_of(found, where)
    told |= COMMON | sizes(body)
    _check_sizes(config, told, where)
    ends = linear_ends(around, told["d_model"], where, "a GPT2Model")
    wanted = {prefix + name: shape for name, shape in shapes_of(told).items()}
    state.check_names(
        {prefix + name: tensor for name, tensor in body.items()}, wanted, where, f"a {NAME}"
    )
    told |= {"d_in": ends["in.weight"].shape[1], "d_out": ends["out.weight"].shape[0]}
    told |= state.head_width(
        told["d_model"], told.get("n_heads", given.settings.get("n_heads")), where
    )
    cfg, taken = given.complete(told, where, needed=("n_heads",), usual=USUAL, asks=asks)
    tensors = ours(body, ends, cfg.n_heads)
    notes = []
    if given.task and given.encoding:
        n_tokens = given.encoding.n_tokens(given.task.n_points)
        notes.append(positions.note(body["wpe.weight"], n_tokens))
    model = state.build(cfg, tensors, where)
    encoding = None
    if isinstance(source, nn.Module):
        encoding = modules.compare(model, source, dim=given.task.dim if given.task else None)
        notes = []  # what is in memory need not be trained
    else:
        notes.append(masked.check(model, found.masks, where))
    return Parts(
        model,
        encoding=encoding,
        step=found.step or 0,
        assumptions=taken,
        notes=tuple(note for note in notes if note),
    )


def _config_within(model: nn.Module) -> Any:
    """The config of the GPT2Model in a model."""
    parts = ("h", "wpe", "ln_f", "config")
    bodies = [module for module in model.modules() if all(hasattr(module, part) for part in parts)]
    if len(bodies) != 1:
        raise InputError(
            f"the model holds {len(bodies)} parts with the config of a GPT2Model, but one is "
            "expected"
        )
    return bodies[0].config


def _config_beside(source: Path) -> Mapping[str, Any]:
    """Hugging Face's config.json of a GPT-2 in the folder of a file; empty where there is none."""
    file = (source if source.is_dir() else source.parent) / "config.json"
    try:
        data = read_json(file, LARGEST_FACTS) if file.is_file() else {}
    except InputError:  # no JSON: it belongs to somebody else
        return {}
    return data if isinstance(data, dict) and data.get("model_type") == "gpt2" else {}


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
        told["act_fn"] = ACTIVATIONS.get(told["act_fn"], told["act_fn"])
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
    return {} if way is None else {"attention_dir": way}


def body_of(found: State, where: object) -> tuple[dict[str, Tensor], dict[str, Tensor], str]:
    """A GPT2Model's tensors by its own names, the tensors around it, and the prefix of its names.

    The table of word embeddings is left out.

    Raises:
        InputError: no first block.
    """
    first = next(
        (
            name
            for name, tensor in found.tensors.items()
            if name.endswith(ATTENTION) and tensor.ndim
        ),
        None,
    )
    if first is None:
        raise InputError(f"{where} looks like a {NAME}, but it lacks {ATTENTION}")
    prefix = first.removesuffix(ATTENTION)
    own = re.compile(re.escape(prefix) + (r".*" if prefix else r"(h\.\d+|wte|wpe|ln_f)\..*"))
    body = {
        name.removeprefix(prefix): tensor
        for name, tensor in found.tensors.items()
        if own.fullmatch(name)
    }
    body.pop(WORDS, None)
    return (
        body,
        {name: tensor for name, tensor in found.tensors.items() if not own.fullmatch(name)},
        prefix,
    )


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
        read, written = _shape(around, first), _shape(around, second)
        if len(read) == len(written) == 2 and read[0] == width == written[1]:
            orders.append((first, second))
    if len(orders) == 2:  # a model as wide as its tokens: names tell
        orders = [order for order in orders if _named_so(*order)]
    return orders[0] if len(orders) == 1 else None


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
    return () if weight is None else tuple(weight.shape)


def _says(layer: str, *words: str) -> bool:
    return bool(set(re.split(r"[._]", layer.lower())) & set(words))


def sizes(body: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings that a body's shapes tell.

    They are what they seem once the names are checked.
    """
    gain, positions, hidden = (
        body.get(name) for name in ("ln_f.weight", "wpe.weight", "h.0.mlp.c_fc.weight")
    )
    width = (body[ATTENTION] if gain is None or gain.ndim != 1 else gain).shape[0]
    return {
        "n_layers": state.n_blocks(body, "h."),
        "d_model": width,
        "d_mlp": hidden.shape[1] if hidden is not None and hidden.ndim == 2 else 4 * width,
        "n_ctx": positions.shape[0] if positions is not None and positions.ndim == 2 else 1,
    }


def shapes_of(told: Mapping[str, Any]) -> dict[str, Shape]:
    """Every tensor of a GPT2Model of these sizes, but for the table of words."""
    e, d_mlp = told["d_model"], told["d_mlp"]
    shapes: dict[str, Shape] = {"wpe.weight": (told["n_ctx"], e), **_norm("ln_f", e)}
    for i in range(told["n_layers"]):
        here = f"h.{i}."
        shapes |= _norm(f"{here}ln_1", e) | _norm(f"{here}ln_2", e)
        shapes |= _product(f"{here}attn.c_attn", e, 3 * e) | _product(f"{here}attn.c_proj", e, e)
        shapes |= _product(f"{here}mlp.c_fc", e, d_mlp) | _product(f"{here}mlp.c_proj", d_mlp, e)
    return shapes


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _product(name: str, before: int, after: int) -> dict[str, Shape]:
    return {f"{name}.weight": (before, after), f"{name}.bias": (after,)}


def ours(body: Mapping[str, Tensor], ends: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes."""
    e = body["ln_f.weight"].shape[0]
    found = {
        "embed.W_E": ends["in.weight"].T,
        "embed.b_E": ends.get("in.bias", ends["in.weight"].new_zeros(e)),
        "pos_embed.W_pos": body["wpe.weight"],
        "ln_final.w": body["ln_f.weight"],
        "ln_final.b": body["ln_f.bias"],
        "unembed.W_U": ends["out.weight"].T,
        "unembed.b_U": ends.get(
            "out.bias", ends["out.weight"].new_zeros(ends["out.weight"].shape[0])
        ),
    }
    for i in range(state.n_blocks(body, "h.")):
        theirs, here = f"h.{i}.", f"blocks.{i}."
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
    columns = body[f"{theirs}c_attn.weight"].chunk(3, 1), body[f"{theirs}c_attn.bias"].chunk(3)
    found = {
        f"{here}W_O": body[f"{theirs}c_proj.weight"].unflatten(0, (n_heads, -1)),
        f"{here}b_O": body[f"{theirs}c_proj.bias"],
    }
    for letter, weight, bias in zip("QKV", *columns, strict=True):
        found[f"{here}W_{letter}"] = weight.unflatten(1, (n_heads, -1)).transpose(0, 1)
        found[f"{here}b_{letter}"] = bias.unflatten(0, (n_heads, -1))
    return found


FORMAT = Format(NAME, recognises, read)
