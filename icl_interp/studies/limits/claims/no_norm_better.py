"""The claim of `limits` that a model without normalisation is the better one in distribution."""

from collections.abc import Mapping

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.norms import WITH, WITHOUT, arms_of, needs_the_other_norm
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import OWN_ERROR, SIGMAS

CRITERION = Criterion(
    (
        Condition(
            "ratio",
            "squared error without normalisation over that with it",
            at_most(SMALLER, least=0.0),
            at_least(LARGER),
            unit=TIMES,
            scale="log",
        ),
    ),
    kinds.PRECONDITIONS,
    terms="Models are trained with and without normalisation, several seeds of each, and all are "
    "measured on one sample in distribution. The number is a ratio of geometric means over seeds.",
)
COLUMNS = [f"functions {sigma:g}" for sigma in SIGMAS]  # the first is as in training


def _arms(results: Results, facts: Facts) -> tuple[Arm, Arm]:
    return arms_of(results, seeds.functions.name, facts)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many times the errors of runs with a norm those of runs without one are."""
    arms = _arms(results, facts)
    found = kinds.prepared(arms, COLUMNS, apart=True)
    if kinds.comparable(found):
        found["ratio"] = kinds.times(*arms, OWN_ERROR)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of untrained models."""
    arms = _arms(results, facts)
    fresh = kinds.untrained(arms, [OWN_ERROR])
    if fresh is None or not kinds.comparable(evidence(results, facts)):
        return {}
    own, other = fresh
    return {"ratio": kinds.times(own, other, OWN_ERROR, fresh=True)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, and what becomes of the ratio as functions leave the training range."""
    arms = _arms(results, facts)
    if not kinds.comparable(found):
        return kinds.too_few(arms, (WITHOUT, WITH))
    rows = []
    for sigma, column in zip(SIGMAS[1:], COLUMNS[1:], strict=True):
        beyond = kinds.times(*arms, column)
        row = {"functions scaled by": sigma}
        row["squared error without / with normalisation"] = beyond.value
        row["low"] = beyond.low
        row["high"] = beyond.high
        rows.append(row)
    runs = kinds.details(arms, (WITHOUT, WITH), COLUMNS)
    return Remarks(
        scope=f"{SCOPE}, in distribution", caveat=kinds.compared(arms), details=(*runs, *rows)
    )


NO_NORM_BETTER_CLAIM = Claim(
    id="limits.no_norm_better",
    question="weights and training",
    statement="In distribution models trained without normalisation make smaller errors.",
    denied="In distribution models trained without normalisation make larger errors.",
    quote=Quote(
        "Transformers without normalization can achieve better performance.",
        "Naim & Asher (2025), section 5, Observation 2, with Table 1",
        "The observation says 'can' and Table 1 has one model of each kind; the paragraphs before "
        "it limit the claim to inputs and functions as in training. There we compare several seeds "
        "of each kind and ask for errors that are at least a fifth smaller.",
    ),
    kind="learning",
    reads="models of several kinds of training",
    beside=("no norm", "with norm"),
    seeds=kinds.SEEDS,
    criterion=CRITERION,
    measurements=(seeds.functions,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    excluded=needs_the_other_norm,
    figures=("shift",),
)
