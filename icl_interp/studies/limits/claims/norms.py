"""What the claims of `limits` about training without a norm share: runs with it and without."""

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import Arm
from icl_interp.studies.limits.measurements import seeds

WITHOUT, WITH = "no norm", "with norm"


def arms_of(results: Results, measurement: str, facts: Facts) -> tuple[Arm, Arm]:
    """Runs without and with a norm."""
    table = results[measurement]
    if facts.config.normalization_type:
        return Arm.of(table, WITHOUT), Arm.of(table, seeds.OWN)
    return Arm.of(table, seeds.OWN), Arm.of(table, WITH)


def needs_the_other_norm(facts: Facts) -> str | None:
    """Why runs with and without a norm cannot be compared; None where they can."""
    if reason := kinds.scalable(facts):
        return reason
    role = WITHOUT if facts.config.normalization_type else WITH
    if Role(role) in facts.companions:
        return None
    what = "without" if role == WITHOUT else "with"
    return (
        f"The claim compares training with and without normalisation; no matched model {what} it "
        "is at hand (pass companions=, or `icl-interp complete RUN`)."
    )
