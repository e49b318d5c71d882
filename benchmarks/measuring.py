"""How everything here is measured and judged: turns, ratios turn by turn, and goals."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

MB = 1e6  # bytes
Judgement = Literal["not measured", "missed", "met", "met, and the aim"]


@dataclass(frozen=True)
class Options:
    """What the command line asks of a benchmark.

    Attributes:
        turns: how often each variant is run; None for the benchmark's own number.
        quick: the smallest sizes, all in this process. The numbers then mean nothing.
        models: what `large` analyses: bundled models, or files of others; empty for the benchmark's
            own choice.
    """

    turns: int | None = None
    quick: bool = False
    models: tuple[str, ...] = ()

    def turns_or(self, usual: int) -> int:
        """The turns that were asked for, else 2 if quick, else the usual number."""
        return self.turns or (2 if self.quick else usual)


@dataclass(frozen=True)
class Goal:
    """A limit in the unit of what it is about, and perhaps a stricter aim on the same side."""

    limit: float
    kind: Literal["at most", "at least"] = "at most"
    aim: float | None = None


def judged(value: float, goal: Goal) -> Judgement:
    """Whether a value keeps a goal; the limit itself does.

    NaN stands for what could not be measured.
    """

    def keeps(limit: float) -> bool:
        return value <= limit if goal.kind == "at most" else value >= limit

    if math.isnan(value):
        return "not measured"
    if not keeps(goal.limit):
        return "missed"
    return "met, and the aim" if goal.aim is not None and keeps(goal.aim) else "met"


class Seconds(NamedTuple):
    """What a run took: by the clock, and of the processor (the threads of this process together)."""

    wall: float
    processor: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        what: what was measured.
        value: the median over turns, in `unit`; this is what the goal is about.
        unit: "x" (a ratio, of what `note` names), "s", "MB" or "verdicts".
        low, high: the range of the value over turns.
        turns: how many.
        seconds: medians over turns, where the row is about time.
        processor: the ratio of processor seconds, where the value is a ratio of wall seconds.
        note: what numbers of this unit say; the table has it below.
        parts: seconds of each part, where a run tells.
    """

    what: str
    value: float
    unit: Literal["x", "s", "MB", "verdicts"]
    low: float | None = None
    high: float | None = None
    turns: int = 1
    seconds: Seconds | None = None
    processor: float | None = None
    note: str = ""
    goal: Goal | None = None
    parts: Mapping[str, Seconds] | None = None

    def to_dict(self, judge: bool) -> dict[str, Any]:
        """The row as plain data, with the judgement of its goal if it is to be judged."""
        return {
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "range": None if self.low is None else [self.low, self.high],
            "turns": self.turns,
            "wall_seconds": self.seconds.wall if self.seconds else None,
            "processor_seconds": self.seconds.processor if self.seconds else None,
            "processor_ratio": self.processor,
            "note": self.note,
            "goal": vars(self.goal) if self.goal else None,
            "judgement": judged(self.value, self.goal) if self.goal and judge else None,
            "parts": {name: part._asdict() for name, part in self.parts.items()}
            if self.parts
            else None,
        }


def timed(run: Callable[[], object], repeats: int = 1) -> Seconds:
    """What one of `repeats` runs takes."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        run()
    return Seconds(
        (time.perf_counter() - wall) / repeats, (time.process_time() - processor) / repeats
    )


def take_turns(
    variants: Mapping[str, Callable[[], object]], turns: int, repeats: int = 1, warm_up: bool = True
) -> dict[str, list[Seconds]]:
    """Seconds of each variant, turn by turn: whatever else the machine does slows all variants of a turn alike.

    Every other turn goes through them in reverse order, because what ran before leaves its mark on
    memory and caches.

    Args:
        variants: by name.
        turns: how often each is timed.
        repeats: runs of a variant in its turn.
        warm_up: run each once more at the start, untimed.
    """
    for run in variants.values() if warm_up else ():
        run()
    times: dict[str, list[Seconds]] = {name: [] for name in variants}
    for turn in range(turns):
        for name in list(variants)[:: -1 if turn % 2 else 1]:
            times[name].append(timed(variants[name], repeats))
    return times


def median_seconds(times: Sequence[Seconds]) -> Seconds:
    """The medians of both kinds of seconds."""
    return Seconds(*(statistics.median(kind) for kind in zip(*times, strict=True)))


def ratio_row(
    what: str,
    over: Sequence[Seconds],
    under: Sequence[Seconds],
    *,
    note: str,
    goal: Goal | None = None,
    of: Sequence[Seconds] | None = None,
) -> Row:
    """A row with the ratio of two variants, taken turn by turn.

    Args:
        what: the variant that the row is about.
        over, under: seconds of the two; the ratio is over / under.
        note: what the ratio says.
        goal: of the ratio of wall seconds.
        of: whose seconds the row shows; by default those of `over`.
    """
    wall = [_ratio(a.wall, b.wall) for a, b in zip(over, under, strict=True)]
    processor = [_ratio(a.processor, b.processor) for a, b in zip(over, under, strict=True)]
    return Row(
        what=what,
        value=statistics.median(wall),
        unit="x",
        low=min(wall),
        high=max(wall),
        turns=len(wall),
        seconds=median_seconds(of or over),
        processor=statistics.median(processor),
        note=note,
        goal=goal,
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan  # a coarse clock may see no time pass
