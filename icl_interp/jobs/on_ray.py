"""Jobs on a Ray cluster: one that runs, or one that is started here for them."""

import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from icl_interp.errors import InputError
from icl_interp.jobs.job import Job, perform, reason_of

RETRIES = 3  # of a job whose worker or node was lost
STORE = 10**8  # bytes of a local cluster's object store: jobs pass their results through files


def run(
    jobs: Sequence[Job], address: str = "auto", memory: float = 0.0
) -> Iterator[tuple[Job, str]]:
    """Each job as it ends.

    A job whose node is lost is started on another one. All nodes must see the folders of the jobs.

    Args:
        jobs: to do; each takes a core, and its GPUs.
        address: of a cluster; by default the one that RAY_ADDRESS or this machine names, or else a
            new one on this machine.
        memory: GB that Ray sets aside for each job.
    """
    ray = imported()
    # A connection that the caller has made stays open.
    own = not ray.is_initialized()
    if own:
        connect(ray, address)
    options = {"num_cpus": 1, "max_retries": RETRIES, "memory": int(memory * 1e9) or None}
    remote = ray.remote(perform)
    pending = {remote.options(num_gpus=job.gpus, **options).remote(job): job for job in jobs}
    # An interruption cancels what has not ended.
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1)
            for reference in ready:
                yield pending.pop(reference), lost(ray, reference)
    finally:
        for reference in pending:
            ray.cancel(reference)
        if own:
            ray.shutdown()


def imported() -> Any:
    """The package.

    Raises:
        InputError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InputError('ray is not installed: pip install "icl-interp[cluster]"') from error


def connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine where none is named.

    Raises:
        InputError: the named cluster does not answer.
    """
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address != "auto" or os.environ.get("RAY_ADDRESS"):
            reason = str(error).partition("\n")[0]
            raise InputError(f"the Ray cluster {address} does not answer: {reason}") from error
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=STORE,
            _node_ip_address="127.0.0.1",
        )


def lost(ray: Any, reference: Any) -> str:
    """Why a job did not come to its end, in a line; empty where it did."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # its text begins with the trace
        return reason_of(error.cause)
    except ray.exceptions.RayError as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
