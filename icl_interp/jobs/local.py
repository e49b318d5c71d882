"""Jobs in processes of this machine: as many as cores and memory allow, with one thread each."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from icl_interp.errors import InputError
from icl_interp.jobs.job import Job, perform

GB = 1e9
MEMORY = 1.5  # GB a process: torch and TransformerLens take 0.5, and a small training 0.5 more
GRACE = 60  # seconds that a training has to save its state after its parent was ended
MEMINFO = Path("/proc/meminfo")
ENDED = "its process was ended from outside, or ran out of memory"


def run(
    jobs: Sequence[Job], processes: int | None = None, memory: float = MEMORY
) -> Iterator[tuple[Job, str]]:
    """Each job as it ends.

    Args:
        jobs: to do.
        processes: that work at a time; as many as cores and memory allow by default. With one, jobs
            run in this process.
        memory: GB that one process takes, for that default.
    """
    if processes is None:
        processes = allowed(memory)
    if not isinstance(processes, int) or processes < 1:
        raise InputError(f"processes must be a whole number from 1 up, but got {processes!r}")
    if processes == 1:
        for job in jobs:
            yield job, perform(job)
        return
    waiting = list(jobs)
    while waiting:
        broken: list[Job] = []
        for job, lost in pooled(waiting, min(processes, len(waiting))):
            if lost == ENDED:
                broken.append(job)
            else:
                yield job, lost
        # A process that is ended by force takes its pool along. What ran there is tried again in a
        # pool of its own, which tells the cause from the others; what waited joins a new pool.
        suspects = [job for job in broken if job.state == "running"] or broken[:1]
        waiting = [job for job in broken if job not in suspects]
        for job in suspects:
            yield from pooled([job], 1)


def pooled(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, str]]:
    """Each job of one pool as it ends, with why it was lost."""
    # Not by fork: threads of the parent would not live on in its children.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), begin)
    try:
        futures = {pool.submit(perform, job): job for job in jobs}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except (BrokenExecutor, SystemExit):  # killed, or ended after saving its training
                yield futures[future], ENDED
    finally:
        pool.shutdown(cancel_futures=True)


def begin() -> None:
    """Prepare a process of a pool: one thread, and an end with the process that started it."""
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is None:
        return
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)  # a training saves its state
    time.sleep(GRACE)
    os._exit(143)


def allowed(memory: float = MEMORY, cores: int | None = None, free: float | None = None) -> int:
    """How many processes cores and memory allow.

    Args:
        memory: GB that one takes.
        cores: of the machine, by default those that this process may use.
        free: GB that are free, by default those of the system.

    >>> allowed(1.5, cores=8, free=7.0), allowed(1.5, cores=2, free=64.0), allowed(1.5, 8, 0.5)
    (4, 2, 1)
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if free is None:
        free = free_memory()
    return max(1, min(cores or 1, int(free / memory)))


def free_memory() -> float:
    """GB that new processes may take; all of the machine's where the system tells no more."""
    if MEMINFO.exists():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / GB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
