"""One kind of job: a function, its arguments, a folder, and a file there that says it is done.

What a job has come to is read off its folder, by whatever process and machine. So an engine only
has to start jobs, and a call that was interrupted is repeated as it was: what is done stays done.
"""

import contextlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from filelock import FileLock

from icl_interp.errors import InputError, printable
from icl_interp.provenance import canonical, encode, finite, read_json, write_json

SCHEMA = "icl_interp.job/1"
DONE = "done.json"
FAILED = "failed.json"
STARTED = "started.json"
LOG = "log.txt"
LOCK = ".job.lock"
MADE_BY = "made_by.json"
State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True)
class Job:
    """A call whose result is kept.

    Attributes:
        name: for people.
        folder: of this job alone; all machines that work on it must see it.
        work: a function of a module, which engines find by its name. It returns plain data.
        arguments: of the function: plain data, dataclasses and paths.
        gpus: how many it needs.
    """

    name: str
    folder: Path
    work: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0

    @property
    def key(self) -> str:
        """What the result depends on, as text; paths do not count: folders may be moved."""
        plain = {key: v for key, v in self.arguments.items() if not isinstance(v, Path)}
        work = f"{self.work.__module__}.{self.work.__qualname__}"
        return canonical(finite(encode({"work": work, "arguments": plain})))

    @property
    def state(self) -> State:
        """What the folder says."""
        if (self.folder / DONE).exists():
            return "done"
        if (self.folder / FAILED).exists():
            return "failed"
        return "running" if (self.folder / STARTED).exists() else "waiting"

    def begin_again(self) -> None:
        """Forget that the job failed, or that it was running when its process was ended."""
        with contextlib.suppress(OSError):  # a folder that is none: the job will say so
            for name in (FAILED, STARTED):
                (self.folder / name).unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        """Say why there is no result."""
        write_json(self.folder / FAILED, {"schema": SCHEMA, "reason": reason})

    def end(self) -> "End":
        """What came out.

        Raises:
            InputError: the folder holds the result of another job.
        """
        state = self.state
        if state == "done":
            stored = read_json(self.folder / DONE)
            if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
                raise InputError(f"{self.folder / DONE} is not the result of a job: delete it")
            if stored.get("job") != self.key:
                raise InputError(
                    f"{self.folder} holds the result of a job other than {self.name}: name "
                    "another folder, or delete this one"
                )
            return End(self, state, stored["result"], stored["seconds"])
        if state == "failed":
            return End(self, state, reason=str(read_json(self.folder / FAILED)["reason"]))
        return End(self, state)


@dataclass(frozen=True)
class End:
    """How a job ended.

    Attributes:
        job: itself.
        state: "done" or "failed"; otherwise it has not ended.
        result: what the function returned, as JSON holds it.
        seconds: that it took.
        reason: why it failed, in a line.
    """

    job: Job
    state: State
    result: Any = None
    seconds: float = 0.0
    reason: str = ""


def perform(job: Job) -> str:
    """Do a job here, unless it is done, and keep its result, or the reason why there is none.

    The lock goes with its process. So a job that an engine starts a second time, because it takes
    the first process for lost, waits for that one and then finds the result.

    Returns:
        Why nothing could be kept in the folder; empty where it was.
    """
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(job.folder / LOCK):
            if job.state != "done":
                _kept(job)
    except (OSError, InputError) as error:  # a full disk, or a folder that has vanished
        return reason_of(error)
    return ""


def _kept(job: Job) -> None:
    """Do a job, whose folder is there and locked."""
    started = time.time()
    write_json(job.folder / STARTED, {"schema": SCHEMA, "at": started})
    try:
        result = _logged(job)
        made = {"schema": SCHEMA, "seconds": time.time() - started, "result": result}
        write_json(job.folder / DONE, {"job": job.key, **made})
    except Exception as error:  # of whatever kind: it is listed, and other jobs go on
        job.fail(reason_of(error))
    finally:
        (job.folder / STARTED).unlink(missing_ok=True)


def _logged(job: Job) -> Any:
    """The result; what is printed goes to a file, and so does the trace of an error."""
    with (
        open(job.folder / LOG, "a", encoding="utf-8", errors="backslashreplace") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            return job.work(**job.arguments)
        except Exception:
            log.write(printable(traceback.format_exc()))
            raise


def reason_of(error: Exception) -> str:
    """An error in a line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def command(argv: Sequence[str], place: Path | None = None) -> int:
    """The work of a job that is a command: run it; its output goes to the job's log.

    Args:
        argv: the program and its arguments.
        place: the folder in which it runs.

    Raises:
        InputError: it ends with another exit status than 0.
    """
    ended = subprocess.run(
        argv, cwd=place, capture_output=True, text=True, errors="replace", check=False
    )
    sys.stdout.write(f"{ended.stdout}\n{ended.stderr}\n")
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        raise InputError(last)
    return ended.returncode


def own_command(name: str, *words: str, **options: Any) -> list[str]:
    """A command of this package, as an argument list; options that are None are left out.

    >>> own_command("analyze", "affine", n_prompts=64, setting=["a=1", "b=2"], seed=None)[1:]
    ['-m', 'icl_interp', 'analyze', 'affine', '--n-prompts=64', '--setting=a=1', '--setting=b=2']
    """
    argv = [sys.executable, "-m", "icl_interp", name, *words]
    for key, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                argv.append(f"--{key.replace('_', '-')}={one}")
    return argv


def kept(folder: Path, key: str, make: Callable[[], Any]) -> Any:
    """The plain data that a folder keeps under a name; made and kept where there are none."""
    path = Path(f"{part(folder, key)}.json")
    if not path.exists():
        write_json(path, make())
    return read_json(path)


def part(folder: Path, key: str) -> Path:
    """Where a folder keeps the part of this name; two names never share a place.

    >>> part(Path("out"), "a/b: c").name
    'a%2Fb%3A c.part'
    """
    return folder / f"{quote(key, safe=' ,=()+')}.part"


def claim_folder(folder: Path, made_by: Mapping[str, Any]) -> None:
    """Make a folder the one for parts that are made like this.

    Args:
        folder: with parts, empty, or not there yet.
        made_by: what parts depend on besides their name.

    Raises:
        InputError: it keeps parts that were made otherwise.
    """
    path = folder / MADE_BY
    if not path.exists():
        write_json(path, made_by)
        return
    there = read_json(path)
    if not isinstance(there, dict):
        there = {}
    other = [name for name in made_by if there.get(name) != made_by[name]]
    if other:
        raise InputError(
            f"{folder} holds parts of a run with other {' and '.join(other)}: name another "
            "folder, or delete this one"
        )
