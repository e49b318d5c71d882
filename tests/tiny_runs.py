"""The smallest runs that have every part: what the tests of training and of run folders share."""

from dataclasses import replace
from pathlib import Path

import pytest

from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks import Polynomial
from icl_interp.training import trainer

UNIFORM = {"kind": "Uniform", "low": -1, "high": 1}
STACKED = {"encoding": "stacked", "model": {"d_in": 2, "attention_dir": "bidirectional"}}


def data(**changes) -> dict:
    """A run as YAML would give it: one layer of width 8 on affine functions. `changes` go into its sections."""
    sections = {
        "model": {"n_layers": 1, "d_model": 8, "n_heads": 2, "n_ctx": 12, "init_std": 0.2},
        "task": {"kind": "Polynomial", "degrees": [0, 1], "inputs": UNIFORM, "coefficients": UNIFORM, "n_points": 5},
        "encoding": "interleaved",
        "training": {"steps": 12, "batch_size": 4, "warmup_steps": 3, "log_every": 3, "checkpoint_every": 5},
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
    return Checkpoint(HookedTransformer(run.model).eval(), run.task, tokens.named(run.encoding), run)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Killed(BaseException):
    """Stands for the end of the process: nothing in the package may catch it."""


def train_until(run: dict | RunConfig, folder: Path, step: int) -> None:
    """Train, and die before this step (counted from 0)."""
    advance = trainer._Run._advance

    def stopping(self):
        if self.step == step:
            raise Killed
        return advance(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer._Run, "_advance", stopping)
        with pytest.raises(Killed):
            trainer.train(run, folder, progress=False)


class Exploding(Polynomial):
    """Labels whose squares overflow, which `Polynomial` itself would refuse to sample."""

    def sample(self, *args, **kwargs):
        prompts = super().sample(*args, **kwargs)
        return replace(prompts, ys=prompts.ys * 1e25)
