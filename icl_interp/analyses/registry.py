"""The claims that are registered: every report has a finding on each of them."""

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.measurement import check_distinct
from icl_interp.errors import InputError, shown, unknown

REGISTRY: dict[str, Claim] = {}


def register(claim: Claim) -> Claim:
    """Add a claim: it then appears in every report. The id must be "study.claim" and new.

    Raises:
        InputError: the id is malformed or taken by another claim, or a measurement has the name of another one.
    """
    if claim.id.count(".") != 1 or not all(claim.id.split(".")):
        raise InputError(f"a claim's id looks like 'study.claim', but got {shown(claim.id)}")
    if REGISTRY.get(claim.id, claim) is not claim:
        raise InputError(f"a claim called {shown(claim.id)} is registered already: choose another id")
    taken = {m.name: m for other in REGISTRY.values() for m in (*other.measurements, *other.twin)}
    for m in (*claim.measurements, *claim.twin):
        check_distinct(taken, m)
    REGISTRY[claim.id] = claim
    return claim


def select(ids: tuple[str, ...] | list[str] | None) -> list[Claim]:
    """The registered claims with these ids, in the order of registration; all for None."""
    for name in ids or ():
        if name not in REGISTRY:
            raise unknown("claim", name, REGISTRY)
    return [claim for name, claim in REGISTRY.items() if ids is None or name in ids]
