"""Run folders: a trained model and all that is needed to analyse it, in files that cannot run code."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import SCHEMA, RunConfig, TrainingConfig, check_round_trip, parse
from icl_interp.errors import InputError, shown
from icl_interp.models import tokens, weights
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import Wanted
from icl_interp.prompts import Prompts
from icl_interp.provenance import check_scalar, encode, environment, number, read_json, run_id, write_json
from icl_interp.tasks.base import Task

CONFIG, MODEL, PROVENANCE = "config.json", "model.safetensors", "provenance.json"
SNAPSHOTS = "snapshots.safetensors"


@dataclass
class Checkpoint:
    """A model, the task it was trained on, how it reads prompts, and where it came from."""

    model: HookedTransformer
    task: Task
    encoding: Encoding
    config: RunConfig
    step: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """A short name for titles: the bundled name or folder name, else the run id."""
        return self.provenance.get("name") or run_id(self.config)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """The model's prediction of every point from the points before it; NaN where it makes none."""
        return predict(self.model, self.encoding, prompts)

    def snapshots(self) -> dict[int, HookedTransformer]:
        """The model at each step of `training.snapshots` that its run kept, in float32; empty where it kept none."""
        models = {}
        if self.folder:
            for step, tensors in read_snapshots(self.folder, self.config).items():
                models[step] = HookedTransformer(self.config.model).eval()
                weights.load_tensors(models[step], tensors, self.folder / SNAPSHOTS)
        return models

    def save(self, folder: str | Path) -> Path:
        """Write `config.json`, `model.safetensors` and `provenance.json`; each file is replaced whole or not at all.

        Snapshots come along where the run kept any.
        """
        check_round_trip(self.config)
        folder = Path(folder)
        kept = read_snapshots(self.folder, self.config) if self.folder else {}
        if kept:
            write_snapshots(folder, kept)
        weights.write(folder / MODEL, self.model.state_dict())
        own = {"run_id": run_id(self.config), "step": self.step}  # of the config that is written beside it
        write_json(folder / PROVENANCE, {"environment": environment(), **self.provenance, **own})
        # Last: a folder with a config is a checkpoint.
        write_json(folder / CONFIG, {"schema": SCHEMA, **encode(self.config)})
        return folder


def write_snapshots(folder: Path, kept: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Write weights of several steps as one file: each tensor with the steps as its first axis."""
    steps = sorted(kept)
    stacked = {name: torch.stack([kept[step][name] for step in steps]) for name in kept[steps[0]]}
    weights.write(folder / SNAPSHOTS, {"step": torch.tensor(steps), **stacked})


def read_snapshots(folder: Path, config: RunConfig) -> dict[int, dict[str, Tensor]]:
    """Weights by step, as `write_snapshots` left them; empty where there is no such file.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape or type, or holds NaN or infinite numbers, or the
            steps do not increase from 0 to the config's last.
    """
    path = folder / SNAPSHOTS
    if not path.exists():
        return {}
    found = weights.header(path)
    n_steps = found["step"].shape[:1] if "step" in found else ()
    asked_for = weights.asked_for(HookedTransformer, config.model)
    wanted = itertools.chain(
        [Wanted("step", n_steps or (1,), ("int64",))], (Wanted(name, (*n_steps, *shape)) for name, shape in asked_for)
    )
    weights.check_kinds(found, wanted, path)
    stacked = weights.read(path)
    steps = stacked.pop("step").tolist()
    last = config.training.steps if config.training else 0
    if not steps or not 0 <= steps[0] <= steps[-1] <= last or any(b <= a for a, b in itertools.pairwise(steps)):
        raise InputError(f"{path}: steps must increase from 0 to at most {last}, but are {shown(steps)}")
    weights.check_finite(stacked, path)
    return {step: {name: tensor[i] for name, tensor in stacked.items()} for i, step in enumerate(steps)}


_FACTS = {"run_id": str, "step": int, "training_seconds": float, "finished": bool, "recipe": str, "name": str}


def read_provenance(folder: Path, config: RunConfig) -> dict[str, Any]:
    """The facts in a run folder's provenance.json, the numbers of `in_distribution` as floats; empty without the file.

    Raises:
        InputError: a fact is of the wrong type or out of range, or the file belongs to a run of another config.
    """
    path = folder / PROVENANCE
    if not path.exists():
        return {}
    facts, mend = read_json(path), "restore or remove it"
    if not isinstance(facts, dict):
        raise InputError(f"{path} is not what a run writes there: it holds {shown(facts)}; {mend}")
    for key, value in facts.items():
        try:
            check_scalar(value, _FACTS.get(key), key)
            if key in ("environment", "in_distribution") and not isinstance(value, dict):
                raise InputError(f"{key} must be a mapping, but got {shown(value)}")
            if key == "in_distribution":
                facts[key] = {name: x if name == "note" else number(x) for name, x in value.items()}
        except InputError as error:
            raise InputError(f"{path} is not what a run writes there: {error}; {mend}") from error
    last = config.training.steps if config.training else math.inf
    if not 0 <= facts.get("step", 0) <= last or facts.get("training_seconds", 0) < 0:
        raise InputError(f"{path} is not what a run writes there: a step or time is out of range; {mend}")
    if "run_id" in facts and facts["run_id"] not in (run_id(config), _id_in(folder)):
        raise InputError(
            f"{path} belongs to another run: it has the run_id {shown(facts['run_id'])}, but that of the config beside "
            f"it is {run_id(config)}; restore the file that was replaced or edited, or remove this one"
        )
    return facts


def _id_in(folder: Path) -> str:
    """The run id by the data of config.json: a run of an earlier version lacks the fields that came later."""
    data = {key: value for key, value in read_json(folder / CONFIG).items() if key != "schema"}
    records = {f.name for f in fields(TrainingConfig) if f.metadata.get("records")}
    training = data.get("training") or {}
    return run_id({**data, "training": {k: v for k, v in training.items() if k not in records} or None})


def predict(model: HookedTransformer, encoding: Encoding, prompts: Prompts) -> Float[Tensor, "batch point"]:
    """A model's prediction of every point from the points before it; NaN where the encoding makes none."""
    read, points = encoding.read_at(prompts.n_points, model.cfg.attention_dir)
    weight = model.unembed.W_U
    tokens_in = encoding.encode(prompts).to(weight)
    with torch.no_grad():
        out = model(tokens_in, read)[..., 0]
    if len(points) == prompts.n_points:
        return out
    whole = torch.full_like(prompts.ys, torch.nan).to(weight)
    whole[:, points.start : points.stop] = out
    return whole


def load(source: str | Path | Checkpoint) -> Checkpoint:
    """A checkpoint from a run folder (or a file in it), or a bundled model by its name.

    Raises:
        InputError: no such path or name, not a checkpoint, weights that do not fit the config, NaN in the weights.
    """
    if isinstance(source, Checkpoint):
        return source
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:  # a folder on the way that can't be read, a name that is too long
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not exists:
        if str(source) in bundled.names():
            return _read(bundled.folder(str(source)), name=str(source))
        raise bundled.not_found(str(source))
    if path.is_file():
        if path.name not in (CONFIG, MODEL):
            raise InputError(_not_a_checkpoint(path))
        path = path.parent
    return _read(path, name=path.resolve().name)


def _read(folder: Path, name: str) -> Checkpoint:
    for file in (CONFIG, MODEL):
        if not (folder / file).is_file():
            raise InputError(
                f"{folder} is not a checkpoint: it has no {file} (a run folder holds config.json and model.safetensors)"
            )
    data = read_json(folder / CONFIG)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise InputError(f"{folder / CONFIG} has schema {shown(found)}, but this version reads {SCHEMA!r}")
    config = parse(data, CONFIG)
    model = weights.load_model(HookedTransformer, config.model, folder / MODEL).eval()
    origin = read_provenance(folder, config)
    encoding = tokens.named(config.encoding)
    return Checkpoint(model, config.task, encoding, config, origin.get("step", 0), {**origin, "name": name}, folder)


def _not_a_checkpoint(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    # Bytes 0 to 7 of a safetensors file are a length, which may look like a pickle's first bytes.
    if (head[:2] == b"PK" or head[:1] == b"\x80") and head[8:] != b"{":
        return f"{path} is a pickle, which can run code when read; icl_interp reads run folders with safetensors"
    return f"{path} is not a checkpoint: give a run folder (config.json + model.safetensors) or a bundled name"
