"""The claims that are registered: every report has a finding on each of them."""

from collections.abc import Iterable
from typing import Any

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.measurement import Measurement, check_distinct, with_needs
from icl_interp.errors import InputError, shown
from icl_interp.registers import View

REGISTRY: View[Claim] = View("claim", lambda study: {claim.id: claim for claim in study.claims})


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
    ids = {claim.id for claim in new}
    stay = [claim for claim in REGISTRY.values() if claim.id not in ids]
    taken: dict[str, Measurement[Any]] = {}
    for claim in (*stay, *new):
        for m in with_needs((*claim.measurements, *claim.control)):
            known = taken.get(m.name)
            if known is None or not _one_place(known, m):
                check_distinct(taken, m)


def _one_place(one: Measurement[Any], other: Measurement[Any]) -> bool:
    """Whether two measurements are by functions of one name in one module."""
    first, second = (
        (getattr(m.function, "__module__", None), getattr(m.function, "__qualname__", None))
        for m in (one, other)
    )
    return first == second and None not in first and "<lambda>" not in str(first[1])


def select(ids: tuple[str, ...] | list[str] | None) -> list[Claim]:
    """The registered claims with these ids, in the order of registration; all for None."""
    for name in ids or ():
        REGISTRY.named(name)
    return [claim for name, claim in REGISTRY.items() if ids is None or name in ids]
