"""The training loop, plain: sample, predict, step, log, save.

Resumes exactly wherever it was stopped.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icl_interp import evaluation
from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import SCHEMA, RunConfig, TrainingConfig, check_round_trip
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.devices import checked_device
from icl_interp.errors import InputError, logger, shown
from icl_interp.models import tokens, weights
from icl_interp.models.complex_heads import keep_diagonal
from icl_interp.models.transformer import HookedTransformer
from icl_interp.products import fast
from icl_interp.progress import drawn
from icl_interp.prompts import Prompts
from icl_interp.provenance import (
    LARGEST_FACTS,
    encode,
    environment,
    read_json,
    remove_leftovers,
    run_id,
    write_json,
)
from icl_interp.training import process, ranks, recipes, state
from icl_interp.training.adam import Adam
from icl_interp.training.data import Batches
from icl_interp.training.ranks import Ranks
from icl_interp.training.schedules import learning_rate, task_at
from icl_interp.training.size import check_size

log = logger(__name__)
MEASURED = ("error", "low", "high", "r2")  # of a finished model, in its provenance
ALONE = Ranks()
FILES = (store.CONFIG, store.MODEL, store.PROVENANCE, store.SNAPSHOTS, state.STATE, state.METRICS)


class TrainingDiverged(InputError):
    """The loss became infinite or NaN. The last good checkpoint is kept."""


@fast()
def train(
    config: str | Path | dict | RunConfig,
    out: str | Path,
    *,
    progress: bool = True,
    device: str | None = None,
    watch: Callable[[dict[str, Any]], object] | None = None,
) -> Checkpoint:
    """Train a model into the run folder `out`, or continue the run of the same config in it.

    Args:
        config: a recipe's name, a YAML file, or the config itself.
        out: the run folder. Its files are replaced whole, so a run may be killed at any time.
        progress: a progress bar (none where there is no terminal).
        device: where to train; results are bit-exact on resume on a CPU.
        watch: is told each line of metrics, those of a run that is resumed too, such as
            {"step": 100, "loss": 0.1, "learning_rate": 1e-3, "n_points": 20}.

    Where `torchrun` started several processes, they train one model: each takes its rows of every
    batch, and the first of them reads and writes the folder (`icl_interp.training.ranks`).

    A SIGTERM lets the present step end and a checkpoint be written; then the run raises
    `process.Terminated`, a `SystemExit` of code 143, and the handler from before is back. Only the
    main thread of a process can do so.

    Raises:
        InputError: unknown keys, a device that is not there, sizes beyond this machine's memory,
            another process that trains in `out`, or `out` holds something else or a damaged run.
        TrainingDiverged: a non-finite loss.
        RankLost: another process of several is gone.
        Terminated: there was a SIGTERM.
    """
    config = recipes.resolve(config)
    out = Path(out)
    device = ranks.own_device(device)
    with ranks.joined(device) as place, contextlib.ExitStack() as held:
        # What one process refuses, all of them do.
        refused: InputError | None = None
        run: Run | None = None
        try:
            run = held.enter_context(prepared(config, out, device, place))
        except InputError as error:
            refused = error
        said = place.first_of(str(refused or ""))
        if refused:
            raise refused
        if said:
            raise InputError(said)
        assert run is not None
        run.agree()
        if watch is not None and place.is_first:
            run.tell(watch)
        run.go(progress and place.is_first)
        place.first_of("")  # all files are there
        return store.load(out)


@contextlib.contextmanager
def prepared(
    config: RunConfig, out: Path, device: str | None, place: Ranks = ALONE
) -> Iterator["Run"]:
    """A run that stands where it was left, alone in its folder, with all that can be refused."""
    if config.training is None:
        raise InputError("the config has no training section")
    check_round_trip(config)
    where = checked_device(device)
    check_size(config)
    # Of the finished model the error is evaluated: what cannot be scored is refused before it is
    # trained.
    evaluation.Sample(config.task, n_functions=1, n_contexts=1, seed=0)
    if place.size * config.training.accumulate > config.training.batch_size:
        raise InputError(
            f"a batch of {config.training.batch_size} prompts has fewer prompts than parts "
            f"(processes: {place.size}, training.accumulate: {config.training.accumulate}): choose "
            "a larger training.batch_size"
        )
    with process.alone_in(out) if place.is_first else contextlib.nullcontext():
        yield Run(config, config.training, out, where, place)


class Run:
    """A model, its optimiser and its step, and how they go to disk and back."""

    def __init__(
        self,
        config: RunConfig,
        training: TrainingConfig,
        out: Path,
        device: torch.device,
        place: Ranks = ALONE,
    ) -> None:
        self.config = config
        self.training = training
        self.out = out
        self.encoding = tokens.named(config.encoding)
        self.place = place
        if place.is_first:
            self._claim_folder()
        self.model = HookedTransformer(config.model, seed=self.training.seed).to(device)
        self.optimiser = Adam(self.model.named_parameters())
        self.batches = Batches(config.task, training)
        self.step = 0
        self.seconds = 0.0
        self.metrics: list[dict[str, Any]] = []
        self.saved: int | None = None  # the step of the checkpoint on disk
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self.watch: Callable[[dict[str, Any]], object] | None = None
        if place.is_first and (out / state.STATE).exists():
            self._resume()

    def agree(self) -> None:
        """Stand where the first of several processes stands."""
        if self.place.size == 1:
            return
        step = torch.tensor([self.step, -1 if self.saved is None else self.saved])
        step = step.to(self.model.numbers.device)
        shared = [step]
        for name, parameter in self.model.named_parameters():
            shared += [parameter.detach(), *self.optimiser.state[name].values()]
        self.place.share(shared)
        self.step = int(step[0])
        self.saved = int(step[1]) if step[1] >= 0 else None

    def go(self, progress: bool) -> None:
        """Train from the present step to the last."""
        self.begin()
        if self.is_over:
            return
        # After each step: what the config asks to be written, and an end where one was asked for.
        bar = drawn(
            total=self.training.steps,
            initial=self.step,
            unit="step",
            disable=None if progress else True,
        )
        started = time.perf_counter()
        with process.EndRequest() as end, bar:
            while self.step < self.training.steps:
                loss = self._advance()
                now = time.perf_counter()
                self.seconds += now - started
                started = now
                bar.update()
                stop = self.place.anyone(end.came)
                if stop:  # only then: a request that came just now counts at the next step
                    end.came = True
                self.record(loss, stop)
                if self.is_logged:
                    points = self.metrics[-1]["n_points"]
                    bar.set_postfix(loss=f"{loss:.2e}", points=points, refresh=False)
                if stop or (self.place.size == 1 and self.saved == self.step):
                    end.grant(self.where())

    def tell(self, watch: Callable[[dict[str, Any]], object]) -> None:
        """Have a function told each line of metrics, those first that are there."""
        for line in self.metrics:
            watch(line)
        self.watch = watch

    @property
    def is_over(self) -> bool:
        """Whether the last step is taken."""
        return self.step == self.training.steps

    @property
    def is_logged(self) -> bool:
        """Whether the present step has a line of metrics."""
        return self.is_over or self.step % self.training.log_every == 0

    def begin(self) -> None:
        """Prepare for steps; where none is left, make sure that all files are there."""
        if not self.is_over:
            self.model.train()
            self._snapshot()
        elif self.place.is_first and not self._finished():
            # It was killed between the files of the last checkpoint.
            self.save()

    def record(self, loss: float, save: bool = False) -> None:
        """Write down the step that was taken, as the config asks for it.

        Args:
            loss: before the step.
            save: write a checkpoint in any case.
        """
        self._snapshot()
        if self.is_logged:
            self.metrics.append(self._line(loss))
            if self.watch:
                self.watch(self.metrics[-1])
        if self.is_over or save or self.step % self.training.checkpoint_every == 0:
            self.save()

    def where(self) -> str:
        """What is said of a run that ends before its time, and is saved."""
        return f"terminated: step {self.step} of {self.training.steps} is saved in {self.out}"

    def _advance(self) -> float:
        """One step of Adam; the loss before it."""
        prompts = self.batches.at(self.step)
        loss = torch.zeros_like(self.model.numbers[0, 0])
        for rows in self.place.pieces(len(prompts), self.training.accumulate):
            piece = prompts[rows]
            part = len(piece) / len(prompts) * self._loss(piece)
            part.backward()
            loss += part.detach()
        sums = [loss]
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                sums.append(parameter.grad)
        self.place.add_up(sums)
        value = loss.item()
        self.update(value)
        return value

    def update(self, loss: float) -> None:
        """Take a step of Adam by the gradients that the parameters hold.

        Args:
            loss: that they are of.

        Raises:
            TrainingDiverged: it is not finite.
        """
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"the loss became {loss} at step {self.step}; {self._kept()}: lower learning_rate "
                "or grad_clip and start in a fresh folder"
            )
        if self.model.cfg.unit == "diagonal":
            keep_diagonal(self.model)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.grad_clip)
        self.optimiser.step(learning_rate(self.training, self.step))
        self.step += 1

    def _loss(self, prompts: Prompts) -> Tensor:
        """The squared error over all prefixes."""
        tokens, targets, read = self.posed(prompts)
        return squared_error(self.model(tokens, read), targets)

    def posed(self, prompts: Prompts) -> tuple[Tensor, Tensor, range]:
        """Tokens, what is to be predicted, and the positions where, as the model takes them."""
        read, points = self.encoding.read_at(prompts.n_points, self.model.cfg.attention_dir)
        weight = self.model.numbers
        targets = prompts.ys[:, points.start : points.stop].to(weight)
        return self.encoding.encode(prompts).to(weight), targets, read

    def _snapshot(self) -> None:
        """Remember the weights of this step, if the config asks for them."""
        if self.step in self.training.snapshots:
            self.snapshots[self.step] = {
                name: p.detach().cpu().clone() for name, p in self.model.named_parameters()
            }

    def _line(self, loss: float) -> dict[str, float]:
        # No clock here: an interrupted run must leave the same file as an uninterrupted one.
        task = task_at(self.training, self.config.task, self.step - 1)
        rate = learning_rate(self.training, self.step - 1)
        line = {"step": self.step, "loss": loss, "learning_rate": rate, "n_points": task.n_points}
        if self.batches.test is not None:
            with torch.no_grad():
                line["test_loss"] = self._loss(self.batches.test).item()
        return line

    def _claim_folder(self) -> None:
        """Start a run in an empty folder, or make sure that the one begun there is the same run."""
        path = self.out / store.CONFIG
        wanted = {"schema": SCHEMA, **json.loads(json.dumps(encode(self.config)))}
        if (self.out / store.MODEL).exists() and not (self.out / state.STATE).exists():
            raise InputError(
                f"{self.out} holds a model without the training state to go on from: choose "
                "another folder"
            )
        if not path.exists():
            if any(not item.name.startswith(".") for item in self.out.iterdir()):
                raise InputError(f"{self.out} is not empty and holds no run: choose another folder")
            write_json(path, wanted)
        difference = _first_difference(read_json(path, LARGEST_FACTS), wanted)
        if difference:
            key, old, new = difference
            raise InputError(
                f"{self.out} holds a run with {key} = {shown(old)}, but {shown(new)} was asked "
                "for: resume with the same config, or choose another folder"
            )
        remove_leftovers(self.out, FILES)

    def save(self) -> None:
        """Write a checkpoint.

        The metrics come first and `training_state` alone decides where a resumed run starts.
        """
        # Every process sees weights that went wrong; the first alone writes.
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise TrainingDiverged(
                f"weights became NaN or infinite before step {self.step}; {self._kept()}: lower "
                "learning_rate or grad_clip and start in a fresh folder"
            )
        if not self.place.is_first:
            self.saved = self.step
            return
        state.write_metrics(self.out, self.metrics)
        if self.snapshots:
            store.write_snapshots(self.out, self.snapshots)
        state.write(self.out, self._state())
        self.saved = self.step
        weights.write(self.out / store.MODEL, self.model.state_dict())
        speed = {
            "training_seconds": round(self.seconds, 1),
            "finished": self.step == self.training.steps,
        }
        stamp = {
            "run_id": run_id(self.config),
            "step": self.step,
            "environment": environment(),
            **speed,
        }
        if speed["finished"]:
            task = self.config.reached
            checkpoint = Checkpoint(self.model.eval(), task, self.encoding, self.config, self.step)
            stamp["in_distribution"] = evaluation.in_distribution(checkpoint, task)
        write_json(self.out / store.PROVENANCE, stamp)

    def _state(self) -> state.State:
        """What to go on from."""
        moments = self.optimiser.state
        first = {name: of["exp_avg"] for name, of in moments.items()}
        second = {name: of["exp_avg_sq"] for name, of in moments.items()}
        return state.State(self.step, dict(self.model.named_parameters()), first, second)

    def _resume(self) -> None:
        """Go on from the checkpoint in the folder.

        All of it is checked before any of it is used.
        """
        found = state.read(self.out, self.model, self.training)
        metrics = state.read_metrics(self.out, self.training, found.step)
        kept = store.read_snapshots(self.out, self.config) if self.training.snapshots else {}
        taken = [step for step in self.training.snapshots if step <= found.step]
        if not set(taken) <= set(kept):
            raise InputError(
                f"{self.out} has a training state but lacks snapshots of its steps {taken}: "
                f"restore {store.SNAPSHOTS}, or start in a fresh folder"
            )
        origin = self._provenance()
        # From here on nothing can be refused.
        self.step = self.saved = found.step
        self.metrics = metrics
        self.snapshots = {step: kept[step] for step in taken}
        self.seconds = float(origin.get("training_seconds", 0.0))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(found.weight[name])
                own = self.optimiser.state[name]
                own["step"].fill_(found.step)
                own["exp_avg"].copy_(found.exp_avg[name])
                own["exp_avg_sq"].copy_(found.exp_avg_sq[name])
        log.info("resuming %s at step %d", self.out, self.step)

    def _provenance(self) -> dict[str, Any]:
        return store.read_provenance(self.out, self.config)

    def _finished(self) -> bool:
        """Whether the provenance, the last file of the last checkpoint, holds the model's error."""
        facts = self._provenance()
        return bool(facts.get("finished")) and set(MEASURED) <= set(
            facts.get("in_distribution", ())
        )

    def _kept(self) -> str:
        if self.saved is None:
            return f"there is no earlier checkpoint in {self.out}"
        return f"the checkpoint of step {self.saved} is kept in {self.out}"


def squared_error(predicted: Tensor, targets: Tensor) -> Tensor:
    """The mean over prompts, prefixes and coordinates."""
    return (predicted - targets).square().mean()


def _first_difference(
    old: object, new: object, key: str = "config"
) -> tuple[str, object, object] | None:
    """The first place in which two configs differ, as (key, old value, new value)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*new, *(name for name in old if name not in new)]:
            found = _first_difference(
                old.get(name), new.get(name), name if key == "config" else f"{key}.{name}"
            )
            if found:
                return found
        return None
    return None if old == new else (key, old, new)
