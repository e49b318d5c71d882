"""Our own format: run folders with `config.json` and `model.safetensors`, and models in memory.

A model in memory is a `HookedTransformer`.
"""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from icl_interp.checkpoints.config import SCHEMA, RunConfig, TrainingConfig, parse
from icl_interp.checkpoints.formats import files
from icl_interp.checkpoints.formats.base import Format, Given, Parts, Source
from icl_interp.errors import InputError, shown
from icl_interp.models import tokens, weights
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import LARGEST_FACTS, check_scalar, read_json, run_id
from icl_interp.stored import read_bytes
from icl_interp.structured import Stored, of_schema

CONFIG = "config.json"
MODEL = "model.safetensors"
PROVENANCE = "provenance.json"
_NAME = SCHEMA.partition("/")[0].encode()  # what a config.json of ours names
_FACTS = {
    "run_id": str,
    "step": int,
    "training_seconds": float,
    "finished": bool,
    "recipe": str,
    "name": str,
}


def recognises(source: Source) -> bool:
    """Whether the source is a run folder, one of the two files of its checkpoint, or our own model.

    Other programs call files so, too: beside files of theirs these two are ours only if the config
    says so.
    """
    if isinstance(source, nn.Module):
        return isinstance(source, HookedTransformer)
    if source.is_dir():
        folder = source
        named_so = (folder / CONFIG).is_file() or (folder / MODEL).is_file()
    else:
        folder = source.parent
        named_so = source.name in (CONFIG, MODEL)
    if not named_so:
        return False
    if _says_so(folder / CONFIG):
        return True
    # Files of other programs beside them.
    if (folder / files.CONFIG).is_file() or _of_hugging_face(folder / CONFIG):
        return False
    return all(file.suffix == ".safetensors" for file in files.holding_weights(folder))


def _of_hugging_face(config: Path) -> bool:
    """Whether a config.json is one of `transformers`, which says what kind of model it is."""
    try:
        data = read_json(config, LARGEST_FACTS)
    except InputError:
        return False
    return isinstance(data, dict) and "model_type" in data


def _says_so(config: Path) -> bool:
    try:
        return _NAME in read_bytes(config, LARGEST_FACTS)
    except InputError:
        return False


def read(source: Source, given: Given) -> Parts:
    """The parts of a run folder.

    Raises:
        InputError: a file is missing, broken or of another version, or weights do not fit the
            config or hold NaN.
    """
    if isinstance(source, HookedTransformer):
        weights.check_finite(source.named_parameters(), "the model")
        given.check(vars(source.cfg), "the model's cfg")
        return Parts(source)
    assert isinstance(source, Path)
    folder = source if source.is_dir() else source.parent
    for file in (CONFIG, MODEL):
        if not (folder / file).exists():
            raise InputError(
                f"{folder} is not a checkpoint: it has no {file} (a run folder holds config.json "
                "and model.safetensors)"
            )
    # The config first: it says which weights there are, and what belongs to this run.
    file = folder / CONFIG
    data = read_json(file, LARGEST_FACTS)
    config = parse(of_schema(data, SCHEMA, file).value, CONFIG)
    given.check(vars(config.model), file)
    model = weights.load_model(HookedTransformer, config.model, folder / MODEL).eval()
    origin = read_provenance(folder, config)
    encoding = tokens.named(config.encoding)
    step = origin.get("step", 0)
    asked = given.task is None and origin.get("finished")
    notes = _shortened(config) if asked else ()
    return Parts(model, config.task, encoding, config.training, step, origin, folder, notes=notes)


def _shortened(config: RunConfig) -> tuple[str, ...]:
    """A sentence for a run whose prompts never grew to full length."""
    full = config.task.n_points
    reached = config.reached.n_points
    if reached == full:
        return ()
    return (
        f"Its curriculum stopped when prompts had {reached} of {full} points, so it is asked about "
        f"prompts of {reached} points.",
    )


def read_provenance(folder: Path, config: RunConfig) -> dict[str, Any]:
    """The facts in a run folder's provenance.json; empty where there is no such file.

    The numbers of `in_distribution` are floats.

    Raises:
        InputError: a fact is of the wrong type or out of range, or the file belongs to a run of
            another config.
    """
    path = folder / PROVENANCE
    if not path.exists():
        return {}
    facts = read_json(path, LARGEST_FACTS)
    mend = "restore or remove it"
    if not isinstance(facts, dict):
        raise InputError(f"{path} is not what a run writes there: it holds {shown(facts)}; {mend}")
    # Each fact by itself.
    for key, value in facts.items():
        try:
            check_scalar(value, _FACTS.get(key), key)
            if key in ("environment", "in_distribution") and not isinstance(value, dict):
                raise InputError(f"{key} must be a mapping, but got {shown(value)}")
            if key == "in_distribution":
                facts[key] = _errors(value, key)
        except InputError as error:
            raise InputError(f"{path} is not what a run writes there: {error}; {mend}") from error
    # Facts beside the config.
    last = config.training.steps if config.training else math.inf
    if not 0 <= facts.get("step", 0) <= last or facts.get("training_seconds", 0) < 0:
        raise InputError(
            f"{path} is not what a run writes there: a step or time is out of range; {mend}"
        )
    if "run_id" in facts and facts["run_id"] not in (run_id(config), _id_in(folder)):
        raise InputError(
            f"{path} belongs to another run: it has the run_id {shown(facts['run_id'])}, but that "
            f"of the config beside it is {run_id(config)}; restore the file that was replaced or "
            "edited, or remove this one"
        )
    return facts


def _errors(stored: dict[str, Any], key: str) -> dict[str, Any]:
    """Errors by name as floats, with the note on them."""
    found = {}
    for name, value in stored.items():
        found[name] = value if name == "note" else Stored(value, f"{key}.{name}").of(float)
    return found


def _id_in(folder: Path) -> str:
    """The run id from the data of config.json as they are stored.

    The loaded config would give another id for a run of an earlier version, which lacks later
    fields.
    """
    data = dict(read_json(folder / CONFIG, LARGEST_FACTS))
    data.pop("schema", None)
    training = dict(data.get("training") or {})
    # What is only recorded is no part of a run's identity.
    for setting in fields(TrainingConfig):
        if setting.metadata.get("records"):
            training.pop(setting.name, None)
    data["training"] = training or None
    return run_id(data)


FORMAT = Format("run folder of icl_interp", recognises, read)
