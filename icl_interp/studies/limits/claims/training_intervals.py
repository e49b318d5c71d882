"""What the claims of `limits` about training intervals share: groups of seeds by interval.

They are about kinds of training, so each compares groups of several seeds (`claims.kinds`), one for
each U(-a, a).
"""

from collections.abc import Sequence

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.results import rows_in
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import own_interval


def needs_an_interval(facts: Facts) -> str | None:
    """Why training intervals cannot be compared; None where they can."""
    if not any(role.kind == "interval" for role in facts.companions):
        return (
            "The claim compares training intervals; no matched model of another one is at hand "
            "(pass companions=)."
        )
    if own_interval(facts) is None:
        return (
            "The claim is about training on U(-a, a); this model's inputs and coefficients are not "
            "both from one."
        )
    return None


def by_interval(results: Results) -> tuple[list[Arm], str]:
    """Arms that have seeds enough, by their interval, ascending; and those left out, in a sentence.

    All arms are returned, the model's own first, where its own or all others have too few seeds:
    then there is nothing to say about the claim.
    """
    table = results[seeds.intervals]
    arms = [Arm.of(table, name) for name in dict.fromkeys(row["arm"] for row in rows_in(table))]
    enough = [arm for arm in arms if len(arm) >= seeds.LEAST]
    out = [_left_out(arm) for arm in arms if arm not in enough]
    said = "; ".join(out)
    asked = len(enough) > 1 and any(arm.name == seeds.OWN for arm in enough)
    return (sorted(enough, key=lambda arm: arm.a) if asked else arms), said


def _left_out(arm: Arm) -> str:
    name = (
        "the model's own kind" if arm.name == seeds.OWN else arm.name.replace("interval ", "a = ")
    )
    return ", ".join(
        filter(None, (f"{name}, {len(arm)} of {seeds.LEAST} seeds", ", ".join(arm.out)))
    )


def listed(arms: Sequence[Arm]) -> str:
    """The half-widths a of these arms, in words."""
    return ", ".join(f"{arm.a:g}" for arm in arms)


def too_few(arms: Sequence[Arm]) -> str:
    """What to train where too few seeds are at hand."""
    what = f"The model's own training interval and another one need {seeds.LEAST} seeds."
    return f"{what} {kinds.how_to_train([arm for arm in arms if len(arm) < seeds.LEAST])}"


def rows_left_out(arms: Sequence[Arm], out: str) -> tuple[kinds.Row, ...]:
    """Rows of the details on runs that were left out."""
    names = [f"a = {arm.a:g}" if len(arm) else arm.name for arm in arms]
    return (*kinds.left_out(arms, names), *([{"intervals left out": out}] if out else []))
