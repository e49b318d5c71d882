"""Run folders: a trained model and all that is needed to analyse it, in files that cannot run code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.config import SCHEMA, RunConfig, check_round_trip, parse
from icl_interp.errors import InputError
from icl_interp.models import tokens, weights
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, environment, read_json, run_id, write_json
from icl_interp.tasks.base import Task

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
            for step, tensors in read_snapshots(self.folder).items():
                models[step] = HookedTransformer(self.config.model).eval()
                weights.load_tensors(models[step], tensors, self.folder / SNAPSHOTS)
        return models

    def save(self, folder: str | Path) -> Path:
        """Write `config.json`, `model.safetensors` and `provenance.json`; each file is replaced whole or not at all.

        Snapshots come along where the run kept any.
        """
        check_round_trip(self.config)
        folder = Path(folder)
        kept = read_snapshots(self.folder) if self.folder else {}
        if kept:
            write_snapshots(folder, kept)
        weights.write(folder / "model.safetensors", self.model.state_dict())
        stamp = {"run_id": run_id(self.config), "step": self.step, "environment": environment()}
        write_json(folder / "provenance.json", {**stamp, **self.provenance})
        # Last: a folder with a config is a checkpoint.
        write_json(folder / "config.json", {"schema": SCHEMA, **encode(self.config)})
        return folder


def write_snapshots(folder: Path, kept: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Write weights of several steps as one file: each tensor with the steps as its first axis."""
    steps = sorted(kept)
    stacked = {name: torch.stack([kept[step][name] for step in steps]) for name in kept[steps[0]]}
    weights.write(folder / SNAPSHOTS, {"step": torch.tensor(steps), **stacked})


def read_snapshots(folder: Path) -> dict[int, dict[str, Tensor]]:
    """Weights by step, as `write_snapshots` left them; empty where there is no such file."""
    if not (folder / SNAPSHOTS).is_file():
        return {}
    stacked = weights.read(folder / SNAPSHOTS)
    steps = stacked.pop("step", None)
    if steps is None or any(len(tensor) != len(steps) for tensor in stacked.values()):
        raise InputError(f"{folder / SNAPSHOTS} is not what a run writes there: restore or remove it")
    return {step: {name: tensor[i] for name, tensor in stacked.items()} for i, step in enumerate(steps.tolist())}


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
        if path.name not in ("config.json", "model.safetensors"):
            raise InputError(_not_a_checkpoint(path))
        path = path.parent
    return _read(path, name=path.resolve().name)


def _read(folder: Path, name: str) -> Checkpoint:
    for file in ("config.json", "model.safetensors"):
        if not (folder / file).is_file():
            raise InputError(
                f"{folder} is not a checkpoint: it has no {file} (a run folder holds config.json and model.safetensors)"
            )
    data = read_json(folder / "config.json")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise InputError(f"{folder / 'config.json'} has schema {found!r}, but this version reads {SCHEMA!r}")
    config = parse(data, "config.json")
    model = HookedTransformer(config.model)
    weights.load_into(model, folder / "model.safetensors")
    origin = read_json(folder / "provenance.json") if (folder / "provenance.json").is_file() else {}
    if not isinstance(origin, dict) or not isinstance(origin.get("step", 0), int):
        raise InputError(f"{folder / 'provenance.json'} is not what a run writes there: restore or remove it")
    encoding = tokens.named(config.encoding)
    stamp = {**origin, "name": name}
    return Checkpoint(model.eval(), config.task, encoding, config, origin.get("step", 0), stamp, folder)


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
