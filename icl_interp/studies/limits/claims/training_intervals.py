"""What the claims of `limits` about training intervals share: groups of seeds by interval.

They are about kinds of training, so each compares groups of several seeds (`claims.kinds`), one for
each U(-a, a).
"""

from collections.abc import Sequence

from icl_interp.analyses.claim import Remarks
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import Arm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import own_interval


def needs_an_interval(facts: Facts) -> str | None:
    """Why training intervals cannot be compared; None where they can."""
    if not any(role.kind == "interval" for role in facts.companions):
        return (
            "The claim compares training intervals; no matched model of another one is at hand "
            "(pass companions=, or `icl-interp complete RUN`)."
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
    names = dict.fromkeys(table["arm"])
    arms = []
    enough = []
    out = []
    for name in names:
        arm = Arm.of(table, name)
        arms.append(arm)
        if len(arm) >= seeds.LEAST:
            enough.append(arm)
        else:
            out.append(_left_out(arm))
    own = Arm.of(table, seeds.OWN)
    if len(own) >= seeds.LEAST and len(enough) > 1:
        arms = sorted(enough, key=lambda arm: arm.a)
    return arms, "; ".join(out)


def _left_out(arm: Arm) -> str:
    name = arm.name.replace("interval ", "a = ")
    if arm.name == seeds.OWN:
        name = "the model's own kind"
    counted = f"{name}, {len(arm)} of {seeds.LEAST} seeds"
    return ", ".join([counted, *arm.out])


def too_few(arms: Sequence[Arm], out: str) -> Remarks:
    """What stands beside intervals that cannot be compared: what to train, and what is left out."""
    names = []
    for arm in arms:
        names.append(f"a = {arm.a:g}" if len(arm) else arm.name)
    needed = f"The model's own training interval and another one need {seeds.LEAST} seeds."
    return Remarks(
        scope=kinds.SCOPE,
        open_because=f"{needed} {kinds.HOW_TO_TRAIN}",
        details=(*kinds.left_out(arms, names), *rows_left_out(out)),
    )


def _half_width(arm: Arm) -> str:
    return f"{arm.a:g}"


def compared(arms: Sequence[Arm]) -> str:
    """Which models were compared, as a sentence."""
    listed = ", ".join(map(_half_width, arms))
    return f"The groups are trained on U(-a, a), a = {listed}, and have {kinds.counted(arms)}."


def runs_compared(arms: Sequence[Arm], columns: Sequence[str]) -> tuple[kinds.Row, ...]:
    """A row a run, by its interval."""
    return kinds.details(arms, [f"a = {arm.a:g}" for arm in arms], columns)


def rows_left_out(out: str) -> tuple[kinds.Row, ...]:
    """A row on intervals that were left out, if any were."""
    return ({"intervals left out": out},) if out else ()
