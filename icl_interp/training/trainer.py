"""The training loop, plain: sample, predict, step, log, save. Resumes exactly wherever it was stopped."""

import json
import logging
import math
import time
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from icl_interp import evaluation
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import SCHEMA, RunConfig, TrainingConfig, check_round_trip
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models import tokens, weights
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import (
    encode,
    environment,
    finite,
    generator,
    read_json,
    run_id,
    write_atomically,
    write_json,
)
from icl_interp.training import recipes
from icl_interp.training.curriculum import learning_rate, task_at

log = logging.getLogger(__name__)


class TrainingDiverged(InputError):
    """The loss became infinite or NaN. The last good checkpoint is kept."""


def train(
    config: str | Path | dict | RunConfig, out: str | Path, *, progress: bool = True, device: str | None = None
) -> Checkpoint:
    """Train a model into the run folder `out`; where that holds a started run of the same config, go on with it.

    Args:
        config: a recipe's name, a YAML file, or the config itself.
        out: the run folder. Its files are replaced whole, so a run may be killed at any time.
        progress: a progress bar (none where there is no terminal).
        device: where to train; results are bit-exact on resume on a CPU.

    Raises:
        InputError: unknown keys, or `out` holds something else.
        TrainingDiverged: a non-finite loss.
    """
    config = recipes.resolve(config)
    if config.training is None:
        raise InputError("the config has no training section")
    check_round_trip(config)
    run = _Run(config, Path(out), device)
    run.go(progress)
    return store.load(run.out)


class _Run:
    """A model, its optimiser and its step, and how they go to disk and back."""

    def __init__(self, config: RunConfig, out: Path, device: str | None):
        self.config, self.out = config, out
        self.training: TrainingConfig = config.training
        self.encoding = tokens.named(config.encoding)
        self.model = HookedTransformer(config.model, seed=self.training.seed).to(device or "cpu")
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=self.training.learning_rate, fused=True)
        self.step, self.seconds, self.metrics = 0, 0.0, []
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self._claim_folder()
        if (out / "training_state.safetensors").is_file():
            self._resume()

    def go(self, progress: bool) -> None:
        """Train from the present step to the last."""
        if self.step == self.training.steps:
            if not self._finished():  # killed between the files of the last checkpoint
                self._save()
            return
        self.model.train()
        self._snapshot()
        started = time.perf_counter()
        bar = tqdm(total=self.training.steps, initial=self.step, unit="step", disable=None if progress else True)
        with bar:
            while self.step < self.training.steps:
                loss = self._advance()
                self._snapshot()
                bar.update()
                last = self.step == self.training.steps
                if self.step % self.training.log_every == 0 or last:
                    self.metrics.append(self._line(loss))
                    bar.set_postfix(loss=f"{loss:.2e}", points=self.metrics[-1]["n_points"], refresh=False)
                if self.step % self.training.checkpoint_every == 0 or last:
                    now = time.perf_counter()
                    self.seconds, started = self.seconds + now - started, now
                    self._save()

    def _advance(self) -> float:
        """One step of Adam; the loss before it."""
        training = self.training
        task = task_at(training, self.config.task, self.step)
        prompts = task.sample(training.batch_size, generator(training.seed, "train/prompts", self.step))
        read, points = self.encoding.read_at(prompts.n_points, self.model.cfg.attention_dir)
        device = self.model.unembed.W_U.device
        targets = prompts.ys[:, points.start : points.stop].to(device)
        out = self.model(self.encoding.encode(prompts).to(device), read)[..., 0]
        loss = (out - targets).square().mean()
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"the loss became {value} at step {self.step}; {self._kept()}: lower learning_rate or grad_clip and "
                "start in a fresh folder"
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.grad_clip)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(training, self.step)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return value

    def _snapshot(self) -> None:
        """Remember the weights of this step, if the config asks for them."""
        if self.step in self.training.snapshots:
            self.snapshots[self.step] = {name: p.detach().cpu().clone() for name, p in self.model.named_parameters()}

    def _line(self, loss: float) -> dict[str, float]:
        # No clock here: an interrupted run must leave the same file as an uninterrupted one.
        task = task_at(self.training, self.config.task, self.step - 1)
        rate = learning_rate(self.training, self.step - 1)
        return {"step": self.step, "loss": loss, "learning_rate": rate, "n_points": task.n_points}

    def _claim_folder(self) -> None:
        """Start a run in an empty folder, or make sure that the one begun there is the same run."""
        path, wanted = self.out / "config.json", {"schema": SCHEMA, **json.loads(json.dumps(encode(self.config)))}
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is a file, but a run needs a folder")
        if (self.out / "model.safetensors").exists() and not (self.out / "training_state.safetensors").exists():
            raise InputError(
                f"{self.out} holds a model without the training state to go on from: choose another folder"
            )
        if not path.exists():
            if self.out.is_dir() and any(not item.name.startswith(".") for item in self.out.iterdir()):
                raise InputError(f"{self.out} is not empty and holds no run: choose another folder")
            write_json(path, wanted)
            return
        difference = _first_difference(read_json(path), wanted)
        if difference:
            key, old, new = difference
            raise InputError(
                f"{self.out} holds a run with {key} = {old!r}, but {new!r} was asked for: "
                "resume with the same config, or choose another folder"
            )

    def _save(self) -> None:
        """Write a checkpoint. The metrics come first and `training_state` alone decides where a resumed run starts."""
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise TrainingDiverged(
                f"weights became NaN or infinite before step {self.step}; {self._kept()}: lower learning_rate or "
                "grad_clip and start in a fresh folder"
            )
        lines = "".join(json.dumps(finite(line)) + "\n" for line in self.metrics)
        write_atomically(self.out / "metrics.jsonl", lines)
        if self.snapshots:
            store.write_snapshots(self.out, self.snapshots)
        weights.write(self.out / "training_state.safetensors", self._state())
        weights.write(self.out / "model.safetensors", self.model.state_dict())
        speed = {"training_seconds": round(self.seconds, 1), "finished": self.step == self.training.steps}
        stamp = {"run_id": run_id(self.config), "step": self.step, "environment": environment(), **speed}
        if speed["finished"]:
            checkpoint = Checkpoint(self.model.eval(), self.config.task, self.encoding, self.config, self.step)
            stamp["in_distribution"] = evaluation.in_distribution(checkpoint, self.config.task)
        write_json(self.out / "provenance.json", stamp)

    def _state(self) -> dict[str, Tensor]:
        """Weights, both moments of Adam, and the step, as one flat dictionary."""
        state = {"step": torch.tensor(self.step)}
        for name, parameter in self.model.named_parameters():
            moments = self.optimiser.state[parameter]
            state[f"weight/{name}"] = parameter
            state[f"exp_avg/{name}"], state[f"exp_avg_sq/{name}"] = moments["exp_avg"], moments["exp_avg_sq"]
        return state

    def _resume(self) -> None:
        state = weights.read(self.out / "training_state.safetensors")
        try:
            self.step = int(state["step"])
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(state[f"weight/{name}"])
                    self.optimiser.state[parameter] = {
                        "step": torch.tensor(float(self.step), device=parameter.device),
                        "exp_avg": state[f"exp_avg/{name}"].to(parameter.device),
                        "exp_avg_sq": state[f"exp_avg_sq/{name}"].to(parameter.device),
                    }
        except KeyError as error:
            raise InputError(
                f"{self.out}/training_state.safetensors lacks {error}: is it from another program?"
            ) from error
        path = self.out / "metrics.jsonl"
        if not path.is_file():
            raise InputError(
                f"{self.out} has a training state but no metrics.jsonl: restore it, or start in a fresh folder"
            )
        self.metrics = [line for line in map(json.loads, path.read_text().splitlines()) if line["step"] <= self.step]
        kept = store.read_snapshots(self.out) if self.training.snapshots else {}
        taken = [step for step in self.training.snapshots if step <= self.step]
        if not set(taken) <= set(kept):
            raise InputError(
                f"{self.out} has a training state but lacks snapshots of its steps {taken}: restore "
                f"{store.SNAPSHOTS}, or start in a fresh folder"
            )
        self.snapshots = {step: kept[step] for step in taken}
        if (self.out / "provenance.json").is_file():
            self.seconds = float(read_json(self.out / "provenance.json").get("training_seconds", 0.0))
        log.info("resuming %s at step %d", self.out, self.step)

    def _finished(self) -> bool:
        """Whether the last file of the last checkpoint, the provenance, was written."""
        path = self.out / "provenance.json"
        return path.is_file() and bool(read_json(path).get("finished"))

    def _kept(self) -> str:
        path = self.out / "training_state.safetensors"
        if not path.is_file():
            return f"there is no earlier checkpoint in {self.out}"
        return f"the checkpoint of step {int(weights.read(path)['step'])} is kept in {self.out}"


def _first_difference(old: object, new: object, key: str = "config") -> tuple[str, object, object] | None:
    """The first place in which two configs differ, as (key, old value, new value)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*new, *(name for name in old if name not in new)]:
            found = _first_difference(old.get(name), new.get(name), name if key == "config" else f"{key}.{name}")
            if found:
                return found
        return None
    return None if old == new else (key, old, new)
