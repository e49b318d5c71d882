"""The default `icl_interp.analyze` on a large and on a bundled model, each in a fresh process."""

import contextlib
import io
import re
import statistics
import sys
import tempfile
import time
from typing import Any

import torch

import icl_interp
from benchmarks import fresh
from benchmarks.fresh import Fresh
from benchmarks.measuring import MB, Goal, Options, Row, Seconds, median_seconds, timed
from benchmarks.sizes import PAPER, TINY, affine, untrained

TURNS = 3  # of the bundled model; the large one is analysed once
BUNDLED = "affine"
LARGE_SECONDS, LARGE_MEMORY, COLD_SECONDS = Goal(180, aim=90), Goal(1500), Goal(15, aim=12)
SHOWN = re.compile(r"\r(.+?): +(?:\d+%\||\d+it )")
FIRST, IMPORTS, PAGE = (
    "before the first measurement",
    "interpreter and imports",
    "figures, page and JSON",
)


class Phases(io.TextIOBase):
    """A terminal for the progress bar of `analyze` that records the seconds of each phase.

    A phase lasts until the next is announced; phases of one name add up.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, Seconds] = {}
        self._name, self._since = FIRST, _now()
        self._screen = sys.stderr

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if found := SHOWN.match(text):
            self.end(found[1])
        elif not text.startswith("\r"):
            self._screen.write(text)  # a warning, not the bar
        return len(text)

    def end(self, following: str = "") -> None:
        """Add up what is under way."""
        now, before = _now(), self.seconds.get(self._name, Seconds(0.0, 0.0))
        self.seconds[self._name] = Seconds(
            *(b + n - s for b, n, s in zip(before, now, self._since, strict=True))
        )
        self._name, self._since = following, now


def _now() -> Seconds:
    return Seconds(time.perf_counter(), time.process_time())


def analyze(source: str | None, quick: bool) -> dict[str, Any]:
    """Seconds of each phase of an analysis, and of its page.

    The model is a bundled one, or the large untrained one.
    """
    size = TINY if quick else PAPER
    model, task = (source, None) if source else (untrained(size), affine(size))
    less = {"n_prompts": 32, "claims": ("limits.layernorm_saturation",)} if quick else {}
    phases = Phases()
    with contextlib.redirect_stderr(phases):
        report = icl_interp.analyze(model, task, **less)
        phases.end()
    with tempfile.TemporaryDirectory() as folder:
        page = timed(lambda: report.save(folder, formats=("html", "json")))
    return {"phases": phases.seconds, "page": page}


def seconds_of(run: Fresh) -> Seconds:
    """All but the page, which `analyze` does not make."""
    page = Seconds(*run.result["page"])
    return Seconds(run.wall - page.wall, run.processor - page.processor)


def parts_of(run: Fresh) -> dict[str, Seconds]:
    """Seconds of each part, longest first."""
    parts = {IMPORTS: run.started, **run.result["phases"], PAGE: run.result["page"]}
    return {
        name: Seconds(*part) for name, part in sorted(parts.items(), key=lambda part: -part[1][0])
    }


def run(options: Options) -> list[Row]:
    """Seconds and peak memory of both."""

    def fresh_run(source: str | None) -> Fresh:
        return fresh.call(
            analyze,
            here=options.quick,
            threads=torch.get_num_threads(),
            source=source,
            quick=options.quick,
        )

    large = fresh_run(None)
    cold = [fresh_run(BUNDLED) for _ in range(options.turns_or(TURNS))]
    walls = [seconds_of(each).wall for each in cold]
    return [
        Row(
            what=f"untrained model: {TINY if options.quick else PAPER}",
            value=seconds_of(large).wall,
            unit="s",
            seconds=seconds_of(large),
            note="from a cold start, imports included",
            goal=LARGE_SECONDS,
            parts=parts_of(large),
        ),
        Row(
            what="its peak memory",
            value=large.peak / MB,
            unit="MB",
            note="of the process",
            goal=LARGE_MEMORY,
        ),
        Row(
            what=f"bundled model {BUNDLED}",
            value=statistics.median(walls),
            unit="s",
            low=min(walls),
            high=max(walls),
            turns=len(walls),
            seconds=median_seconds([seconds_of(each) for each in cold]),
            note="from a cold start, imports included",
            goal=COLD_SECONDS,
            parts=parts_of(cold[-1]),
        ),
        Row(
            what="its peak memory",
            value=statistics.median(each.peak for each in cold) / MB,
            unit="MB",
            turns=len(cold),
            note="of the process",
        ),
    ]
