"""What a run of jobs shows on its way: a live table on a terminal, lines elsewhere."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from icl_interp.console import PrintableConsole
from icl_interp.errors import printable
from icl_interp.jobs.job import Job

MOST = 12  # jobs that run or failed, listed by name
STATES = ("running", "waiting", "done", "failed")


class Progress:
    """How far jobs are, read off their folders.

    Args:
        jobs: all of them.
        clock: seconds; they count from now.
    """

    def __init__(self, jobs: Sequence[Job], clock: Callable[[], float] = time.monotonic) -> None:
        self.jobs = jobs
        self.clock = clock
        self.began = clock()
        self.done_before = self.counts()["done"]

    def counts(self) -> Counter[str]:
        """Jobs in each state."""
        return Counter(job.state for job in self.jobs)

    def left(self) -> float | None:
        """Seconds to the end at the pace so far; None before anything has ended."""
        now = self.counts()
        ended = now["done"] + now["failed"] - self.done_before
        remaining = now["running"] + now["waiting"]
        return (self.clock() - self.began) / ended * remaining if ended else None

    def line(self) -> str:
        """How far all are."""
        now = self.counts()
        said = []
        for state in STATES:
            if now[state]:
                said.append(f"{now[state]} {state}")
        left = self.left()
        if left is not None and now["running"] + now["waiting"]:
            said[-1] += f"; about {timedelta(seconds=round(left))} left"
        return ", ".join(said)

    def table(self) -> Group:
        """The line, and the names of jobs that run or failed, with reasons."""
        rows = Table(box=None, show_header=False, pad_edge=False)
        for job in self.jobs:
            state = job.state
            if state in ("running", "failed") and rows.row_count < MOST:
                reason = job.end().reason
                rows.add_row(Text(state), Text(printable(job.name)), Text(printable(reason)))
        return Group(Text(self.line(), style="bold"), rows)


@contextlib.contextmanager
def shown(jobs: Sequence[Job], table: bool) -> Iterator[Callable[[Job], None]]:
    """A context that shows how far jobs are; what it gives is told each job that has ended."""
    if not table:
        yield lambda job: None
        return
    progress = Progress(jobs)
    # The stream itself: jobs that run in this process redirect the standard one.
    console = PrintableConsole(file=sys.stderr)
    if console.is_terminal:
        with Live(get_renderable=progress.table, console=console, refresh_per_second=1):
            yield lambda job: None
        return

    def line(job: Job) -> None:
        reason = job.end().reason
        said = f"{job.name}: {job.state}" + (f" ({reason})" if reason else "")
        console.print(Text(printable(f"{said}; {progress.line()}")), soft_wrap=True)

    yield line
