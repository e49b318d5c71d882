"""Commands of this package, run as jobs: many models to analyse, many experiments to reproduce."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_interp.jobs import engine as engines
from icl_interp.jobs import job
from icl_interp.report.report import Report
from icl_interp.reproduction import run

Command = tuple[str, tuple[str, ...], dict[str, Any]]  # its name, words and options


def analyzed(
    places: Mapping[str, Path], asked: dict[str, Any], base: Path, on: str, engine: list[str] | None
) -> tuple[list[Any], list[Path], dict[str, str]]:
    """Models analysed as jobs: reports, their folders, and what failed.

    Args:
        places: the folder of each report, by what is analysed.
        asked: the options of each.
        base: keeps the jobs.
        on: where they run.
        engine: its settings.
    """
    commands = {}
    for source, folder in places.items():
        options = asked | {"out": folder.absolute()}
        commands[source] = ("analyze", (source,), options)
    failed = as_jobs(commands, base, on, engine)
    reports = []
    folders = []
    for source, folder in places.items():
        if source not in failed:
            folders.append(folder)
            reports.append(Report.load(folder))
    return reports, folders, failed


def as_jobs(
    commands: Mapping[str, Command], base: Path, on: str, engine: list[str] | None
) -> dict[str, str]:
    """Run commands of this package as jobs; those that failed, with the reason of each."""
    work = []
    here = Path.cwd()
    for title, (name, words, options) in commands.items():
        argv = job.own_command(name, *words, **options)
        folder = job.part(base / "jobs", title)
        one = job.Job(title, folder, job.command, {"argv": argv, "place": here})
        work.append(one)
    return _failed(work, on, engine)


def _failed(work: Sequence[job.Job], on: str, engine: list[str] | None) -> dict[str, str]:
    """Run jobs; the reasons of those that failed, by name."""
    used = engines.asked(on, engine or ())
    reasons = {}
    for end in engines.run(work, used, table=True):
        if end.state != "done":
            reasons[end.job.name] = end.reason
    return reasons


def reproduced(
    names: Sequence[str],
    folder: Path,
    asked: Mapping[str, Any],
    train: bool,
    on: str,
    engine: list[str] | None,
) -> tuple[list[Any], dict[str, str]]:
    """Experiments as jobs, after the models that they need: what was written, and what failed.

    Args:
        names: of the experiments.
        folder: where they are written.
        asked: the options of each: scale, models, seed, device.
        train: whether models that are missing are trained first.
        on: where jobs run.
        engine: its settings.
    """
    # First what experiments share: the models that are missing.
    failed: dict[str, str] = {}
    if train:
        models = asked["models"] or ()
        work = run.trainings(names, folder, asked["scale"], models, asked["device"])
        failed = _failed(work, on, engine)

    # Then each experiment, which finds its models there.
    commands = {}
    for name in names:
        options = {**asked, "out": folder.absolute()}
        commands[name] = ("reproduce", (name, "--no-train"), options)
    failed |= as_jobs(commands, folder, on, engine)
    done = []
    for name in names:
        if name not in failed:
            done.append(name)
    return run.written(folder, done), failed
