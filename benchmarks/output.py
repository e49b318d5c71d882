"""What is printed and what is written: the table, and the environment that it was measured in."""

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.fresh import ROOT
from benchmarks.measuring import Goal, Row, judged

COLOURS = {"not measured": "yellow", "missed": "red", "met": "green", "met, and the aim": "green"}
COLUMNS = (
    "what",
    "wall s",
    "processor s",
    "value",
    "range over turns",
    "by processor s",
    "goal",
    "judged",
)
TEXTS = ("what", "goal", "judged")
PARTS = 8  # shown of a run; the JSON has all
WIDTH = 150  # of a table that is not on a terminal


def environment(threads: int) -> dict[str, Any]:
    """What the numbers depend on: versions, processor, threads, load, date and commit.

    No host name, user or path.
    """
    from icl_interp import provenance  # it imports torch

    return {
        **provenance.environment(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
    }


def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system tells it."""
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if sys.platform == "darwin" and (name := _said("sysctl", "-n", "machdep.cpu.brand_string")):
        return name
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit that is checked out, "-dirty" behind it where files differ; None without git or outside a clone."""
    git = ("git", "-C", str(ROOT))
    if _said(*git, "rev-parse", "--show-prefix"):  # inside some other project's clone
        return None
    return _said(*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None


def _said(*command: str) -> str:
    """What a command prints; nothing where it is not there or fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def console() -> Console:
    """Where the table goes; wide enough for it where there is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDTH)


def show(to: Console, title: str, rows: Sequence[Row], judge: bool) -> None:
    """Print the rows of a benchmark.

    Args:
        to: where.
        title: above the table.
        rows: the lines.
        judge: say whether goals are met.
    """
    notes = dict.fromkeys(f"{row.unit}: {row.note}" for row in rows if row.note)
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.caption, table.caption_justify = "\n".join(notes), "left"
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in TEXTS else "right")
    for row in rows:
        word = judged(row.value, row.goal) if row.goal and judge else ""
        table.add_row(
            row.what,
            number(row.seconds.wall) if row.seconds else "",
            number(row.seconds.processor) if row.seconds else "",
            f"{number(row.value)} {row.unit}",
            ""
            if row.low is None or row.high is None
            else f"{number(row.low)} to {number(row.high)}",
            "" if row.processor is None else number(row.processor),
            goal_text(row.goal, row.unit) if row.goal else "",
            Text(word, style=COLOURS.get(word, "")),
        )
        for name, part in list((row.parts or {}).items())[:PARTS]:
            table.add_row(Text(f"  {name}"), number(part.wall), number(part.processor), style="dim")
    to.print(table)


def number(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal_text(goal: Goal, unit: str) -> str:
    """The goal in words."""
    aim = "" if goal.aim is None else f" (aim {goal.aim:g})"
    return f"{goal.kind} {goal.limit:g} {unit}{aim}"
