"""The claim of `limits` that larger training intervals reach farther out, at what price.

It is about kinds of training, so it compares groups of several seeds, one for each U(-a, a).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.permutation import ratio
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.claims.training_intervals import (
    by_interval,
    compared,
    needs_an_interval,
    rows_left_out,
    runs_compared,
    too_few,
)
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import SIDES

# Times: what is a fifth less or more the other way round.
GROWN = 1 / SMALLER
SHRUNK = 1 / LARGER

CRITERION = Criterion(
    (
        Condition(
            "onset",
            "|x| from which the prediction is level, for the largest over the smallest training "
            "interval",
            at_least(GROWN),
            at_most(SHRUNK, least=0.0),
            unit=TIMES,
            scale="log",
        ),
        Condition(
            "cost",
            "squared error on the smallest interval, for the largest over the smallest training "
            "interval",
            at_least(GROWN),
            at_most(SHRUNK, least=0.0),
            unit=TIMES,
            scale="log",
            denied="Larger training intervals do not cost accuracy.",
        ),
    ),
    (
        *kinds.PRECONDITIONS,
        Precondition(
            "no plateau",
            (0, 0),
            "Of these models {value:.0f} are not level by 1e5 times their inputs' range.",
            optional=True,
        ),
    ),
    terms="Models trained on the largest interval at hand are compared with models trained on the "
    "smallest. Numbers are ratios of geometric means over seeds.",
)


def onset(arm: Arm, fresh: bool = False) -> np.ndarray:
    """|x| from which the prediction of each run is level: the geometric mean of both directions."""
    logarithms = [np.log(arm.numbers(side, fresh)) for side in SIDES]
    return np.asarray(np.exp(np.mean(logarithms, axis=0)))


def _error(arms: Sequence[Arm]) -> str:
    """The column of the error on the smallest interval; empty where an arm has no run."""
    return f"both {arms[0].a:g}" if all(map(len, arms)) else ""


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How many times onset and error grow from the smallest to the largest interval."""
    arms, _ = by_interval(results)
    column = _error(arms)
    found = kinds.prepared(arms, [column] if column else [])
    if not column or not kinds.comparable(found):
        return found
    never = sum(int(np.isnan(onset(arm)).sum()) for arm in arms)
    found["no plateau"] = never
    if never:
        return found
    first = arms[0]
    last = arms[-1]
    found["onset"] = ratio(onset(last), onset(first))
    found["cost"] = kinds.times(last, first, column)
    return found


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The same of untrained models, as far as these have such numbers."""
    if "cost" not in evidence(results, facts):
        return {}
    arms, _ = by_interval(results)
    ends = (arms[-1], arms[0])
    column = _error(arms)
    found: dict[str, Found] = {}
    if fresh := kinds.untrained(ends, [column]):
        wide, narrow = fresh
        found["cost"] = kinds.times(wide, narrow, column, fresh=True)
    if fresh := kinds.untrained(ends, [*SIDES]):
        wide, narrow = fresh
        found["onset"] = ratio(onset(wide, fresh=True), onset(narrow, fresh=True))
    return found


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The runs, and from where on each kind is level in its own units."""
    arms, out = by_interval(results)
    if "no plateau" not in found:
        return too_few(arms, out)
    if "cost" not in found:
        return Remarks(scope=SCOPE, details=rows_left_out(out))
    rows = []
    for arm in arms:
        logarithms = np.log(onset(arm))
        level = float(np.exp(logarithms.mean()))
        row: kinds.Row = {"kind": f"a = {arm.a:g}"}
        row["level from |x| / a"] = level / arm.a
        rows.append(row)
    runs = runs_compared(arms, [*SIDES, _error(arms)])
    return Remarks(
        scope=f"{SCOPE}, {kinds.counted(arms)}, the |x| measured by moving the query alone",
        caveat=compared(arms),
        details=(*runs, *rows, *rows_left_out(out)),
    )


def _needs_an_onset(facts: Facts) -> str | None:
    return needs_an_interval(facts) or needs_growth(facts)


LARGER_INTERVALS_CLAIM = Claim(
    id="limits.larger_intervals",
    question="far from the data",
    statement="With larger training intervals the prediction levels off farther out, at a cost in "
    "accuracy.",
    denied="With larger training intervals the prediction does not level off farther out.",
    quote=Quote(
        "Training with distributions over much larger intervals, for instance U(-100, 100), can "
        "extend boundary values. However, as shown in Table 3, such training comes at a "
        "substantial cost: performance deteriorates sharply across all testing scenarios we "
        "considered.",
        "Naim & Asher (2025), section 5, with Table 3 (appendix C; also appendix E, Observation 3 "
        "(ii))",
        "The paper's Table 3 gives errors only. We compare models trained on U(-a, a) for several "
        "a, with several seeds each. We measure how far out the prediction levels off, and the "
        "error on the smallest interval. Our models trained on U(-100, 100) have not learned "
        "their task and are left out.",
    ),
    kind="learning",
    reads="models of several kinds of training",
    beside=("interval",),
    seeds=kinds.SEEDS,
    criterion=CRITERION,
    measurements=(seeds.intervals,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    of_numbers=True,
    excluded=_needs_an_onset,
    figures=("shift",),
)
