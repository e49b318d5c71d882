"""The claims that are registered: every report has a finding on each of them."""

from collections.abc import Iterable
from typing import Any

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.measurement import Measurement, check_distinct, with_needs
from icl_interp.errors import InputError, shown
from icl_interp.registers import View


def _by_id(study: Any) -> dict[str, Claim]:
    return {claim.id: claim for claim in study.claims}


REGISTRY: View[Claim] = View("claim", _by_id)


def register(claim: Claim) -> Claim:
    """Add a claim: it then appears in every report. The id must be "study.claim", and no study's.

    A claim of one's own that is registered again, as by a notebook cell that runs a second time,
    replaces the first.

    Raises:
        InputError: the id is malformed or that of a study's claim, or a measurement has the name of
            another one.
    """
    check_id(claim)
    if REGISTRY.get(claim.id) is claim:
        return claim
    check_measurements([claim])
    if REGISTRY.alone(claim.id):
        REGISTRY[claim.id] = claim  # at its place in reports
    else:
        REGISTRY.add(claim.id, claim)
    return claim


def check_id(claim: Claim) -> None:
    """Refuse an id that does not name a study and a claim."""
    if claim.id.count(".") != 1 or not all(claim.id.split(".")):
        raise InputError(f"a claim's id looks like 'study.claim', but got {shown(claim.id)}")


def check_measurements(new: Iterable[Claim]) -> None:
    """Refuse new claims with a measurement that has the name of another one.

    Two of one place in the code are one that was defined again: claims of a cell that runs a second
    time are replaced one after another.

    Raises:
        InputError: two measurements have one name.
    """
    new = list(new)
    stay = dict(REGISTRY.items())
    for claim in new:
        stay.pop(claim.id, None)
    taken: dict[str, Measurement[Any]] = {}
    for claim in (*stay.values(), *new):
        every = (*claim.measurements, *claim.control)
        for measurement in with_needs(every):
            known = taken.get(measurement.name)
            if known is None or not _one_place(known, measurement):
                check_distinct(taken, measurement)


def _one_place(one: Measurement[Any], other: Measurement[Any]) -> bool:
    """Whether two measurements are by functions of one name in one module."""
    place = _place(one)
    if place != _place(other) or None in place:
        return False
    return "<lambda>" not in str(place[1])


def _place(measurement: Measurement[Any]) -> tuple[str | None, str | None]:
    """The module of a measurement's function, and its name there."""
    function = measurement.function
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    return module, name


def select(ids: tuple[str, ...] | list[str] | None) -> list[Claim]:
    """The registered claims with these ids, in the order of registration; all for None."""
    if ids is None:
        return list(REGISTRY.values())
    for name in ids:
        REGISTRY.named(name)
    return [claim for name, claim in REGISTRY.items() if name in ids]
