"""Lines of metrics for other programs that draw them: TensorBoard, and Weights & Biases offline."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError, unknown
from icl_interp.provenance import encode, run_id

Watch = Callable[[dict[str, Any]], object]  # is told each line of metrics.jsonl
KINDS = ("tensorboard", "wandb")
PROJECT = "icl_interp"


@contextlib.contextmanager
def to(kind: str, folder: Path, config: RunConfig) -> Iterator[Watch]:
    """A function that writes each line of metrics for another program, as `train` calls it.

    Files are written into a folder of the run, named after the program, from the first line on.
    Nothing is sent anywhere. A run that is resumed goes on in the same folder.

    Args:
        kind: "tensorboard" or "wandb".
        folder: of the run.
        config: of the run.

    Raises:
        InputError: another kind, or the program's package is not installed.
    """
    if kind not in KINDS:
        raise unknown("kind of logs", kind, KINDS)
    open_one = _tensorboard if kind == "tensorboard" else _wandb
    with contextlib.ExitStack() as held:
        made = open_one()
        writers: list[Watch] = []

        def watch(line: dict[str, Any]) -> None:
            if not writers:  # the run has its folder by now
                writers.append(held.enter_context(made(folder / kind, config, line["step"])))
            writers[0](line)

        yield watch


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics beside its step, those that are finite.

    >>> numbers({"step": 3, "loss": 0.5, "test_loss": float("nan")})
    {'loss': 0.5}
    """
    found = {}
    for name, value in line.items():
        if name != "step" and math.isfinite(value):
            found[name] = float(value)
    return found


def _tensorboard() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            'logs for TensorBoard need its package: pip install "icl-interp[tensorboard]"'
        ) from error

    @contextlib.contextmanager
    def made(folder: Path, config: RunConfig, step: int) -> Iterator[Watch]:
        # What a killed run wrote from this step on counts no more.
        writer = SummaryWriter(str(folder), purge_step=step)

        def write(line: dict[str, Any]) -> None:
            for name, value in numbers(line).items():
                writer.add_scalar(name, value, line["step"])

        try:
            yield write
        finally:
            writer.close()

    return made


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise InputError("logs for Weights & Biases need its package: pip install wandb") from error

    @contextlib.contextmanager
    def made(folder: Path, config: RunConfig, step: int) -> Iterator[Watch]:
        run = wandb.init(
            project=PROJECT,
            name=folder.parent.name,
            id=run_id(config),
            dir=str(folder.parent),  # below which it makes the folder wandb
            config=encode(config),
            mode="offline",
            settings=wandb.Settings(console="off", silent=True),
        )

        def write(line: dict[str, Any]) -> None:
            run.log(numbers(line), step=line["step"])

        try:
            yield write
        finally:
            run.finish()

    return made
