"""The claim of `limits` that larger training intervals reach farther out, at what price.

It is about kinds of training, so it compares groups of several seeds, one for each U(-a, a).
"""

import numpy as np

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.studies.limits.claims import kinds
from icl_interp.studies.limits.claims.kinds import LARGER, SCOPE, SMALLER, TIMES, Arm
from icl_interp.studies.limits.claims.layernorm import needs_growth
from icl_interp.studies.limits.claims.training_intervals import (
    by_interval,
    listed,
    needs_an_interval,
    rows_left_out,
    too_few,
)
from icl_interp.studies.limits.measurements import seeds
from icl_interp.studies.limits.measurements.shift import SIDES

GROWN, SHRUNK = 1 / SMALLER, 1 / LARGER  # times: what is a fifth less or more the other way round

LARGER_INTERVALS = Criterion(
    (
        Condition("onset", "", (GROWN, INF), (0.0, SHRUNK), scale="log"),
        Condition("cost", "", (GROWN, INF), (0.0, SHRUNK), scale="log"),
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
    terms=(
        "from the smallest to the largest training interval at hand: the |x| from which the prediction "
        f"is level, and the error on the smallest interval, both at least {GROWN:g} times / one of "
        f"them at most {SHRUNK:.2f} times"
    ),
)


def onset(arm: Arm, fresh: bool = False) -> np.ndarray:
    """|x| from which the prediction of each run is level: the geometric mean of both directions."""
    return np.exp(np.mean([np.log(arm.numbers(side, fresh)) for side in SIDES], axis=0))


def larger(results: Results, facts: Facts) -> Evidence:
    """Do larger training intervals move the plateau's onset outwards, and is accuracy the price?"""
    arms, out = by_interval(results)
    first, last = (arms[0], arms[-1]) if all(map(len, arms)) else (None, None)
    column = f"both {first.a:g}" if first else ""
    quantities = kinds.prepared(arms, [column] if first else [])
    if not (first and last and kinds.comparable(quantities)):
        return Evidence(quantities, too_few(arms), scope=SCOPE, details=rows_left_out(arms, out))
    onsets = [onset(arm) for arm in arms]
    never = sum(int(np.isnan(found).sum()) for found in onsets)
    quantities["no plateau"] = Estimate.exactly("models whose prediction does not level off", never)
    if never:
        return Evidence(
            quantities,
            f"So nothing was compared for models trained on a = {listed(arms)}.",
            scope=SCOPE,
            details=rows_left_out([], out),
        )
    grown, cost = kinds.ratio(onsets[-1], onsets[0]), kinds.times(last, first, column)
    means = [float(np.exp(np.log(found).mean())) for found in onsets]
    names = (
        "|x| from which the prediction is level, largest / smallest interval",
        "error on the smallest interval, largest / smallest interval",
    )
    quantities |= {
        "onset": Estimate.of(names[0], grown, TIMES),
        "cost": Estimate.of(names[1], cost, TIMES),
    }
    first_words = answer(
        LARGER_INTERVALS,
        quantities,
        "With larger training intervals the prediction levels off farther out, at a cost in "
        "accuracy.",
        {
            "onset": "With larger training intervals the prediction does not level off farther "
            "out.",
            "cost": "Larger training intervals do not cost accuracy.",
        },
        "larger training intervals make it level off farther out, at a cost in accuracy",
    )
    onset_limits = bound(
        LARGER_INTERVALS, quantities, "onset", f"at least {GROWN:g}", f"at most {SHRUNK:.2f}"
    )
    outwards = (
        f"From a = {first.a:g} to {last.a:g} the |x| from which it is level grows "
        f"{kinds.in_brackets(grown)} times ({onset_limits})."
    )
    cost_limits = bound(
        LARGER_INTERVALS, quantities, "cost", f"at least {GROWN:g}", f"at most {SHRUNK:.2f}"
    )
    price = (
        f"The error on U(-{first.a:g}, {first.a:g}) grows {kinds.in_brackets(cost)} times "
        f"({cost_limits})."
    )
    decided = LARGER_INTERVALS.decide(quantities).condition
    if decided and decided.quantity == "cost":
        price = f"From a = {first.a:g} to {last.a:g} t{price[1:]}"
        outwards, price = (
            price,
            f"The |x| from which the prediction is level grows {kinds.in_brackets(grown)} times.",
        )
    says = f"{first_words} {outwards}"
    in_a = tuple(
        {"kind": f"a = {arm.a:g}", "level from |x| / a": x / arm.a}
        for arm, x in zip(arms, means, strict=True)
    )
    control = {}
    if fresh := kinds.untrained((last, first), [column]):
        wide, narrow = fresh
        control["cost"] = Estimate.of(
            names[1], kinds.times(wide, narrow, column, fresh=True), TIMES
        )
    if fresh := kinds.untrained((last, first), list(SIDES)):
        wide, narrow = (onset(arm, fresh=True) for arm in fresh)
        control["onset"] = Estimate.of(names[0], kinds.ratio(wide, narrow), TIMES)
    return Evidence(
        quantities,
        says,
        scope=f"{SCOPE}, {kinds.counted(arms)}, the |x| measured by moving the query alone",
        control=control,
        details=(
            *kinds.details(arms, [f"a = {arm.a:g}" for arm in arms], [*SIDES, column]),
            *in_a,
            *rows_left_out([], out),
        ),
        caveat=price,
    )


def _needs_an_onset(facts: Facts) -> str | None:
    return needs_an_interval(facts) or needs_growth(facts)


LARGER_INTERVALS_CLAIM = Claim(
    id="limits.larger_intervals",
    question="far from the data",
    short="Larger training intervals move boundary values outwards but cost accuracy.",
    quote=Quote(
        "Training with distributions over much larger intervals, for instance U(-100, 100), can "
        "extend boundary values. However, as shown in Table 3, such training comes at a "
        "substantial cost: performance deteriorates sharply across all testing scenarios we "
        "considered.",
        "Naim & Asher (2025), section 5, with Table 3 (appendix C; also appendix E, Observation 3 "
        "(ii))",
        "The paper's Table 3 gives errors only. We compare models trained on U(-a, a) for several "
        "a and measure, over several seeds, how far out the prediction levels off and the error on "
        "the smallest interval. Ours on U(-100, 100) has not learned its task and is left out.",
    ),
    kind="learning",
    statement="Training on larger intervals moves the boundary values outwards, at a cost in "
    "accuracy",
    source="Naim & Asher (2025), section 5, Table 3 and Observation 3 (ii)",
    criterion=LARGER_INTERVALS,
    measurements=(seeds.intervals,),
    aspects=("kind of task",),
    evidence=larger,
    of_numbers=True,
    excluded=_needs_an_onset,
    figures=("shift",),
)
