"""Reports on bundled models with the settings of `icl-interp analyze`, once a test run.

Each takes about a minute.
"""

import functools
from dataclasses import replace

from filelock import FileLock
from small_reports import SHARED

import icl_interp
from icl_interp.report import Report


@functools.cache
def report_of(name: str) -> Report:
    """Made by one process of a test run; the others read what it stored, to the last bit."""
    folder = SHARED[0] / f"bundled_{name}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            icl_interp.analyze(name, progress=False).to_json(folder / "report.json")
    return replace(Report.load(folder), file=None)
