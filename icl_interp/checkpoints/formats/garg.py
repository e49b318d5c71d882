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

from icl_interp.checkpoints.assumptions import Assumption
from icl_interp.checkpoints.formats import files, garg_tasks, gpt2, masked, positions, state
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source, how_to_give, lacking
from icl_interp.checkpoints.formats.garg_tasks import Read
from icl_interp.checkpoints.formats.state import State
from icl_interp.errors import InputError, logger, whole
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.structured import Stored

BODY = "_backbone."
ENDS = ("_read_in.weight", "_read_out.weight")
NAME = "model of Garg et al. (2022)"
KEYS = (
    "family",
    "n_dims",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "pos_encode",
    "activation_function",
    "use_first_n_layer",
)  # of their section model
# Their sections, and what quinine writes beside them.
TOP = ("model", "training", "out_dir", "inherit", "test_run", "wandb", "config")
# What a family of a fork changes of Garg et al.'s arithmetic, in our words.
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2_no_mask": {"attention_dir": "bidirectional"},
    "gpt2_no_pe": {"positional_embedding_type": "none"},
}
DEAD = "_read_out_keep_dim."  # weights of a fork (ICL-OOD) that its predictions never use
# What public forks changed without a word in their weights.
UNTOLD = ("act_fn", "attention_dir", "positional_embedding_type")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# What public forks changed and no setting of a model tells: what is taken, what stands elsewhere,
# and how to say so.
BESIDE = (
    Assumption(
        "use_first_n_layer",
        "all blocks and the last norm",
        ("the stream after block k, without the last norm (DeqingFu, by their config alone)",),
        "settings={'n_layers': k, 'final_norm': False}",
    ),
    Assumption(
        "position_ids",
        "0, 1, 2, ...",
        ("i mod 10 (XintianPan, nostack)",),
        "a file whose wpe.weight has row i mod 10 in row i",
    ),
)
log = logger(__name__)


def recognises(source: Source) -> bool:
    """Whether a file holds blocks called `_backbone.h` and one of the ends that belong to them."""
    if not isinstance(source, Path):
        return False
    names = files.shapes(source)
    has_blocks = any(name.startswith(f"{BODY}h.") for name in names)
    return has_blocks and any(end in names for end in ENDS)


def read(source: Source, given: Given) -> Parts:
    """The model, with the task of the config.yaml beside it.

    Raises:
        InputError: other tensors than these models have, a config.yaml of another model, or
            something that neither the files nor the caller tell.
    """
    assert isinstance(source, Path)
    config = _config(source, given)
    found, notes = _without_dead(files.read(source))
    body, ends, told = _split(found, source)
    _check_layout(told, config, given, source)
    # What the config tells of the model; without one, what forks changed is only assumed.
    usual: dict[str, Any] = {}
    by_masks = gpt2.direction(found, source)
    told |= by_masks
    if config is not None:
        notes += garg_tasks.set_aside(config, TOP, _remedy)
        notes += garg_tasks.set_aside(config["model"], KEYS, _remedy)
        told |= _of_family(config["model"], by_masks)
        told |= _sizes(config["model"], told, given)
    else:
        usual = {name: told.pop(name) for name in UNTOLD if name not in by_masks}
    n_used = _n_used(config, told["n_layers"], given)
    if n_used < told["n_layers"]:
        notes.append(f"Read out after block {n_used} of {told['n_layers']}, without the last norm.")
        told |= {"n_layers": n_used, "final_norm": False}
    if told["d_in"] != _n_dims(config, told) and "act_fn" not in _said(config):
        usual["act_fn"] = told.pop("act_fn", gpt2.USUAL["act_fn"])
    n_heads = told.get("n_heads", given.settings.get("n_heads"))
    told |= state.head_width(told["d_model"], n_heads, source)
    asks = ("task",) if config is None else ()
    cfg, assumed = given.complete(told, source, needed=("n_heads",), usual=usual, asks=asks)
    # The weights, by our names.
    tensors = _used(gpt2.ours(body, ends, cfg.n_heads), cfg)
    has_positions = cfg.positional_embedding_type != "none"
    if not has_positions:
        del tensors["pos_embed.W_pos"]
    model = state.build(cfg, tensors, source)
    masking = masked.check(model, found.masks, source)
    if masking:
        notes.append(masking)
    # The task, and how far the table of positions was trained.
    of_run = Read(given.task) if given.task else _task(config, found.step, source)
    encoding = given.encoding or Interleaved()
    n_tokens = encoding.n_tokens(of_run.task.n_points)
    if has_positions:
        untrained = positions.note(body["wpe.weight"], n_tokens)
        if untrained:
            notes.append(untrained)
    return Parts(
        model,
        of_run.task,
        encoding,
        step=found.step or 0,
        assumptions=(*assumed, *_beside(config, cfg), *of_run.assumptions),
        notes=(*notes, *of_run.notes),
    )


def _without_dead(found: State) -> tuple[State, list[str]]:
    """The state dict without weights that predictions never use, and a note that names them."""
    dead = []
    kept = {}
    for name, tensor in found.tensors.items():
        if name.startswith(DEAD):
            dead.append(name)
        else:
            kept[name] = tensor
    if not dead:
        return found, []
    note = f"{', '.join(dead)} were left out: no prediction uses them."
    return found._replace(tensors=kept), [note]


def _said(config: Stored | None) -> tuple[str, ...]:
    """The settings that only some forks' configs tell."""
    has_word = config is not None and config["model"].get("activation_function") is not None
    return ("act_fn",) if has_word else ()


def _n_dims(config: Stored | None, told: Mapping[str, Any]) -> int:
    """Coordinates of an input, as far as the config tells; else those of the read-in."""
    stored = None if config is None else config["model"].get("n_dims")
    if stored is None:
        return told["d_in"]
    return whole(stored.value, stored.where, 1)


def _check_layout(
    told: Mapping[str, Any], config: Stored | None, given: Given, where: Path
) -> None:
    """Refuse tokens or outputs of other forks, unless the caller says how they are read.

    Raises:
        InputError: several outputs, or a read-in wider than an input; what each may be is named.
    """
    if told["d_out"] != 1 and (given.encoding is None or given.task is None):
        raise InputError(
            f"{where}: its _read_out has {told['d_out']} outputs, and nothing tells which of them "
            "is y; forks that continue paths x_{t+1} = W x_t have as many outputs as coordinates: "
            "give encoding='states' and a task such as icl_interp.tasks.AutoregressiveProcess"
        )
    n_dims = given.task.dim if given.task else _n_dims(config, told)
    if told["d_in"] == n_dims + 1 and given.encoding is None:
        raise InputError(
            f"{where}: its _read_in takes {told['d_in']} numbers, one more than an input has, and "
            "forks fill them in two ways: columns (x, y) with the query (x, 0), which is "
            "encoding='stacked' (--encoding stacked), or a token (x, 0) and then a token (x, y), "
            "which is an encoding of your own (icl_interp.encodings.register)"
        )


def _n_used(config: Stored | None, n_layers: int, given: Given) -> int:
    """How many of the blocks predictions use: all, unless the config or the caller says fewer.

    With fewer, a fork (DeqingFu) reads out after the last of them, without the last norm; a number
    from that of all blocks up changes nothing.
    """
    stored = None if config is None else config["model"].get("use_first_n_layer")
    if stored is not None and stored.value is not None:
        return min(n_layers, whole(stored.value, stored.where, 1))
    asked = given.settings.get("n_layers")
    of_caller = config is None and given.settings.get("final_norm") is False
    if not (of_caller and isinstance(asked, int) and asked >= 1):
        return n_layers
    return min(n_layers, asked)


def _used(tensors: dict[str, Tensor], cfg: HookedTransformerConfig) -> dict[str, Tensor]:
    """The weights that predictions use."""
    unused = () if cfg.has_final_norm else ("ln_final.",)
    kept = {}
    for name, tensor in tensors.items():
        is_later = name.startswith("blocks.") and int(name.split(".")[1]) >= cfg.n_layers
        if not (is_later or name.startswith(unused)):
            kept[name] = tensor
    return kept


def _beside(config: Stored | None, cfg: HookedTransformerConfig) -> tuple[Assumption, ...]:
    """What weights without a config.yaml do not tell, beside the settings of a model."""
    if config is not None:
        return ()
    blocks, positions = BESIDE
    found = [blocks] if cfg.has_final_norm else []
    if cfg.positional_embedding_type == "standard":
        found.append(positions)
    return tuple(found)


def _remedy(key: str) -> str:
    """What to do about a word of a fork."""
    return ": if it changes nothing of what the model computes, take it out of the file"


def _config(source: Path, given: Given) -> Stored | None:
    """The config.yaml beside the weights.

    It is None where there is no such file, or where it belongs to another program and given
    settings replace it.

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
    # All tensors that there should be, by the names in the file.
    inputs = _size(around, "_read_in.weight", 1)
    outputs = _size(around, "_read_out.weight", 0)
    width = told["d_model"]
    wanted = {BODY + name: shape for name, shape in gpt2.shapes_of(told).items()}
    wanted["_read_in.weight"] = (width, inputs)
    wanted["_read_in.bias"] = (width,)
    wanted["_read_out.weight"] = (outputs, width)
    wanted["_read_out.bias"] = (outputs,)
    named = dict(around)
    for name, tensor in body.items():
        named[BODY + name] = tensor
    state.check_names(named, wanted, where, f"a {NAME}")
    ends = {name.removeprefix("_read_"): tensor for name, tensor in around.items()}
    told |= {**gpt2.COMMON, **gpt2.USUAL, **gpt2.OF_CLASS, "d_in": inputs, "d_out": outputs}
    return body, ends, told


def _size(tensors: Mapping[str, Tensor], name: str, axis: int) -> int:
    return tensors[name].shape[axis] if name in tensors and tensors[name].ndim == 2 else 1


def _sizes(model: Stored, told: dict[str, Any], given: Given) -> dict[str, Any]:
    """The number of heads, and what else the config's section `model` tells.

    The config's sizes are first checked against those of the weights.

    Raises:
        InputError: another size, or a word with another value than it may have.
    """
    # Where the caller says how prompts are read, the file's own layout need not be Garg et al.'s.
    names = {"n_embd": told["d_model"], "n_layer": told["n_layers"]}
    if given.encoding is None or isinstance(given.encoding, Interleaved):
        names |= {"n_dims": told["d_in"], "n_positions": told["n_ctx"] // 2}
    for name, size in names.items():
        stored = model.get(name)
        if stored is not None and stored.value != size:
            raise InputError(
                f"{stored.where} is {stored.value!r}, but the weights beside it have {size}: is it "
                "the config of another run?"
            )
    # What weights do not tell, as far as this fork's config has it.
    found: dict[str, Any] = {}
    act_fn = model.get("activation_function")
    if act_fn is not None:
        word = act_fn.one_of(ACTIVATIONS)
        found["act_fn"] = gpt2.ACTIVATIONS.get(word, word)
    encoded = model.get("pos_encode")
    if encoded is not None:
        if not isinstance(encoded.value, bool):
            raise encoded.refused("true or false")
        found["positional_embedding_type"] = "standard" if encoded.value else "none"
    heads = model.get("n_head")
    if heads is not None:
        found["n_heads"] = whole(heads.value, heads.where, 1)
        if told["d_model"] % found["n_heads"]:
            raise InputError(
                f"{heads.where} is {found['n_heads']}, but width {told['d_model']} does not divide "
                "into so many heads: is it the config of another run?"
            )
    return found


def _of_family(model: Stored, by_masks: Mapping[str, Any]) -> dict[str, Any]:
    """What the family says, which masks in the file must not contradict."""
    family = model.get("family")
    if family is None:
        return {}
    if family.value not in FAMILIES:
        known = " or ".join(map(repr, FAMILIES))
        raise family.refused(f"{known} (another architecture can be asked as a predictor)")
    of_family = FAMILIES[family.value]
    way = of_family.get("attention_dir", "causal")
    if by_masks.get("attention_dir", way) != way:
        raise InputError(
            f"{family.where} is {family.value!r}, which is {way}, but the masks beside it are "
            f"{by_masks['attention_dir']}: is it the config of another run?"
        )
    return of_family


def _task(config: Stored | None, step: int | None, where: Path) -> Read:
    if config is None:
        raise lacking(where, ["task"])
    try:
        return garg_tasks.read_task(config, step)
    except InputError as error:
        raise InputError(f"{error}; give the task, as task=... (--task FILE.yaml)") from error


FORMAT = Format(NAME, recognises, read)
