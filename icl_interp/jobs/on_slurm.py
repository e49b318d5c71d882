"""Jobs as an array of Slurm, by submitit; a job that is pre-empted is queued again."""

import importlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError
from icl_interp.jobs.job import Job, perform

POLL = 1.0  # seconds between two looks at jobs
MINUTES = 24 * 60  # that a job may take; what is not done then is queued again


def run(
    jobs: Sequence[Job],
    cluster: str = "slurm",
    timeout_min: int = MINUTES,
    mem_gb: float = 4,
    **settings: Any,
) -> Iterator[tuple[Job, str]]:
    """Each job as it ends.

    Args:
        jobs: to do; each takes a core, and its GPUs. An array for each number of GPUs is submitted.
        cluster: "slurm", or "local" to try the same on this machine.
        timeout_min: minutes that a job may take before it is queued again.
        mem_gb: memory of a job.
        settings: further parameters of submitit, such as slurm_partition.
    """
    executor = prepared(jobs[0].folder.parent / "slurm", cluster)
    # An array holds jobs that ask for the same machines.
    by_gpus: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        by_gpus[job.gpus].append(job)
    submitted: dict[Any, Job] = {}
    try:
        for gpus, alike in by_gpus.items():
            wanted = {"cpus_per_task": 1, "gpus_per_node": gpus, **settings}
            executor.update_parameters(timeout_min=timeout_min, mem_gb=mem_gb, **wanted)
            handed = executor.map_array(Preemptible(), alike)
            submitted |= dict(zip(handed, alike, strict=True))
        # What ends is handed on; an interruption cancels the rest.
        while submitted:
            for one in list(submitted):
                if one.done():
                    yield submitted.pop(one), lost(one)
            time.sleep(POLL)
    finally:
        for one in submitted:
            one.cancel(check=False)


class Preemptible:
    """`perform`, with what submitit asks for when Slurm takes the machine away: the same again."""

    def __call__(self, job: Job) -> str:
        """Do the job."""
        return perform(job)

    def checkpoint(self, job: Job) -> Any:
        """What is queued in its place: a training goes on from its last checkpoint."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, job)


def prepared(folder: Path, cluster: str) -> Any:
    """An executor of submitit that keeps its files in a folder.

    Raises:
        InputError: submitit is not installed, or there is no such cluster here.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ImportError as error:
        raise InputError('submitit is not installed: pip install "icl-interp[slurm]"') from error
    try:
        return submitit.AutoExecutor(folder, cluster=cluster)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"cannot submit to {cluster} from here: {error}") from error


def lost(one: Any) -> str:
    """Why a job did not come to its end, in a line; empty where it did."""
    error = one.exception()
    if error is None:
        return one.result()
    return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
