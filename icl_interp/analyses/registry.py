"""The claims that are registered: every report has a finding on each of them."""

from typing import Any

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.measurement import Measurement, check_distinct
from icl_interp.errors import InputError, shown
from icl_interp.registers import Register, whole_or_not_at_all

REGISTRY: Register[Claim] = Register("claim")


def register(claim: Claim) -> Claim:
    """Add a claim: it then appears in every report. The id must be "study.claim" and new.

    Raises:
        InputError: the id is malformed or taken by another claim, or a measurement has the name of another one.
    """
    check_id(claim)
    if REGISTRY.get(claim.id) is claim:
        return claim  # again: a notebook cell run twice
    with whole_or_not_at_all():
        REGISTRY.add(claim.id, claim)
        check_measurements()
    return claim


def check_id(claim: Claim) -> None:
    """Refuse an id that does not name a study and a claim."""
    if claim.id.count(".") != 1 or not all(claim.id.split(".")):
        raise InputError(f"a claim's id looks like 'study.claim', but got {shown(claim.id)}")


def check_measurements() -> None:
    """Refuse two measurements of one name among the registered claims."""
    taken: dict[str, Measurement[Any]] = {}
    for claim in REGISTRY.values():
        for m in (*claim.measurements, *claim.twin):
            check_distinct(taken, m)


def select(ids: tuple[str, ...] | list[str] | None) -> list[Claim]:
    """The registered claims with these ids, in the order of registration; all for None."""
    for name in ids or ():
        REGISTRY.named(name)
    return [claim for name, claim in REGISTRY.items() if ids is None or name in ids]
