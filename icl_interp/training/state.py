"""The state from which a run goes on, read from disk: weights, moments, step, metrics so far.

Everything is checked before anything of it is used: torch's fused Adam reads past the end of a
moment that is too short.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icl_interp.checkpoints.config import TrainingConfig
from icl_interp.errors import InputError, shown
from icl_interp.models import weights
from icl_interp.models.weights import Wanted
from icl_interp.provenance import LARGEST, finite, parse_json, write_atomically
from icl_interp.stored import read_bytes
from icl_interp.structured import Stored

STATE = "training_state.safetensors"
METRICS = "metrics.jsonl"
_PARTS = ("weight", "exp_avg", "exp_avg_sq")
LONGEST_LINE = 1000  # bytes of a line of metrics, which has some 100
_MEND = "restore the file, or start in a fresh folder"


@dataclass
class State:
    """Weights, both moments of Adam, and the number of steps taken; tensors by parameter name."""

    step: int
    weight: dict[str, Tensor]
    exp_avg: dict[str, Tensor]
    exp_avg_sq: dict[str, Tensor]


def write(folder: Path, state: State) -> None:
    """Write a state as one flat file, with names such as "exp_avg/embed.W_E"."""
    flat = {"step": torch.tensor(state.step)}
    for name in state.weight:
        for part in _PARTS:
            flat[f"{part}/{name}"] = getattr(state, part)[name]
    weights.write(folder / STATE, flat)


def read(folder: Path, model: nn.Module, training: TrainingConfig) -> State:
    """The state in a run folder.

    Args:
        folder: of the run.
        model: what the weights are for; it is only compared.
        training: of the run; the state's step is one of its steps.

    Raises:
        InputError: a tensor is missing, unexpected, of another shape or type, or holds what no run
            leaves there.
    """
    path = folder / STATE
    # The header tells kinds before anything large is read; what was read is held against it.
    wanted = [Wanted("step", (), ("int64",))]
    for name, parameter in model.named_parameters():
        dtype, shape = weights.kind(parameter)
        for part in _PARTS:
            wanted.append(Wanted(f"{part}/{name}", shape, (dtype,)))
    weights.check_kinds(weights.header(path), wanted, path)
    tensors = weights.read(path)
    kinds = {name: weights.kind(tensor) for name, tensor in tensors.items()}
    weights.check_kinds(kinds, wanted, path)
    weights.check_finite(tensors, path)
    step = int(tensors.pop("step"))
    if not 1 <= step <= training.steps:
        raise InputError(
            f"{path}: step must be from 1 to the config's {training.steps:,}, but is {step:,}; "
            f"{_MEND}"
        )
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for name, tensor in tensors.items():
        part, _, parameter = name.partition("/")
        if part == "exp_avg_sq" and (tensor < 0).any():
            raise InputError(
                f"{path}: {name} must be 0 or more, but holds {float(tensor.min()):.3g}; {_MEND}"
            )
        parts[part][parameter] = tensor
    return State(step, **parts)


Line = dict[str, Any]  # of metrics.jsonl


def write_metrics(folder: Path, lines: list[Line]) -> None:
    """Write lines of metrics."""
    rows = [json.dumps(finite(line)) + "\n" for line in lines]
    write_atomically(folder / METRICS, "".join(rows))


def read_metrics(folder: Path, training: TrainingConfig, step: int) -> list[Line]:
    """The lines of metrics.jsonl up to a step; a run that was killed may have left later ones.

    Raises:
        InputError: the file is missing, a line is not what a run writes there, or one is missing;
            it says which.
    """
    path = folder / METRICS
    most = training.steps // training.log_every + 1  # lines of the whole run
    n_bytes = min(most * LONGEST_LINE, LARGEST)
    try:
        rows = read_bytes(path, n_bytes).splitlines()
    except InputError as error:
        raise InputError(
            f"{folder} has a training state but no {METRICS} that can be read ({error}): {_MEND}"
        ) from error
    lines: list[Line] = []
    for i, row in enumerate(rows, start=1):
        where = f"{path}, line {i}"
        try:
            line = parse_json(row, where)
        except InputError as error:
            raise InputError(f"{error} {_MEND[0].upper()}{_MEND[1:]}") from error
        wanted = min(i * training.log_every, training.steps)
        has_step = isinstance(line, dict) and "step" in line
        # bool is a kind of int, and 3.0 == 3.
        if not has_step or type(line["step"]) is not int or line["step"] != wanted:
            found = f"step {shown(line['step'])}" if has_step else "no step"
            raise InputError(
                f"{where} must be the metrics of step {wanted}, but has {found}: {_MEND}"
            )
        for name in ("loss", "learning_rate", "n_points"):
            try:
                Stored(line.get(name), f"{where}, {name}").of(float)
            except InputError as error:
                raise InputError(f"{error}; {_MEND}") from error
        lines.append(line)
    n_lines = step // training.log_every
    # The last step has a line, whether it is a multiple or not.
    if step == training.steps and step % training.log_every > 0:
        n_lines += 1
    if len(lines) < n_lines:
        raise InputError(
            f"{path} ends after line {len(lines)}, but a run at step {step:,} has left {n_lines:,} "
            f"lines: {_MEND}"
        )
    return lines[:n_lines]
