"""Runs of a sweep that are trained together, a group as one job."""

from pathlib import Path
from typing import Any

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import Engine
from icl_interp.jobs.job import Job, part
from icl_interp.provenance import encode
from icl_interp.sweep.plan import Plan
from icl_interp.training import together


def train(plan: Plan, out: Path, engine: Engine, table: bool) -> None:
    """Train runs of one shape in groups, as jobs of their own, where the plan asks for it.

    What a group could not train is left to the job of each run, which says why. So a group that
    fails stops nothing.
    """
    if plan.together == 1:
        return
    work = []
    for group in together.groups([one.config for one in plan.runs], plan.together):
        if len(group) == 1:
            continue
        names = [plan.runs[place].name for place in group]
        # As jobs of single runs have them.
        arguments = {
            "configs": [encode(plan.runs[place].config) for place in group],
            "names": names,
            "folder": out / "runs",
            "device": plan.device,
        }
        name = f"{len(names)} runs together, from {names[0]}"
        gpus = 0 if plan.device in (None, "cpu") else 1
        work.append(Job(name, part(out / "jobs", name), trained, arguments, gpus))
    jobs.run(work, engine, table=table)


def trained(
    configs: list[dict[str, Any]], names: list[str], folder: Path, device: str | None
) -> list[str]:
    """The work of a group: the trainings of several runs, each in its own folder.

    Returns:
        Names of the runs that are trained.
    """
    outs = [folder / name for name in names]
    found = together.ends(configs, outs, device=device)
    return [name for name, end in zip(names, found, strict=True) if isinstance(end, Checkpoint)]
