"""The plan of an analysis: measurements in the order of their needs, their sweeps run together."""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from icl_interp.analyses.bench import Bench
from icl_interp.analyses.measurement import Asked, Measurement, sweeps_in
from icl_interp.errors import InputError
from icl_interp.probes.sweep import Sweep, n_read
from icl_interp.products import fast

# Told what is under way, and how much of how much of it is done.
Watch = Callable[[str, int, int], object]


@dataclass
class _Open:
    """A measurement that has asked and waits for its answers."""

    measurement: Measurement[Any]
    needed: list[Any]
    asked: Asked


@fast()
def take(
    measurements: Sequence[Measurement[Any]],
    lab: Bench,
    results: MutableMapping[str, Any],
    errors: MutableMapping[str, Exception],
    watch: Watch | None = None,
) -> None:
    """Take measurements: adds their results, and the errors of those that failed, as they come.

    Level by level (`levels`): the sweeps that all measurements of a level ask for are run together,
    so that contexts that several ask about are read once. What one asks for, and an error in it,
    is nothing to the others; a measurement whose need failed has the error of that need.

    Raises:
        InputError: measurements need one another in a circle.
    """
    begun = 0
    ended = 0
    for level in levels(measurements):
        # Those that ask for nothing are measured as they come, the others wait.
        waiting = []
        for one in level:
            if watch:
                watch(one.name, begun, len(measurements))
            opened = _begun(one, lab, results, errors)
            waiting += [opened] if opened else []
            begun += 1
        ended += len(level) - len(waiting)

        failed = _run([sweeps_in(one.asked) for one in waiting], lab, watch)

        # Each is let go once it is reduced: what its probes recorded takes memory.
        for error in failed:
            opened = waiting.pop(0)
            if watch:  # reducing may take longer than the sweeps
                watch(opened.measurement.name, ended, len(measurements))
            _end(opened, error, lab, results, errors)
            ended += 1


def levels(measurements: Sequence[Measurement[Any]]) -> list[list[Measurement[Any]]]:
    """Measurements in levels: each needs only what stands in a level before its own.

    Needs that are not among them count as taken.

    Raises:
        InputError: measurements need one another in a circle.

    >>> one = Measurement("one", print)
    >>> two = Measurement("two", print, needs=(one,))
    >>> [[m.name for m in level] for level in levels([two, one, Measurement("three", print)])]
    [['one', 'three'], ['two']]
    """
    order: TopologicalSorter[str] = TopologicalSorter()
    names = {one.name for one in measurements}
    for one in measurements:
        order.add(one.name)
        for need in one.needs:
            if need.name in names:
                order.add(one.name, need.name)
    try:
        order.prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise InputError(
            f"these measurements need one another, so none can be the first: {circle}"
        ) from error
    # Within a level they stand as they were given.
    found = []
    while order.is_active():
        ready = order.get_ready()
        found.append([one for one in measurements if one.name in ready])
        order.done(*ready)
    return found


def _begun(
    one: Measurement[Any],
    lab: Bench,
    results: MutableMapping[str, Any],
    errors: MutableMapping[str, Exception],
) -> _Open | None:
    """A measurement that has asked; None where it is done: it asks for nothing, or has failed."""
    if one.name in results or one.name in errors:  # another one has measured it on its own
        return None
    try:
        needed = []
        for need in one.needs:
            if need.name in errors:
                raise errors[need.name]
            needed.append(results[need.name])
        if one.asks is not None:
            return _Open(one, needed, one.ask(lab, needed))
        results[one.name] = one.reduce(lab, None, needed)
    except Exception as error:
        errors[one.name] = error
    return None


def _end(
    opened: _Open,
    failed: Exception | None,
    lab: Bench,
    results: MutableMapping[str, Any],
    errors: MutableMapping[str, Exception],
) -> None:
    """Keep the result of a measurement whose sweeps have run, or its error."""
    one = opened.measurement
    if one.name in results or one.name in errors:  # another one has measured it on its own
        return
    try:
        if failed:
            raise failed
        results[one.name] = one.reduce(lab, opened.asked, opened.needed)
    except Exception as error:
        errors[one.name] = error


def _run(
    asked: Sequence[Sequence[Sweep]], lab: Bench, watch: Watch | None
) -> list[Exception | None]:
    """Have the lab answer the sweeps of all measurements, together; returns the error of each.

    Where that fails, one measurement after another, so that an error is its own.
    """
    every = []
    for sweeps in asked:
        every += sweeps
    new = lab.unanswered(every)
    done = 0
    total = n_read(new)

    def tick(n: int) -> None:
        nonlocal done
        done += n
        if watch:
            watch(f"{len(new)} sweeps over {total} contexts", done, total)

    try:
        lab.answers(new, tick)
    except Exception as error:
        if len(asked) == 1:
            return [error]
        errors = []
        for sweeps in asked:
            errors += _run([sweeps], lab, watch)
        return errors
    return [None] * len(asked)
