"""Commands of this package, run as jobs: many models to analyse, many experiments to reproduce."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_interp.jobs import job
from icl_interp.jobs import run as jobs
from icl_interp.report.report import Report
from icl_interp.reproduction import run

Command = tuple[str, tuple[str, ...], dict[str, Any]]  # its name, words and options


def analyzed(
    places: Mapping[str, Path], asked: dict[str, Any], base: Path, on: str, engine: list[str] | None
) -> tuple[list[Any], list[Path], dict[str, str]]:
    """Models analysed as jobs: reports, their folders, and what failed."""
    commands = {}
    for source, folder in places.items():
        commands[source] = ("analyze", (source,), asked | {"out": folder.absolute()})
    failed = as_jobs(commands, base, on, engine)
    folders = [folder for source, folder in places.items() if source not in failed]
    return [Report.load(folder) for folder in folders], folders, failed


def as_jobs(
    commands: Mapping[str, Command], base: Path, on: str, engine: list[str] | None
) -> dict[str, str]:
    """Run commands of this package as jobs; those that failed, with the reason of each."""
    work = []
    for title, (name, words, options) in commands.items():
        arguments = {"argv": job.own_command(name, *words, **options), "place": Path.cwd()}
        work.append(job.Job(title, job.part(base / "jobs", title), job.command, arguments))
    ends = jobs.run(work, jobs.asked(on, engine or ()), table=True)
    return {end.job.name: end.reason for end in ends if end.state != "done"}


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
    failed: dict[str, str] = {}
    if train:
        models = asked["models"] or ()
        work = run.trainings(names, folder, asked["scale"], models, asked["device"])
        ends = jobs.run(work, jobs.asked(on, engine or ()), table=True)
        failed = {end.job.name: end.reason for end in ends if end.state != "done"}
    commands = {}
    for name in names:
        options = {**asked, "out": folder.absolute()}
        commands[name] = ("reproduce", (name, "--no-train"), options)
    failed |= as_jobs(commands, folder, on, engine)
    return run.written(folder, [name for name in names if name not in failed]), failed
