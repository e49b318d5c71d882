"""Jobs run on an engine: what is missing is made, what fails is listed, and the rest goes on."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from icl_interp.errors import InputError, unknown
from icl_interp.jobs.job import End, Job
from icl_interp.jobs.table import shown
from icl_interp.plain_yaml import parse_yaml

VANISHED = "it ended, but its folder holds no result: was the folder removed, or is its disk gone?"
ENGINES = {"local": "local", "ray": "on_ray", "slurm": "on_slurm"}


@dataclass(frozen=True)
class Engine:
    """Where jobs run.

    Attributes:
        name: "local", "ray" or "slurm".
        settings: of the engine, such as `processes`: the arguments of `run` in its module.
    """

    name: str = "local"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise unknown("engine", self.name, ENGINES)
        takes = inspect.signature(self._module().run).parameters
        known = list(takes)[1:]
        for key in self.settings:
            if key not in known and "settings" not in known:
                raise unknown(f"setting of the engine {self.name}", key, known)

    def _module(self) -> ModuleType:
        return importlib.import_module(f"icl_interp.jobs.{ENGINES[self.name]}")

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Each job as it ends, with the reason why the engine lost it; empty where it did not."""
        return self._module().run(jobs, **self.settings)


HERE = Engine("local", {"processes": 1})


def asked(name: str, settings: Iterable[str] = ()) -> Engine:
    """The engine that the command line names.

    >>> asked("local", ["processes=2"]).settings
    {'processes': 2}
    """
    found: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not (equals and key):
            raise InputError(f"--engine takes key=value, such as processes=2, but got {text!r}")
        found[key] = parse_yaml(value, f"--engine {key}")
    return Engine(name, found)


def run(
    jobs: Sequence[Job],
    engine: Engine = HERE,
    *,
    watch: Callable[[str], object] | None = None,
    table: bool = False,
) -> list[End]:
    """Make what is missing, and say how each job ended, in the order of the jobs.

    Called again after an interruption, it makes what is missing and repeats nothing. A job that
    failed is tried again.

    Args:
        jobs: each with a folder of its own.
        engine: where they run.
        watch: is told the name of each job as it ends.
        table: show a live table, or lines where there is no terminal, on standard error.

    Raises:
        InputError: two jobs share a folder, or a folder holds another job's result.
    """
    folders = {job.folder.absolute() for job in jobs}
    if len(folders) < len(jobs):
        raise InputError("two jobs have the same folder: give each one of its own")
    missing = []
    for job in jobs:
        if job.end().state != "done":
            job.begin_again()
            missing.append(job)
    told: dict[Path, str] = {}  # what the engine said of each that ended, which a folder may lose
    with shown(jobs, table and bool(missing)) as ended:
        for job, lost in engine.run(missing) if missing else ():
            told[job.folder] = lost
            if lost and job.state != "done":
                with contextlib.suppress(InputError):
                    job.fail(lost)
            ended(job)
            if watch:
                watch(job.name)
    ends = []
    for job in jobs:
        end = job.end()
        if end.state == "waiting" and job.folder in told:
            end = End(job, "failed", reason=told[job.folder] or VANISHED)
        ends.append(end)
    return ends


def results(ends: Sequence[End]) -> list[Any]:
    """What jobs returned.

    Raises:
        InputError: some failed; the message tells how many, and the reason of the first.
    """
    failed = [end for end in ends if end.state != "done"]
    if failed:
        first = failed[0]
        raise InputError(
            f"{len(failed)} of {len(ends)} jobs failed, the first is {first.job.name}: "
            f"{first.reason} (more in {first.job.folder}); the others are done and were kept"
        )
    return [end.result for end in ends]
