"""TransformerLens 4's own models between a linear read-in and read-out.

`TransformerBridge.boot_native` makes such models.

Names: `blocks.{i}.attn.{q,k,v,o}.{weight,bias}` with weight (out, in), heads one after another
along out (along in for o); `blocks.{i}.mlp.{in,out}`, `ln1`, `ln2`, `ln_final`; `pos_embed.weight`,
a row a position; `unembed`, the read-out. The read-in is `embed` itself, where a `torch.nn.Linear`
has replaced the table of words, or one more linear layer that stands beside the model; then
`embed.weight` is a table of words that prompts of numbers do not use.

A bridge's `hook_attn_scores` is after the softmax (version 4.3). The model that is read from a
bridge has our hooks.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from icl_interp.checkpoints.formats import files, modules, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.weights import Shape

NAME = "boot_native model of TransformerLens 4"
USUAL = {"attention_dir": "causal", "eps": 1e-5}
ATTENTION = "blocks.0.attn.q.weight"
EMBED = "embed.weight"
_OWN = ("blocks.", "ln_final.", "pos_embed.", "embed.", "unembed.")
# What shapes do not tell, but a cfg does.
_WORDS = ("n_heads", "act_fn", "normalization_type", "attention_dir", "eps")


def recognises(source: Source) -> bool:
    """Whether there is a first block's attention under this name."""
    return any(_plain(name).endswith(ATTENTION) for name in files.shapes(source))


def read(source: Source, given: Given) -> Parts:
    """The model in a file or in memory.

    Its task and encoding have to be given, and for a file also the settings that weights do not
    show.

    Raises:
        InputError: no such tensors, something that is not told, or (in memory) other outputs than
            those of its copy.
    """
    found = files.read(source)
    where = source if isinstance(source, Path) else "the model"
    tensors, inputs = _between_ends(found, where)

    # The settings, as far as names and shapes tell them, or in memory the cfg.
    told = _sizes(tensors, inputs) | _from_masks(found, where)
    needed = ["n_heads"]
    if not told["attn_only"]:
        needed.append("act_fn")
    if "normalization_type" not in told:
        needed.append("normalization_type")
    if isinstance(source, nn.Module):
        for word, value in _cfg(source).items():
            if word in _WORDS:
                told[word] = value
    attention = tensors[ATTENTION]
    if attention.ndim == 2:
        n_heads = told.get("n_heads", given.settings.get("n_heads"))
        told |= state.head_width(attention.shape[0], n_heads, where)
    if isinstance(source, nn.Module):
        cfg, taken = given.complete(told, where, needed=needed)
    else:
        asks = ("task", "encoding")
        cfg, taken = given.complete(told, where, needed=needed, usual=USUAL, asks=asks)

    # The weights.
    wanted = _shapes(cfg, inputs, tensors)
    state.check_names(tensors, wanted, where, f"a {NAME}")
    model = state.build(cfg, _ours(tensors, inputs, cfg), where)
    if isinstance(source, nn.Module):
        # A bridge takes numbers for vectors that are embedded already; the model in it embeds what
        # it gets.
        inside = getattr(source, "original_model", None) if hasattr(source, "cfg") else None
        modules.compare(model, source, inside)
    return Parts(model, step=found.step or 0, assumptions=taken)


def _plain(name: str) -> str:
    """The name of a tensor in the model itself.

    A bridge inside another module lists its MLP's layers twice, once under these names.
    """
    return name.replace(".mlp.fc_in.", ".mlp.in.").replace(".mlp.fc_out.", ".mlp.out.")


def _between_ends(found: State, where: object) -> tuple[dict[str, Tensor], str]:
    """The tensors by this format's names, and the name of the read-in.

    Raises:
        InputError: no read-in, or more than one.
    """
    tensors = state.cleaned(found.tensors, where, rename=_plain).tensors
    first = next(name for name in tensors if name.endswith(ATTENTION))
    prefix = first.removesuffix(ATTENTION)
    own = tuple(prefix + part for part in _OWN)
    body = {}
    beside = {}
    layers = set()
    parts = set()
    for name, tensor in tensors.items():
        if name.startswith(own):
            body[name.removeprefix(prefix)] = tensor
        else:
            beside[name] = tensor
            layer, _, part = name.rpartition(".")
            layers.add(layer)
            parts.add(part)

    # One more layer reads: then `embed` is the table of words.
    if beside:
        if len(layers) != 1 or not parts <= {"weight", "bias"}:
            raise InputError(
                f"{where}: beside a {NAME} there may be one linear layer, the read-in, but there "
                f"are {state.listed(sorted(beside))}"
            )
        body.pop(EMBED, None)
        return {**body, **beside}, layers.pop()

    # A table of words is (words, width) without a bias; a linear layer is (width, d_in), by default
    # with one.
    width = body[ATTENTION].shape[-1] if body[ATTENTION].ndim else 0
    matrix = body.get(EMBED)
    if matrix is not None and matrix.ndim == 2 and matrix.shape[0] == width:
        has_bias = "embed.bias" in body
        if has_bias or matrix.shape[1] != width:
            return body, "embed"
    raise InputError(
        f"{where} has no read-in for numbers: its embed.weight is a table of words; give it a "
        "linear layer that reads numbers, as embed or beside the model"
    )


def _sizes(tensors: Mapping[str, Tensor], inputs: str) -> dict[str, Any]:
    """The settings that names and shapes tell.

    They are what they seem once the names are checked.
    """
    sizes = {
        "d_in": (f"{inputs}.weight", 1),
        "d_out": ("unembed.weight", 0),
        "d_model": (ATTENTION, 1),
        "d_mlp": ("blocks.0.mlp.in.weight", 0),
        "n_ctx": ("pos_embed.weight", 0),
    }
    told: dict[str, Any] = state.sizes(tensors, sizes)
    told["n_layers"] = state.n_blocks(tensors, "blocks.")
    told["attn_only"] = not any(".mlp." in name for name in tensors)
    if "blocks.0.ln1.weight" in tensors:
        told["normalization_type"] = "LN" if "blocks.0.ln1.bias" in tensors else "RMS"
    return told


def _from_masks(found: State, where: object) -> dict[str, str]:
    way = state.direction(found.masks, where)
    if way is None:
        return {}
    return {"attention_dir": way}


def _cfg(model: nn.Module) -> dict[str, Any]:
    """The config words of a bridge, or of the bridge inside a model."""
    for module in model.modules():
        cfg = getattr(module, "cfg", None)
        if hasattr(cfg, "n_heads"):
            words = {}
            for setting in fields(HookedTransformerConfig):
                if hasattr(cfg, setting.name):
                    words[setting.name] = getattr(cfg, setting.name)
            words["act_fn"] = words.get("act_fn") or "gelu"
            return words
    return {}


def _shapes(
    cfg: HookedTransformerConfig, inputs: str, found: Mapping[str, Tensor]
) -> dict[str, Shape]:
    """Every tensor of such a model."""
    e = cfg.d_model
    heads = cfg.n_heads * cfg.head_width
    # Linear layers and norms, block by block.
    layers = {inputs: (e, cfg.d_in), "unembed": (cfg.d_out, e)}
    norms = ["ln_final"]
    for i in range(cfg.n_layers):
        block = f"blocks.{i}"
        norms.append(f"{block}.ln1")
        for letter in "qkv":
            layers[f"{block}.attn.{letter}"] = (heads, e)
        layers[f"{block}.attn.o"] = (e, heads)
        if not cfg.attn_only:
            norms.append(f"{block}.ln2")
            layers[f"{block}.mlp.in"] = (cfg.mlp_width, e)
            layers[f"{block}.mlp.out"] = (e, cfg.mlp_width)

    # The tensors of each.
    wanted: dict[str, Shape] = {}
    parts = {"LN": ("weight", "bias"), "RMS": ("weight",)}
    for norm in norms:
        for part in parts.get(cfg.normalization_type or "", ()):
            wanted[f"{norm}.{part}"] = (e,)
    for layer, shape in layers.items():
        wanted[f"{layer}.weight"] = shape
        # The layers at both ends may lack a bias.
        if layer not in (inputs, "unembed") or f"{layer}.bias" in found:
            wanted[f"{layer}.bias"] = shape[:1]
    wanted["pos_embed.weight"] = (cfg.n_ctx, e)
    return wanted


def _ours(
    tensors: Mapping[str, Tensor], inputs: str, cfg: HookedTransformerConfig
) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes."""
    shape = (cfg.n_heads, cfg.head_width)
    found = {"pos_embed.W_pos": tensors["pos_embed.weight"]}
    # Both ends; a layer without a bias gets one of 0.
    for ours, theirs, letter in (("embed", inputs, "E"), ("unembed", "unembed", "U")):
        matrix = tensors[f"{theirs}.weight"]
        zeros = matrix.new_zeros(matrix.shape[0])
        found[f"{ours}.W_{letter}"] = matrix.T
        found[f"{ours}.b_{letter}"] = tensors.get(f"{theirs}.bias", zeros)

    # Blocks: heads, which stand one after another there, have an axis of their own here.
    for i in range(cfg.n_layers):
        attn = f"blocks.{i}.attn"
        for letter in "qkv":
            weight = tensors[f"{attn}.{letter}.weight"].unflatten(0, shape)
            bias = tensors[f"{attn}.{letter}.bias"].unflatten(0, shape)
            found[f"{attn}.W_{letter.upper()}"] = weight.transpose(1, 2)
            found[f"{attn}.b_{letter.upper()}"] = bias
        output = tensors[f"{attn}.o.weight"]
        found[f"{attn}.W_O"] = output.T.unflatten(0, shape)
        found[f"{attn}.b_O"] = tensors[f"{attn}.o.bias"]
        mlp = f"blocks.{i}.mlp"
        for part in () if cfg.attn_only else ("in", "out"):
            weight = tensors[f"{mlp}.{part}.weight"]
            found[f"{mlp}.W_{part}"] = weight.T
            found[f"{mlp}.b_{part}"] = tensors[f"{mlp}.{part}.bias"]

    # Norms, wherever they are: their parts are called w and b here.
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        if layer.rpartition(".")[2] in ("ln1", "ln2", "ln_final"):
            found[f"{layer}.{part[0]}"] = tensor
    return found


FORMAT = Format(NAME, recognises, read)
