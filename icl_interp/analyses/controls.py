"""Untrained controls, measured as far as verdicts need them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import CONTROLS, Measurement
from icl_interp.analyses.plan import Watch


def measure(
    lab: Lab,
    claims: Iterable[Claim],
    facts: Facts,
    beside: Sequence[Measurement[Any]] = (),
    watch: Watch | None = None,
    stage: Callable[[int], object] | None = None,
) -> dict[str, Exception]:
    """All that claims need, each measurement once; returns those that failed, with the error.

    Of the untrained controls the first is always measured, each further one only for claims whose
    verdict could still turn on it (`Claim.needs_another_control`): verdicts are the same as with
    all of them.

    Args:
        lab: the model; results of its controls are stored under `CONTROLS`.
        claims: those that apply.
        facts: about the model.
        beside: further measurements.
        watch: is told what is under way.
        stage: is told the number of a control, from 1, before it is measured.
    """
    claims = list(claims)
    wanted = {m.name: m for claim in claims for m in claim.measurements} | {
        m.name: m for m in beside
    }
    errors = lab.measure_all(list(wanted.values()), watch)
    for number, prefix in enumerate(CONTROLS[: lab.n_controls]):
        results = lab.results
        claims = [claim for claim in claims if claim.needs_another_control(results, facts)]
        asked = {m.name: m for claim in claims for m in claim.control}
        if asked:
            if stage:
                stage(number + 1)
            found = lab.controls[number].measure_all(list(asked.values()), watch)
            errors |= {prefix + name: error for name, error in found.items()}
    return errors
