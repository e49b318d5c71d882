"""The plan of an analysis: what all measurements ask for is run together, round by round."""

from collections.abc import Callable, Generator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from icl_interp.analyses.measurement import Measurement, Planned
from icl_interp.errors import InputError
from icl_interp.probes.sweep import Sweep, n_read
from icl_interp.products import fast

if TYPE_CHECKING:
    from icl_interp.analyses.lab import Lab

T = TypeVar("T")
# What a helper of measurements is: it asks as they do (`yield from helper(lab)`), and returns
# anything.
Numbers = Generator[tuple[Sweep, ...], Sequence[Tensor], T]
Watch = Callable[
    [str, int, int], object
]  # what is under way, and how much of how much of it is done


@dataclass
class _Open:
    """A measurement that waits for an answer."""

    name: str
    steps: Planned[Any]
    asked: tuple[Sweep, ...] = ()


@fast()
def take(
    measurements: Sequence[Measurement[Any]],
    lab: "Lab",
    results: MutableMapping[str, Any],
    errors: MutableMapping[str, Exception],
    watch: Watch | None = None,
) -> None:
    """Take measurements: adds their results, and the errors of those that failed, as they come.

    Every measurement runs until it asks for sweeps; these are run together, so that contexts that
    several ask about are read once; each gets its answers and goes on, until all have returned.
    What one asks for, and an error on the way, is nothing to the others.
    """
    lab.under_way |= {m.name for m in measurements}
    before = set(lab.under_way)
    waiting: list[_Open] = []
    try:
        for i, m in enumerate(measurements):
            if watch:
                watch(m.name, i, len(measurements))
            one = _Open(m.name, m.steps(lab))
            if _goes_on(one, None, lab, results, errors):
                waiting.append(one)
        while waiting:
            stuck = not any(one.asked for one in waiting) and not before - lab.under_way
            answers = (
                _stuck(waiting) if stuck else _answers([one.asked for one in waiting], lab, watch)
            )
            before = set(lab.under_way)
            still = []
            for one, answer in zip(waiting, answers, strict=True):
                if watch:  # what follows its sweeps may take longer than these
                    watch(one.name, len(measurements) - len(waiting), len(measurements))
                if _goes_on(one, answer, lab, results, errors):
                    still.append(one)
            waiting = still
    finally:
        lab.under_way -= {m.name for m in measurements}


def _goes_on(
    one: _Open,
    answers: Sequence[Tensor] | Exception | None,
    lab: "Lab",
    results: MutableMapping[str, Any],
    errors: MutableMapping[str, Exception],
) -> bool:
    """Whether a measurement asks again, once answered; if not, its result or error is kept."""
    if one.name in results or one.name in errors:  # another one has measured it on its own
        lab.under_way.discard(one.name)
        return False
    try:
        if isinstance(answers, Exception):
            one.asked = one.steps.throw(answers)
        else:
            one.asked = next(one.steps) if answers is None else one.steps.send(answers)
        _check(one)
        return True
    except StopIteration as end:
        results[one.name] = end.value
    except Exception as error:
        errors[one.name] = error
    lab.under_way.discard(one.name)
    return False


def _stuck(waiting: Sequence[_Open]) -> list[Sequence[Tensor] | Exception]:
    """The error of measurements of which each waits for another."""
    names = ", ".join(one.name for one in waiting)
    return [
        InputError(f"these measurements wait for one another, so none can go on: {names}")
        for _ in waiting
    ]


def _check(one: _Open) -> None:
    """Refuse what is no question."""
    if not (isinstance(one.asked, tuple) and all(isinstance(sweep, Sweep) for sweep in one.asked)):
        raise InputError(
            f"the measurement {one.name} yielded {type(one.asked).__name__}: ask with `yield from "
            "lab.ask(...)`, for several sweeps with `yield from together(...)`"
        )


def _answers(
    asked: Sequence[tuple[Sweep, ...]], lab: "Lab", watch: Watch | None
) -> list[Sequence[Tensor] | Exception]:
    """Predictions for all sweeps, run together; where that fails one by one.

    So each sweep that fails has its own error.
    """
    everything = [sweep for sweeps in asked for sweep in sweeps]
    done, total = 0, n_read(everything)

    def tick(n: int) -> None:
        nonlocal done
        done += n
        if watch:
            watch(f"{len(everything)} sweeps over {total} contexts", done, total)

    try:
        found = iter(lab.run(everything, tick))
        return [[next(found) for _ in sweeps] for sweeps in asked]
    except Exception as error:
        if len(asked) == 1:
            return [error]
        return [_answers([sweeps], lab, watch)[0] for sweeps in asked]
