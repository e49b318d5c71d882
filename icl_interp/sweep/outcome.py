"""What comes of a sweep: a run folder and a report for each run, one table, one figure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp import pipeline
from icl_interp.analyses import registry
from icl_interp.devices import checked_device
from icl_interp.figures import files, sweeps
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import HERE, Engine
from icl_interp.jobs.job import End, Job, claim_folder
from icl_interp.provenance import encode, run_id, write_atomically, write_json
from icl_interp.report.comparison import Comparison
from icl_interp.report.html import rendered
from icl_interp.report.page import document
from icl_interp.report.report import Report
from icl_interp.results import make_table, to_dict
from icl_interp.sweep import groups
from icl_interp.sweep.plan import Plan
from icl_interp.training import trainer

ERROR = ("error", "low", "high", "r2")  # of a trained model, as its provenance has them


@dataclass(frozen=True)
class Outcome:
    """A sweep that has come to its end.

    Attributes:
        table: a row a run: what it changes, how it ended, its error and verdicts.
        comparison: of the reports, where there are two or more.
        failed: the runs without a result, with the reason of each.
    """

    table: DataFrame
    comparison: Comparison | None
    failed: Mapping[str, str]


def run(
    plan: Plan,
    out: Path,
    engine: Engine = HERE,
    *,
    watch: Callable[[str], object] | None = None,
    table: bool = False,
) -> Outcome:
    """Train and analyse all runs of a sweep, and write down what came out.

    A sweep that was interrupted goes on with the same folder.

    Args:
        plan: the runs.
        out: gets `runs/`, `reports/` and `jobs/` with a folder for each run, `table.json`,
            `table.csv`, `comparison.json`, `comparison.html` and `sweep.html`.
        engine: where runs are made.
        watch: is told the name of each run as it ends.
        table: show a live table.

    Raises:
        InputError: the folder keeps another sweep, a claim does not exist, or a device is not
            there.
    """
    if plan.analyze:
        registry.select(plan.analyze.get("claims"))
    if engine.name == "local":
        checked_device(plan.device)
    identities = {one.name: run_id(one.config) for one in plan.runs}
    claim_folder(out, {"runs": identities, "analyze": plan.analyze})
    groups.train(plan, out, engine, table)
    # A job a run: its training, where no group has done it, and its report.
    work = []
    for one in plan.runs:
        arguments = {
            "config": encode(one.config),
            "folder": out / "runs" / one.name,
            "report": out / "reports" / one.name,
            "asked": plan.analyze,
            "device": plan.device,
        }
        gpus = 0 if plan.device in (None, "cpu") else 1
        work.append(Job(one.name, out / "jobs" / one.name, trained, arguments, gpus))
    ends = jobs.run(work, engine, watch=watch, table=table)
    found = outcome(plan, ends, out)
    write(found, out)
    return found


def trained(
    config: dict[str, Any],
    folder: Path,
    report: Path,
    asked: Mapping[str, Any] | None,
    device: str | None,
) -> dict[str, Any]:
    """The work of one job: a training, and its report.

    Returns:
        The error of the model, and how many claims got which verdict.
    """
    checkpoint = trainer.train(config, folder, progress=False, device=device)
    error = checkpoint.provenance["in_distribution"]
    found: dict[str, Any] = {key: error[key] for key in ERROR}
    if asked is not None:
        made = pipeline.analyze(checkpoint, device=device, progress=False, **asked)
        made.save(report, ("html", "json"))
        verdicts = [finding.verdict for finding in made.findings]
        for verdict in sweeps.COUNTED:
            found[verdict] = verdicts.count(verdict)
    return found


def outcome(plan: Plan, ends: list[End], out: Path) -> Outcome:
    """What jobs gave, put together; each run stands once."""
    keys: list[str] = []
    for one in plan.runs:
        keys += [key for key in one.changes if key not in keys]
    measured = ERROR if plan.analyze is None else (*ERROR, *sweeps.COUNTED)
    columns: dict[str, list[Any]] = {}
    for name in ("run", *keys, "state", *measured, "seconds", "reason"):
        columns[name] = []
    # A row a run.
    failed = {}
    reports = []
    for one, end in zip(plan.runs, ends, strict=True):
        facts = {"run": one.name, "state": end.state, "seconds": end.seconds, "reason": end.reason}
        facts |= {**one.changes, **(end.result or {})}
        for name, column in columns.items():
            column.append(facts.get(name, math.nan if name in measured else None))
        if end.state != "done":
            failed[one.name] = end.reason
        elif plan.analyze is not None:
            reports.append(Report.load(out / "reports" / one.name))
    note = f"{len(ends)} runs of {plan.recipe}; errors in distribution, 95 % intervals"
    comparison = Comparison(tuple(reports)) if len(reports) > 1 else None
    return Outcome(make_table(columns, note=note), comparison, failed)


def write(found: Outcome, out: Path) -> None:
    """The tables, the comparison and the pages."""
    write_json(out / "table.json", to_dict(found.table))
    write_atomically(out / "table.csv", found.table.to_csv(index=False))
    if found.comparison:
        done = found.table[found.table["state"] == "done"]
        reports = out / "reports"
        folders = map(reports.joinpath, done["run"])
        found.comparison.save(out, list(folders))
    write_atomically(out / "sweep.html", page(found))


def page(found: Outcome) -> str:
    """A page with the error of each run, and a table with a row a run."""
    figure = sweeps.errors(found.table)
    divs = []
    if figure is not None:
        divs.append(files.to_div(figure, "figure-errors"))
    columns = set(found.table.columns)
    body = rendered(
        "sweep.html",
        note=found.table.attrs["note"],
        failed=found.failed,
        compared=found.comparison is not None,
        divs=divs,
        counted=list(filter(columns.__contains__, sweeps.COUNTED)),
        rows=found.table.to_dict("records"),
    )
    return document("sweep", body, divs, "table.json")
