"""The claim of `limits` that a model without normalisation is the better one in distribution."""

from icl_interp.analyses.answer import bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Decision, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.far_words import NO, YES
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES
from icl_interp.studies.limits.claims.norms import WITH, WITHOUT, arms_of, needs_the_other_norm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import OWN_ERROR, SIGMAS

NO_NORM = Criterion(
    (Condition("ratio", "", (0.0, SMALLER), (LARGER, INF), scale="log"),),
    kinds.PRECONDITIONS,
    terms=(
        "Squared error in distribution of models trained without normalisation, over that of models "
        f"trained with it, on one common sample. Supported if it is at most {SMALLER} times. "
        f"Contradicted if it is at least {LARGER} times."
    ),
)


def no_norm(results: Results, facts: Facts) -> Evidence:
    """Are runs without a norm the better ones in distribution?"""
    arms = arms_of(results, seeds.functions.name, facts)
    columns = [f"functions {s:g}" for s in SIGMAS]
    quantities = kinds.prepared(arms, columns, apart=True)
    if not kinds.comparable(quantities):
        too_few = kinds.needed(arms, (WITHOUT, WITH))
        return Evidence(
            quantities, too_few, scope=SCOPE, details=kinds.left_out(arms, (WITHOUT, WITH))
        )
    found = {s: kinds.times(*arms, f"functions {s:g}") for s in SIGMAS}
    name = "squared error without / with normalisation"
    quantities["ratio"] = Estimate.of(name, found[1.0], TIMES)
    scales, factors = (
        ", ".join(each)
        for each in zip(*((f"{s:g}", f"{found[s].value:.2f}") for s in SIGMAS[1:]), strict=True)
    )
    threshold = bound(
        NO_NORM, quantities, "ratio", f"at most {SMALLER} times", f"at least {LARGER} times"
    )
    says = (
        f"{_better(NO_NORM.decide(quantities))} Their squared error is "
        f"{kinds.in_brackets(found[1.0])} times that of models with normalisation ({threshold}; "
        f"{kinds.counted(arms)})."
    )
    caveat = f"On functions {scales} times as large as in training it is {factors} times that."
    scaled = [
        {"functions scaled by": s, name: i.value, "low": i.low, "high": i.high}
        for s, i in found.items()
        if s != 1
    ]
    control = {}
    if fresh := kinds.untrained(arms, [OWN_ERROR]):
        own, other = fresh
        control["ratio"] = Estimate.of(name, kinds.times(own, other, OWN_ERROR, fresh=True), TIMES)
    return Evidence(
        quantities,
        says,
        quantities["ratio"],
        f"{SCOPE}, in distribution",
        control=control,
        details=(*kinds.details(arms, (WITHOUT, WITH), columns), *scaled),
        caveat=caveat,
    )


def _better(decision: Decision) -> str:
    if decision.failed:
        return (
            "So it cannot be told whether models trained without normalisation make smaller errors "
            "in distribution."
        )
    if decision.verdict == YES:
        return "In distribution models trained without normalisation make smaller errors."
    if decision.verdict == NO:
        return "In distribution models trained without normalisation make larger errors."
    return (
        "The seeds do not decide whether models trained without normalisation make smaller errors "
        "in distribution."
    )


NO_NORM_BETTER_CLAIM = Claim(
    id="limits.no_norm_better",
    question="weights and training",
    short="In distribution a model without normalisation makes smaller errors.",
    quote=Quote(
        "Transformers without normalization can achieve better performance.",
        "Naim & Asher (2025), section 5, Observation 2, with Table 1",
        "The observation says 'can' and Table 1 has one model of each kind; the paragraphs before "
        "it limit the claim to inputs and functions as in training. There we compare several seeds "
        "of each kind and ask for errors that are at least a fifth smaller.",
    ),
    kind="learning",
    statement="In distribution a model without normalisation is the better one",
    source="Naim & Asher (2025), Observation 2 and Table 1",
    criterion=NO_NORM,
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=no_norm,
    excluded=needs_the_other_norm,
    figures=("shift",),
)
