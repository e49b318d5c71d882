"""Runs a function in a fresh Python process: for what a process pays once (its imports), and for peak memory."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Fresh:
    """What a run in a process of its own took and gave.

    Attributes:
        wall: seconds from the start of the process to its end.
        processor: seconds of the processor, all threads together.
        started: seconds, by the clock and of the processor, from the start of the process until the
            function was called: the interpreter and all imports.
        peak: the most memory that the process held, in bytes.
        result: what the function returned.
    """

    wall: float
    processor: float
    started: tuple[float, float]
    peak: float
    result: Any


def call(
    function: Callable[..., Any],
    *,
    here: bool = False,
    threads: int | None = None,
    **arguments: Any,
) -> Fresh:
    """Call a function of a module of this package in a fresh process.

    Args:
        function: it takes and returns what JSON holds.
        here: call it in this process instead, for a quick trial; peak memory is then that of all
            that ran before.
        threads: how many threads torch has there; by default as many as it takes by itself.
        arguments: of the function.

    Raises:
        RuntimeError: the process failed; the error ends with what it printed.
    """
    begun = time.monotonic()  # the same clock for all processes
    if here:
        processor = time.process_time()
        result = function(**arguments)
        return Fresh(
            time.monotonic() - begun,
            time.process_time() - processor,
            (0.0, 0.0),
            peak_bytes(),
            result,
        )
    limits = (
        {}
        if threads is None
        else {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.fresh",
            str(out),
            function.__module__,
            function.__name__,
        ]
        run = subprocess.run(
            [*command, json.dumps(arguments), str(begun)],
            cwd=ROOT,
            env={**os.environ, **limits},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        wall = time.monotonic() - begun
        if run.returncode:
            raise RuntimeError(
                f"{function.__name__} failed in a fresh process:\n{run.stderr[-2000:]}"
            )
        return Fresh(wall=wall, **json.loads(out.read_text("utf-8")))


def peak_bytes() -> float:
    """The most memory that this process has held since it began.

    Where Linux tells, from there: the number of `getrusage` outlives the start of a new program, so
    a child would report the peak of the process that started it. NaN on Windows, where neither is
    to be had.
    """
    if STATUS.exists() and (found := re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text("utf-8"))):
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kibibytes elsewhere


def _main(out: str, module: str, name: str, arguments: str, begun: str) -> None:
    function = getattr(importlib.import_module(module), name)
    started = (time.monotonic() - float(begun), time.process_time())
    result = function(**json.loads(arguments))
    found = {
        "result": result,
        "processor": time.process_time(),
        "started": started,
        "peak": peak_bytes(),
    }
    Path(out).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
