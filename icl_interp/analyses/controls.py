"""Untrained twins: made when they are asked for, and measured as far as verdicts need them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import TWINS, Measurement
from icl_interp.analyses.plan import Watch

if TYPE_CHECKING:
    from icl_interp.analyses.lab import Lab

SEEDS = (1, 2, 3)  # of the weights of untrained twins: two of three decide


class Twins:
    """The labs of untrained twins, each made when first asked for: most verdicts need one or two.

    There are three of them at most.

    It is no `Sequence`: whoever checks types at run time looks at an item of a sequence, which
    would make it.

    Args:
        make: makes the one with weights of this seed.

    Attributes:
        made: those that were asked for, by number.
    """

    def __init__(self, make: "Callable[[int], Lab]") -> None:
        self._make = make
        self.made: dict[int, Lab] = {}

    def __getitem__(self, number: int) -> "Lab":
        """One of them, by its number from 0."""
        if number not in self.made:
            self.made[number] = self._make(SEEDS[number])
        return self.made[number]

    def __iter__(self) -> "Iterator[Lab]":
        """All of them."""
        return (self[number] for number in range(len(SEEDS)))


def measure(
    lab: "Lab",
    claims: Iterable[Claim],
    facts: Facts,
    beside: Sequence[Measurement[Any]] = (),
    watch: Watch | None = None,
) -> dict[str, Exception]:
    """Everything that claims need, each measurement once; returns those that failed, with errors.

    Of the untrained twins the first is always measured, each further one only for claims whose
    verdict could still turn on it (`Claim.needs_another_twin`): verdicts are the same as with all
    of them.

    Args:
        lab: the model; results of its twins are stored under `TWINS`.
        claims: those that apply.
        facts: about the model.
        beside: further measurements.
        watch: is told what is under way.
    """
    claims = list(claims)
    wanted = {m.name: m for claim in claims for m in claim.measurements} | {
        m.name: m for m in beside
    }
    errors = lab.measure_all(list(wanted.values()), watch)
    for number, prefix in enumerate(TWINS):
        results = lab.results
        claims = [claim for claim in claims if claim.needs_another_twin(results, facts)]
        asked = {m.name: m for claim in claims for m in claim.twin}
        if asked:
            found = lab.twins[number].measure_all(list(asked.values()), watch)
            errors |= {prefix + name: error for name, error in found.items()}
    return errors
