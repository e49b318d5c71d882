"""What 64 jobs on two processes cost beside the ideal: their work over the processes."""

import tempfile
import time
from pathlib import Path

from benchmarks.measuring import Goal, Options, Row, Seconds
from icl_interp import jobs
from icl_interp.jobs import Engine, Job, part

N_JOBS = 64
PROCESSES = 2
SECONDS = 30.0  # of a job
QUICK = 0.01
OVERHEAD = Goal(1.1)


def run(options: Options) -> list[Row]:
    """The time of all jobs over the ideal; jobs sleep, so a busy machine changes little."""
    seconds = QUICK if options.quick else SECONDS
    processes = 1 if options.quick else PROCESSES
    ideal = N_JOBS * seconds / processes
    with tempfile.TemporaryDirectory() as folder:
        work = []
        for i in range(N_JOBS):
            arguments = {"secs": seconds}
            work.append(Job(str(i), part(Path(folder), str(i)), _sleep, arguments))
        wall, processor = time.perf_counter(), time.process_time()
        ends = jobs.run(work, Engine("local", {"processes": processes}))
        took = Seconds(time.perf_counter() - wall, time.process_time() - processor)
        jobs.results(ends)
    row = Row(
        what=f"{N_JOBS} jobs of {seconds:g} s on {processes} processes",
        value=took.wall / ideal,
        unit="x",
        seconds=took,
        note="of the ideal, work / processes",
        goal=OVERHEAD,
    )
    return [row]


def _sleep(secs: float) -> None:
    time.sleep(secs)
