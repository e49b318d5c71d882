"""What the command line makes of its options: names with commas, formats, folders, and tasks."""

import datetime
import os
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError, unknown

FORMATS = ("html", "json", "png", "svg", "pdf")
SIGMAS = (1e-9, 1e9)  # so that no square leaves the range of float32


def formats(text: str) -> list[str]:
    """The formats that --format names."""
    chosen = listed(text, "--format") or []
    for name in chosen:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    return chosen


def listed(text: str | None, option: str) -> list[str] | None:
    """The names in an option, with commas between them; None where it is left out."""
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise InputError(
            f"{option} is empty: name one or several, with commas between them, or leave the "
            "option out"
        )
    return parts or None


def output(out: Path | None, name: str) -> Path:
    """The output folder: checked before the computation, made when there is something to write."""
    if out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("icl-interp-out") / f"{name}-{stamp}"
    nearest = out.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InputError(f"cannot write to {out}: {nearest} is a file; choose another --out")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"cannot write to {out}: no permission in {nearest}; choose another --out")
    return out


def main_file(folder: Path, formats: list[str]) -> Path:
    """What to open first of a report that was written in these formats."""
    name = next((f"report.{f}" for f in ("html", "json") if f in formats), "figures")
    return (folder / name).resolve()


def task_asked(task: Any, sigma: float, new_functions: bool, shift: str | None) -> Any:
    """The task that `evaluate` asks about: a model's own, or one that was changed.

    Args:
        task: the model's own.
        sigma: scale of the coefficients.
        new_functions: whether to leave the pool of functions that the task has.
        shift: the name of another distribution of prompts.

    Raises:
        InputError: the task does not have what is to be changed, or sigma is out of range.
    """
    from icl_interp.tasks import shifts
    from icl_interp.tasks.base import Scalable

    least, most = SIGMAS
    if not least <= sigma <= most:
        raise InputError(f"--sigma must be a number from {least:g} to {most:g}, but got {sigma:g}")
    if sigma != 1:
        if not isinstance(task, Scalable):
            raise InputError(
                f"--sigma scales coefficients, which a {type(task).__name__} task does not have"
            )
        task = task.scaled(sigma)
    if new_functions:
        if task.n_tasks is None:
            raise InputError(
                "--new-functions leaves the pool of a task (its n_tasks), but this task has none: "
                "all of its functions are new, so leave the option out"
            )
        task = task.fresh()
    return task if shift is None else shifts.shifted(task, shift)
