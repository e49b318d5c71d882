"""The smallest runs that have every part: what the tests of training and of run folders share."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.checkpoints.store import Checkpoint, load
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator, read_json
from icl_interp.tasks import Polynomial
from icl_interp.training import trainer

UNIFORM = {"kind": "Uniform", "low": -1, "high": 1}
STACKED = {"encoding": "stacked", "model": {"d_in": 2, "attention_dir": "bidirectional"}}
N_STEPS = 12  # a checkpoint after 5, 10 and 12; a line of metrics after 3, 6, 9 and 12
EXACT = ("config.json", "metrics.jsonl", "training_state.safetensors", "model.safetensors")
RUNS = {
    "growing prompts": {"training": {"curriculum": {"first_points": 2, "until": 8}}},
    "stages of degrees": {
        "training": {
            "curriculum": {"first_points": 2, "until": 9, "degrees": [[0, [0]], [7, [0, 1]]]},
            "decay": "linear",
        },
        "model": {"normalization_type": None},
    },
    "a finite set": {"training": {"n_prompts": 16, "curriculum": {"first_points": 5}}},
    "stacked": {**STACKED, "training": {"decay": "constant", "grad_clip": 0.01}},
}


def data(**changes) -> dict:
    """A run as YAML would give it: one layer of width 8 on affine functions.

    `changes` go into its sections.
    """
    sections = {
        "model": {"n_layers": 1, "d_model": 8, "n_heads": 2, "n_ctx": 12, "init_std": 0.2},
        "task": {
            "kind": "Polynomial",
            "degrees": [0, 1],
            "inputs": UNIFORM,
            "coefficients": UNIFORM,
            "n_points": 5,
        },
        "encoding": "interleaved",
        "training": {
            "steps": N_STEPS,
            "batch_size": 4,
            "warmup_steps": 3,
            "log_every": 3,
            "checkpoint_every": 5,
        },
    }
    for name, change in changes.items():
        sections[name] = {**sections[name], **change} if isinstance(change, dict) else change
    return sections


def config(**changes) -> RunConfig:
    """The same, parsed."""
    return parse(data(**changes))


def checkpoint(**changes) -> Checkpoint:
    """An untrained model with its config."""
    run = config(**changes)
    return Checkpoint(
        HookedTransformer(run.model).eval(), run.task, tokens.named(run.encoding), run
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def check_same_model(found: Checkpoint, saved: Checkpoint) -> None:
    """Equal predictions, config, task and encoding."""
    prompts = saved.task.sample(5, generator(0, "test"))
    tokens = saved.encoding.encode(prompts)
    with torch.no_grad():
        assert torch.equal(found.model(tokens), saved.model(tokens))
    assert torch.equal(found.predict(prompts).nan_to_num(9), saved.predict(prompts).nan_to_num(9))
    assert (found.config, found.task, found.encoding) == (saved.config, saved.task, saved.encoding)
    assert not found.model.training


def check_same_files(folder: Path, reference: Path) -> None:
    """Byte for byte, all but the provenance."""
    for name in EXACT:
        same = (folder / name).read_bytes() == (reference / name).read_bytes()
        assert same, f"{name} differs"


def check_same_run(folder: Path, reference: Path) -> None:
    """All that a run leaves, but for how long it took."""
    check_same_files(folder, reference)
    ours, theirs = (read_json(path / "provenance.json") for path in (folder, reference))
    assert {**ours, "training_seconds": 0} == {**theirs, "training_seconds": 0}


def refuse(source: Path | str, match: str, read: Callable = load) -> None:
    """Assert that `read` says what is wrong in one clear line."""
    with pytest.raises(InputError, match=match) as refused:
        read(source)
    assert "\n" not in str(refused.value)


def line(text: str) -> dict[str, float]:
    """A line of metrics."""
    return json.loads(text)


class Killed(BaseException):
    """Stands for the end of the process: nothing in the package may catch it."""


def train_until(run: dict | RunConfig, folder: Path, step: int) -> None:
    """Train, and die before this step (counted from 0)."""
    advance = trainer.Run._advance

    def stopping(self):
        if self.step == step:
            raise Killed
        return advance(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Run, "_advance", stopping)
        with pytest.raises(Killed):
            trainer.train(run, folder, progress=False)


LARGE = 1e25  # its square overflows in float32


class Exploding(Polynomial):
    """Labels whose squares overflow, which `Polynomial` itself would refuse to sample."""

    def sample(self, *args, **kwargs):
        prompts = super().sample(*args, **kwargs)
        return replace(prompts, ys=prompts.ys.to(torch.get_default_dtype()) * LARGE)
