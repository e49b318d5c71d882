"""Garg, Tsipras, Liang & Valiant (2022), github.com/dtsip/in-context-learning, and its forks.

A run folder has `config.yaml` and `state.pt` (with the keys model_state_dict and train_step) or
`model_{step}.pt` (a bare state dict): a GPT2Model called `_backbone` between the layers `_read_in`
(E, d) and `_read_out` (1, E), for 2 n_positions tokens. Tokens are x_1, y_1, x_2, ...; y is padded
with zeros to the d numbers of an x: that is our interleaved encoding. Forks that leave positions
out say so with `pos_encode: false`; their weights hold a table of positions all the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from icl_interp.checkpoints.formats import files, garg_tasks, gpt2, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source, how_to_give, lacking
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError, logger, shown, whole
from icl_interp.models.tokens import Interleaved
from icl_interp.structured import Stored
from icl_interp.tasks.base import Task

BODY = "_backbone."
NAME = "model of Garg et al. (2022)"
KEYS = (
    "family",
    "n_dims",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "pos_encode",
)  # of their section model
log = logger(__name__)


def recognises(source: Source) -> bool:
    """Whether a file holds blocks called `_backbone.h`."""
    return isinstance(source, Path) and any(
        name.startswith(f"{BODY}h.") for name in files.shapes(source)
    )


def read(source: Source, given: Given) -> Parts:
    """The model, with the task of the config.yaml beside it.

    Raises:
        InputError: other tensors than these models have, a config.yaml of another model, or
            something that neither the files nor the caller tell.
    """
    assert isinstance(source, Path)
    found, config = files.read(source), _config(source, given)
    body, ends, told = _split(found, source)
    if told["d_out"] != 1:
        raise InputError(
            f"{source}: its _read_out has {told['d_out']} outputs, and nothing tells which of them "
            "is y"
        )
    asks = ("task",) if config is None else ()
    if config is not None:
        told |= _sizes(config["model"], told)
    told |= state.head_width(
        told["d_model"], told.get("n_heads", given.settings.get("n_heads")), source
    )
    cfg, _ = given.complete(told, source, needed=("n_heads",), asks=asks)
    tensors = gpt2.ours(body, ends, cfg.n_heads)
    if cfg.positional_embedding_type == "none":
        del tensors["pos_embed.W_pos"]
    task = given.task or _task(config, found.step, source)
    return Parts(state.build(cfg, tensors, source), task, Interleaved(), step=found.step or 0)


def _config(source: Path, given: Given) -> Stored | None:
    """The config.yaml beside the weights, or None.

    None where there is no such file, or where it belongs to another program and given settings
    replace it.

    Raises:
        InputError: it is not one of Garg et al.'s, and what it would tell was not given.
    """
    try:
        config = files.config(source)
        if config is not None:
            config["model"].mapping()
    except InputError as error:
        if given.task is None or "n_heads" not in given.settings:
            remedy = " and ".join(how_to_give(("n_heads", "task")))
            raise InputError(
                f"{error}; if the file belongs to another program, give {remedy}"
            ) from error
        log.warning(
            "%s; it is not read, because the task and the number of heads were given", error
        )
        return None
    return config


def _split(
    found: State, where: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """The tensors of the body and of the ends, and the settings that follow from their shapes.

    Tensors are told apart by name, since their widths may all be 1.
    """
    body, around, _ = gpt2.body_of(found, where)
    told = gpt2.sizes(body)
    inputs, outputs = (
        _size(around, name, axis)
        for name, axis in (("_read_in.weight", 1), ("_read_out.weight", 0))
    )
    wanted = {BODY + name: shape for name, shape in gpt2.shapes_of(told).items()} | {
        "_read_in.weight": (told["d_model"], inputs),
        "_read_in.bias": (told["d_model"],),
        "_read_out.weight": (outputs, told["d_model"]),
        "_read_out.bias": (outputs,),
    }
    state.check_names(
        {**around, **{BODY + name: t for name, t in body.items()}}, wanted, where, f"a {NAME}"
    )
    ends = {name.removeprefix("_read_"): tensor for name, tensor in around.items()}
    return body, ends, {**told, **gpt2.COMMON, **gpt2.USUAL, "d_in": inputs, "d_out": outputs}


def _size(tensors: Mapping[str, Tensor], name: str, axis: int) -> int:
    return tensors[name].shape[axis] if name in tensors and tensors[name].ndim == 2 else 1


def _sizes(model: Stored, told: dict[str, Any]) -> dict[str, Any]:
    """The number of heads, and whether there are positions.

    The config's sizes are first checked against those of the weights.

    Raises:
        InputError: another family or size, or a key that Garg et al. do not have: a fork's word for
            other arithmetic.
    """
    family = model.get("family")
    if family and family.of(str) != "gpt2":
        raise family.refused("'gpt2'")
    names = {"n_dims": told["d_in"], "n_embd": told["d_model"], "n_layer": told["n_layers"]}
    for name, size in {**names, "n_positions": told["n_ctx"] // 2}.items():
        if (stored := model.get(name)) is not None and stored.value != size:
            raise InputError(
                f"{stored.where} is {stored.value!r}, but the weights beside it have {size}: is it "
                "the config of another run?"
            )
    for key, stored in model.members().items():
        if key not in KEYS and stored.value is not None:
            raise InputError(
                f"{stored.where} is {shown(stored.value)}, a setting of a fork that is not known "
                "here: if it changes nothing of what the model computes, take it out of the file"
            )
    found: dict[str, Any] = {}
    if (positions := model.get("pos_encode")) is not None:
        if not isinstance(positions.value, bool):
            raise positions.refused("true or false")
        found["positional_embedding_type"] = "standard" if positions.value else "none"
    if (heads := model.get("n_head")) is not None:
        found["n_heads"] = whole(heads.value, heads.where, 1)
        if told["d_model"] % found["n_heads"]:
            raise InputError(
                f"{heads.where} is {found['n_heads']}, but width {told['d_model']} does not divide "
                "into so many heads: is it the config of another run?"
            )
    return found


def _task(config: Stored | None, step: int | None, where: Path) -> Task:
    if config is None:
        raise lacking(where, ["task"])
    try:
        return garg_tasks.task_of(config, step)
    except InputError as error:
        raise InputError(f"{error}; give the task, as task=... (--task FILE.yaml)") from error


FORMAT = Format(NAME, recognises, read)
