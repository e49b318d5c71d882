"""Processes that train one model together, each on its own rows of every batch.

`torchrun` starts them and tells each its place. Gradients are added up over all of them before a
step, so that every process holds the same weights as a single one would, up to rounding. The first
process alone reads and writes the run folder.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from icl_interp.errors import InputError

STARTED = "TORCHELASTIC_RUN_ID"  # what torchrun sets besides the place of a process
LOST = (
    "another process of this run has ended, or cannot be reached: start the run again, and it goes "
    "on from its last checkpoint"
)


class RankLost(InputError):
    """Another process of the run is gone."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train one model.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        device: on which they exchange numbers.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.rank == 0

    def pieces(self, n: int, accumulate: int) -> list[slice]:
        """The rows of a batch that this process takes, in pieces of about one length.

        Args:
            n: prompts of the batch.
            accumulate: pieces of each process.

        >>> Ranks(1, 2).pieces(10, accumulate=2)
        [slice(5, 7, None), slice(7, 10, None)]
        """
        many = self.size * accumulate
        first = self.rank * accumulate
        places = range(first, first + accumulate)
        return [slice(n * place // many, n * (place + 1) // many) for place in places]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes.

        Raises:
            RankLost: another process is gone.
        """
        if self.size == 1:
            return
        # One message for all of them.
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with reached():
            dist.all_reduce(flat)
        at = 0
        for tensor in tensors:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by that of the first process.

        Raises:
            RankLost: another process is gone.
        """
        if self.size > 1:
            with reached():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def anyone(self, asks: bool) -> bool:
        """Whether any process asks for something; all of them get the same answer.

        Raises:
            RankLost: another process is gone.
        """
        number = torch.tensor(float(asks), device=self.device)
        self.add_up([number])
        return bool(number)

    def first_of(self, said: str) -> str | None:
        """The first text that a process said; None where all of them are empty.

        Raises:
            RankLost: another process is gone.
        """
        texts: list[str | None] = [said]
        if self.size > 1:
            texts *= self.size
            with reached():
                dist.all_gather_object(texts, said)
        return next(filter(None, texts), None)


@contextlib.contextmanager
def reached() -> Iterator[None]:
    """What torch says of a process that it does not reach, in one line.

    Raises:
        RankLost: another process is gone.
    """
    try:
        yield
    except RuntimeError as error:
        _outlive_request()
        raise RankLost(LOST) from error


def _outlive_request() -> None:
    """Ignore SIGTERM from here on.

    Once one process has ended, torchrun asks the others to end too. This one ends by itself, but
    first it says why.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def place(device: str | None = None) -> Ranks:
    """The place that torchrun gave this process; that of a single one where it did not."""
    if STARTED not in os.environ:
        return Ranks()
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), device or "cpu")


def own_device(device: str | None) -> str | None:
    """The device of this process: of several GPUs that of its place on the machine."""
    if device == "cuda" and place().size > 1:
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


@contextlib.contextmanager
def joined(device: str | None) -> Iterator[Ranks]:
    """Join the other processes of a run, where torchrun started several.

    Args:
        device: where this process trains. GPUs are joined by NCCL, others by Gloo.

    Raises:
        InputError: this build of torch cannot train in several processes.
        RankLost: the others are not reached.
    """
    mine = place(device)
    if mine.size == 1:
        yield mine
        return
    if not dist.is_available():
        raise InputError(
            "this build of torch cannot train in several processes: leave torchrun out"
        )
    on_gpu = device is not None and device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(device)
    with reached():
        dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield mine
    finally:
        dist.destroy_process_group()
