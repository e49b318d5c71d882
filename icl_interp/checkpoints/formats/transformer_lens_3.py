"""Weights with the names that TransformerLens 2 and 3 has (`blocks.0.attn.W_Q`) and that are ours.

They come as a state dict, or in a model with TransformerLens' config words (`cfg`), hook names and
arithmetic. A state dict tells the sizes and the number of heads, but not the activation, and of
norms only those with weights.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.checkpoints.formats import files, modules, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError
from icl_interp.models import weights
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import build

NAME = "model with TransformerLens' names"
USUAL = {"attention_dir": "causal", "use_attn_scale": True, "eps": 1e-5}
ATTENTION = "blocks.0.attn.W_Q"
READ_IN = "embed.W_E"


def recognises(source: Source) -> bool:
    """Whether there is a first block's attention under this name."""
    shapes = files.shapes(source)
    if isinstance(source, nn.Module) and READ_IN in shapes:
        return True
    return ATTENTION in shapes


def read(source: Source, given: Given) -> Parts:
    """The model in a file or in memory.

    Its task and encoding have to be given, and for a file also the settings that weights do not
    show.

    Raises:
        InputError: no such tensors, something that is not told, or (in memory) other outputs than
            those of its copy.
    """
    found = files.read(source)
    if isinstance(source, nn.Module):
        return Parts(_copy(source, found, given))
    told = _told(found, source)
    needed = []
    if not told["attn_only"]:
        needed.append("act_fn")
    if "normalization_type" not in told:
        needed.append("normalization_type")
    asks = ("task", "encoding")
    cfg, taken = given.complete(told, source, needed=needed, usual=USUAL, asks=asks)
    tensors = _fitting(found.tensors, cfg, source)
    model = state.build(cfg, tensors, source)
    return Parts(model, step=found.step or 0, assumptions=taken)


def _copy(model: nn.Module, found: State, given: Given) -> HookedTransformer:
    """Our copy of the model, compared with the original on random prompts.

    A model that only has the same names is refused.
    """
    if not hasattr(model, "cfg"):
        raise InputError(
            "the model has TransformerLens' weight names but no cfg, the config that goes with them"
        )
    weights.check_finite(model.named_parameters(), "the model")
    if READ_IN not in found.tensors or "unembed.W_U" not in found.tensors:
        raise InputError(
            "the model has no embed.W_E and unembed.W_U: its weights do not have TransformerLens' "
            "names"
        )

    # The config, of which shapes tell the ends.
    words = {}
    for setting in fields(HookedTransformerConfig):
        if hasattr(model.cfg, setting.name):
            words[setting.name] = getattr(model.cfg, setting.name)
    words["d_in"] = found.tensors[READ_IN].shape[0]
    words["d_out"] = found.tensors["unembed.W_U"].shape[1]
    has_positions = "pos_embed.W_pos" in found.tensors
    words["positional_embedding_type"] = "standard" if has_positions else "none"
    given.check(words, "the model's cfg")
    cfg = build(HookedTransformerConfig, words, "the model's cfg")

    # The weights, which must be all that this config asks for.
    copy = HookedTransformer(cfg).eval()
    wanted = copy.state_dict()
    tensors = {"embed.b_E": torch.zeros_like(wanted["embed.b_E"]), **found.tensors}
    for name in sorted({*tensors, *wanted}):
        shape = tuple(tensors[name].shape) if name in tensors else None
        needed = tuple(wanted[name].shape) if name in wanted else None
        if shape != needed:
            raise InputError(
                f"the tensor {name} has shape {shape}, but this config asks for {needed}"
            )
    copy.load_state_dict(tensors)
    modules.compare(copy, model)
    return copy


def _told(found: State, where: Path) -> dict[str, Any]:
    """The settings that names and shapes tell."""
    tensors = found.tensors
    sizes = {
        "d_in": ("embed.W_E", 0),
        "d_out": ("unembed.W_U", 1),
        "n_heads": (ATTENTION, 0),
        "d_model": (ATTENTION, 1),
        "d_head": (ATTENTION, 2),
        "d_mlp": ("blocks.0.mlp.W_in", 1),
        "n_ctx": ("pos_embed.W_pos", 0),
    }
    told: dict[str, Any] = state.sizes(tensors, sizes)
    told["n_layers"] = state.n_blocks(tensors, "blocks.")
    told["attn_only"] = not any(".mlp." in name for name in tensors)
    told["positional_embedding_type"] = "standard" if "n_ctx" in told else "none"
    way = state.direction(found.masks, where)
    if way is not None:
        told["attention_dir"] = way
    # Without a table of positions the masks tell the length.
    for mask in found.masks.values():
        if mask.ndim > 1:
            told.setdefault("n_ctx", mask.shape[-1])
    if "blocks.0.ln1.w" in tensors:
        told["normalization_type"] = "LN" if "blocks.0.ln1.b" in tensors else "RMS"
    return told


def _fitting(
    tensors: Mapping[str, Tensor], cfg: HookedTransformerConfig, where: Path
) -> dict[str, Tensor]:
    """The tensors, once they are exactly those of a model of this config."""
    wanted = dict(weights.asked_for(HookedTransformer, cfg))
    found = dict(tensors)
    no_bias = torch.zeros(wanted["embed.b_E"])
    found.setdefault("embed.b_E", no_bias)  # TransformerLens has none
    state.check_names(found, wanted, where, f"a {NAME}")
    return found


FORMAT = Format(NAME, recognises, read)
