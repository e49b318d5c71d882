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
ATTENTION, EMBED = "blocks.0.attn.q.weight", "embed.weight"
_OWN = ("blocks.", "ln_final.", "pos_embed.", "embed.", "unembed.")
_WORDS = (
    "n_heads",
    "act_fn",
    "normalization_type",
    "attention_dir",
    "eps",
)  # what shapes do not tell, but a cfg does


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
    found, where = files.read(source), source if isinstance(source, Path) else "the model"
    tensors, inputs = _between_ends(found, where)
    told = _sizes(tensors, inputs) | _from_masks(found, where)
    needed = ["n_heads"] + ([] if told["attn_only"] else ["act_fn"])
    needed += [] if "normalization_type" in told else ["normalization_type"]
    if isinstance(source, nn.Module):
        told |= {word: value for word, value in _cfg(source).items() if word in _WORDS}
    if tensors[ATTENTION].ndim == 2:
        columns, n_heads = (
            tensors[ATTENTION].shape[0],
            told.get("n_heads", given.settings.get("n_heads")),
        )
        told |= state.head_width(columns, n_heads, where)
    if isinstance(source, nn.Module):
        cfg, taken = given.complete(told, where, needed=needed)
    else:
        cfg, taken = given.complete(
            told, where, needed=needed, usual=USUAL, asks=("task", "encoding")
        )
    state.check_names(tensors, _shapes(cfg, inputs, tensors), where, f"a {NAME}")
    model = state.build(cfg, _ours(tensors, inputs, cfg), where)
    if isinstance(source, nn.Module):
        # A bridge takes numbers for vectors that are embedded already; the model in it embeds what
        # it gets.
        modules.compare(
            model,
            source,
            getattr(source, "original_model", None) if hasattr(source, "cfg") else None,
        )
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
    prefix = next(name.removesuffix(ATTENTION) for name in tensors if name.endswith(ATTENTION))
    body = {
        n.removeprefix(prefix): t
        for n, t in tensors.items()
        if n.startswith(tuple(prefix + own for own in _OWN))
    }
    beside = {
        name: tensor for name, tensor in tensors.items() if name.removeprefix(prefix) not in body
    }
    width = body[ATTENTION].shape[-1] if body[ATTENTION].ndim else 0
    table = body.get(EMBED)
    if beside:
        body.pop(EMBED, None)  # the table of words
        layers = {name.rpartition(".")[0] for name in beside}
        if len(layers) != 1 or not {name.rpartition(".")[2] for name in beside} <= {
            "weight",
            "bias",
        }:
            raise InputError(
                f"{where}: beside a {NAME} there may be one linear layer, the read-in, but there "
                f"are {state.listed(sorted(beside))}"
            )
        return {**body, **beside}, layers.pop()
    # A table of words is (words, width) without a bias; a linear layer is (width, d_in), by default
    # with one.
    fits = table is not None and table.ndim == 2 and table.shape[0] == width
    if table is not None and fits and ("embed.bias" in body or table.shape[1] != width):
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
    return {} if way is None else {"attention_dir": way}


def _cfg(model: nn.Module) -> dict[str, Any]:
    """The config words of a bridge, or of the bridge inside a model."""
    names = [f.name for f in fields(HookedTransformerConfig)]
    for module in model.modules():
        if hasattr(cfg := getattr(module, "cfg", None), "n_heads"):
            words = {name: getattr(cfg, name) for name in names if hasattr(cfg, name)}
            return {**words, "act_fn": words.get("act_fn") or "gelu"}
    return {}


def _shapes(
    cfg: HookedTransformerConfig, inputs: str, found: Mapping[str, Tensor]
) -> dict[str, Shape]:
    """Every tensor of such a model."""
    e, heads, norm = cfg.d_model, cfg.n_heads * cfg.head_width, cfg.normalization_type
    parts = {"LN": ("weight", "bias"), "RMS": ("weight",)}.get(norm or "", ())
    in_block = ("ln1",) if cfg.attn_only else ("ln1", "ln2")
    norms = ["ln_final", *(f"blocks.{i}.{ln}" for i in range(cfg.n_layers) for ln in in_block)]
    wanted: dict[str, Shape] = {f"{ln}.{part}": (e,) for ln in norms for part in parts}
    layers = {inputs: (e, cfg.d_in), "unembed": (cfg.d_out, e)}
    for i in range(cfg.n_layers):
        layers |= {f"blocks.{i}.attn.{x}": (heads, e) for x in "qkv"} | {
            f"blocks.{i}.attn.o": (e, heads)
        }
        if not cfg.attn_only:
            layers |= {
                f"blocks.{i}.mlp.in": (cfg.mlp_width, e),
                f"blocks.{i}.mlp.out": (e, cfg.mlp_width),
            }
    for layer, shape in layers.items():
        wanted[f"{layer}.weight"] = shape
        if layer not in (inputs, "unembed") or f"{layer}.bias" in found:
            wanted[f"{layer}.bias"] = shape[:1]
    return {**wanted, "pos_embed.weight": (cfg.n_ctx, e)}


def _ours(
    tensors: Mapping[str, Tensor], inputs: str, cfg: HookedTransformerConfig
) -> dict[str, Tensor]:
    """The same weights under our names and in our shapes."""
    shape = (cfg.n_heads, cfg.head_width)
    found = {"pos_embed.W_pos": tensors["pos_embed.weight"]}
    for layer, theirs, b in (("embed", inputs, "b_E"), ("unembed", "unembed", "b_U")):
        matrix = tensors[f"{theirs}.weight"]
        found[f"{layer}.W_{b[-1]}"] = matrix.T
        found[f"{layer}.{b}"] = tensors.get(f"{theirs}.bias", matrix.new_zeros(matrix.shape[0]))
    for i in range(cfg.n_layers):
        for x in "qkv":
            theirs, here = f"blocks.{i}.attn.{x}", f"blocks.{i}.attn."
            found[f"{here}W_{x.upper()}"] = (
                tensors[f"{theirs}.weight"].unflatten(0, shape).transpose(1, 2)
            )
            found[f"{here}b_{x.upper()}"] = tensors[f"{theirs}.bias"].unflatten(0, shape)
        found[f"blocks.{i}.attn.W_O"] = tensors[f"blocks.{i}.attn.o.weight"].T.unflatten(0, shape)
        found[f"blocks.{i}.attn.b_O"] = tensors[f"blocks.{i}.attn.o.bias"]
        for part in () if cfg.attn_only else ("in", "out"):
            found[f"blocks.{i}.mlp.W_{part}"] = tensors[f"blocks.{i}.mlp.{part}.weight"].T
            found[f"blocks.{i}.mlp.b_{part}"] = tensors[f"blocks.{i}.mlp.{part}.bias"]
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        if layer.rpartition(".")[2] in ("ln1", "ln2", "ln_final"):
            found[f"{layer}.{part[0]}"] = tensor
    return found


FORMAT = Format(NAME, recognises, read)
