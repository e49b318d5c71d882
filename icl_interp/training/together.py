"""Many runs of one shape trained together: a step of all of them is one batched computation.

Each run keeps its own weights, optimiser, prompts and folder, as if it were alone. What they share
is the forward and the backward pass, which torch computes for all of them at once (`torch.vmap`).
Numbers agree with those of runs apart up to rounding.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from icl_interp.checkpoints import store
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError, logger, shown
from icl_interp.models import tokens
from icl_interp.progress import drawn
from icl_interp.prompts import Prompts
from icl_interp.provenance import canonical, encode
from icl_interp.training import process, recipes
from icl_interp.training.ranks import place
from icl_interp.training.trainer import ALONE, Run, prepared, squared_error

log = logger(__name__)
# Training settings in which runs of one shape may differ, each with the value that stands for all.
OWN = {
    "seed": 0,
    "learning_rate": 1.0,
    "warmup_steps": 0,
    "decay": "constant",
    "grad_clip": 1.0,
    "snapshots": (),
}
# torch cannot batch these: their gradients are functions of ours.
UNBATCHED = ("entmax", "hardmax")


def train_many(
    configs: Sequence[str | Path | dict | RunConfig],
    outs: Sequence[str | Path],
    *,
    progress: bool = True,
    device: str | None = None,
) -> list[Checkpoint]:
    """Train several models of one shape at once, each into a run folder of its own.

    Runs may differ in the seed, the learning rate and its schedule, the clipping of gradients, and
    the laws of their tasks. Each folder is what `train` would leave, up to rounding, and `train`
    goes on from it as well. Runs that were stopped at different steps go on: those behind first.

    Args:
        configs: of the runs, each as `train` takes it.
        outs: their folders.
        progress: a progress bar (none where there is no terminal).
        device: where to train.

    Returns:
        The trained models, in the order of the configs.

    Raises:
        InputError: the runs are not of one shape, or some of them failed; the others are then done.
            The message names the first that failed.
        Terminated: there was a SIGTERM; all runs are saved.
    """
    found = ends(configs, outs, progress=progress, device=device)
    done = []
    failed = []
    for out, end in zip(outs, found, strict=True):
        if isinstance(end, Checkpoint):
            done.append(end)
        else:
            failed.append(f"{out}: {end}")
    if failed:
        raise InputError(
            f"{len(failed)} of {len(found)} runs failed, the others are done; the first: "
            f"{failed[0]}"
        )
    return done


def ends(
    configs: Sequence[str | Path | dict | RunConfig],
    outs: Sequence[str | Path],
    *,
    progress: bool = False,
    device: str | None = None,
) -> list[Checkpoint | InputError]:
    """How each run of `train_many` ended: its model, or why there is none."""
    if place().size > 1:
        raise InputError("train_many trains in one process: leave torchrun out, or use train")
    read = list(map(recipes.resolve, configs))
    check_alike(read, outs)
    found: dict[int, Checkpoint | InputError] = {}
    with contextlib.ExitStack() as held:
        # Each folder is claimed as by a single run. What one of them lacks stops no other.
        runs: dict[int, Run] = {}
        for at, (config, out) in enumerate(zip(read, outs, strict=True)):
            try:
                runs[at] = held.enter_context(prepared(config, Path(out), device))
            except InputError as error:
                found[at] = error
        failed = _go(list(runs.values()), progress)
        for at, run in runs.items():
            found[at] = failed[id(run)] if id(run) in failed else store.load(run.out)
    return [found[at] for at in range(len(read))]


def check_alike(configs: Sequence[RunConfig], outs: Sequence[str | Path]) -> None:
    """Refuse runs that no batched computation can train.

    Raises:
        InputError: there are none, a folder is missing or named twice, or two runs differ in more
            than `shape` allows.
    """
    if not configs or len(configs) != len(outs):
        raise InputError(
            "train_many needs a folder for each config, and at least one of them, but got "
            f"{len(configs)} configs and {len(outs)} folders"
        )
    folders = set()
    for out in outs:
        folder = Path(out).absolute()
        if folder in folders:
            raise InputError(f"{folder} is named twice: each run needs a folder of its own")
        folders.add(folder)
    first = shape(configs[0])
    for config in configs[1:]:
        other = shape(config)
        for key, value in first.items():
            if other[key] != value:
                raise InputError(
                    f"runs that are trained together have one {key}, but got {shown(value)} and "
                    f"{shown(other[key])}: train them apart"
                )


def shape(config: RunConfig) -> dict[str, Any]:
    """What runs must share to be trained together.

    Raises:
        InputError: the run cannot be trained together with any other.
    """
    if config.training is None:
        raise InputError("the config has no training section")
    if config.model.score_fn in UNBATCHED:
        raise InputError(
            f"models with score_fn={config.model.score_fn!r} cannot be trained together: train "
            "them apart"
        )
    task = config.task
    encoding = tokens.named(config.encoding)
    return {
        "model": encode(config.model),
        "encoding": config.encoding,
        "number of points": task.n_points,
        "width of tokens": encoding.d_in(task.dim, task.n_targets),
        "training": encode(replace(config.training, **OWN)),
    }


def groups(configs: Sequence[RunConfig], most: int) -> list[list[int]]:
    """Places of configs that can be trained together, at most so many in a group.

    >>> config = recipes.resolve("affine")
    >>> seeds = [recipes.resolve(config, {"training.seed": seed}) for seed in range(3)]
    >>> groups([*seeds, recipes.resolve("affine_hardmax")], 2)
    [[0, 1], [2], [3]]
    """
    found: list[list[int]] = []
    last: dict[str, list[int]] = {}  # the group of a shape that is not full
    for at, config in enumerate(configs):
        try:
            key = canonical(shape(config))
        except InputError:
            found.append([at])
            continue
        if len(last.get(key, ())) in (0, most):
            last[key] = []
            found.append(last[key])
        last[key].append(at)
    return found


def _go(runs: Sequence[Run], progress: bool) -> dict[int, InputError]:
    """Train all runs to their ends; why some failed, by the id of the run."""
    failed: dict[int, InputError] = {}
    for run in runs:
        with _noted(run, failed):
            run.begin()
    missing = 0
    for run in runs:
        missing += run.training.steps - run.step
    bar = drawn(total=missing, unit="step", disable=None if progress else True)
    started = time.perf_counter()
    with process.EndRequest() as end, bar:
        while True:
            # Those that are behind go first, until all stand at one step.
            going = [run for run in runs if not run.is_over and id(run) not in failed]
            if not going:
                return failed
            step = min(run.step for run in going)
            group = [run for run in going if run.step == step]
            losses = backward(group)
            # Each run took a share of the time since the last step.
            now = time.perf_counter()
            share = (now - started) / len(group)
            started = now
            save = end.came
            for run, loss in zip(group, losses, strict=True):
                run.seconds += share
                with _noted(run, failed):
                    run.update(loss)
                    run.record(loss, save)
            bar.update(len(group))
            if save:
                end.grant(f"terminated: {len(going)} runs are saved, the first in {going[0].out}")


@contextlib.contextmanager
def _noted(run: Run, failed: dict[int, InputError]) -> Iterator[None]:
    """What stops this run is noted, and the others go on."""
    try:
        yield
    except InputError as error:
        failed[id(run)] = error
        log.warning("%s: %s", run.out, error)


def backward(group: Sequence[Run]) -> list[float]:
    """Leave the gradients of each run's own loss at its parameters.

    Args:
        group: runs of one shape, at the same step.

    Returns:
        The losses.
    """
    # Weights, with the runs as a first axis.
    named = [run.optimiser.named for run in group]
    weights = {}
    for name in named[0]:
        stacked = torch.stack([of[name].detach() for of in named])
        weights[name] = stacked.requires_grad_(named[0][name].requires_grad)

    # The losses of a batch, in parts where the config asks for it.
    prompts = [run.batches.at(run.step) for run in group]
    losses = torch.zeros_like(weights["unembed.b_U"][:, 0])
    for rows in ALONE.pieces(len(prompts[0]), group[0].training.accumulate):
        pieces = [one[rows] for one in prompts]
        part = len(pieces[0]) / len(prompts[0]) * _losses(group, weights, pieces)
        part.sum().backward()
        losses += part.detach()
    for name, stacked in weights.items():
        if stacked.grad is not None:
            for of, gradient in zip(named, stacked.grad, strict=True):
                of[name].grad = gradient
    return losses.tolist()


def _losses(
    group: Sequence[Run], weights: dict[str, Tensor], prompts: Sequence[Prompts]
) -> Float[Tensor, " run"]:
    """The loss of each run on its own prompts."""
    inputs = []
    targets = []
    for run, own in zip(group, prompts, strict=True):
        tokens, values, read = run.posed(own)
        inputs.append(tokens)
        targets.append(values)
    # The modules of the first run lend their structure; weights come from outside.
    model = group[0].model

    def loss(weight: dict[str, Tensor], tokens: Tensor, values: Tensor) -> Tensor:
        return squared_error(functional_call(model, weight, (tokens, read)), values)

    return torch.vmap(loss)(weights, torch.stack(inputs), torch.stack(targets))
